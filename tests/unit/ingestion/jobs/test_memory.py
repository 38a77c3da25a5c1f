"""What a write holds in memory is freed at its end, and not when the garbage collector happens to run."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from airflow_provider.concurrency import Writer
from airflow_provider.concurrency.heartbeats import Heartbeat
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.table.hudi_table import HudiTable

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])


@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_a_write_is_in_no_circle_of_references(tmp_path, operation):
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"]
    )
    rows = pa.table({"id": [1, 2], "part": ["a", "b"], "value": [0.5, 1.5]}, schema=SCHEMA)
    of_other_tests = {id(each) for each in _held()}
    gc.disable()
    try:
        for _ in range(2):
            ingest_arrow(table, rows, operation)
        assert not [each for each in _held() if id(each) not in of_other_tests]
    finally:
        gc.enable()


def _held() -> list[ArrowRows | Writer | Heartbeat]:
    kinds = (ArrowRows, Writer, Heartbeat)
    # Not isinstance: it asks the objects, and Airflow's proxies then ask a server.
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]

"""A folder with a partition metadata file, in any of Hudi's formats, is a partition."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable, snapshot

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])


@pytest.mark.parametrize("suffix", [".parquet", ".orc"])
def test_the_jvm_may_write_it_in_the_format_of_the_base_files(suffix: str, tmp_path: Path) -> None:
    location = tmp_path / "t"
    table = HudiTable.create(
        str(location),
        name="t",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["part"],
        hudi_options={"hoodie.metadata.enable": False},
    )
    rows = pa.table({"id": ["a", "b"], "part": ["x", "y"], "v": [1, 2]}, SCHEMA)
    ingest_arrow(table, rows, "insert")
    for mark in location.glob("*/.hoodie_partition_metadata"):
        mark.rename(f"{mark}{suffix}")
    assert snapshot(HudiTable.open(str(location))).to_table().num_rows == 2
    ingest_arrow(str(location), rows.slice(0, 1), "upsert")
    assert snapshot(HudiTable.open(str(location))).to_table().num_rows == 2

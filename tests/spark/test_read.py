"""Snapshots by write ids, as DataFrames."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider.metastore import ValidWriteIdList
from airflow_provider.spark import read_snapshot
from tests.spark.lake import SparkLake

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})


def test_a_dataframe_shows_what_was_written_under_valid_write_ids(lake: SparkLake) -> None:
    table = lake.create(SCHEMA)
    table.ingest("upsert", [{"id": 1, "text": "a"}], txn_id=3, write_id=1)
    own = {"txn_id": 5, "write_id": 2, "txn_goes_on": True}
    table.ingest("upsert", [{"id": 1, "text": "b"}, {"id": 2, "text": "b"}], **own)

    def seen(write_ids: str) -> dict[int, str]:
        valid = ValidWriteIdList.parse(write_ids)
        rows = read_snapshot(lake.spark, table.table, valid_write_ids=valid).collect()
        return {row["id"]: row["text"] for row in rows}

    assert seen("lake.t:2:2:2:") == {1: "a"}
    assert seen("lake.t:1:9223372036854775807::") == {1: "a"}
    assert seen("lake.t:2:9223372036854775807::") == {1: "b", 2: "b"}
    assert seen("lake.t:2:1:1,2:") == {}

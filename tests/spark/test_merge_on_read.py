"""Merge-on-read tables, through Spark."""

from __future__ import annotations

import pyarrow as pa

from tests.ingestion_contract.merge_on_read import operations_one_after_the_other
from tests.spark.lake import SparkLake

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string()})


def test_operations_one_after_the_other(lake: SparkLake) -> None:
    operations_one_after_the_other(lake, seed=3, steps=8)


def test_a_key_that_is_back_is_there_once(lake: SparkLake) -> None:
    table = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read")

    def rows(value: str, *ids: int) -> list[dict[str, object]]:
        return [{"id": id_, "part": "a", "value": value} for id_ in ids]

    table.ingest("insert", rows("old", 1, 2, 3), small_file_limit=0)
    table.ingest("delete", rows("", 1), small_file_limit=0)
    table.ingest("insert", rows("inserted", 1), small_file_limit=0)  # looks nothing up: another file group
    table.ingest("upsert", rows("again", 1, 2), small_file_limit=0)
    table.check_now(rows("again", 1, 2) + rows("old", 3))

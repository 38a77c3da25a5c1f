"""Keys of all types, and partition values that look like other things, through Spark."""

from __future__ import annotations

import pyarrow as pa

from tests.ingestion_contract.keys_and_partitions import *  # noqa: F403
from tests.spark.lake import SparkLake


def test_a_location_that_is_a_pattern(lake: SparkLake) -> None:
    lake.root = lake.root / "data {a,b} [0-9]* 50% ü"
    table = lake.create(pa.schema({"id": pa.int64(), "part": pa.string()}), partition_by=["part"])
    table.ingest("upsert", [{"id": 1, "part": "x"}])
    assert table.rows() == table.spark_rows() == [{"id": 1, "part": "x"}]

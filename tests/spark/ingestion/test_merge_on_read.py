"""Merge-on-read tables, through Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.table_compaction import TableCompactionSettings, schedule_table_compaction
from airflow_provider.spark import compact_on_spark
from airflow_provider.table.reading import file_slices
from tests.ingestion_contract.merge_on_read import operations_one_after_the_other
from tests.spark.lake import SparkLake

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string()})


@pytest.mark.usefixtures("source")
def test_operations_one_after_the_other(lake: SparkLake) -> None:
    operations_one_after_the_other(lake, seed=3, steps=8)


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("buckets", ["non_blocking", "consistent"])
def test_operations_on_buckets_one_after_the_other(lake: SparkLake, buckets: str) -> None:
    operations_one_after_the_other(lake, seed=0, steps=5, buckets=buckets)


def test_one_bucket_in_each_partition(lake: SparkLake) -> None:
    one = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}
    table = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read", hudi_options=one)
    old = [{"id": id_, "part": part, "value": "old"} for id_ in range(4) for part in ("a", "b")]
    new = [{"id": id_, "part": part, "value": "new"} for id_ in (1, 4) for part in ("b", "c")]
    table.ingest("insert", old)
    table.ingest("upsert", new)
    assert {each.file_id[:8] for each in file_slices(table.table)} == {"00000000"}
    table.check_now([each for each in old if (each["id"], each["part"]) != (1, "b")] + new)


def test_a_compaction_is_one_task_a_file_group(lake: SparkLake) -> None:
    table = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read")
    old = [{"id": id_, "part": part, "value": "old"} for id_ in range(4) for part in ("a", "b", "c")]
    new = [{"id": 1, "part": part, "value": "new"} for part in ("a", "b", "c")]
    ingest_arrow(table.location, table.arrow(old), "insert")
    ingest_arrow(table.location, table.arrow(new), "upsert")
    instant = schedule_table_compaction(table.table, TableCompactionSettings(delta_commits=1))
    done = compact_on_spark(lake.spark, table.table, instant, at_once=2)
    assert done is not None
    assert (done.instant, done.file_groups, done.records) == (instant, 3, 12)
    assert not any(each.log_paths for each in file_slices(table.table))
    table.check_now([each for each in old if each["id"] != 1] + new)


@pytest.mark.usefixtures("source")
def test_a_key_that_is_back_is_there_once(lake: SparkLake) -> None:
    table = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read")

    def rows(value: str, *ids: int) -> list[dict[str, object]]:
        return [{"id": id_, "part": "a", "value": value} for id_ in ids]

    table.ingest("insert", rows("old", 1, 2, 3), small_file_limit=0)
    table.ingest("delete", rows("", 1), small_file_limit=0)
    table.ingest("insert", rows("inserted", 1), small_file_limit=0)  # looks nothing up: another file group
    table.ingest("upsert", rows("again", 1, 2), small_file_limit=0)
    table.check_now(rows("again", 1, 2) + rows("old", 3))

"""Indexes built by Spark: records of many files, shuffled to the file groups of several indexes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.exceptions import CorruptTableError, DuplicateRecordKeyError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.spark import IndexJob, build_index
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from tests.spark.lake import SparkLake
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

ALL = ["files", "column_stats", "bloom_filters", "record_index", "partition_stats"]


def said(table: HudiTable) -> dict[str, object]:
    found = MetadataTable(metadata_storage(table.storage))
    return {f"{each}/{key}": record for each in ALL for key, record in found.records(each)}


def test_spark_builds_what_a_single_process_builds_and_refuses_a_key_in_two_places(lake: SparkLake) -> None:
    schema = pa.schema({"id": pa.string(), "part": pa.string(), "fare": pa.float64()})
    made = lake.create(schema, partition_by=["part"])
    for number in range(3):
        rows = [
            {"id": f"é{n:04d}-{part}", "part": part, "fare": n / 4}
            for part in "abc"
            for n in range(100 * number, 100 * number + 150)
        ]
        ingest_arrow(made.location, made.arrow(rows), small_file_limit=0)
    table = HudiTable.open(made.location)
    schedule_index(table, ALL)
    run_index(table)
    in_process = said(table)
    drop_index(table, ["files"])
    instant = schedule_index(table, ALL)
    assert instant is not None
    result = build_index(lake.spark, IndexJob(made.location, instant))
    assert result is not None
    assert result.records == len(in_process)
    assert said(table) == in_process
    assert_indexes_equal_a_rebuild(table, ALL)

    drop_index(table, ["record_index"])
    twice = [{"id": "é0007-a", "part": "b", "fare": 0.0}]
    ingest_arrow(made.location, made.arrow(twice), "bulk_insert", small_file_limit=0)
    instant = schedule_index(table, ["record_index"])
    assert instant is not None
    with pytest.raises(DuplicateRecordKeyError, match=r"'é0007-a' lives in part=[ab]/.* and in part=[ab]/"):
        build_index(lake.spark, IndexJob(made.location, instant))
    assert_indexes_equal_a_rebuild(table, [each for each in ALL if each != "record_index"])


COLUMNS = pa.schema({"id": pa.int64(), "part": pa.string(), "fare": pa.float64()})


def build_on_spark(lake: SparkLake, table: HudiTable, indexes: list[str]) -> list[int]:
    """Plan and build indexes; the jobs of Spark that this took."""
    instant = schedule_index(table, indexes)
    assert instant is not None
    context = lake.spark.sparkContext
    context.setJobGroup(instant, "build of indexes")
    assert build_index(lake.spark, IndexJob(table.location, instant)) is not None
    return list(context.statusTracker().getJobIdsForGroup(instant))


@pytest.mark.parametrize(("files", "by_spark"), [(16, False), (17, True)])
def test_the_footers_of_few_files_start_no_spark(lake: SparkLake, files: int, by_spark: bool) -> None:
    made = lake.create(COLUMNS, partition_by=["part"])
    made.write("insert", made.arrow([{"id": n, "part": f"{n:02d}", "fare": n / 4} for n in range(files)]))
    table, statistics = HudiTable.open(made.location), ["files", "column_stats", "bloom_filters"]
    assert bool(build_on_spark(lake, table, statistics)) is by_spark
    assert_indexes_equal_a_rebuild(table, statistics)


def test_a_table_without_rows_gets_a_record_index(lake: SparkLake) -> None:
    made = lake.create(COLUMNS, partition_by=["part"])
    table = HudiTable.open(made.location)
    build_on_spark(lake, table, ["files", "record_index"])
    slices = MetadataTable(metadata_storage(table.storage)).file_slices("record_index")
    assert [each.base_file is not None for each in slices] == [True] * 10
    assert_indexes_equal_a_rebuild(table, ["files", "record_index"])


def test_a_task_that_cannot_read_a_file_says_so_in_our_words(lake: SparkLake) -> None:
    made = lake.create(COLUMNS, partition_by=["part"])
    made.write("insert", made.arrow([{"id": n, "part": "a", "fare": n / 4} for n in range(3)]))
    table = HudiTable.open(made.location)
    instant = schedule_index(table, ["record_index"])
    assert instant is not None
    (file,) = table.view().all_base_files()
    Path(made.location, file.path).write_bytes(b"no Parquet")
    with pytest.raises(CorruptTableError, match=file.path):
        build_index(lake.spark, IndexJob(made.location, instant))

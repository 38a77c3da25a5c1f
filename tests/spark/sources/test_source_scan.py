"""Parquet files that tasks read with pyarrow."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider.exceptions import (
    IncompatibleSchemaError,
    InvalidRecordKeyError,
    TableServiceError,
    UnreadableSourceError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.spark import IngestJob, ingest
from airflow_provider.spark.ingestion.scan import SourceScan
from airflow_provider.spark.ingestion.source import open_source
from airflow_provider.spark.session import is_on_this_machine, with_settings
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.storage import Storage
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import KIB, in_order
from tests.processes.locks.conftest import s3_options
from tests.processes.servers import s3_endpoint
from tests.spark.lake import SparkLake, SparkLakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})


def rows(ids: range, parts: int = 2, value: str = "v", ts: int = 1) -> pa.Table:
    found = [{"id": n, "part": f"p{n % parts}", "value": f"{value}{n}", "ts": ts} for n in ids]
    return pa.Table.from_pylist(found, SCHEMA)


@pytest.fixture
def table(lake: SparkLake) -> SparkLakeTable:
    made = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts")
    assert isinstance(made, SparkLakeTable)
    return made


@pytest.fixture
def read_by_spark(monkeypatch: pytest.MonkeyPatch) -> list[IngestJob]:
    """The jobs whose source Spark's own reader has read."""
    read: list[IngestJob] = []

    def opened(spark: SparkSession, job: IngestJob, columns: pa.Schema) -> DataFrame:
        read.append(job)
        return open_source(spark, job, columns)

    monkeypatch.setattr("airflow_provider.spark.ingestion.ingestion.open_source", opened)
    return read


@pytest.fixture
def by_tasks(read_by_spark: list[IngestJob]) -> Iterator[None]:
    """Fail if Spark reads the source."""
    yield
    assert not read_by_spark


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("operation", ["bulk_insert", "insert", "upsert", "insert_overwrite"])
def test_row_groups_and_files_of_any_number(table: SparkLakeTable, tmp_path: Path, operation: str) -> None:
    content = rows(range(5000), parts=3)
    pq.write_table(content.slice(0, 4000), tmp_path / "a.parquet", row_group_size=300)
    pq.write_table(content.slice(4000), tmp_path / "b.parquet")
    pq.write_table(content.slice(0, 0), tmp_path / "c.parquet")
    result = table.load(operation, tmp_path / "*.parquet")
    assert (result["rows_inserted"], result["files_written"]) == (5000, 3)
    table.check_now(content.to_pylist())


@pytest.mark.usefixtures("by_tasks")
def test_a_partition_of_many_files_has_each_key_in_one(table: SparkLakeTable, tmp_path: Path) -> None:
    content = rows(range(20_000), parts=1)
    pq.write_table(pa.concat_tables([content, content]), tmp_path / "a.parquet", row_group_size=1000)
    table.load("upsert", tmp_path / "a.parquet", target_file_size=64 * KIB, small_file_limit=0)
    sizes = [count for _, count in table.files()["part=p0"]]
    assert len(sizes) > 3
    assert max(sizes) < 2 * min(sizes), "a hash divides the keys evenly"
    assert sum(sizes) == 20_000
    table.check_now(content.to_pylist())


@pytest.mark.usefixtures("by_tasks")
def test_of_equal_versions_the_last_one_of_the_files_wins(table: SparkLakeTable, tmp_path: Path) -> None:
    for number, value in enumerate(["first", "second", "third"]):
        pq.write_table(rows(range(50), value=value), tmp_path / f"{number}.parquet")
    table.load("upsert", tmp_path / "*.parquet")
    table.check_now(rows(range(50), value="third").to_pylist())


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_deletes_and_rows_that_lack_columns(lake: SparkLake, tmp_path: Path, table_type: str) -> None:
    table = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts", table_type=table_type)
    assert isinstance(table, SparkLakeTable)
    ingest_arrow(table.location, rows(range(100)), "bulk_insert")
    pq.write_table(rows(range(90, 110), ts=2).drop_columns(["value"]), tmp_path / "a.parquet")
    result = table.load("delete", tmp_path / "a.parquet")
    assert result["rows_deleted"] == 10
    table.check_now(rows(range(90)).to_pylist())
    if table_type == "copy_on_write":
        table.load("upsert", tmp_path / "a.parquet", set_null_for_missing_columns=True)
        came = [{**each, "value": None} for each in rows(range(90, 110), ts=2).to_pylist()]
        table.check_now([*rows(range(90)).to_pylist(), *came])


def test_a_cluster_may_see_other_files_on_its_disk(table: SparkLakeTable, tmp_path: Path) -> None:
    pq.write_table(rows(range(10)), tmp_path / "a.parquet")
    job = IngestJob.of(table.location, (str(tmp_path / "a.parquet"),))
    for sees_disk in (True, False):
        scan = SourceScan.of(job, table.table, SCHEMA, parallelism=2, sees_disk=sees_disk)
        assert (scan is not None) is sees_disk
    assert is_on_this_machine(table.spark)


@pytest.mark.usefixtures("by_tasks")
def test_a_source_on_the_object_store_of_its_table(spark: SparkSession, tmp_path: Path) -> None:
    """This Spark has no file system for it."""
    with s3_endpoint(tmp_path / "server.log") as port:
        options = s3_options(port)
        storage = Storage("s3://lake", options)
        storage._filesystem.mkdir("lake")
        for name, ids in (("a", range(100)), ("b", range(100, 200))):
            pq.write_table(rows(ids), tmp_path / "rows.parquet")
            storage.put(f"in/{name}.parquet", (tmp_path / "rows.parquet").read_bytes())
        table = HudiTable.create(
            "s3://lake/t",
            name="t",
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["part"],
            storage_options=options,
        )
        # The second load makes second files, so that the third one looks up its keys.
        for operation, name in (("bulk_insert", "a"), ("bulk_insert", "b"), ("upsert", "*")):
            source = f"s3a://lake/in/{name}.parquet"
            job = IngestJob.of(table.location, (source,), operation=operation, storage_options=options)
            result = ingest(spark, job)
        assert (result["rows_updated"], result["files_written"]) == (200, 4)
        assert snapshot(table).to_table().sort_by("id").select(SCHEMA.names) == rows(range(200))


@pytest.mark.parametrize(("partitions", "moves_rows"), [(8, False), (9, True)])
def test_of_too_many_partitions_spark_moves_single_rows(
    table: SparkLakeTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_by_spark: list[IngestJob],
    partitions: int,
    moves_rows: bool,
) -> None:
    monkeypatch.setattr("airflow_provider.spark.ingestion.rows._MOST_PACKED", 8)
    content = rows(range(2 * partitions), parts=partitions)
    pq.write_table(content, tmp_path / "a.parquet")
    table.load("upsert", tmp_path / "a.parquet")
    assert bool(read_by_spark) is moves_rows
    assert len(table.files()) == partitions
    table.check_now(content.to_pylist())


@pytest.mark.usefixtures("by_tasks")
def test_without_partitions_and_keys(lake: SparkLake, tmp_path: Path) -> None:
    table = lake.create(SCHEMA, record_key=None)
    assert isinstance(table, SparkLakeTable)
    content = rows(range(3000))
    pq.write_table(content, tmp_path / "a.parquet")
    table.load("bulk_insert", tmp_path / "a.parquet", target_file_size=16 * KIB)
    assert len(table.files()[""]) > 1
    table.check_now(content.to_pylist())


@pytest.mark.usefixtures("by_tasks")
def test_times_get_the_tables_unit(lake: SparkLake, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("ms", tz="UTC"), "seen": pa.timestamp("ms")})
    table = lake.create(schema, ordering_field="at")
    assert isinstance(table, SparkLakeTable)
    moment = datetime.datetime(2026, 11, 28, 12, 0, 0, 5000)
    content = [{"id": n, "at": moment.replace(tzinfo=datetime.UTC), "seen": moment} for n in range(20)]
    as_it_comes = pa.schema(
        {"id": pa.int64(), "at": pa.timestamp("us", tz="UTC"), "seen": pa.timestamp("us")}
    )
    pq.write_table(pa.Table.from_pylist(content, as_it_comes), tmp_path / "a.parquet")
    # Another write takes a key meanwhile, so Spark gets the rows once more, with its own types.
    other = pa.Table.from_pylist([{**content[0], "id": 5}], schema)
    lock = MeetingLock(lambda: ingest_arrow(table.location, other))
    result = table.load("upsert", tmp_path / "a.parquet", lock=lock, on_conflict="rebase")
    assert table.table.schema.equals(schema)
    assert result["rebases"] == 1
    # hudi-rs reads no local times of milliseconds.
    assert table.rows() == table.spark_rows() == in_order(content)


def broken(folder: Path) -> None:
    pq.write_table(rows(range(100)), folder / "a.parquet")
    (folder / "b.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-50])


def without_a_key(folder: Path) -> None:
    pq.write_table(rows(range(100)), folder / "a.parquet")
    pq.write_table(rows(range(3)).set_column(0, "id", pa.array([1, None, 3])), folder / "b.parquet")


def too_fine_a_time(folder: Path) -> None:
    content = rows(range(100)).append_column("at", pa.array([1_000_000] * 99 + [1], pa.timestamp("us")))
    pq.write_table(content, folder / "a.parquet")


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        (broken, UnreadableSourceError, "b.parquet"),
        (without_a_key, InvalidRecordKeyError, "record key id is null or empty"),
        (too_fine_a_time, IncompatibleSchemaError, "column 'at'"),
    ],
)
def test_an_error_of_a_task(
    lake: SparkLake,
    tmp_path: Path,
    files: Callable[[Path], object],
    error: type[TableServiceError],
    words: str,
) -> None:
    table = lake.create(SCHEMA.append(pa.field("at", pa.timestamp("ms"))), partition_by=["part"])
    assert isinstance(table, SparkLakeTable)
    (tmp_path / "source").mkdir()
    files(tmp_path / "source")
    settings: dict[str, Any] = {"set_null_for_missing_columns": True}
    with pytest.raises(error, match=words):
        table.load("upsert", tmp_path / "source" / "*.parquet", **settings)
    assert not snapshot(table.table).to_table().num_rows


def test_files_with_different_columns_are_read_by_spark(
    table: SparkLakeTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(rows(range(100)), tmp_path / "a.parquet")
    pq.write_table(rows(range(100, 150)).drop_columns(["value"]), tmp_path / "b.parquet")
    with caplog.at_level(logging.INFO):
        table.load("upsert", tmp_path / "*.parquet")
    assert "is read by Spark" in caplog.text
    lacking = [{**each, "value": None} for each in rows(range(100, 150)).to_pylist()]
    table.check_now([*rows(range(100)).to_pylist(), *lacking])


def test_a_session_may_skip_broken_files(table: SparkLakeTable, tmp_path: Path) -> None:
    broken(tmp_path)
    with with_settings(table.spark, {"spark.sql.files.ignoreCorruptFiles": "true"}):
        table.load("upsert", tmp_path / "*.parquet")
    table.check_now(rows(range(100)).to_pylist())


def test_a_session_may_read_bytes_as_text(lake: SparkLake, tmp_path: Path) -> None:
    table = lake.create(pa.schema({"id": pa.int64(), "value": pa.string()}))
    assert isinstance(table, SparkLakeTable)
    pq.write_table(pa.table({"id": [1], "value": pa.array([b"text"])}), tmp_path / "a.parquet")
    with with_settings(table.spark, {"spark.sql.parquet.binaryAsString": "true"}):
        table.load("upsert", tmp_path / "a.parquet")
    table.check_now([{"id": 1, "value": "text"}])

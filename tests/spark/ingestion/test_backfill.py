"""Backfills on a real session: the windows of a source, and the rows of each."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import EmptySourceError, InvalidInputError, MissingColumnError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import partition_windows, time_windows
from airflow_provider.spark import backfill
from airflow_provider.spark.ingestion.windows import find_windows, in_window
from airflow_provider.table.hudi_table import HudiTable
from tests.spark.lake import SparkLake

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("on", pa.date32()),
        ("price", pa.decimal128(6, 2)),
        ("ok", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
    ]
)


def row(id_: int, part: str | None, at: dt.datetime) -> dict[str, Any]:
    return {
        "id": id_,
        "part": part,
        "on": at.date(),
        "price": Decimal(id_) / 4,
        "ok": id_ % 2 == 0,
        "at": at.replace(tzinfo=UTC),
        "local": at,
    }


ROWS = [
    row(1, "b", dt.datetime(2013, 1, 1)),
    row(2, "b", dt.datetime(2013, 1, 31, 23, 59, 59, 999999)),
    row(3, "a/x", dt.datetime(2013, 2, 1)),
    row(4, None, dt.datetime(2013, 2, 14, 12)),
    row(5, "c", dt.datetime(2013, 4, 1)),
]


@pytest.fixture
def table(lake: SparkLake, tmp_path: Path) -> HudiTable:
    location = str(tmp_path / "t")
    return HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"])


@pytest.fixture
def job(table: HudiTable, tmp_path: Path) -> IngestJob:
    source = tmp_path / "in.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(ROWS, SCHEMA), source)
    return IngestJob.of(table.location, (str(source),), operation="insert", operation_key="k")


@pytest.fixture
def elsewhere(lake: SparkLake):
    """A session in a time zone that is not UTC."""
    before = lake.spark.conf.get("spark.sql.session.timeZone")
    lake.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield lake.spark
    lake.spark.conf.set("spark.sql.session.timeZone", before)


def by_window(table: HudiTable) -> dict[str, list[int]]:
    """The ids that each commit wrote, by the window's name."""
    timeline = table.timeline()
    found: dict[str, list[int]] = {}
    for commit in timeline.commits():
        metadata = timeline.commit_metadata(commit)
        paths = [table.storage.url(stat.path) for stat in metadata.write_stats]
        written = pa.concat_tables([pa.parquet.read_table(path, partitioning=None) for path in paths])
        ids = [
            each["id"] for each in written.to_pylist() if each["_hoodie_commit_time"] == commit.requested_time
        ]
        found[metadata.extra_metadata["backfill_window"]] = sorted(ids)
    return found


def test_the_partitions_of_a_source_are_written_one_by_one(lake, table, job):
    assert [(w.name, w.rows) for w in find_windows(lake.spark, job, order="newest_first")] == [
        ("part=c", 1),
        ("part=b", 2),
        ("part=a%2Fx", 1),
        ("part=__HIVE_DEFAULT_PARTITION__", 1),
    ]
    result = backfill(lake.spark, job)
    assert by_window(table) == {
        "part=__HIVE_DEFAULT_PARTITION__": [4],
        "part=a%2Fx": [3],
        "part=b": [1, 2],
        "part=c": [5],
    }
    assert (result["rows_inserted"], result["windows_done"]) == (5, 4)
    again = backfill(lake.spark, job)
    assert (again["rows_inserted"], again["windows_skipped"]) == (5, 4)
    assert len(table.timeline().commits()) == 4


@pytest.mark.parametrize("column", ["at", "local", "on"])
def test_a_span_is_in_utc_wherever_the_session_is(elsewhere, table, job, column):
    windows = time_windows("2013-01-01", "2013-05-01", "1 month", order="oldest_first", column=column)
    result = backfill(elsewhere, job, windows)
    assert list(by_window(table).values()) == [[1, 2], [3, 4], [5]]
    assert (result["windows"], result["windows_empty"]) == (4, 1)


@pytest.mark.parametrize("column", ["part", "on", "price", "ok", "at", "local"])
def test_every_row_is_in_one_window_whatever_the_type(elsewhere, table, job, column):
    windows = find_windows(elsewhere, job, order="oldest_first", columns=[column])
    source = elsewhere.read.parquet(*job.source.paths)
    found = [sorted(r.id for r in in_window(source, window, table.schema).collect()) for window in windows]
    assert sorted(id_ for ids in found for id_ in ids) == [1, 2, 3, 4, 5]
    assert [len(ids) for ids in found] == [window.rows for window in windows]


def test_a_list_of_partitions_leaves_the_rest_out(lake, table, job):
    windows = partition_windows(table, [{"part": "c"}, {"part": None}], order="newest_first")
    backfill(lake.spark, job, windows)
    assert by_window(table) == {"part=c": [5], "part=__HIVE_DEFAULT_PARTITION__": [4]}


def test_a_path_for_each_window(lake, table, tmp_path):
    for month, rows in [("01", ROWS[:2]), ("02", ROWS[2:4])]:
        pa.parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / f"{month}.parquet")
    windows = time_windows("2013-01-01", "2013-03-01", "month", order="oldest_first")
    backfill(lake.spark, IngestJob.of(table.location, (f"{tmp_path}/{{start:%m}}.parquet",)), windows)
    assert list(by_window(table).values()) == [[1, 2], [3, 4]]


def test_text_is_of_the_tables_types_before_it_is_cut(lake, table, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("id,part,on\n1,a,2013-01-31\n2,b,2013-02-01\n")
    csv = {"header": "true"}
    job = IngestJob.of(
        table.location,
        (str(source),),
        source_format="csv",
        source_options=csv,
        set_null_for_missing_columns=True,
    )
    windows = time_windows("2013-01-01", "2013-03-01", "month", order="oldest_first", column="on")
    backfill(lake.spark, job, windows)
    assert list(by_window(table).values()) == [[1], [2]]


def test_a_source_that_cannot_be_cut_is_refused(lake, table, job, tmp_path):
    with pytest.raises(InvalidInputError, match="no column 'nothing'"):
        find_windows(lake.spark, job, order="oldest_first", columns=["nothing"])
    pa.parquet.write_table(pa.table({"id": [1], "part": ["a"]}), tmp_path / "few.parquet")
    few = IngestJob.of(table.location, (str(tmp_path / "few.parquet"),), set_null_for_missing_columns=True)
    windows = time_windows("2013-01-01", "2013-03-01", "month", order="oldest_first", column="on")
    with pytest.raises(MissingColumnError, match="which window a row belongs to"):
        backfill(lake.spark, few, windows)
    empty = tmp_path / "empty.parquet"
    pa.parquet.write_table(SCHEMA.empty_table(), empty)
    with pytest.raises(EmptySourceError):
        backfill(lake.spark, IngestJob.of(table.location, (str(empty),)))
    assert table.timeline().instants == ()

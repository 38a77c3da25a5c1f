"""Windows of history: their bounds, names and order, and refused arguments."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import InvalidInputError, NotATableError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import (
    Window,
    check_windows,
    partition_windows,
    time_windows,
    value_windows,
)
from airflow_provider.table.hudi_table import HudiTable

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("year", pa.int64()),
        ("month", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("on", pa.date32()),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(
        str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"], partition_by=["year", "month"]
    )


def names(windows: list[Window]) -> list[str]:
    return [window.name for window in windows]


class TestTime:
    def test_months_begin_where_months_begin_and_the_last_window_ends_with_the_span(self):
        found = time_windows("2013-01-31", "2013-05-10", "1 month", order="oldest_first", column="at")
        assert [(w.start, w.end) for w in found] == [
            ("2013-01-31T00:00:00", "2013-02-28T00:00:00"),
            ("2013-02-28T00:00:00", "2013-03-31T00:00:00"),
            ("2013-03-31T00:00:00", "2013-04-30T00:00:00"),
            ("2013-04-30T00:00:00", "2013-05-10T00:00:00"),
        ]
        assert found[0].name == "2013-01-31T00:00:00--2013-02-28T00:00:00"

    @pytest.mark.parametrize(
        ("step", "count"),
        [("day", 31), ("7 days", 5), ("1 week", 5), ("12 Hours", 62), (timedelta(days=10), 4), ("year", 1)],
    )
    def test_a_step_is_a_text_or_a_duration(self, step, count):
        assert len(time_windows(date(2013, 1, 1), "2013-02-01", step, order="oldest_first")) == count

    def test_times_are_utc(self):
        start = datetime(2013, 1, 1, tzinfo=timezone(timedelta(hours=-5)))
        [window] = time_windows(start, "2013-01-01T06:00:00Z", "1 day", order="oldest_first")
        assert (window.start, window.end) == ("2013-01-01T05:00:00", "2013-01-01T06:00:00")

    @given(
        start=st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)),
        length=st.timedeltas(timedelta(minutes=1), timedelta(days=2000)),
        step=st.sampled_from(["1 month", "5 months", "1 year", "3 weeks", timedelta(days=11, seconds=7)]),
    )
    def test_windows_cover_the_span_without_gap_or_overlap_in_either_order(self, start, length, step):
        windows = time_windows(start, start + length, step, order="oldest_first")
        assert windows[0].start == start.isoformat()
        assert windows[-1].end == (start + length).isoformat()
        assert [w.end for w in windows[:-1]] == [w.start for w in windows[1:]]
        assert all(datetime.fromisoformat(w.start) < datetime.fromisoformat(w.end) for w in windows), (
            "no window is empty"
        )
        assert time_windows(start, start + length, step, order="newest_first") == windows[::-1]

    @pytest.mark.parametrize(
        ("start", "end", "step", "told"),
        [
            ("2013-02-01", "2013-01-01", "day", "must be before"),
            ("soon", "2013-01-01", "day", "start 'soon' is not an ISO date"),
            ("2013-01-01", "2013-02-01", "fortnight", "'fortnight' is not understood"),
            ("2013-01-01", "2013-02-01", "0 months", "longer than nothing"),
            ("2013-01-01", "2013-02-01", timedelta(0), "longer than nothing"),
            ("2013-01-01", "2023-02-01", "1 second", "more than 100000 windows"),
        ],
    )
    def test_what_cannot_work_is_refused(self, start, end, step, told):
        with pytest.raises(InvalidInputError, match=told):
            time_windows(start, end, step, order="oldest_first")

    def test_another_order_is_refused(self):
        with pytest.raises(InvalidInputError, match="'oldest_first' or 'newest_first', not 'random'"):
            time_windows("2013-01-01", "2013-02-01", "day", order="random")


class TestPartitions:
    def test_paths_and_values_name_the_same_windows_in_the_order_of_the_values(self, table):
        paths = ["year=2013/month=10", "year=2013/month=9", "year=2012/month=12"]
        values = [
            {"year": 2013, "month": 10},
            {"year": "2013", "month": "09"},
            {"month": 12, "year": 2012},
        ]
        oldest = partition_windows(table, paths, order="oldest_first")
        assert names(oldest) == ["year=2012/month=12", "year=2013/month=9", "year=2013/month=10"]
        assert oldest[1].values == {"year": "2013", "month": "9"}
        assert partition_windows(table, values, order="newest_first") == oldest[::-1]

    def test_null_has_a_window_too_and_comes_first(self):
        values = pa.table({"part": pa.array(["b", None, "a/b"])})
        found = value_windows(values, order="oldest_first", rows=[1, 2, 3])
        assert [(w.name, w.values["part"], w.rows) for w in found] == [
            ("part=__HIVE_DEFAULT_PARTITION__", None, 2),
            ("part=a%2Fb", "a/b", 3),
            ("part=b", "b", 1),
        ]

    @pytest.mark.parametrize(
        ("partitions", "error"),
        [
            ([], InvalidInputError),
            ([{"year": 2013}, {"year": 2013, "month": 1}], InvalidInputError),
            ([{"year": "abc"}], InvalidInputError),
            ([{"decade": 1}], InvalidInputError),
            ([{"month": 1}, {"month": "01"}], InvalidInputError),
            (["2013/1"], NotATableError),
        ],
    )
    def test_what_is_no_partition_is_refused(self, table, partitions, error):
        with pytest.raises(error):
            partition_windows(table, partitions, order="oldest_first")


class TestSource:
    def test_a_path_with_placeholders_says_which_rows_are_the_windows(self):
        [window] = time_windows("2013-03-01", "2013-04-01", "month", order="oldest_first", column="at")
        base = IngestJob.of("/t", ("/in/{start:%Y-%m}/{a,b}/{end:%d}.csv",), operation_key="k")
        job = window.job(base)
        assert job.source.paths == ("/in/2013-03/{a,b}/01.csv",)
        assert job.source.window is None
        assert job.operation_key == "k/2013-03-01T00:00:00--2013-04-01T00:00:00"
        assert job.extra_metadata == {"backfill_window": window.name}

    def test_of_any_other_path_the_rows_are_filtered(self, table):
        [window] = partition_windows(table, [{"year": 2013, "month": 1}], order="oldest_first")
        job = window.job(IngestJob.of("/t", ("/in/{a,b}/*.parquet",), operation_key="k"))
        assert job.source.paths == ("/in/{a,b}/*.parquet",)
        assert job.source.window == window
        assert IngestJob.from_json(job.to_json()) == job
        assert Window(**json.loads(json.dumps(window.__dict__))) == window
        assert window.source("/in/{window}/{year}-{month}") == "/in/year=2013/month=1/2013-1"


class TestCheck:
    def job(self, **changes) -> IngestJob:
        return IngestJob.of("/t", ("/in/*.parquet",), **changes)

    def test_a_window_must_not_take_out_what_another_has_written(self, table):
        months = partition_windows(table, [{"month": 1}, {"month": 2}], order="oldest_first")
        days = time_windows("2013-01-01", "2013-01-03", "day", order="oldest_first", column="at")
        check_windows(table, self.job(operation="insert_overwrite"), months)
        for operation, windows in [("insert_overwrite_table", months), ("insert_overwrite", days)]:
            with pytest.raises(InvalidInputError, match="take out in one window what another"):
                check_windows(table, self.job(operation=operation), windows)

    @pytest.mark.parametrize(
        ("column", "step", "told"),
        [(None, "day", "need a column"), ("id", "day", "does not say when"), ("on", "hour", "whole days")],
    )
    def test_time_needs_a_column_that_says_when(self, table, column, step, told):
        windows = time_windows("2013-01-01", "2013-01-02", step, order="oldest_first", column=column)
        with pytest.raises(InvalidInputError, match=told):
            check_windows(table, self.job(), windows)

    def test_without_a_column_the_path_may_say_when(self, table):
        windows = time_windows("2013-01-01", "2013-01-02", "hour", order="oldest_first")
        check_windows(table, IngestJob.of("/t", ("/in/{start:%H}.csv",)), windows)

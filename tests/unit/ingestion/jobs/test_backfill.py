"""A backfill without Spark: repeated windows, waiting for other writers, and its result."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES, WriteSettings, begin_write, pending_instants
from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    InvalidRecordKeyError,
    JobFailedError,
    WriteConflictError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.ingestion.backfill import Backfill, BackfillProgress
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import Window, partition_windows
from airflow_provider.locks import open_lock
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.snapshots import snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int64())])
MONTHS = (1, 2, 3, 4)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(
        str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"], partition_by=["month"]
    )


class History:
    """Two rows for each month, written by windows; counts how often each window was written."""

    def __init__(self, table: HudiTable, **job: Any) -> None:
        self.table = table
        self.job = IngestJob.of(
            table.location,
            ("history",),
            operation="insert",
            priority=PRIORITIES["backfill"],
            operation_key="k",
            **job,
        )
        self.written: list[str] = []
        self.told: list[BackfillProgress | str] = []
        self.fails: dict[str, list[Exception]] = {}

    def backfill(self, months=MONTHS, order="oldest_first", **settings: Any) -> Backfill:
        windows = partition_windows(self.table, [{"month": month} for month in months], order=order)
        return Backfill(self.job, self.table, windows, tell=self.told.append, **settings)

    def run(self, *args: Any, **settings: Any) -> dict[str, Any]:
        return self.backfill(*args, **settings).run(self.write)

    def write(self, window: Window, job: IngestJob) -> dict[str, Any]:
        if self.fails.get(window.name):
            raise self.fails[window.name].pop(0)
        month = int(window.values["month"] or 0)
        rows = pa.table({"id": [month * 10, month * 10 + 1], "month": [month, month]}, SCHEMA)
        self.written.append(window.name)
        return ingest_arrow(
            self.table,
            rows,
            job.operation,
            priority=job.settings.priority,
            operation_key=job.operation_key,
            extra_metadata=job.extra_metadata,
        )

    def progress(self) -> list[BackfillProgress]:
        return [told for told in self.told if isinstance(told, BackfillProgress)]


def ids(table: HudiTable) -> list[int]:
    return sorted(snapshot(table).to_table()["id"].to_pylist())


class TestDone:
    @pytest.mark.parametrize("order", ["oldest_first", "newest_first"])
    def test_each_window_is_a_commit_in_the_chosen_order(self, table, order):
        result = History(table).run(order=order)
        commits = table.timeline().commits()
        metadata = [table.timeline().commit_metadata(commit).extra_metadata for commit in commits]
        months = MONTHS if order == "oldest_first" else MONTHS[::-1]
        assert [each["backfill_window"] for each in metadata] == [f"month={month}" for month in months]
        assert {each["priority"] for each in metadata} == {"300"}
        assert result["instants"] == [commit.requested_time for commit in commits]
        assert result["instant"] == commits[-1].requested_time
        assert (result["rows_inserted"], result["files_written"]) == (8, 4)
        assert result["partitions"] == [f"month={month}" for month in MONTHS]
        assert (result["windows"], result["windows_done"], result["windows_skipped"]) == (4, 4, 0)

    def test_what_was_done_under_the_key_is_not_done_again(self, table):
        first = History(table)
        first.fails["month=3"] = [InvalidRecordKeyError("bad")]
        with pytest.raises(InvalidRecordKeyError):
            first.run()
        again = History(table)
        result = again.run()
        assert first.written + again.written == [f"month={month}" for month in MONTHS]
        assert ids(table) == [10, 11, 20, 21, 30, 31, 40, 41]
        assert (result["windows_done"], result["windows_skipped"], result["rows_inserted"]) == (4, 2, 8)
        assert [str(p).split(";")[0] for p in again.progress()[:2]] == [
            f"window month={month}: done earlier, instant {instant}"
            for month, instant in zip((1, 2), result["instants"], strict=False)
        ]
        assert History(table).run()["windows_skipped"] == 4

    def test_without_a_key_nothing_is_found_again(self, table):
        history = History(table)
        history.job = IngestJob.of(table.location, ("history",), operation="insert")
        history.run((1,))
        history.run((1,))
        assert history.written == ["month=1", "month=1"]

    def test_windows_without_rows_leave_no_commit(self, table):
        history = History(table)
        history.fails["month=2"] = [EmptySourceError("none")]
        result = history.run()
        assert (result["windows_done"], result["windows_empty"]) == (3, 1)
        assert [p.status for p in history.progress()][1] == "no rows"
        nothing = Backfill(history.job, table, [Window("month=9", {"month": "9"}, rows=0)])
        with pytest.raises(EmptySourceError, match="history has no row in any of 1 windows"):
            nothing.run(history.write)


class TestAttempts:
    def test_a_lost_conflict_does_not_end_the_backfill(self, table):
        history = History(table)
        history.fails["month=2"] = [WriteConflictError("lost"), WriteConflictError("lost again")]
        assert history.run()["windows_done"] == 4
        told = [each for each in history.told if isinstance(each, str)]
        assert told[0] == "window month=2: attempt 1 of 3 failed: lost"
        assert len(told) == 2

    @pytest.mark.parametrize(
        ("error", "attempts"), [(WriteConflictError("lost"), 3), (InvalidRecordKeyError("bad"), 1)]
    )
    def test_but_not_for_ever_and_not_for_what_no_attempt_helps(self, table, error, attempts):
        history = History(table)
        history.fails["month=2"] = [error] * 10
        with pytest.raises(type(error)):
            history.run()
        assert len(history.fails["month=2"]) == 10 - attempts
        assert history.written == ["month=1"]

    @pytest.mark.parametrize("settings", [{"patience": -1}, {"attempts": 0}, {"attempts": True}])
    def test_wrong_settings_are_refused(self, table, settings):
        with pytest.raises(InvalidInputError):
            History(table).run(**settings)


class TestWay:
    def test_the_next_window_waits_for_live_writers_of_higher_priority(self, table):
        history = History(table)
        with begin_write(table, operation="UPSERT") as ingestion:
            thread = threading.Thread(target=history.run, args=((1,),))
            thread.start()
            while not history.told:
                assert thread.is_alive()
                time.sleep(0.01)
            assert history.written == []
            assert f"for UPSERT {ingestion.instant} by " in str(history.told[0])
            assert "priority 400" in str(history.told[0])
        thread.join(300)
        assert history.written == ["month=1"]
        assert "goes on after" in str(history.told[1])

    def test_not_longer_than_its_patience(self, table):
        history = History(table)
        with begin_write(table, operation="UPSERT"):
            result = history.run((1, 2), patience=0.3)
        assert history.written == ["month=1", "month=2"]
        assert result["seconds_waited"] >= 0.6

    @pytest.mark.parametrize("priority", ["backfill", "table_service"])
    def test_nor_for_equals_or_lower_ones(self, table, priority):
        history = History(table)
        with begin_write(table, operation="CLUSTER", settings=WriteSettings(priority=PRIORITIES[priority])):
            assert history.run((1,))["seconds_waited"] == 0

    def test_a_writer_that_nobody_knows_goes_first_while_it_waits_for_the_lock(self, table):
        history = History(table)
        stranger = open_lock({"provider": "filesystem", "owner": "the JVM:1"}, table.storage)
        with open_lock({}, table.storage) as held:
            waiting = threading.Thread(target=lambda: stranger.acquire(300))
            waiting.start()
            in_line = time.monotonic() + 120
            while not held.waiters() and time.monotonic() < in_line:
                time.sleep(0.01)
            backfill = threading.Thread(target=history.run, args=((1,),))
            backfill.start()
            deadline = time.monotonic() + 120
            while not history.told and time.monotonic() < deadline:
                time.sleep(0.05)
            assert "the JVM:1, who waits for the table lock" in str(history.told[0])
            assert history.written == []
        waiting.join(300)
        stranger.release()
        backfill.join(300)
        assert history.written == ["month=1"]

    def test_stopped_while_it_waits_it_ends_at_once_and_leaves_nothing(self, table):
        history, stopped = History(table), threading.Event()
        with begin_write(table, operation="UPSERT") as ingestion:
            threading.Timer(0.3, stopped.set).start()
            with pytest.raises(JobFailedError, match="stopped before window month=1"):
                history.run(is_stopped=stopped.is_set)
            assert [each.instant for each in pending_instants(table)] == [ingestion.instant]


class TestProgress:
    def test_it_says_how_far_and_how_long(self):
        progress = BackfillProgress("month=3", "81 rows, instant 1", 3, 1, 12, 30_000, 10.0, 3725.4)
        assert str(progress) == (
            "window month=3: 81 rows, instant 1; 3 of 12 windows done (1 of them earlier), 30,000 rows, "
            "3,000 rows/s, time left 1:02:05"
        )
        assert str(BackfillProgress("w", "no rows", 1, 0, 2, 0, 0.0, None)).endswith(
            "0.0 rows/s, time left unknown"
        )

    def test_the_time_left_goes_by_rows_where_they_are_known(self, table):
        history = History(table)
        windows = [Window(f"month={m}", {"month": str(m)}, rows=n) for m, n in [(1, 10), (2, 90)]]
        Backfill(history.job, table, windows, tell=history.told.append).run(history.write)
        first, last = history.progress()
        assert first.seconds_left == pytest.approx(9 * first.seconds)
        assert (last.done, last.windows, last.rows, last.seconds_left) == (2, 2, 100, 0.0)

    def test_else_by_windows_without_those_that_cost_nothing(self, table):
        History(table).run((1,))
        history = History(table)
        history.run()
        first, second, third, _ = history.progress()
        assert first.seconds_left is None
        assert second.seconds_left == pytest.approx(2 * second.seconds)
        assert third.seconds_left == pytest.approx(third.seconds / 2)

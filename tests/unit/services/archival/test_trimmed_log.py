"""Writers and publishers after an archival, which trims the commit log with the timeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.concurrency import (
    CommitLog,
    CommitResult,
    HeartbeatSettings,
    WriteSettings,
    begin_write,
    find_operation,
    find_operations,
    rollback,
)
from airflow_provider.concurrency.commit.publish import ensure_published
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER
from airflow_provider.concurrency.transactions.transactions import is_completed, partitions_of
from airflow_provider.exceptions import (
    InstantRolledBackError,
)
from airflow_provider.services.archival import archive
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import TIMELINE_FOLDER
from tests.unit.services.archival.trips import FEW, commits, create, dead_writer, fares, ingest


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create(tmp_path)


def test_the_commit_log_is_trimmed_with_the_timeline(table: HudiTable) -> None:
    commits(table, 6)
    archive(table, **FEW)
    log = CommitLog(table.storage)
    assert (log.trimmed(), log.head()) == (4, 7)
    assert [entry.sequence for entry in log.backwards()] == [7, 6, 5], "the last one is the archival's"
    names = table.storage.names(COMMIT_LOG_FOLDER)
    assert sorted(n for n in names if n.endswith(".json")) == [f"{each:020d}.json" for each in (5, 6, 7)]
    fresh = CommitLog(HudiTable.open(table.location).storage)
    assert fresh.head() == 7, "found without knowing where it begins"


def test_who_stood_still_past_the_logs_beginning_finds_that_out(table: HudiTable) -> None:
    """The writer has checked its heartbeat, and pauses right before it puts its entry."""
    commits(table, 1)
    asleep = HudiTable.open(table.location)
    writer = begin_write(
        asleep, operation="INSERT", settings=WriteSettings(heartbeat=HeartbeatSettings(3600.0))
    )
    writer.plan([], ["city=sf"])
    rollback(table, writer.instant)
    commits(table, 6, first=1)
    archive(table, dead_writer_seconds=0, **FEW)
    assert CommitLog(table.storage).trimmed() >= 2
    before = fares(table)
    with pytest.raises(InstantRolledBackError, match="was paused"):
        writer.commit([])
    assert CommitLog(HudiTable.open(table.location).storage).read(2) is None
    assert fares(table) == before
    assert CommitLog(HudiTable.open(table.location).storage).head() == CommitLog(table.storage).head()


def test_who_stood_still_before_its_heartbeat_begins_on_what_there_is_then(table: HudiTable) -> None:
    class StandsStill(Storage):
        """A writer that pauses before it takes its instant, while the log is trimmed past its base."""

        stood = False

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.startswith(HEARTBEAT_FOLDER) and not self.stood:
                self.stood = True
                commits(table, 6, first=2)
                archive(table, **FEW)
            return super().put_if_absent(path, data)

    commits(table, 2)
    storage = StandsStill(table.location)
    ingest(HudiTable(storage, table.config), {9: 9.0})
    assert CommitLog(table.storage).trimmed() > 2
    assert fares(table) == {number: float(number) for number in (*range(8), 9)}


def test_who_stood_still_right_after_its_entry_has_committed(table: HudiTable) -> None:
    commits(table, 6)
    log = CommitLog(table.storage)
    entry = log.read(2)
    assert entry is not None
    archive(table, **FEW)
    assert log.append(2, entry), "the put's answer came only now, and the entry has gone"


def test_a_stale_publisher_brings_nothing_back(table: HudiTable) -> None:
    commits(table, 2)
    dead, _ = dead_writer(table)
    log = CommitLog(table.storage)
    stale = list(log.after(0))
    assert [entry.undone for entry in stale] == [frozenset(), frozenset(), {dead}]
    commits(table, 6, first=2)
    archive(table, dead_writer_seconds=0, **FEW)
    before = sorted(table.storage.names(TIMELINE_FOLDER))
    for entry in stale:
        ensure_published(table.storage, entry)
    assert sorted(table.storage.names(TIMELINE_FOLDER)) == before


def test_what_became_of_an_operation_is_found_in_the_archive(table: HudiTable) -> None:
    first = ingest(table, {1: 1.0}, operation_key="run/1")
    commits(table, 6, first=2)
    archive(table, **FEW)
    found = find_operation(table, "run/1")
    assert isinstance(found, CommitResult)
    assert (found.instant, found.completion_time) == (first["instant"], first["completion_time"])
    assert find_operation(table, "run/1", since=first["instant"]) == found
    assert find_operation(table, "run/1", since=table.timeline().newest_completion) is None
    assert find_operations(table, "run/") == {"run/1": found}
    assert find_operation(table, "run/2") is None
    again = ingest(table, {1: 1.0}, operation_key="run/1")
    assert again == {**first, "already_committed": True}
    assert is_completed(table, first["instant"])
    assert partitions_of(table, first["instant"]) == ["city=sf"]

"""The entries that undo a commit, by this package or because another Hudi writer has undone it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.concurrency import PRIORITIES, CommitLog
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.commit.undo_entry import next_undone, revert_entry
from airflow_provider.concurrency.conflicts import OWNER
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, observe
from airflow_provider.concurrency.log.log_entry import Commit, Revert
from airflow_provider.concurrency.undo.reverts import revert
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm, create_trips, rows

FAR_AHEAD = "29990101000000001"


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


def overwrite(table: HudiTable) -> Commit:
    """A commit that writes one file group, and replaces another."""
    ingest_arrow(table, rows({7: 7.0}), "insert_overwrite")
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Commit)
    assert newest.written
    assert newest.replaced
    return newest


def test_a_revert_says_what_it_undoes_and_by_whom(table: HudiTable) -> None:
    commit = overwrite(table)
    moment = Moment.now(table.storage)
    entry = revert_entry(table.storage, moment, commit, brings_back=frozenset({"city=sf"}))
    assert entry == Revert(
        instant=entry.instant,
        priority=PRIORITIES["ingestion"],
        owner=describe_owner(),
        written=commit.written,
        replaced=commit.replaced,
        inserted_in=frozenset({"city=sf"}),
        rolls_back=commit.instant,
        rolled_back_action=Action.REPLACE_COMMIT,
        reverts=commit.sequence,
    )
    (heartbeat,) = observe(table.storage).values()
    assert heartbeat.info == HeartbeatInfo(
        describe_owner(), Action.ROLLBACK, "ROLLBACK", 0, 10.0, 6, base=moment.sequence
    )


def test_a_revert_is_later_than_whatever_another_hudi_writer_has_completed(table: HudiTable) -> None:
    commit = overwrite(table)
    jvm = Jvm(table)
    jvm.completion_time = FAR_AHEAD  # by a clock that is ahead
    jvm.upsert({8: 8.0})
    entry = revert(table, commit.instant, reason="a test")
    assert entry is not None
    assert FAR_AHEAD < entry.instant < entry.completion_time


def undone(commit: Commit, instant: str) -> Revert:
    return Revert(
        instant=instant,
        priority=commit.priority,
        owner=OWNER,
        written=commit.written,
        replaced=commit.replaced,
        inserted_in=frozenset({"city=sf"}),
        rolls_back=commit.instant,
        rolled_back_action=Action.REPLACE_COMMIT,
        reverts=commit.sequence,
        by_another=True,
    )


def test_what_another_has_undone_is_said_once_by_all_that_it_concerned(table: HudiTable) -> None:
    first, second = overwrite(table), overwrite(table)
    jvm, storage = Jvm(table), table.storage
    jvm.restore([second.instant, first.instant])
    moment = Moment.now(storage)
    assert next_undone(storage, moment) == undone(second, jvm.instant), "the newest is not shown any more"
    ingest_arrow(table, rows({1: 9.0}))
    said = [each for each in CommitLog(storage).after(second.sequence) if isinstance(each, Revert)]
    assert [each.rolls_back for each in said] == [second.instant, first.instant]
    assert [each.instant for each in said] == [jvm.instant] * 2
    moment = Moment.now(storage)
    assert moment.timeline
    assert next_undone(storage, moment) is None


def test_what_is_not_shown_any_more_was_undone_by_a_rollback_that_another_has_begun(table: HudiTable) -> None:
    commit = overwrite(table)
    shown = table.timeline().find(commit.instant)
    assert shown is not None
    jvm = Jvm(table)
    jvm.begin_rollback_of(commit.instant)
    table.storage.delete(instant_path(shown))
    moment = Moment.now(table.storage)
    assert next_undone(table.storage, moment) == undone(commit, jvm.instant)


def test_what_another_has_undone_of_log_files_is_said_to_be_appended(tmp_path: Path) -> None:
    table = HudiTable.create(
        str(tmp_path / "logs"),
        name="logs",
        schema=rows({}).schema,
        record_key=["id"],
        partition_by=["city"],
        table_type="merge_on_read",
    )
    for fare in (1.0, 2.0):
        ingest_arrow(table, rows({1: fare}))
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Commit)
    assert newest.appended
    Jvm(table).restore([newest.instant])
    said = next_undone(table.storage, Moment.now(table.storage))
    assert said is not None
    assert (said.rolls_back, said.appended) == (newest.instant, newest.appended)


def test_rollbacks_of_what_is_no_commit_of_the_log_are_passed_over(table: HudiTable) -> None:
    """If one of several rollbacks concerns no commit of the log, the next one is still considered."""
    commit = overwrite(table)
    theirs, storage = Jvm(table), table.storage
    theirs.upsert({8: 8.0})
    Jvm(table).roll_back(theirs.instant)
    rolls_back = Jvm(table)
    ingest_arrow(table, rows({9: 9.0}, city="la"))  # so that the undone commit is not the newest
    rolls_back.roll_back(commit.instant)
    moment = Moment.now(storage)
    assert next_undone(storage, moment) is None, "nobody has looked at the timeline"
    assert moment.timeline
    assert next_undone(storage, moment) == undone(commit, rolls_back.instant)

"""The entry that changes the indexes, and the records that it logs to the other indexes."""

from __future__ import annotations

import pytest

from airflow_provider.concurrency import PRIORITIES, CommitLog
from airflow_provider.concurrency.commit import IndexChange, Moment, change_indexes, commit, drop_indexes
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.indexes import DROP_INDEX
from airflow_provider.concurrency.log.log_entry import Archival, Commit, LogEntry, Plan
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.metadata import encode
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm
from tests.unit.indexing.test_unlogged_commits import log_to_files_only
from tests.unit.indexing.under_shared_lock import ALL, SharedLock, indexed_keys, run, schedule


@pytest.fixture
def indexed(table: HudiTable) -> HudiTable:
    run(table, schedule(table))
    return HudiTable.open(table.location)


def newest(table: HudiTable) -> LogEntry:
    entry = CommitLog(table.storage).newest()
    assert entry is not None
    return entry


def test_a_dropped_index_is_in_no_later_entry(indexed: HudiTable) -> None:
    storage, lock = indexed.storage, SharedLock(indexed.location)
    dropped = drop_indexes(storage, lambda each: each == "record_index", lock)
    assert dropped is not None
    entry, gone = dropped
    assert (entry, gone) == (newest(indexed), ("record_index",))
    assert isinstance(entry, Commit)
    assert {each.partition for each in entry.indexes or ()} == {*ALL} - {"record_index"}
    said = (entry.action, entry.operation, entry.priority, entry.owner, entry.metadata_path)
    assert said == (
        Action.INDEXING,
        DROP_INDEX,
        PRIORITIES["table_service"],
        describe_owner(),
        staged_metadata_path(entry.instant),
    )
    assert drop_indexes(storage, lambda each: each == "record_index", lock) is None
    assert newest(indexed) == entry


def test_a_plan_is_staged_beside_what_completes_it(table: HudiTable) -> None:
    """A process that paused right before it moves the plan must not move the other one."""
    instant = schedule(table)
    plan = newest(table)
    assert isinstance(plan, Plan)
    assert plan.metadata_path == staged_plan_path(instant)
    run(table, instant)
    completes = newest(table)
    assert isinstance(completes, Commit)
    assert (completes.instant, completes.metadata_path) == (instant, staged_metadata_path(instant))


def drop_bloom_filters(table: HudiTable, logged_since: str | None = None) -> None:
    record = {"indexPartitionInfos": [{"metadataPartitionPath": "bloom_filters"}]}

    def decide(moment: Moment) -> IndexChange:
        left = tuple(each for each in moment.indexes if each.partition != "bloom_filters")
        return IndexChange(lambda _: left, encode("HoodieIndexCommitMetadata", record))

    lock = SharedLock(table.location)
    change_indexes(table.storage, lock, decide, operation=DROP_INDEX, logged_since=logged_since)


@pytest.mark.parametrize("in_part", [True, False])
def test_what_another_has_not_logged_is_in_the_indexes_that_stay(indexed: HudiTable, in_part: bool) -> None:
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    if in_part:
        log_to_files_only(indexed, jvm)
    drop_bloom_filters(indexed)
    assert 20 in indexed_keys(indexed)


@pytest.mark.parametrize("since", [None, ""], ids=["the newest entry", "ever"])
def test_what_was_logged_in_part_is_looked_for_since_the_moment_that_is_named(
    indexed: HudiTable, since: str | None
) -> None:
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    log_to_files_only(indexed, jvm)
    commit(indexed.storage, lambda moment: Archival(priority=100))  # later than the commit
    drop_bloom_filters(indexed, since)
    assert (20 in indexed_keys(indexed)) is (since is not None)

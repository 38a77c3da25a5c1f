"""Savepoints and restores: the commits that they keep and undo, their refusals, and the files on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import WriteTransaction, begin_write, find_operation, pending_instants
from airflow_provider.exceptions import (
    CheckpointExpiredError,
    NoSuchInstantError,
    SnapshotUnavailableError,
    TableError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.services.archival import plan_archival
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, schedule_clean
from airflow_provider.services.restore import plan_restore, restore
from airflow_provider.services.savepoint import (
    create_savepoint,
    delete_savepoint,
    find_savepoint,
    savepoints,
)
from airflow_provider.table.reading.incremental import Order, increment
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, now
from airflow_provider.table.timeline.metadata import decode
from tests.ingestion_contract.interleaving import Clustering
from tests.ingestion_contract.lake import Lake, LakeTable, untouched

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.int64()})
NOW_ONLY = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)


def row(id_: int, value: int, p: str = "a") -> dict[str, Any]:
    return {"id": id_, "p": p, "v": value}


FIRST = [row(1, 0), row(2, 0, "b")]
SECOND = [row(1, 1), row(2, 0, "b")]


@pytest.fixture
def made(tmp_path: Path) -> LakeTable:
    """A table with an insert, an update, an overwrite and a clustering of ``p=a``, and a new partition."""
    table = Lake(tmp_path).create(SCHEMA, partition_by=["p"])
    table.ingest("upsert", FIRST)
    table.ingest("upsert", [row(1, 1)])
    table.ingest("insert_overwrite", [row(3, 2), row(4, 2)])
    Clustering(table.table, "p=a").commit()
    table.ingest("upsert", [row(5, 4, "c")], operation_key="nightly")
    return table


def commits_of(made: LakeTable) -> list[str]:
    return [commit.requested_time for commit in made.table.timeline().commits()]


def content_of(made: LakeTable, action: Action, state: State = State.COMPLETED) -> dict[str, Any]:
    found = next(i for i in made.table.timeline().instants if i.action is action)
    completed = found.completion_time if state is State.COMPLETED else None
    return decode(
        made.table.storage.read(instant_path(Instant(found.requested_time, action, state, completed)))
    )


def test_back_over_an_overwrite_and_a_clustering(made: LakeTable) -> None:
    commits = commits_of(made)
    planned = plan_restore(made.table, commits[1])
    assert [commit.requested_time for commit in planned.undone] == commits[:1:-1]
    result = restore(made.table, commits[1])
    assert result.to_dict() == {
        "instant": result.instant,
        "completion_time": result.completion_time,
        **planned.to_dict(),
    }
    assert planned.to_dict()["files"] == 4
    made.check(SECOND)
    assert commits_of(made) == commits[:2]
    assert find_operation(made.table, "nightly") is None, "a retry does it again"
    made.ingest("upsert", [row(1, 9), row(5, 9, "c")])
    made.check([row(1, 9), row(2, 0, "b"), row(5, 9, "c")])


def test_what_is_on_disk_is_hudis(made: LakeTable) -> None:
    commits = commits_of(made)
    result = restore(made.table, commits[1])
    plan = content_of(made, Action.RESTORE, State.REQUESTED)
    actions = ["commit", "replacecommit", "replacecommit"]
    infos = [{"commitTime": t, "action": action} for t, action in zip(commits[:1:-1], actions, strict=True)]
    assert (plan["instantsToRollback"], plan["savepointToRestoreTimestamp"]) == (infos, commits[1])
    said = content_of(made, Action.RESTORE)
    assert said["startRestoreTime"] == result.instant
    assert said["instantsToRollback"] == commits[:1:-1]
    assert said["restoreInstantInfo"] == infos
    (rollback,) = said["hoodieRestoreMetadata"][commits[2]]
    assert (rollback["commitsRollback"], rollback["totalFilesDeleted"]) == ([commits[2]], 1)
    (file,) = rollback["partitionMetadata"]["p=a"]["successDeleteFiles"]
    assert file.startswith(f"{made.location}/p=a/")
    assert not Path(file).exists()


def test_to_the_newest_commit_there_is_nothing_to_do(made: LakeTable) -> None:
    result = restore(made.table, commits_of(made)[-1])
    assert (result.instant, result.plan.undone) == (None, ())
    assert not [i for i in made.table.timeline().instants if i.action is Action.RESTORE]


def test_twice_and_over_an_earlier_restore(made: LakeTable) -> None:
    commits = commits_of(made)
    restore(made.table, commits[3])
    made.ingest("upsert", [row(6, 6, "b")])
    restore(made.table, commits[0])
    made.check(FIRST)
    clean(made.table, NOW_ONLY)
    made.check(FIRST)


def test_a_plan_writes_nothing(made: LakeTable) -> None:
    untouched(made.location, lambda: plan_restore(made.table, commits_of(made)[1]))


def test_a_savepoint_and_back_to_it(made: LakeTable) -> None:
    commits = commits_of(made)
    saved = create_savepoint(made.table, commits[1], comments="before the overwrite")
    assert create_savepoint(made.table, commits[1]) == saved
    assert (saved.files, saved.comments, savepoints(made.table)) == (2, "before the overwrite", [saved])
    said = content_of(made, Action.SAVEPOINT)
    assert {name: len(each["savepointDataFile"]) for name, each in said["partitionMetadata"].items()} == {
        "p=a": 1,
        "p=b": 1,
    }
    made.check_now(made.rows())
    clean(made.table, NOW_ONLY)
    restore(made.table, commits[1])
    made.check_now(SECOND)
    delete_savepoint(made.table, commits[1])
    assert find_savepoint(made.table, commits[1]) is None
    with pytest.raises(NoSuchInstantError, match="there are: none"):
        delete_savepoint(made.table, commits[1])


def test_the_newest_commit_is_kept_by_default(made: LakeTable) -> None:
    assert create_savepoint(made.table).instant == commits_of(made)[-1]


def test_a_savepoint_of_what_is_no_commit(made: LakeTable) -> None:
    with pytest.raises(NoSuchInstantError, match="there is no commit 2020"):
        create_savepoint(made.table, "20200101000000000")


# --- what is in the way ---------------------------------------------------------------------


def refused(made: LakeTable, to: str, error: type[Exception], told: str) -> None:
    rows = made.rows()
    with pytest.raises(error, match=told):
        restore(made.table, to)
    assert made.rows() == rows
    assert not [i for i in made.table.timeline().instants if i.action is Action.RESTORE]


def test_past_a_clean_that_took_what_is_needed(made: LakeTable) -> None:
    commits = commits_of(made)
    clean(made.table, NOW_ONLY)
    told = rf"clean \d+ took p=a/.*{commits[1]}.parquet, which that snapshot needs"
    refused(made, commits[1], SnapshotUnavailableError, told)
    with pytest.raises(SnapshotUnavailableError, match="took p=a"):
        create_savepoint(made.table, commits[1])
    restore(made.table, commits[3])
    made.check_now([row(2, 0, "b"), row(3, 2), row(4, 2)])


def test_past_a_clean_that_is_planned(made: LakeTable) -> None:
    assert schedule_clean(made.table, NOW_ONLY)
    refused(made, commits_of(made)[1], SnapshotUnavailableError, "which that snapshot needs")


def test_past_a_clean_that_took_nothing_that_is_needed(made: LakeTable) -> None:
    commits = commits_of(made)
    made.ingest("upsert", [row(5, 5, "c")])
    clean(made.table, Retention(CleaningPolicy.KEEP_LATEST_COMMITS, 3))
    restore(made.table, commits[3])
    made.check_now([row(2, 0, "b"), row(3, 2), row(4, 2)])


def test_past_a_later_savepoint(made: LakeTable) -> None:
    commits = commits_of(made)
    create_savepoint(made.table, commits[2])
    refused(made, commits[1], TableError, f"savepoint {commits[2]} keeps a later commit; delete it first")
    delete_savepoint(made.table, commits[2])
    restore(made.table, commits[1])


def test_past_an_open_transaction(made: LakeTable) -> None:
    commits = commits_of(made)
    with begin_write(
        made.table, operation="UPSERT", transaction=WriteTransaction(7, txn_goes_on=True)
    ) as writer:
        writer.plan((), ["p=b"])
        writer.commit([])
    refused(made, commits[1], TableError, f"commit {writer.instant} belongs to transaction 7")
    with pytest.raises(TableError, match="of transaction 7, which has not ended; keep it after that"):
        create_savepoint(made.table)
    create_savepoint(made.table, commits[-1])


def test_a_live_writer(made: LakeTable) -> None:
    with begin_write(made.table, operation="UPSERT") as writer:
        refused(made, commits_of(made)[1], WriteConflictError, f"UPSERT {writer.instant} by .* is under way")
    restore(made.table, commits_of(made)[1])


def test_another_hudi_writer_without_a_heartbeat(made: LakeTable) -> None:
    theirs = Instant(now(), Action.COMMIT, State.REQUESTED)
    made.table.storage.put(instant_path(theirs), b"")
    refused(made, commits_of(made)[1], WriteConflictError, f"{theirs.requested_time} by unknown is under way")


def test_a_plan_that_nobody_carries_out_is_rolled_back(made: LakeTable) -> None:
    planned = Instant(now(), Action.CLUSTERING, State.REQUESTED)
    made.table.storage.put(instant_path(planned), b"")
    restore(made.table, commits_of(made)[1])
    assert pending_instants(made.table) == []
    made.check(SECOND)


def test_what_is_no_commit(made: LakeTable) -> None:
    refused(made, "20200101000000000", NoSuchInstantError, "there is no such commit on its active timeline")


def test_storage_that_moves_no_file_in_one_step(made: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "moves_atomically", False)
    refused(made, commits_of(made)[1], UnsupportedTableError, "moves no file in one step")


# --- consumers ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(Order))
def test_a_consumer_that_has_read_what_was_undone_is_told(made: LakeTable, order: Order) -> None:
    commits = made.table.timeline().commits()
    by_completion = order is Order.COMPLETION
    read = [(c.completion_time if by_completion else c.requested_time) or "" for c in commits]
    restore(made.table, commits[1].requested_time)
    for checkpoint in read[2:]:
        with pytest.raises(CheckpointExpiredError, match="has undone commits from before it"):
            increment(made.table, checkpoint, order=order)
    assert increment(made.table, read[1], order=order).commits == ()
    made.ingest("upsert", [row(1, 9)])
    (found,) = increment(made.table, read[1], order=order).commits
    assert increment(made.table, found.completion_time, order=order).commits == ()


def test_what_was_undone_holds_the_archive_up_like_what_was_rolled_back(made: LakeTable) -> None:
    first, second, *undone = commits_of(made)
    restore(made.table, second)
    for value in range(5, 8):
        made.ingest("upsert", [row(1, value)])
    clean(made.table, NOW_ONLY)
    few = {"keep_min": 1, "keep_max": 2}
    held = plan_archival(made.table, **few)
    assert [instant.requested_time for instant in held.instants] == [first]
    assert held.held_by is not None
    assert any(held.held_by.startswith(f"{instant} was ") for instant in undone)
    passed = plan_archival(made.table, **few, dead_writer_seconds=0.0)
    assert second in [instant.requested_time for instant in passed.instants]

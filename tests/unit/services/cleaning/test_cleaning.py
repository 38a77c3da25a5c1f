"""The files that a clean deletes, those that it keeps for readers and writers, and its files on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import (
    CommitLog,
    HeartbeatSettings,
    WriteSettings,
    WriteTransaction,
    begin_write,
    pending_instants,
    rollback,
)
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.concurrency.plans.scheduling import reserved_file_groups
from airflow_provider.concurrency.readers import (
    READERS_FOLDER,
    forget_consumer,
    reader_lease,
    register_consumer,
    registered_consumers,
)
from airflow_provider.exceptions import (
    CheckpointExpiredError,
    HeartbeatExpiredError,
    InvalidInputError,
    NoSuchInstantError,
    SnapshotUnavailableError,
    TableError,
)
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Reason, Retention, make_plan
from airflow_provider.services.cleaning.cleaning import (
    clean,
    pending_cleans,
    plan_clean,
    run_clean,
    schedule_clean,
)
from airflow_provider.services.orphans.found_files import Found
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.reading.incremental import increment
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, age, now
from airflow_provider.table.timeline.metadata import decode, encode
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.concurrency.other_hudi_writers import another_hudi_writer
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.int64()})
NOW_ONLY = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)


def row(id_: int, value: int, p: str = "a") -> dict[str, Any]:
    return {"id": id_, "p": p, "v": value}


@pytest.fixture
def made(tmp_path: Path) -> LakeTable:
    """A table with five versions of one row in ``p=a``, and one version of another row in ``p=b``."""
    table = Lake(tmp_path).create(SCHEMA, partition_by=["p"])
    table.ingest("upsert", [row(1, 0), row(2, 0, "b")])
    for value in (1, 2, 3, 4):
        table.ingest("upsert", [row(1, value)])
    return table


def commits_of(made: LakeTable) -> list[Instant]:
    return list(made.table.timeline().commits())


def instants_in(made: LakeTable, partition: str = "p=a") -> list[str]:
    """Requested times of the slices on storage."""
    names = made.table.storage.names(partition)
    return sorted(name.rpartition("_")[2].removesuffix(".parquet") for name in names if "parquet" in name)


@pytest.mark.parametrize(
    ("policy", "retained", "left"),
    [
        ("KEEP_LATEST_COMMITS", 1, [3, 4]),  # the newest commit, and the snapshot before it
        ("KEEP_LATEST_COMMITS", 2, [2, 3, 4]),
        ("keep_latest_commits", 4, [0, 1, 2, 3, 4]),
        ("KEEP_LATEST_COMMITS", None, [0, 1, 2, 3, 4]),  # Hudi's default: 10
        ("KEEP_LATEST_FILE_VERSIONS", 1, [4]),
        ("KEEP_LATEST_FILE_VERSIONS", 3, [2, 3, 4]),
        ("KEEP_LATEST_BY_HOURS", 1, [0, 1, 2, 3, 4]),
        ("KEEP_LATEST_BY_HOURS", 1e-9, [4]),
    ],
)
def test_policies(made: LakeTable, policy: str, retained: float | None, left: list[int]) -> None:
    commits = commits_of(made)
    storage, newest = made.table.storage, made.table.timeline().newest_completion
    while age(newest, storage.clock(anew=True)) < 0.001:  # it may tick every few milliseconds
        time.sleep(0.001)
    clean(made.table, Retention(policy, retained))
    assert instants_in(made) == [commits[number].requested_time for number in left]
    assert len(instants_in(made, "p=b")) == 1
    made.check_now([row(1, 4), row(2, 0, "b")])


@pytest.mark.parametrize(
    ("policy", "retained", "told"),
    [
        ("KEEP_ALL", 1, "is unknown; known: KEEP_LATEST_COMMITS"),
        ("KEEP_LATEST_COMMITS", 0, "a whole number of 1 or more, not 0"),
        ("KEEP_LATEST_FILE_VERSIONS", 1.5, "a whole number"),
        ("KEEP_LATEST_BY_HOURS", 0.0, "hours above 0"),
    ],
)
def test_what_cannot_be_kept(policy: str, retained: float, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        Retention(policy, retained)


def test_replaced_file_groups_go(made: LakeTable) -> None:
    made.ingest("insert_overwrite", [row(1, 5)])
    Clustering(made.table, "p=a", outputs=1).commit()
    planned = plan_clean(made.table, NOW_ONLY)
    assert {file.reason for file in planned.files} == {Reason.REPLACED}
    (result,) = clean(made.table, NOW_ONLY)
    assert (result.deleted, result.size) == (6, planned.size)
    made.check_now([row(1, 5), row(2, 0, "b")])


def test_a_dry_run_writes_nothing_and_says_what_goes_and_why(made: LakeTable) -> None:
    before = sorted(map(str, Path(made.location).rglob("*")))
    said = plan_clean(made.table, Retention("KEEP_LATEST_COMMITS", 2)).to_dict()
    assert sorted(map(str, Path(made.location).rglob("*"))) == before
    first = commits_of(made)[:2]
    assert [file["path"].rpartition("_")[2] for file in said["files"]] == [
        f"{commit.requested_time}.parquet" for commit in first
    ]
    assert {file["why"] for file in said["files"]} == {"superseded by a later slice"}
    sizes = [(Path(made.location) / file["path"]).stat().st_size for file in said["files"]]
    assert said["bytes"] == sum(sizes) == sum(file["bytes"] for file in said["files"])
    assert said["retained_files"] == 2
    assert said["earliest_commit_to_retain"] == commits_of(made)[-2].requested_time


def test_the_plan_and_the_metadata_are_hudis(made: LakeTable) -> None:
    instant = schedule_clean(made.table, Retention("KEEP_LATEST_COMMITS", 2)) or ""
    storage, commits = made.table.storage, commits_of(made)
    earliest, newest = commits[-2].requested_time, commits[-1].requested_time
    plan = decode(storage.read(instant_path(Instant(instant, Action.CLEAN, State.REQUESTED))))
    names = [name for name in storage.names("p=a") if any(c.requested_time in name for c in commits[:2])]
    assert plan["earliestInstantToRetain"] == {
        "timestamp": earliest,
        "action": "commit",
        "state": "COMPLETED",
    }
    assert {file["filePath"] for file in plan["filePathsToBeDeletedPerPartition"]["p=a"]} == {
        f"{made.location}/p=a/{name}" for name in names
    }
    assert (plan["lastCompletedCommitTimestamp"], plan["policy"], plan["version"]) == (
        newest,
        "KEEP_LATEST_COMMITS",
        2,
    )
    assert plan["extraMetadata"]["earliest_commit_to_not_archive"] == earliest
    result = run_clean(made.table, instant)
    said = decode(
        storage.read(instant_path(Instant(instant, Action.CLEAN, State.COMPLETED, result.completion_time)))
    )
    (partition,) = said["partitionMetadata"].values()
    assert sorted(partition["successDeleteFiles"]) == sorted(partition["deletePathPatterns"]) == sorted(names)
    assert (said["totalFilesDeleted"], said["earliestCommitToRetain"]) == (2, earliest)
    assert (partition["partitionPath"], partition["failedDeleteFiles"]) == ("p=a", [])
    assert run_clean(made.table, instant) == result, "twice does no harm"


@pytest.fixture
def stubborn(made: LakeTable, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A superseded file that this process cannot delete."""
    delete = Storage.delete
    doomed = plan_clean(made.table, NOW_ONLY).files[0].path

    def refused(storage: Storage, path: str) -> bool:
        if path == doomed:
            raise PermissionError(path)
        return delete(storage, path)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "delete", refused)
        yield doomed


def test_a_file_that_cannot_be_deleted_is_for_the_next_clean(made: LakeTable, stubborn: str) -> None:
    (result,) = clean(made.table, NOW_ONLY)
    assert (result.deleted, result.failed) == (3, 1)
    assert [file.path for file in plan_clean(made.table, NOW_ONLY).files] == [stubborn]


def test_what_another_process_deletes_for_the_same_plan_is_deleted(made: LakeTable, stubborn: str) -> None:
    run_index(made.table, schedule_index(made.table, ["files"]) or "")
    instant = schedule_clean(made.table, NOW_ONLY) or ""
    # Another cleaner deletes the file, and stops, before this clean acquires the lock to complete.
    another = MeetingLock(lambda: (Path(made.table.location) / stubborn).unlink())
    result = run_clean(made.table, instant, lock=another)
    assert (result.deleted, result.failed) == (4, 0)
    assert_indexes_equal_a_rebuild(made.table, ["files"])


def test_nothing_to_delete_leaves_no_instant(made: LakeTable) -> None:
    assert clean(made.table) == []
    assert [i for i in made.table.timeline().instants if i.action is Action.CLEAN] == []


def test_a_planned_clean_is_finished_and_not_rolled_back(made: LakeTable) -> None:
    instant = schedule_clean(made.table, NOW_ONLY) or ""
    assert pending_cleans(made.table) == [instant]
    with pytest.raises(TableError, match="clean the table to finish it"):
        rollback(made.table, instant)
    made.ingest("upsert", [row(1, 5)])
    first, second = clean(made.table, NOW_ONLY)
    assert (first.instant, first.deleted, second.deleted) == (instant, 4, 1)
    assert pending_instants(made.table) == []


def test_there_is_no_such_clean(made: LakeTable) -> None:
    with pytest.raises(NoSuchInstantError, match="no planned clean"):
        run_clean(made.table, now())


# --- who holds what back --------------------------------------------------------------------


def held_by(made: LakeTable) -> dict[str, int]:
    return {kept.by: kept.files for kept in plan_clean(made.table, NOW_ONLY).kept}


def test_a_writer_keeps_its_base(made: LakeTable) -> None:
    with begin_write(made.table, operation="UPSERT") as writer:
        base = [file.path for file in writer.view.all_base_files()]
        made.ingest("upsert", [row(1, 5)])
        made.ingest("upsert", [row(1, 6)])
        (kept,) = plan_clean(made.table, NOW_ONLY).kept
        assert (kept.by.startswith(f"writer {writer.instant} by "), kept.files) == (True, 2)
        clean(made.table, NOW_ONLY)
        assert all((Path(made.location) / path).exists() for path in base)
    clean(made.table, NOW_ONLY)
    assert len(instants_in(made)) == 1


def test_another_hudi_writer_without_a_heartbeat_keeps_its_base(made: LakeTable) -> None:
    storage, theirs = made.table.storage, Instant(now(), Action.COMMIT, State.REQUESTED)
    made.ingest("upsert", [row(1, 5)])
    storage.put(instant_path(theirs), b"")
    assert held_by(made) == {f"writer {theirs.requested_time} without a heartbeat": 1}


def test_a_lease_keeps_what_was_there_when_it_began(made: LakeTable) -> None:
    with reader_lease(made.table) as lease:
        files = made.table.base_files()
        made.ingest("upsert", [row(1, 5)])
        assert [by.split(" by ")[0].split(" ")[0] for by in held_by(made)] == ["reader"]
        clean(made.table, NOW_ONLY)
        assert all((Path(made.location) / file.path).exists() for file in files)
        lease.check()
    assert made.table.storage.list(READERS_FOLDER) == []
    assert held_by(made) == {}


def test_a_reader_is_told_which_clean_of_another_hudi_writer_took_its_files(made: LakeTable) -> None:
    with reader_lease(made.table) as lease:
        made.ingest("upsert", [row(1, 5)])
        lease.check()
        (file,) = made.table.storage.list(READERS_FOLDER)
        made.table.storage.delete(file.path)  # as a cleaner that ignores leases would do
        (cleaned,) = clean(made.table, NOW_ONLY)
        with pytest.raises(SnapshotUnavailableError, match=f"clean {cleaned.instant} of another Hudi writer"):
            lease.check()


def test_a_reader_that_died_keeps_nothing(made: LakeTable) -> None:
    with reader_lease(made.table, heartbeat=HeartbeatSettings(0.02, tolerable_misses=1)) as lease:
        made.ingest("upsert", [row(1, 5)])
        (file,) = made.table.storage.list(READERS_FOLDER)
        lease.stop()
        long_ago = time.time() - 3600
        os.utime(f"{made.location}/{file.path}", (long_ago, long_ago))
        clean(made.table, NOW_ONLY)
        assert made.table.storage.list(READERS_FOLDER) == []
        time.sleep(0.03)
        with pytest.raises(HeartbeatExpiredError):
            lease.check()


def test_a_consumer_reads_every_state_after_its_checkpoint(made: LakeTable) -> None:
    commits = commits_of(made)
    start = commits[1].completion_time or ""
    register_consumer(made.table, "billing", start)
    assert held_by(made) == {"consumer billing": 3}
    (result,) = clean(made.table, NOW_ONLY)
    assert result.deleted == 1
    for commit in commits[2:]:
        found = increment(made.table, start, end=commit.completion_time)
        assert found.scanner().to_table().to_pylist() == [row(1, commits.index(commit))]
    with pytest.raises(CheckpointExpiredError, match="was cleaned"):
        increment(made.table, "20200101000000000", end=commits[0].completion_time)
    register_consumer(made.table, "billing", commits[3].completion_time or "")
    clean(made.table, NOW_ONLY)
    with pytest.raises(CheckpointExpiredError, match="of its window was cleaned"):
        increment(made.table, start, end=commits[2].completion_time)


def test_an_abandoned_consumer_holds_nothing_for_ever(made: LakeTable) -> None:
    register_consumer(made.table, "abandoned", "20200101000000000", expires_after=60.0)
    (path,) = Path(made.location, ".hoodie/.consumers").iterdir()
    assert held_by(made) == {"consumer abandoned": 4}
    os.utime(path, (time.time() - 61, time.time() - 61))
    (consumer,) = registered_consumers(made.table.storage)
    assert (consumer.name, consumer.is_expired) == ("abandoned", True)
    planned = plan_clean(made.table, NOW_ONLY)
    assert (planned.kept, len(planned.files), planned.expired_consumers) == ((), 4, ("abandoned",))
    assert forget_consumer(made.table, "abandoned")
    assert not forget_consumer(made.table, "abandoned")


@pytest.mark.parametrize(("name", "expires_after"), [("", 1.0), ("a/b", 1.0), (".hidden", 1.0), ("a", 0.0)])
def test_a_consumer_that_cannot_be_registered(made: LakeTable, name: str, expires_after: float) -> None:
    with pytest.raises(InvalidInputError, match="a consumer has a name"):
        register_consumer(made.table, name, now(), expires_after=expires_after)


def test_a_savepoint_keeps_its_files(made: LakeTable) -> None:
    saved = commits_of(made)[1]
    create_savepoint(made.table, saved.requested_time)
    assert held_by(made) == {f"savepoint {saved.requested_time}": 1}
    clean(made.table, NOW_ONLY)
    assert made.rows(saved.requested_time) == made._theirs(as_of=saved.requested_time)
    assert made.rows(saved.requested_time) == [row(1, 1), row(2, 0, "b")]
    made.check_now([row(1, 4), row(2, 0, "b")])


def test_an_open_transaction_keeps_what_it_may_give_back(made: LakeTable) -> None:
    with begin_write(
        made.table, operation="UPSERT", transaction=WriteTransaction(7, txn_goes_on=True)
    ) as writer:
        writer.plan((), ["p=b"])
        writer.commit([])
    made.table.storage.put(f".hoodie/.transactions/{commits_of(made)[-2].requested_time}", b"7")
    reserved = reserved_file_groups(made.table.storage, CommitLog(made.table.storage), made.table.timeline())
    assert {group.partition_path for group in reserved} == {"p=a"}
    assert held_by(made) == {"a pending plan or an open transaction": 4}
    assert clean(made.table, NOW_ONLY) == []


# --- what is of no commit -------------------------------------------------------------------


def dead_file(made: LakeTable, instant: str) -> str:
    path = f"p=b/{base_file_name('dead-0', '0-0-0', instant)}"
    made.table.storage.put(path, b"never read")
    return path


def test_files_of_a_writer_go_once_it_was_rolled_back(made: LakeTable) -> None:
    writer = begin_write(made.table, operation="UPSERT")
    writer.plan((), ["p=b"])
    path = dead_file(made, writer.instant)
    unknown = dead_file(made, after(writer.instant))
    assert plan_clean(made.table).files == ()
    writer.abort()
    assert plan_clean(made.table).files == ()
    assert dead_file(made, writer.instant) == path  # a task that outlived its job wrote it
    (orphan,) = plan_clean(made.table).files
    assert (orphan.path, orphan.reason) == (path, Reason.ROLLED_BACK)
    (result,) = clean(made.table)
    assert (result.deleted, result.size) == (1, len(b"never read"))
    assert not (Path(made.location) / path).exists()
    assert (Path(made.location) / unknown).exists(), "no rollback, no deletion"
    assert [c.requested_time for c in commits_of(made)] == [
        c.requested_time for c in commits_of(made) if made.rows(c.requested_time)
    ], "what was of no commit is in no snapshot of the past"


def test_a_dead_writer_is_rolled_back_first(made: LakeTable) -> None:
    writer = begin_write(
        made.table,
        operation="UPSERT",
        settings=WriteSettings(heartbeat=HeartbeatSettings(3600.0, tolerable_misses=1)),
    )
    writer.plan((), ["p=b"])
    path = dead_file(made, writer.instant)
    long_ago = time.time() - 7200
    os.utime(f"{made.location}/{heartbeat_path(writer.instant)}", (long_ago, long_ago))
    clean(made.table)
    assert not (Path(made.location) / path).exists()


def test_files_of_another_hudi_writers_rollback_go(made: LakeTable) -> None:
    dead = now()
    rolled_back_at = after(dead)
    metadata = {
        "startRollbackTime": rolled_back_at,
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 0,
        "commitsRollback": [dead],
        "partitionMetadata": {},
    }
    path = dead_file(made, dead)
    theirs = Instant(rolled_back_at, Action.ROLLBACK, State.COMPLETED, after(rolled_back_at))
    made.table.storage.put(instant_path(theirs), encode("HoodieRollbackMetadata", metadata))
    assert [file.path for file in plan_clean(made.table).files] == [path]


def test_a_second_file_of_a_slice_goes(made: LakeTable) -> None:
    # A task attempt that outlived its job wrote it; hudi-rs fails on such a table.
    (live,) = (file for file in made.table.base_files() if file.partition_path == "p=a")
    second = f"p=a/{base_file_name(live.file_id, '9-9-9', live.instant)}"
    made.table.storage.put(second, made.table.storage.read(live.path))
    (leftover,) = plan_clean(made.table).files
    assert (leftover.path, leftover.reason) == (second, Reason.LEFTOVER)
    clean(made.table)
    made.check_now([row(1, 4), row(2, 0, "b")])


# --- snapshots of the past ------------------------------------------------------------------


def test_a_snapshot_whose_files_were_cleaned_is_not_read_in_part(made: LakeTable) -> None:
    commits = commits_of(made)
    clean(made.table, Retention("KEEP_LATEST_COMMITS", 2))
    with pytest.raises(SnapshotUnavailableError, match=r"cannot be read any more: clean \d+ deleted"):
        made.table.base_files(commits[1].requested_time)
    assert made.rows(commits[2].requested_time) == [row(1, 2), row(2, 0, "b")]


def test_a_file_that_a_rebase_gave_up_supersedes_nothing(tmp_path: Path) -> None:
    """The file was listed before it was deleted; its instant has completed since, with other files."""
    table, found = another_hudi_writer.create_trips(str(tmp_path / "trips")), []
    first, requested_earlier = another_hudi_writer.only_file(table), another_hudi_writer.Jvm(table)
    alone: dict[str, Any] = {"small_file_limit": 0}

    def overtake() -> None:
        requested_earlier.upsert({1: 9.0}, into=first)
        ingest_arrow(table, another_hudi_writer.rows({3: 3.0}), "bulk_insert", **alone)
        found.append(Found.of(table.storage))

    # With only one file the row goes there without a look-up. With two files the look-up finds that it is
    # new.
    new, lock = another_hudi_writer.rows({7: 7.0}), MeetingLock(overtake)
    assert ingest_arrow(table, new, lock=lock, on_conflict="rebase", **alone)["rebases"] == 1
    view = table.view()
    assert len(live := {each.path for each in view.all_base_files()}) == 3
    plan = make_plan(table.storage, found[0], view, frozenset(), NOW_ONLY)
    assert [each.path for each in plan.files] == [first.path], f"not one of {live}"

"""The files that a publication puts on the timeline, as other Hudi readers and writers read them."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog, begin_write, rollback
from airflow_provider.concurrency.commit import publish
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.concurrency.undo.reverts import revert, revert_rewrite
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.restore import restore
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import decode
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import create_trips, only_file, rows
from tests.unit.concurrency.transactions import test_transactions

PLAIN = pa.schema({"id": pa.int64()})


@pytest.fixture(autouse=True)
def a_clock_of_two_and_a_half_seconds_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count(1000.0, 2.5)
    monkeypatch.setattr(publish, "time", SimpleNamespace(monotonic=lambda: next(looks)))


def files_of(table: HudiTable, instant: str) -> list[str]:
    folder = Path(table.location)
    found = (path for path in folder.rglob(f"*_{instant}.parquet") if not path.name.startswith("."))
    return sorted(str(path.relative_to(folder)) for path in found)


def urls(table: HudiTable, paths: list[str]) -> list[str]:
    return [table.storage.url(path) for path in paths]


def read(table: HudiTable, instant: Instant) -> Any:
    """An instant's record, with its files ordered by name, because a listing has no order."""

    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: ordered(each) for key, each in value.items()}
        if isinstance(value, list):
            return sorted(map(ordered, value), key=str)
        return value

    return ordered(decode(table.storage.read(instant_path(instant))))


def check_rollback(
    table: HudiTable, of: tuple[str, Action], files: dict[str, list[str]], *, deletes: bool
) -> None:
    """Check that the newest rollback's plan and metadata name the instant and its files."""
    instant, action = of
    newest = [each for each in table.timeline().completed() if each.action is Action.ROLLBACK][-1]
    named = {"commitTime": instant, "action": str(action)}
    requested, inflight = (
        Instant(newest.requested_time, Action.ROLLBACK, state) for state in (State.REQUESTED, State.INFLIGHT)
    )
    assert read(table, requested) == {
        "instantToRollback": named,
        "RollbackRequests": [
            {
                "partitionPath": partition,
                "fileId": "",
                "latestBaseInstant": "",
                "filesToBeDeleted": urls(table, paths),
                "logBlocksToBeDeleted": {},
            }
            for partition, paths in files.items()
        ],
        "version": 1,
    }
    assert table.storage.read(instant_path(inflight)) == b""
    assert read(table, newest) == {
        "startRollbackTime": newest.requested_time,
        "timeTakenInMillis": 2500,
        "totalFilesDeleted": sum(map(len, files.values())) if deletes else 0,
        "commitsRollback": [instant],
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "successDeleteFiles": urls(table, paths) if deletes else [],
                "failedDeleteFiles": [] if deletes else urls(table, paths),
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition, paths in files.items()
        },
        "version": 1,
        "instantsRollback": [named],
    }


@pytest.mark.parametrize("partitions", [("XL", "b/c"), ("",)], ids=["with partitions", "without"])
def test_the_rollback_of_a_dead_write_tells_which_files_it_has_deleted(
    tmp_path: Path, partitions: tuple[str, ...]
) -> None:
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=PLAIN, record_key=["id"])
    before, dead = (begin_write(table, operation="UPSERT") for _ in range(2))
    before.commit([])
    dead.plan([FileGroupId(partitions[0], "f-0")], partitions[1:])
    files = {
        each: [f"{each}/{base_file_name(f'{name}-0', '0-0-0', dead.instant)}".lstrip("/") for name in "fg"]
        for each in partitions
    }
    others = [f"{each}/{base_file_name('f-0', '0-0-0', before.instant)}".lstrip("/") for each in partitions]
    strange = [f"{each}/about {dead.instant}.txt".lstrip("/") for each in partitions]
    for path in [*itertools.chain(*files.values()), *others, *strange]:
        table.storage.put(path, b"")
    rollback(table, dead.instant)
    dead.heartbeat.stop()
    check_rollback(table, (dead.instant, Action.COMMIT), files, deletes=True)
    assert not any(table.storage.stat(path) for path in itertools.chain(*files.values()))
    assert all(table.storage.stat(path) for path in [*others, *strange])


def test_the_revert_of_a_write_tells_which_files_it_has_deleted(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "t"))
    instant = str(ingest_arrow(table, rows({7: 7.0}), "bulk_insert")["instant"])
    (written,) = files_of(table, instant)
    assert revert(table, instant, reason="a test") is not None
    check_rollback(table, (instant, Action.COMMIT), {"city=sf": [written]}, deletes=True)
    assert files_of(table, instant) == []


def test_the_revert_of_a_rewrite_leaves_its_files_to_readers_and_tells_so(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "t"))
    ingest_arrow(table, rows({7: 7.0}), "bulk_insert")
    instant = test_transactions.TestRewrites.cluster(table)
    rewrite = CommitLog(table.storage).newest()
    assert isinstance(rewrite, Commit)
    (written,) = files_of(table, instant)
    assert revert_rewrite(table.storage, rewrite) is None
    check_rollback(table, (instant, Action.REPLACE_COMMIT), {"city=sf": [written]}, deletes=False)
    assert files_of(table, instant) == [written]


def test_the_plan_of_a_restore_says_to_which_commit_the_table_goes_back(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "t"))
    (kept,) = table.timeline().commits()
    undone = str(ingest_arrow(table, rows({1: 9.0}))["instant"])
    restore(table, kept.requested_time)
    (found,) = (each for each in table.timeline().completed() if each.action is Action.RESTORE)
    requested, inflight = (
        Instant(found.requested_time, Action.RESTORE, state) for state in (State.REQUESTED, State.INFLIGHT)
    )
    assert read(table, requested) == {
        "instantsToRollback": [{"commitTime": undone, "action": "commit"}],
        "version": 2,
        "savepointToRestoreTimestamp": kept.requested_time,
    }
    assert table.storage.read(instant_path(inflight)) == b""
    assert only_file(table).instant == kept.requested_time


def test_what_is_published_once_more_stays_as_it_is(tmp_path: Path) -> None:
    """The second publisher began before the first one had finished."""
    table = create_trips(str(tmp_path / "t"))
    (kept,) = table.timeline().commits()
    ingest_arrow(table, rows({1: 9.0}))
    commit = CommitLog(table.storage).newest()
    assert commit is not None
    shown = table.timeline().instants
    assert publish.publish(table.storage, commit, looks=True)
    assert table.timeline().instants == shown
    restore(table, kept.requested_time)
    restored = CommitLog(table.storage).newest()
    assert restored is not None
    shown = table.timeline().instants
    assert publish.publish(table.storage, restored, looks=False)
    assert table.timeline().instants == shown

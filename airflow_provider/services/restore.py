"""Restore: it takes a table back to an earlier commit and undoes all later ones at once.

One entry of the commit log names the commits to undo. From then on they are no commits any more, and a writer
that is based on one loses at its own commit. Any process that finds the entry removes them from the timeline,
newest first. So the next writer finishes a restore that was killed, and each state in between is an earlier
state of the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from airflow_provider.concurrency import (
    PRIORITIES,
    CommitLog,
    pending_instants,
    rollback,
    rollback_dead_writers,
)
from airflow_provider.concurrency.commit import Moment, commit, publish_head, staged_metadata_path
from airflow_provider.concurrency.conflicts import RESTORE, instants_of_open_transactions
from airflow_provider.concurrency.indexes import StagedChange, change_of_undoing
from airflow_provider.concurrency.log import Restore
from airflow_provider.exceptions import (
    NoSuchInstantError,
    SnapshotUnavailableError,
    TableError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.locks.owner import describe_owner
from airflow_provider.services.orphans import there_and_gone
from airflow_provider.table.file_groups import FileGroupId, FileSystemView, effect_of, missing_file
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import FileChanges
from airflow_provider.table.storage import FileStatus, Storage
from airflow_provider.table.timeline import (
    RESTORED_TO,
    RESTORED_TO_COMPLETION,
    WRITE_ACTIONS,
    Action,
    Instant,
    State,
    Timeline,
    archived_since,
    encode,
)

log = logging.getLogger(__name__)

_PLANS = frozenset({Action.CLUSTERING, Action.COMPACTION, Action.LOG_COMPACTION})
"""Actions that depend on the snapshot of their plan. A clean and an indexing do not."""


@dataclass(frozen=True)
class RestorePlan:
    """The commits that a restore undoes.

    :param back_to: the commit whose snapshot the restore brings back.
    :param undone: the later commits, newest first.
    :param files: the data files of these commits, by instant.
    """

    back_to: Instant
    undone: tuple[Instant, ...]
    files: Mapping[str, tuple[FileStatus, ...]]

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON-able dict, for people and for machines."""
        files = [file for each in self.files.values() for file in each]
        return {
            "back_to": self.back_to.requested_time,
            "undone": [commit.requested_time for commit in self.undone],
            "files": len(files),
            "bytes": sum(file.size for file in files),
        }


@dataclass(frozen=True)
class RestoreResult:
    """The result of a restore.

    :param instant: requested time; None when there was nothing to undo.
    :param completion_time: when it completed.
    :param plan: the commits that it undid.
    """

    instant: str | None
    completion_time: str | None
    plan: RestorePlan

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-able dict."""
        return {"instant": self.instant, "completion_time": self.completion_time, **self.plan.to_dict()}


def plan_restore(table: HudiTable, to: str) -> RestorePlan:
    """The commits that a restore would undo now; raises if it could not. This writes nothing.

    :param table: the table.
    :param to: requested time of a commit, which is also that of its savepoint.
    :raises NoSuchInstantError: when there is no such commit on the active timeline.
    :raises SnapshotUnavailableError: when files of that commit's snapshot were cleaned.
    :raises TableError: when a later savepoint, an open transaction or archived commits are in the way, or the
        oldest commit of the active timeline would be undone.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    commit_log = CommitLog(table.storage)
    archived = commit_log.archived(commit_log.newest())
    return _plan(table.storage, table.timeline(), archived, to)


def restore(table: HudiTable, to: str, *, lock: LockProvider | None = None) -> RestoreResult:
    """Take a table back to a commit: all commits that completed later are undone, and their files deleted.

    Dead writers, and plans that no process executes, are rolled back first. A live writer blocks the restore.
    An undone commit cannot be brought back.

    :param table: the table.
    :param to: requested time of a commit, which is also that of its savepoint.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :raises NoSuchInstantError: when there is no such commit on the active timeline.
    :raises SnapshotUnavailableError: when files of that commit's snapshot were cleaned.
    :raises TableError: when a later savepoint, an open transaction or archived commits are in the way, or the
        oldest commit of the active timeline would be undone.
    :raises WriteConflictError: when a writer is alive.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table, or its storage moves no
        file in one step, so that a commit could not be undone for good.
    """
    table.check_writable()
    storage, commit_log, started = table.storage, CommitLog(table.storage), time.monotonic()
    if not storage.moves_atomically:
        raise UnsupportedTableError(
            f"table {storage.root} cannot be restored: its storage moves no file in one step, so that a "
            "writer that was paused could bring back a commit that was undone; copy the snapshot to a new "
            "table instead",
            location=storage.root,
        )
    archived = commit_log.archived(publish_head(storage, commit_log))
    _plan(storage, table.timeline(), archived, to)  # raises before any instant is rolled back
    _end_pending(table)
    plan = RestorePlan(Instant(to, Action.COMMIT, State.COMPLETED), (), {})

    def decide(moment: Moment) -> Restore | None:
        nonlocal plan
        plan = _plan(storage, moment.timeline, moment.archived, to)
        return _entry(storage, moment, plan, started) if plan.undone else None

    with lock or default_lock(table):
        entry = commit(storage, decide)
    if entry is None:
        return RestoreResult(None, None, plan)
    told = "table %s: restore %s went back to %s, %d commits are undone"
    log.info(told, storage.root, entry.instant, to, len(plan.undone))
    return RestoreResult(entry.instant, entry.completion_time, plan)


def _plan(storage: Storage, timeline: Timeline, archived: str, to: str) -> RestorePlan:
    commits = [commit for commit in timeline.commits() if commit.requested_time > archived]
    back_to = next((commit for commit in commits if commit.requested_time == to), None)
    told = f"table {storage.root} cannot be restored to {to}"
    if back_to is None:
        raise NoSuchInstantError(
            f"{told}: there is no such commit on its active timeline, or it is just being archived; see "
            "`table-services timeline`",
            instant=to,
        )
    moment = back_to.completion_time or ""
    undone = tuple(commits[commits.index(back_to) + 1 :][::-1])
    _check_nothing_in_the_way(storage, timeline, undone, moment, told)
    if (later := archived_since(storage, timeline, archived, moment)) is not None:
        raise TableError(
            f"{told}: commit {later.requested_time}, which completed later, was archived; choose a later one",
            instant=later.requested_time,
        )
    first = min(commit.requested_time for commit in commits)
    if first in {commit.requested_time for commit in undone}:
        # Readers take commits that are older than the timeline for committed (Hudi's rule).
        raise TableError(
            f"{told}: commit {first}, which completed later, is its oldest active one; choose it, or "
            "a later one",
            instant=first,
        )
    view = FileSystemView(storage, lambda: Timeline.load(storage).until(moment))
    if found := missing_file(storage, view, timeline, also_planned=True):
        path, clean = found
        raise SnapshotUnavailableError(
            f"{told}: clean {clean.requested_time} took {path}, which that snapshot needs; choose a "
            "later commit",
            instant=to,
            clean=clean.requested_time,
        )
    files: dict[str, list[FileStatus]] = {commit.requested_time: [] for commit in undone}
    # This includes files that a clean has deleted but the index `files` still lists, so that it lists them no
    # more.
    for status in chain(*there_and_gone(storage)) if undone else ():
        parsed = parse_data_file_name(status.name)
        if parsed and parsed[2] in files:
            files[parsed[2]].append(status)
    return RestorePlan(back_to, undone, {instant: tuple(found) for instant, found in files.items()})


def _check_nothing_in_the_way(
    storage: Storage, timeline: Timeline, undone: tuple[Instant, ...], moment: str, told: str
) -> None:
    times = {commit.requested_time for commit in undone}
    later = [i.requested_time for i in timeline.savepoints() if timeline.kept_moment(i) > moment]
    if later:
        raise TableError(
            f"{told}: savepoint {', '.join(later)} keeps a later commit; delete it first", savepoints=later
        )
    for instant, txn_id in instants_of_open_transactions(storage).items():
        if instant in times:
            raise TableError(
                f"{told}: commit {instant} belongs to transaction {txn_id}, which has not ended; commit or "
                "abort it first",
                instant=instant,
                txn_id=txn_id,
            )


def _end_pending(table: HudiTable) -> None:
    """Roll back dead writers, and plans that no process executes. A live writer is an error."""
    rollback_dead_writers(table)
    for pending in pending_instants(table):
        if not pending.alive and pending.action in _PLANS:
            rollback(table, pending.instant, reason="the table is restored")
        elif pending.alive or pending.action in WRITE_ACTIONS:
            raise WriteConflictError(
                f"table {table.location}: {pending.operation or pending.action} {pending.instant} by "
                f"{pending.owner} is under way; stop it, or wait for its end, and restore again",
                instant=pending.instant,
            )


def _entry(storage: Storage, moment: Moment, plan: RestorePlan, started: float) -> Restore:
    """The entry that undoes the later commits. This function stages its metadata and index records."""
    instant = moment.request_instant(Action.RESTORE, RESTORE)
    staged = staged_metadata_path(instant)
    storage.put(staged, _metadata(storage, plan, instant, time.monotonic() - started))
    undone = frozenset(commit.requested_time for commit in plan.undone)
    after = FileSystemView(storage, moment.timeline.showing(lambda i: i.requested_time not in undone))
    StagedChange(storage, instant).stage(
        moment.indexes, lambda: _change(storage, moment, plan, after), lambda: after
    )
    return Restore(
        instant=instant,
        priority=PRIORITIES["ingestion"],
        undoes=undone,
        metadata_path=staged,
        owner=describe_owner(),
    )


def _change(storage: Storage, moment: Moment, plan: RestorePlan, after: FileSystemView) -> FileChanges:
    """The changes of the indexes."""
    timeline = moment.timeline
    before = FileSystemView(storage, timeline)
    effects = [effect_of(storage, timeline, commit) for commit in plan.undone]
    touched = frozenset[FileGroupId]().union(*(each.written | each.replaced for each in effects))
    removed = (file.path for of_instant in plan.files.values() for file in of_instant)
    return change_of_undoing(storage, before, after, touched, removed, moment.indexes)


def _metadata(storage: Storage, plan: RestorePlan, instant: str, took: float) -> bytes:
    """Hudi's ``HoodieRestoreMetadata``, with a ``HoodieRollbackMetadata`` for each commit that is undone."""
    infos = [{"commitTime": each.requested_time, "action": str(each.action)} for each in plan.undone]
    rollbacks = {}
    for info in infos:
        partitions: dict[str, dict[str, Any]] = {}
        for file in plan.files[info["commitTime"]]:
            partition = file.path.rpartition("/")[0]
            said = partitions.setdefault(
                partition,
                {
                    "partitionPath": partition,
                    "successDeleteFiles": [],
                    "failedDeleteFiles": [],
                    "rollbackLogFiles": {},
                    "logFilesFromFailedCommit": {},
                },
            )
            said["successDeleteFiles"].append(storage.url(file.path))
        rollbacks[info["commitTime"]] = [
            {
                "startRollbackTime": instant,
                "timeTakenInMillis": 0,
                "totalFilesDeleted": len(plan.files[info["commitTime"]]),
                "commitsRollback": [info["commitTime"]],
                "partitionMetadata": partitions,
                "version": 1,
                "instantsRollback": [info],
            }
        ]
    record = {
        "startRestoreTime": instant,
        "timeTakenInMillis": round(took * 1000),
        "instantsToRollback": [info["commitTime"] for info in infos],
        "hoodieRestoreMetadata": rollbacks,
        "version": 1,
        "restoreInstantInfo": infos,
        "extraMetadata": {
            RESTORED_TO: plan.back_to.requested_time,
            RESTORED_TO_COMPLETION: plan.back_to.completion_time or "",
        },
    }
    return encode("HoodieRestoreMetadata", record)

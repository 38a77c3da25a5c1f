"""Cleaning: deleting the files that no reader or writer needs any more.

First the plan is put as an entry of the commit log; then files are deleted; then another entry completes the
clean. No process needs a file that a plan names, now or later. So one process or several may execute a plan
at any time. If a clean is killed, the next clean finishes it, so a clean needs no heartbeat.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow_provider.concurrency import (
    PRIORITIES,
    CommitLog,
    ServicePlan,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.commit import Moment, commit, publish_head, staged_metadata_path
from airflow_provider.concurrency.heartbeats import observe
from airflow_provider.concurrency.indexes import StagedChange, staged_path
from airflow_provider.concurrency.log import Commit, Plan
from airflow_provider.concurrency.plans import (
    MAX_FAILURES,
    Service,
    log_head,
    reserved_file_groups,
    stopping_itself,
)
from airflow_provider.concurrency.readers import READERS_FOLDER
from airflow_provider.exceptions import InstantRolledBackError, NoSuchInstantError
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.locks.owner import describe_owner
from airflow_provider.services.archival import archived_content
from airflow_provider.services.cleaning.clean_plan import CleanPlan, make_plan
from airflow_provider.services.cleaning.retention import Retention
from airflow_provider.services.orphans import Found
from airflow_provider.table.file_groups import FileGroupId, FileSystemView, planned_files
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import FileChanges
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    Instant,
    State,
    Timeline,
    decode,
    encode,
    find_archived,
    instant_path,
)

log = logging.getLogger(__name__)

_OPERATION = "CLEAN"


@dataclass(frozen=True)
class CleanResult:
    """The result of a clean.

    :param instant: requested time.
    :param completion_time: when it completed.
    :param deleted: number of deleted files.
    :param failed: number of files that could not be deleted; the next clean tries again.
    :param size: bytes freed.
    :param earliest_commit_to_retain: the commit from which on every snapshot stays; None where the policy
        names none.
    """

    instant: str
    completion_time: str
    deleted: int
    failed: int
    size: int
    earliest_commit_to_retain: str | None

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-able dict."""
        return {
            "instant": self.instant,
            "completion_time": self.completion_time,
            "files_deleted": self.deleted,
            "files_failed": self.failed,
            "bytes": self.size,
            "earliest_commit_to_retain": self.earliest_commit_to_retain,
        }


def plan_clean(table: HudiTable, retention: Retention | None = None) -> CleanPlan:
    """The files that a clean would delete now, with reasons, and those it would keep. This writes nothing.

    :param table: the table.
    :param retention: which superseded slices to keep; those of the last 10 commits' snapshots when None.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage = table.storage
    found, timeline = Found.of(storage), Timeline.load(storage)
    found = found.or_anew(storage)
    reserved = reserved_file_groups(storage, CommitLog(storage), timeline)
    return make_plan(storage, found, FileSystemView(storage, timeline), reserved, retention or Retention())


def schedule_clean(
    table: HudiTable,
    retention: Retention | None = None,
    *,
    lock: LockProvider | None = None,
    on_plan: Callable[[CleanPlan], object] = lambda _: None,
) -> str | None:
    """Plan a clean, as an instant that :func:`run_clean` executes.

    :param table: the table.
    :param retention: see :func:`plan_clean`.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param on_plan: called with each plan, also with an empty one. It is called again if the plan has to be
        made again.
    :return: requested time of the plan; None when there is nothing to delete.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """

    found = Found.of(table.storage)  # outside the lock

    def planner(view: FileSystemView, left_alone: frozenset[FileGroupId]) -> ServicePlan | None:
        _ = view.timeline
        there = found.or_anew(table.storage)
        plan = make_plan(table.storage, there, view, left_alone, retention or Retention())
        for each in plan.kept:
            log.info("table %s: %d files are kept for %s", table.location, each.files, each.by)
        on_plan(plan)
        if not plan.files:
            return None
        return ServicePlan(plan.file_groups, plan.to_avro(table.storage))

    return schedule(
        table,
        planner,
        action=Action.CLEAN,
        operation=_OPERATION,
        priority=PRIORITIES["cleaning"],
        lock=lock or default_lock(table),
    )


def pending_cleans(table: HudiTable) -> list[str]:
    """Requested times of our cleans that have not completed. Other Hudi writers finish their own.

    :param table: the table.
    """
    commit_log = CommitLog(table.storage)
    pending = {i.requested_time for i in table.timeline().pending() if i.action is Action.CLEAN}
    return sorted(instant for instant in pending if _plan_of(commit_log, instant) is not None)


def run_clean(table: HudiTable, instant: str, *, lock: LockProvider | None = None) -> CleanResult:
    """Execute a planned clean, or finish one that another process began. A second execution is harmless.

    :param table: the table.
    :param instant: requested time of the plan.
    :param lock: the table lock, for the last step; see :func:`schedule_clean`.
    :raises NoSuchInstantError: when there is no such plan.
    :raises LockTimeoutError: when the table lock is not acquired in time; run it again.
    """
    table.check_writable()
    storage, commit_log, started = table.storage, CommitLog(table.storage), time.monotonic()
    publish_head(storage, commit_log)
    planned, content = _plan_of(commit_log, instant), _begun(storage, instant)
    if done := _result(table, instant):
        return done
    if planned is None or content is None:
        raise NoSuchInstantError(
            f"table {storage.root}: there is no planned clean {instant}; schedule one first", instant=instant
        )
    plan = decode(content)
    failed = _delete(storage, planned_files(plan))
    with lock or default_lock(table):
        _put_completion(storage, planned, plan, failed, started)
    publish_head(storage, commit_log)  # the publication of another process's entry needs the staged files
    storage.delete(staged_metadata_path(instant))
    storage.delete(staged_path(instant))
    result = _result(table, instant)
    if result is None:
        raise NoSuchInstantError(f"table {storage.root}: clean {instant} is gone", instant=instant)
    log.info("table %s: clean %s deleted %d files", storage.root, instant, result.deleted)
    return result


def clean(
    table: HudiTable,
    retention: Retention | None = None,
    *,
    lock: LockProvider | None = None,
    on_plan: Callable[[CleanPlan], object] = lambda _: None,
    max_failures: int | None = MAX_FAILURES,
) -> list[CleanResult]:
    """Delete files that no reader or writer needs any more: finish pending cleans, then plan and run a new
    one.

    Dead writers are rolled back first, so that they need no files and their own files are deleted too.

    :param table: the table.
    :param retention: see :func:`plan_clean`.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param on_plan: see :func:`schedule_clean`.
    :param max_failures: failures in a row after which the table's cleaning is stopped; None never stops it.
    :return: one result for each clean, the new one last; empty when there was nothing to delete.
    :raises ServiceStoppedError: when cleaning failed too often on this table.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    with stopping_itself(table, Service.CLEANING, lambda: _input(table), max_failures):
        rollback_dead_writers(table)
        for name, lease in observe(table.storage, READERS_FOLDER).items():
            if not lease.alive:
                log.info("reader %s by %s did not come back", name, lease.info.owner)
                table.storage.delete(f"{READERS_FOLDER}/{name}")
        results = [run_clean(table, instant, lock=lock) for instant in pending_cleans(table)]
        if instant := schedule_clean(table, retention, lock=lock, on_plan=on_plan):
            results.append(run_clean(table, instant, lock=lock))
    return results


def _input(table: HudiTable) -> str:
    """The input of the next clean, for counting failures in a row."""
    pending = pending_cleans(table)
    return f"clean {pending[0]}" if pending else log_head(table)


def _plan_of(commit_log: CommitLog, instant: str) -> Plan | None:
    plans = (entry for entry in commit_log.about(instant) if isinstance(entry, Plan))
    return next((entry for entry in plans if entry.action is Action.CLEAN), None)


def _delete(storage: Storage, paths: Iterable[str]) -> set[str]:
    failed = set()
    for path in paths:
        try:
            storage.delete(path)
        except OSError as error:
            log.warning("%s could not be deleted: %s", storage.url(path), error)
            if _may_be_there(storage, path):
                failed.add(path)
    return failed


def _may_be_there(storage: Storage, path: str) -> bool:
    """Whether a file whose deletion failed may still exist. If only the answer was lost, it is gone."""
    try:
        return storage.stat(path) is not None
    except OSError:
        return True


def _put_completion(
    storage: Storage, planned: Plan, plan: dict[str, Any], failed: set[str], started: float
) -> None:
    """Put the entry that completes a clean, unless another process has; the clean may even be archived."""
    staged = StagedChange(storage, planned.instant)

    def decide(moment: Moment) -> Commit | None:
        if moment.fate_of(planned.instant) is not None:
            return None
        _ = moment.timeline  # loaded, so that this entry completes after the commits of other Hudi writers
        # Another process that executes this plan may have deleted files that this one could not delete.
        gone = {path for path in failed if not _may_be_there(storage, path)}
        failed.difference_update(gone)
        if gone or not staged.is_for(moment.indexes):
            removed = FileChanges(removed=tuple(sorted(set(planned_files(plan)) - failed)))
            staged.stage(moment.indexes, lambda: removed, moment.view)
        metadata = _metadata(plan, planned.instant, failed, time.monotonic() - started)
        storage.put(staged_metadata_path(planned.instant), metadata)
        return Commit(
            instant=planned.instant,
            action=Action.CLEAN,
            operation=_OPERATION,
            priority=planned.priority,
            metadata_path=staged_metadata_path(planned.instant),
            owner=describe_owner(),
        )

    with suppress(InstantRolledBackError):  # another process completed it during the put
        commit(storage, decide)


def _metadata(plan: dict[str, Any], instant: str, failed: set[str], took: float) -> bytes:
    """Hudi's ``HoodieCleanMetadata``. Files that another process deleted for this plan count too."""
    partitions: dict[str, dict[str, Any]] = {}
    for path in planned_files(plan):
        partition, _, name = path.rpartition("/")
        entry = partitions.setdefault(
            partition,
            {
                "partitionPath": partition,
                "policy": plan["policy"],
                "deletePathPatterns": [],
                "successDeleteFiles": [],
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            },
        )
        entry["deletePathPatterns"].append(name)
        entry["failedDeleteFiles" if path in failed else "successDeleteFiles"].append(name)
    earliest = plan["earliestInstantToRetain"]
    record = {
        "startCleanTime": instant,
        "timeTakenInMillis": round(took * 1000),
        "totalFilesDeleted": sum(len(entry["successDeleteFiles"]) for entry in partitions.values()),
        "earliestCommitToRetain": earliest["timestamp"] if earliest else "",
        "lastCompletedCommitTimestamp": plan["lastCompletedCommitTimestamp"],
        "partitionMetadata": partitions,
        "version": plan["version"],
        "bootstrapPartitionMetadata": {},
        "extraMetadata": plan["extraMetadata"],
    }
    return encode("HoodieCleanMetadata", record)


def _begun(storage: Storage, instant: str) -> bytes | None:
    """Make the clean inflight and return its plan; None where it was archived, or never existed."""
    requested = instant_path(Instant(instant, Action.CLEAN, State.REQUESTED))
    try:
        content = storage.read(requested)
        # The inflight file is a link to the plan: if the clean is archived meanwhile, no file appears.
        storage.link_if_absent(requested, instant_path(Instant(instant, Action.CLEAN, State.INFLIGHT)))
    except FileNotFoundError:
        return None
    return content


def _result(table: HudiTable, instant: str) -> CleanResult | None:
    """The result of a completed clean, from its metadata; None where it is pending or does not exist."""
    found = table.timeline().find(instant)
    if found is not None and found.state is not State.COMPLETED:
        return None
    # The clean may be archived meanwhile: the archived timeline has it before it leaves the active one.
    kept = (found and archived_content(table.storage, found)) or find_archived(table.storage, instant)
    if kept is None or kept.instant.action is not Action.CLEAN:
        return None
    metadata = decode(kept.metadata or b"")
    return CleanResult(
        instant,
        kept.instant.completion_time or "",
        metadata["totalFilesDeleted"],
        sum(len(each["failedDeleteFiles"]) for each in metadata["partitionMetadata"].values()),
        int((metadata["extraMetadata"] or {}).get("bytes", 0)),
        metadata["earliestCommitToRetain"] or None,
    )

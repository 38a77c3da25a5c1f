"""Scheduling table services: plans on a static view, published like commits (RFC-22,
"Scheduling Table Management Services").

A planner holds the table lock, so that its snapshot stays the newest while it plans. The lock makes planning
cheap, but not safe, because the process that holds it can be paused. So a plan exists once its entry is in
the commit log, like a commit. Between the snapshot and that entry, no commit and no other plan may have
touched the plan's file groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider.concurrency.commit import Moment, commit, log_unlogged_commits, staged_plan_path
from airflow_provider.concurrency.conflicts import (
    SECONDS_FOR_ANOTHER_ENGINE,
    check_no_unfinished_write,
    clustered,
    compacted,
    others_writing,
    pending_instants,
    wait_for_others_to_tell,
    warn_of_other_writers,
    writers_above,
    writes_of_open_transactions,
)
from airflow_provider.concurrency.log import CommitLog, Plan, Restore, Rollback, Savepoint
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, Timeline

log = logging.getLogger(__name__)

_SERVICES = frozenset(
    {Action.CLUSTERING, Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.INDEXING}
)
_COMMITTING = frozenset({Action.CLUSTERING, Action.COMPACTION, Action.LOG_COMPACTION})


@dataclass(frozen=True)
class ServicePlan:
    """The plan of a table service.

    :param file_groups: the file groups that the plan rewrites, or whose slices it deletes.
    :param content: the requested instant's content: Hudi's own plan record, as Avro.
    """

    file_groups: frozenset[FileGroupId]
    content: bytes


def pending_plans(table: HudiTable, action: Action, *, idle: bool = False) -> list[str]:
    """Plans of this package that have neither completed nor been rolled back, oldest first.

    :param table: the table.
    :param action: the action of the table service.
    :param idle: whether to return only plans that no process carries out.
    """
    pending = {
        each.instant
        for each in pending_instants(table)
        if each.action is action and not (idle and each.alive is not None)
    }
    if not pending:
        return []
    ours = set()
    for entry in CommitLog(table.storage).backwards():
        if entry.completion_time < min(pending):
            break
        if isinstance(entry, Plan) and entry.instant in pending:
            ours.add(entry.instant)
    return sorted(ours)


def end_of_plan(table: HudiTable, instant: str) -> str:
    """Why a plan does not exist, for people.

    :param table: the table.
    :param instant: requested time of the plan.
    """
    for entry in CommitLog(table.storage).about(instant):
        if isinstance(entry, Rollback):
            executor = f" when {entry.dead_owner} executed it" if entry.dead_owner else ""
            return f"it was rolled back{executor} ({entry.reason})"
    return "it was rolled back or never was"


Planner = Callable[[FileSystemView, frozenset[FileGroupId]], ServicePlan | None]
"""Makes a plan, given the snapshot and the file groups that the plan must leave alone."""


def schedule(
    table: HudiTable,
    planner: Planner,
    *,
    action: Action,
    operation: str,
    priority: int,
    lock: LockProvider | None = None,
    on_metadata_table: bool = False,
    operation_key: str | None = None,
) -> str | None:
    """Plan a table service, as an instant of its own that any process can carry out later.

    :param table: the table.
    :param planner: called under the table lock, perhaps more than once; must write nothing. It must leave
        alone the file groups of pending plans, and those that open transactions hold. Except for a clean or a
        compaction, it must also leave alone the file groups of live writers of higher priority, and of other
        Hudi writers, which refuse to write to a file group that a plan rewrites.
    :param action: the instant's action, for example :attr:`Action.CLUSTERING`.
    :param operation: Hudi's operation type, for example ``CLUSTER``.
    :param priority: see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param lock: the table lock; the filesystem lock in the table by default.
    :param on_metadata_table: whether the plan is for the metadata table. Then all log files of instants that
        completed by the plan's requested time exist when the planner is called, and later log files belong to
        instants that complete later.
    :param operation_key: key by which :func:`~airflow_provider.concurrency.roll_back_operation` rolls back
        what this call leaves if its process dies.
    :return: requested time of the plan, for :func:`~airflow_provider.concurrency.begin_planned`; None
        when the planner found nothing to do, or another Hudi writer does not put its plan in time.
    :raises InvalidInputError: when the plan names a file group that it must leave alone.
    :raises LockTimeoutError: when the table lock could not be acquired in time.
    :raises UnfinishedWriteError: when the plan ends in a commit, a write of another Hudi writer without a
        heartbeat is pending, and other Hudi writers do not share the lock.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage, lock = table.storage, lock or default_lock(table)
    commit_log = CommitLog(storage)
    planned: tuple[Moment, ServicePlan | None] | None = None
    # Writers may append log files during a compaction: these belong to the next file slices.
    rewrites = action not in (Action.CLEAN, Action.COMPACTION)

    def decide(moment: Moment) -> Plan | None:
        nonlocal planned
        if planned is None or _is_outdated(moment, *planned, on_metadata_table):
            planned = moment, make_plan(moment)
        _, plan = planned
        if plan is None:
            return None
        timeline = moment.timeline  # so the entry completes after the commits of other Hudi writers
        if action in _COMMITTING and not lock.excludes_hudi:
            check_no_unfinished_write(storage, timeline)
        warn_of_other_writers(storage, timeline, moment.completed_until, lock)
        instant = moment.request_instant(action, operation, priority=priority, operation_key=operation_key)
        storage.put(staged_plan_path(instant), plan.content)
        return Plan(
            instant=instant,
            action=action,
            operation=operation,
            priority=priority,
            file_groups=plan.file_groups,
            metadata_path=staged_plan_path(instant),
            on_metadata_table=on_metadata_table,
            owner=describe_owner(),
        )

    def make_plan(moment: Moment) -> ServicePlan | None:
        reserved = left_alone = reserved_file_groups(storage, commit_log, moment.timeline)
        if rewrites:  # a clean or a compaction is in no writer's way
            above = [writer.file_groups for writer in writers_above(storage, priority)]
            theirs = others_writing(storage)
            if unknown := [instant for instant, groups in theirs.items() if groups is None]:
                told = "table %s: no %s is planned: %s of another Hudi writer may touch any file group"
                log.warning(told, storage.root, operation, unknown[0])
                return None
            left_alone = reserved.union(*above, *(groups for groups in theirs.values() if groups))
        if on_metadata_table:  # a commit that completed before the plan must not be logged after it
            log_unlogged_commits(storage, moment.indexes, moment.timeline, after=moment.completed_until)
        plan = planner(moment.view(), left_alone)
        if plan is not None and (taken := plan.file_groups & reserved):
            partition, file_id = min(taken)
            raise InvalidInputError(
                f"table {storage.root}: the plan for {operation} names file group {partition}/{file_id}, "
                "which another pending plan or an open transaction holds",
                file_groups=[list(group) for group in sorted(taken)],
            )
        return plan

    if rewrites:
        wait_for_others_to_tell(storage, SECONDS_FOR_ANOTHER_ENGINE)
    with lock:
        entry = commit(storage, decide)
    return entry.instant if entry else None


def _is_outdated(
    moment: Moment, planned_at: Moment, plan: ServicePlan | None, on_metadata_table: bool
) -> bool:
    """Whether an entry that was put since a plan was made makes the plan invalid."""
    if plan is None or (on_metadata_table and moment.sequence > planned_at.sequence):
        return True  # every entry may log to the metadata table
    entries = [change.entry for change in moment.changes_since(planned_at)]
    if on_metadata_table and entries:
        return True
    return any(isinstance(each, Savepoint | Restore) or each.claimed & plan.file_groups for each in entries)


def reserved_file_groups(
    storage: Storage, commit_log: CommitLog, timeline: Timeline
) -> frozenset[FileGroupId]:
    """File groups that no plan may name now: those of pending plans, and those that open transactions hold.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param timeline: the active timeline.
    """
    # A write that may be undone needs its file groups unchanged, including the slices that it superseded.
    of_transactions = (
        write.written | write.merged_on | write.replaced for write in writes_of_open_transactions(storage)
    )
    return planned_file_groups(storage, commit_log, timeline).union(*of_transactions)


def planned_file_groups(
    storage: Storage, commit_log: CommitLog, timeline: Timeline
) -> frozenset[FileGroupId]:
    """File groups of all plans that were neither carried out nor rolled back.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param timeline: the active timeline.
    """
    wanted = {i.requested_time: i for i in timeline.pending() if i.action in _SERVICES}
    found: set[FileGroupId] = set()
    for entry in commit_log.backwards():
        if not wanted or entry.completion_time < min(wanted):
            break
        if wanted.pop(entry.instant, None) is not None and isinstance(entry, Plan):
            found |= entry.file_groups
        for instant in entry.undone:
            wanted.pop(instant, None)
    for anothers in wanted.values():
        found |= clustered(timeline, anothers) | compacted(timeline, anothers)
    return frozenset(found)

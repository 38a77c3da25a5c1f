"""Compaction of a merge-on-read table, beside its writers.

Scheduling and execution are separate: :func:`schedule_table_compaction` puts a plan on the timeline, and
:func:`run_table_compaction` executes one, now or later, in this process or another one. The plan names the
log files that it reads. Every instant that completes after the plan's requested time belongs to the next file
slice. So no writer waits for a compaction, and no writer blocks one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_provider.concurrency import (
    PRIORITIES,
    HeartbeatSettings,
    ServicePlan,
    Writer,
    begin_planned,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.plans import (
    MAX_FAILURES,
    Service,
    check_failures,
    log_head,
    pending_plans,
    stopping_itself,
)
from airflow_provider.exceptions import (
    NoSuchInstantError,
    TableServiceError,
    UnfinishedWriteError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.services.compaction import CompactionResult
from airflow_provider.services.compaction_plan import CompactionPlan
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.services.table_compaction.compaction_task import CompactionTask
from airflow_provider.services.table_compaction.compaction_trigger import is_due
from airflow_provider.services.table_compaction.run_plans import run_plans
from airflow_provider.services.table_compaction.table_compaction_plan import (
    plan_table_compaction,
    read_plan,
)
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import COMPACT
from airflow_provider.table.reading import SliceReader, merge_memory
from airflow_provider.table.timeline import Action, WriteStat

log = logging.getLogger(__name__)


_WORTH_THREADS = 8 * 1024 * 1024  # from so many bytes of a plan on, threads are faster
_MERGED_BYTES = 8  # bytes of memory that a merge takes for each byte of log files, if nothing else is known

WriteSlices = Callable[[Sequence[CompactionTask]], list[WriteStat]]
"""Writes the new base files of some file groups."""


# --- scheduling -----------------------------------------------------------------------------


def preview_table_compaction(
    table: HudiTable, settings: TableCompactionSettings | None = None
) -> CompactionPlan | None:
    """The plan that :func:`schedule_table_compaction` would make now without other writers. It is not stored.

    :param table: a merge-on-read table.
    :param settings: when a compaction is due, and for which file groups.
    :return: None when nothing is due.
    :raises UnsupportedTableError: when this package does not write the table, or it is not merge-on-read.
    """
    _check(table)
    settings = settings or TableCompactionSettings()
    view = table.view()
    if not is_due(table, view.timeline, settings):
        return None
    taken = (
        read_plan(table, instant, Action.COMPACTION).file_groups()
        for instant in pending_table_compactions(table)
    )
    return plan_table_compaction(table, settings, view, frozenset[FileGroupId]().union(*taken))


def schedule_table_compaction(
    table: HudiTable,
    settings: TableCompactionSettings | None = None,
    *,
    priority: int = PRIORITIES["table_service"],
    lock: LockProvider | None = None,
    max_failures: int | None = MAX_FAILURES,
    operation_key: str | None = None,
) -> str | None:
    """Plan a compaction, as an instant of its own that any process can execute later. This reads no data.

    :param table: a merge-on-read table.
    :param settings: when a compaction is due, and for which file groups.
    :param priority: see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param max_failures: failures in a row after which the table's compaction is stopped; None never stops it.
    :param operation_key: see :func:`~airflow_provider.concurrency.schedule`.
    :return: the plan's requested time; None when nothing is due.
    :raises ServiceStoppedError: when compaction failed too often on this table.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write the table, or it is not merge-on-read.
    """
    _check(table)
    check_failures(table, Service.TABLE_COMPACTION, lambda: input_of_the_next(table), max_failures)
    settings = settings or TableCompactionSettings()

    def planner(view: FileSystemView, left_alone: frozenset[FileGroupId]) -> ServicePlan | None:
        if not is_due(table, view.timeline, settings):
            return None
        plan = plan_table_compaction(table, settings, view, left_alone)
        return ServicePlan(plan.file_groups(), plan.to_avro()) if plan else None

    return schedule(
        table,
        planner,
        action=Action.COMPACTION,
        operation=COMPACT,
        priority=priority,
        lock=lock or default_lock(table),
        operation_key=operation_key,
    )


def pending_table_compactions(table: HudiTable, *, idle: bool = False) -> list[str]:
    """Compaction plans of this package that have neither completed nor been rolled back, oldest first.

    :param table: the table.
    :param idle: True for plans that no process executes now, False for all.
    """
    return pending_plans(table, Action.COMPACTION, idle=idle)


def due_table_compactions(
    table: HudiTable, settings: TableCompactionSettings | None = None
) -> dict[str, Any]:
    """The work that :func:`compact_table` would do now; nothing is written.

    :param table: a merge-on-read table.
    :param settings: when a compaction is due, and for which file groups.
    :return: JSON-able: ``pending`` (requested times of the plans), and ``due``: how much another one would
        compact, or None.
    """
    plan = preview_table_compaction(table, settings)
    return {"pending": pending_table_compactions(table), "due": plan and plan.to_dict()}


# --- execution ------------------------------------------------------------------------------


def run_table_compaction(
    table: HudiTable,
    instant: str | None = None,
    *,
    write: WriteSlices | None = None,
    at_once: int | None = None,
    lock: LockProvider | None = None,
    heartbeat: HeartbeatSettings | None = None,
    is_alive: Callable[[], bool] | None = None,
    operation_key: str | None = None,
) -> CompactionResult | None:
    """Execute a planned compaction, as one commit.

    A file group stays as it is if another writer has rewritten its base file, or replaced it, since the plan.

    :param table: a merge-on-read table.
    :param instant: the plan's requested time; the oldest one that no process executes when None.
    :param write: writes the base files; None writes them in this process.
    :param at_once: number of file groups that ``write`` gets in one call. The default is one. In this process
        it is the number of cores, if the files are large enough. Together their merges take no more memory
        than ``hoodie.memory.compaction.max.size``, so they are fewer where log files are large.
    :param lock: the table lock; by the table's options when None.
    :param heartbeat: how the execution shows that it is alive.
    :param is_alive: called before every heartbeat; False gives the compaction up.
    :param operation_key: see :func:`~airflow_provider.concurrency.begin_planned`.
    :return: None when no plan was named, and none is pending.
    :raises NoSuchInstantError: when the plan that was named does not exist, or was rolled back.
    :raises WriteConflictError: when another process executes the plan, or every file group is in conflict.
    :raises CommitError: when the compaction ended otherwise without a commit.
    :raises UnsupportedTableError: when this package does not write the table, or it is not merge-on-read.
    """
    _check(table)
    table.merge_semantics  # noqa: B018 - refuses a table whose merge semantics are unknown here
    if instant is not None and (done := CompactionResult.of_table(table, instant)) is not None:
        return done
    lock = lock or default_lock(table)
    begin = partial(
        begin_planned,
        table,
        lock=lock,
        heartbeat=heartbeat,
        is_alive=is_alive,
        operation_key=operation_key,
    )
    writer = begin(instant) if instant is not None else _begin_one(table, begin)
    if writer is None:
        return None
    with writer:
        plan = read_plan(table, writer.instant, Action.COMPACTION)
        if at_once is None:
            is_worth_it = write is None and _bytes_of(plan) >= _WORTH_THREADS
            at_once = (os.cpu_count() or 1) if is_worth_it else 1
        stats = _written(table, writer, plan, write, at_once)
        committed = writer.commit(stats, parts=[frozenset({stat.file_group}) for stat in stats])
    result = CompactionResult.of_table(table, committed.instant)
    if result is None:
        raise WriteConflictError(
            f"table {table.location}: compaction {committed.instant} was undone right after its commit; run "
            "it again",
            instant=committed.instant,
        )
    told = "table %s: compaction %s of %d file groups"
    log.info(told, table.location, result.instant, result.file_groups)
    return result


def compact_table(
    table: HudiTable,
    settings: TableCompactionSettings | None = None,
    *,
    lock: LockProvider | None = None,
    max_failures: int | None = MAX_FAILURES,
    operation_key: str | None = None,
) -> list[CompactionResult]:
    """Keep log files few: execute pending plans, then plan and run a compaction if one is due.

    A pending plan is dropped if later commits have touched all its file groups.

    :param table: a merge-on-read table.
    :param settings: when a compaction is due, and for which file groups.
    :param lock: the table lock; by the table's options when None.
    :param max_failures: failures in a row after which the table's compaction is stopped; None never stops it.
    :param operation_key: see :func:`~airflow_provider.concurrency.schedule`.
    :return: one result for each compaction, the new one last; empty when nothing was due.
    :raises ServiceStoppedError: when compaction failed too often on this table.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises WriteConflictError: when every file group of the new plan is in conflict.
    :raises UnsupportedTableError: when this package does not write the table, or it is not merge-on-read.
    """
    _check(table)
    lock = lock or default_lock(table)
    with stopping_itself(table, Service.TABLE_COMPACTION, lambda: input_of_the_next(table), max_failures):
        rollback_dead_writers(table)
        return run_plans(
            table,
            Action.COMPACTION,
            lambda instant: run_table_compaction(table, instant, lock=lock, operation_key=operation_key),
            lambda: schedule_table_compaction(
                table, settings, lock=lock, max_failures=None, operation_key=operation_key
            ),
        )


def compact_table_when_due(table: HudiTable, *, lock: LockProvider | None = None) -> None:
    """Compact a table with ``hoodie.compact.inline`` after a load, if a compaction is due.

    A failure is only logged, because the load is done.

    :param table: the table.
    :param lock: the table lock.
    """
    said = table.hudi_options.values
    if not table.is_merge_on_read or not said.get("hoodie.compact.inline", False):
        return
    try:
        settings = TableCompactionSettings.of(EffectiveOptions(HudiOptions(), table.hudi_options))
        compact_table(table, settings, lock=lock)
    except (TableServiceError, OSError) as error:
        log.warning("table %s could not be compacted now: %s", table.location, error)


def _check(table: HudiTable) -> None:
    table.check_writable()
    if not table.is_merge_on_read:
        raise UnsupportedTableError(
            f"table {table.location} is {table.config.table_type}: it has no log files to be compacted",
            location=table.location,
        )


def _begin_one(table: HudiTable, begin: Callable[[str], Writer]) -> Writer | None:
    rollback_dead_writers(table)  # this includes the plans of dead executors
    for each in pending_table_compactions(table, idle=True):
        try:
            return begin(each)
        except UnfinishedWriteError:
            raise
        except (NoSuchInstantError, WriteConflictError) as error:
            log.info("%s", error)  # another process took the plan first
    return None


def _bytes_of(plan: CompactionPlan) -> int:
    return sum(each.base_bytes + each.log_bytes for each in plan.operations)


def _write_in_process(tasks: Sequence[CompactionTask], memory: int) -> list[WriteStat]:
    """Write base files at the same time; each merge takes a share of the memory by the size of its log."""
    log_bytes = sum(task.operation.log_bytes for task in tasks) or 1

    def write(task: CompactionTask) -> WriteStat:
        share = memory * task.operation.log_bytes // log_bytes
        alone = replace(task, reader=replace(task.reader, memory=share))
        return alone.run(f"{task.number}-0-0")

    if len(tasks) < 2:
        return [write(task) for task in tasks]
    with ThreadPoolExecutor(len(tasks), "compaction") as pool:
        return list(pool.map(write, tasks))


def _written(
    table: HudiTable, writer: Writer, plan: CompactionPlan, write: WriteSlices | None, at_once: int
) -> list[WriteStat]:
    """Write the new base files of all file groups that no other writer has rewritten since the plan.

    :param write: see :func:`run_table_compaction`.
    :raises WriteConflictError: when no file group is left.
    """
    schema, shown = table.schema_on(writer.schema_timeline), writer.view.shown
    memory = merge_memory(table.config, compacts=True)
    reader = SliceReader(table.storage, table.config, schema, table.merge_semantics, shown, memory=memory)
    tasks = [
        CompactionTask(reader, writer.instant, operation, number)
        for number, operation in enumerate(plan.operations)
    ]
    stats: list[WriteStat] = []
    conflict: WriteConflictError | None = None
    done = 0
    for together in _together(tasks, at_once, memory if write is None else None):
        chosen = []
        for task in together:
            try:
                writer.check({task.file_group})
            except WriteConflictError as error:
                conflict = error
                log.info("compaction %s leaves %s out: %s", writer.instant, task.file_group, error)
            else:
                chosen.append(task)
        stats += _write_in_process(chosen, memory) if write is None else write(chosen)
        done += len(together)
        writer.tell(f"{done} of {len(tasks)} file groups done")
    if not stats and conflict is not None:
        raise conflict
    return stats


def _together(
    tasks: Sequence[CompactionTask], at_once: int, memory: int | None
) -> Iterator[list[CompactionTask]]:
    """Tasks that are executed at the same time, because their merges probably fit into memory together."""
    chosen: list[CompactionTask] = []
    taken = 0
    for task in tasks:
        needed = task.operation.log_bytes * _MERGED_BYTES
        is_full = memory is not None and taken + needed > memory
        if chosen and (is_full or len(chosen) == at_once):
            yield chosen
            chosen, taken = [], 0
        chosen.append(task)
        taken += needed
    if chosen:
        yield chosen


def input_of_the_next(table: HudiTable) -> str:
    """The input of the next compaction, for counting failures in a row."""
    pending = pending_table_compactions(table)
    return f"compaction {pending[0]}" if pending else log_head(table)

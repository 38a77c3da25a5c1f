"""Log compaction of a merge-on-read table: many log blocks of a file group become one, beside the base file.

A log compaction costs little, because it reads no base file. Readers then merge one block instead of many.
The block's header names the instants whose blocks it replaces (``COMPACTED_BLOCK_TIMES``). Readers that do
not know that header merge the older blocks first, and see the same rows.

A log compaction is a rewrite like a clustering: if another writer has appended to a file group since the
plan, the file group is left out. Sources: ``HoodieLogCompactionPlanGenerator`` and
``LogCompactionExecutionHelper`` of Apache Hudi 1.2.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider.concurrency import (
    PRIORITIES,
    HeartbeatSettings,
    ServicePlan,
    begin_planned,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.heartbeats import check_wanted
from airflow_provider.concurrency.plans import pending_plans
from airflow_provider.exceptions import (
    InvalidInputError,
    TableServiceError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.services.compaction import CompactionResult
from airflow_provider.services.compaction_plan import CompactionOperation, CompactionPlan
from airflow_provider.services.partition_patterns import matches
from airflow_provider.services.table_compaction.run_plans import run_plans
from airflow_provider.services.table_compaction.table_compaction_plan import (
    operations_of,
    read_plan,
    slice_of,
)
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.files import (
    BLOCKS_OF_FORMATS,
    BlockType,
    DeletedRecord,
    LogFileWriter,
    wrapped_ordering_values,
)
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import EVERY_INSTANT, SliceReader
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.timeline import Action, WriteStat

log = logging.getLogger(__name__)

LOG_COMPACT = "LOG_COMPACT"
"""Operation type of a log compaction."""


@dataclass(frozen=True)
class LogCompactionSettings:
    """For which file groups a log compaction is due.

    :param blocks: log blocks that a file group must have (``hoodie.log.compaction.blocks.threshold``). The
        blocks of one write count once. Blocks that an earlier log compaction has replaced do not count.
    :param partitions: patterns of partition paths, such as ``dest=S*``; all partitions when empty.
    :raises InvalidInputError: when the number is out of range.
    """

    blocks: int = 5
    partitions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.blocks, bool) or not isinstance(self.blocks, int) or self.blocks < 2:
            raise InvalidInputError(f"blocks must be a whole number of at least 2, not {self.blocks!r}")


def plan_log_compaction(
    table: HudiTable, settings: LogCompactionSettings, view: FileSystemView, taken: frozenset[FileGroupId]
) -> CompactionPlan | None:
    """Choose the file groups whose log blocks become one. This reads the headers of log blocks.

    :param table: a merge-on-read table.
    :param settings: which file groups are due.
    :param view: the snapshot to plan on.
    :param taken: file groups to leave alone.
    :return: None when nothing is due.
    """
    reader = SliceReader.of(table, view)

    def is_due(operation: CompactionOperation) -> bool:
        if FileGroupId(operation.partition, operation.file_id) in taken:
            return False
        if len(operation.log_files) < 2:
            return False
        blocks = reader.blocks(slice_of(operation))
        if any(each.is_partial for each in blocks):
            return False
        return len({each.instant for each in blocks}) >= settings.blocks

    found = (
        operation
        for partition in view.all_partitions()
        if matches(partition, settings.partitions)
        for operation in operations_of(table, view, partition)
    )
    chosen = tuple(filter(is_due, found))
    return CompactionPlan(chosen) if chosen else None


def schedule_log_compaction(
    table: HudiTable,
    settings: LogCompactionSettings | None = None,
    *,
    priority: int = PRIORITIES["table_service"],
    lock: LockProvider | None = None,
    operation_key: str | None = None,
) -> str | None:
    """Plan a log compaction, as an instant of its own that any process can execute later.

    :param table: a merge-on-read table.
    :param settings: which file groups are due.
    :param priority: see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :param operation_key: see :func:`~airflow_provider.concurrency.schedule`.
    :return: the plan's requested time; None when nothing is due.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write the table; or when the table is not
        merge-on-read, is non-blocking, or keeps values of older versions in newer ones.
    """
    check_log_compaction(table)
    chosen = settings or LogCompactionSettings()

    def planner(view: FileSystemView, left_alone: frozenset[FileGroupId]) -> ServicePlan | None:
        plan = plan_log_compaction(table, chosen, view, left_alone)
        return ServicePlan(plan.file_groups(), plan.to_avro()) if plan else None

    return schedule(
        table,
        planner,
        action=Action.LOG_COMPACTION,
        operation=LOG_COMPACT,
        priority=priority,
        lock=lock or default_lock(table),
        operation_key=operation_key,
    )


def pending_log_compactions(table: HudiTable, *, idle: bool = False) -> list[str]:
    """Log compaction plans of this package that have neither completed nor been rolled back, oldest first.

    :param table: the table.
    :param idle: True for plans that no process executes now, False for all.
    """
    return pending_plans(table, Action.LOG_COMPACTION, idle=idle)


def run_log_compaction(
    table: HudiTable,
    instant: str,
    *,
    lock: LockProvider | None = None,
    heartbeat: HeartbeatSettings | None = None,
    operation_key: str | None = None,
) -> CompactionResult:
    """Execute a planned log compaction in this process, as one commit.

    A file group stays as it is if another writer has touched it since the plan.

    :param table: a merge-on-read table.
    :param instant: the plan's requested time.
    :param lock: the table lock; by the table's options when None.
    :param heartbeat: how the execution shows that it is alive.
    :param operation_key: see :func:`~airflow_provider.concurrency.begin_planned`.
    :raises NoSuchInstantError: when the plan does not exist, or was rolled back.
    :raises WriteConflictError: when another process executes the plan, or every file group is in conflict.
    :raises CommitError: when the log compaction ended otherwise without a commit.
    :raises UnsupportedTableError: see :func:`schedule_log_compaction`.
    """
    check_log_compaction(table)
    if (done := CompactionResult.of_table(table, instant)) is not None:
        return done
    lock = lock or default_lock(table)
    with begin_planned(table, instant, lock=lock, heartbeat=heartbeat, operation_key=operation_key) as writer:
        plan = read_plan(table, instant, Action.LOG_COMPACTION)
        schema = table.schema_on(writer.schema_timeline)
        reader = SliceReader(table.storage, table.config, schema, table.merge_semantics, EVERY_INSTANT)
        stats: list[WriteStat] = []
        conflict: WriteConflictError | None = None
        for number, operation in enumerate(plan.operations):
            group = FileGroupId(operation.partition, operation.file_id)
            try:
                writer.check({group})
            except WriteConflictError as error:
                conflict = error
                log.info("log compaction %s leaves %s out: %s", instant, group, error)
                continue
            data_block = BLOCKS_OF_FORMATS[table.log_block_format]
            stats.append(compact_log(reader, instant, operation, f"{number}-0-0", data_block))
        if not stats and conflict is not None:
            raise conflict
        writer.commit(stats, parts=[frozenset({stat.file_group}) for stat in stats])
    result = CompactionResult.of_table(table, instant)
    if result is None:
        raise WriteConflictError(
            f"table {table.location}: log compaction {instant} was undone right after its commit; run it "
            "again",
            instant=instant,
        )
    return result


def compact_logs(
    table: HudiTable,
    settings: LogCompactionSettings | None = None,
    *,
    lock: LockProvider | None = None,
    operation_key: str | None = None,
) -> list[CompactionResult]:
    """Execute pending log compactions of this package, then plan and run one if it is due.

    A pending plan is dropped if later commits have touched all its file groups.

    :param table: a merge-on-read table.
    :param settings: which file groups are due.
    :param lock: the table lock; by the table's options when None.
    :param operation_key: see :func:`~airflow_provider.concurrency.schedule`.
    :return: one result for each log compaction; empty when nothing was due.
    :raises WriteConflictError: when every file group of the new plan is in conflict.
    :raises UnsupportedTableError: see :func:`schedule_log_compaction`.
    """
    check_log_compaction(table)
    lock = lock or default_lock(table)
    rollback_dead_writers(table)
    return run_plans(
        table,
        Action.LOG_COMPACTION,
        lambda instant: run_log_compaction(table, instant, lock=lock, operation_key=operation_key),
        lambda: schedule_log_compaction(table, settings, lock=lock, operation_key=operation_key),
    )


def compact_logs_when_due(table: HudiTable, *, lock: LockProvider | None = None) -> None:
    """Compact the log blocks of a table with ``hoodie.log.compaction.inline`` after a load, if this is due.

    A failure is only logged, because the load is done.

    :param table: the table.
    :param lock: the table lock.
    """
    said = table.hudi_options.values
    if not table.is_merge_on_read or not said.get("hoodie.log.compaction.inline", False):
        return
    blocks = said.get("hoodie.log.compaction.blocks.threshold")
    settings = LogCompactionSettings() if blocks is None else LogCompactionSettings(blocks)
    try:
        compact_logs(table, settings, lock=lock)
    except (TableServiceError, OSError) as error:
        log.warning("the log blocks of table %s could not be compacted now: %s", table.location, error)


def due_log_compactions(table: HudiTable, settings: LogCompactionSettings | None = None) -> dict[str, Any]:
    """The work that :func:`compact_logs` would do now; nothing is written.

    :param table: a merge-on-read table.
    :param settings: which file groups are due.
    :return: JSON-able: ``pending`` (requested times of the plans), and ``due``: how much another one would
        compact, or None.
    """
    check_log_compaction(table)
    pending = pending_log_compactions(table)
    taken = (read_plan(table, instant, Action.LOG_COMPACTION).file_groups() for instant in pending)
    left_alone = frozenset[FileGroupId]().union(*taken)
    plan = plan_log_compaction(table, settings or LogCompactionSettings(), table.view(), left_alone)
    return {"pending": pending, "due": plan and plan.to_dict()}


def compact_log(
    reader: SliceReader,
    instant: str,
    operation: CompactionOperation,
    write_token: str,
    data_block: BlockType = BlockType.PARQUET_DATA,
) -> WriteStat:
    """Write the log file that replaces the log files of a file slice.

    :param reader: reads file slices as they were when the log compaction was planned.
    :param instant: requested time of the log compaction.
    :param operation: the file group's operation in the plan.
    :param write_token: distinguishes this attempt's file from those of other attempts.
    :param data_block: the type of the block with the rows.
    :raises InstantRolledBackError: when the log compaction was rolled back meanwhile.
    """
    check_wanted(reader.storage, instant)
    file_slice = slice_of(operation)
    versions, columns = reader.newest_versions(file_slice), reader.schema.columns
    deletes = versions.deletions
    gone, stays = versions.filter(deletes), versions.filter(~deletes)
    instants = dict.fromkeys(each.instant for each in reader.blocks(file_slice))
    written = LogFileWriter(
        reader.storage,
        operation.partition,
        operation.file_id,
        write_token,
        instant,
        columns,
        reader.config.name,
        data_block,
    ).write_compacted(
        stays.rows.select([*META_COLUMNS, *columns.names]),
        _deleted(gone.keys.to_pylist(), gone.ordering, reader.semantics.ordering_fields, operation.partition),
        tuple(instants),
    )
    check_wanted(reader.storage, instant, [written.path])
    return WriteStat.of_log_file(
        operation.file_id,
        written.path,
        instant,
        rows=written.rows,
        deletes=written.deletes,
        size=written.size,
    )


def check_log_compaction(table: HudiTable) -> None:
    """Make sure that a table supports log compaction.

    :param table: the table.
    :raises UnsupportedTableError: see :func:`schedule_log_compaction`.
    """
    table.check_writable()
    why = None
    if not table.is_merge_on_read:
        why = "it has no log files"
    elif table.is_non_blocking:
        why = "its writers append log files at any time, in any order; compact it"
    elif table.merge_semantics.keeps_values:
        why = "newer versions of its rows keep values of older ones, also of its base files; compact it"
    if why is not None:
        raise UnsupportedTableError(
            f"table {table.location} is {table.config.table_type}, and has no log compaction here: {why}",
            location=table.location,
        )


def _deleted(
    keys: list[str], ordering: tuple[pa.Array, ...], fields: tuple[str, ...], path: str
) -> list[DeletedRecord]:
    """The deletes of a block. A delete without an ordering value removes any row of the base file."""
    deleted = [DeletedRecord(key, path) for key in keys]
    if not keys or not ordering:
        return deleted
    has_value = np.logical_and.reduce([~each.is_null().to_numpy(zero_copy_only=False) for each in ordering])
    (at,) = np.nonzero(has_value)
    values = wrapped_ordering_values(fields, [each.take(at) for each in ordering]) or []
    for position, value in zip(at.tolist(), values, strict=False):
        deleted[position] = DeletedRecord(keys[position], path, value)
    return deleted

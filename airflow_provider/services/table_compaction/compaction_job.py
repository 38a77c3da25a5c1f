"""The execution of a compaction plan as data, and its result for the operator that asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider.concurrency.plans import Service, stopping_itself
from airflow_provider.exceptions import InvalidInputError, NoSuchInstantError
from airflow_provider.jobs import PlanJob
from airflow_provider.services.compaction import CompactionResult
from airflow_provider.services.table_compaction.table_compaction import (
    WriteSlices,
    input_of_the_next,
    run_table_compaction,
)
from airflow_provider.services.table_compaction.table_compaction_plan import read_plan
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action


@dataclass(frozen=True)
class CompactionJob(PlanJob):
    """One execution of a compaction plan of a merge-on-read table.

    :param parallel_file_groups: number of file groups that are written at the same time. When None, it is the
        number of cores without Spark, and four for each core of the session with Spark.
    :raises InvalidInputError: when the number is out of range.
    """

    kind_of_job: ClassVar[str] = "compaction"
    operation: ClassVar[str] = "compact"

    parallel_file_groups: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.parallel_file_groups is not None and self.parallel_file_groups < 1:
            raise InvalidInputError(
                f"parallel_file_groups must be 1 or more, not {self.parallel_file_groups!r}"
            )


def run_compaction_job(
    job: CompactionJob,
    table: HudiTable,
    *,
    write: WriteSlices | None = None,
    at_once: int | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> dict[str, Any] | None:
    """Execute a compaction plan. A failure is counted, so that compaction stops itself after several.

    :param job: the execution.
    :param table: its table.
    :param write: see :func:`~airflow_provider.services.table_compaction.run_table_compaction`.
    :param at_once: the same; ``job.parallel_file_groups`` overrides it.
    :param is_alive: the same.
    :return: see :func:`compaction_result`; None when the job names no plan, and none is pending.
    :raises NoSuchInstantError: when the plan that the job names does not exist, or was rolled back.
    :raises WriteConflictError: when another process executes the plan, or every file group is in conflict.
    :raises CommitError: when the compaction ended otherwise without a commit.
    :raises UnsupportedTableError: when this package does not write the table, or it is not merge-on-read.
    """
    if (earlier := earlier_compaction(job, table)) is not None:
        return earlier
    with stopping_itself(table, Service.TABLE_COMPACTION, lambda: input_of_the_next(table), None):
        done = run_table_compaction(
            table,
            job.instant,
            write=write,
            at_once=job.parallel_file_groups or at_once,
            lock=job.open_lock(table),
            heartbeat=job.heartbeat,
            is_alive=is_alive,
            operation_key=job.operation_key,
        )
    return None if done is None else compaction_result(job, table, done.instant)


def earlier_compaction(job: PlanJob, table: HudiTable) -> dict[str, Any] | None:
    """The result of a compaction that has completed, by an earlier try or by another process.

    :param job: the execution.
    :param table: its table.
    :return: None when the plan has not been executed.
    """
    instant = job.executed(table)
    return None if instant is None else compaction_result(job, table, instant, already_committed=True)


def compaction_result(
    job: PlanJob, table: HudiTable, instant: str, *, already_committed: bool = False
) -> dict[str, Any]:
    """The result of a compaction, for people and for machines.

    :param job: the execution.
    :param table: its table.
    :param instant: requested time of the completed compaction.
    :param already_committed: whether an earlier execution completed it.
    :return: JSON-able dict: table, location, instant, completion_time, action, operation,
        file_groups_planned, file_groups_done, file_groups_left_out, rows, bytes_written, partitions,
        already_committed.
    :raises NoSuchInstantError: when the compaction is no longer on the active timeline.
    """
    done = CompactionResult.of_table(table, instant)
    if done is None:
        raise NoSuchInstantError(
            f"table {table.location}: compaction {instant} is not on the timeline any more: it was undone, "
            "by a write of higher priority or a restore; plan another one",
            instant=instant,
        )
    planned = len(read_plan(table, instant, Action.COMPACTION).operations)
    return {
        "table": job.table_name or table.config.name,
        "location": table.location,
        "instant": instant,
        "completion_time": done.completion_time,
        "action": str(Action.COMMIT),
        "operation": job.operation,
        "file_groups_planned": planned,
        "file_groups_done": done.file_groups,
        "file_groups_left_out": planned - done.file_groups,
        "rows": done.records,
        "bytes_written": done.bytes_written,
        "partitions": list(done.partitions),
        "already_committed": already_committed,
    }

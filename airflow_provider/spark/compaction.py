"""Compaction of a merge-on-read table on any Spark session: a plan's file groups, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.locks import LockProvider
from airflow_provider.services.compaction import CompactionResult
from airflow_provider.services.table_compaction import (
    CompactionJob,
    CompactionTask,
    WriteSlices,
    run_compaction_job,
    run_table_compaction,
)
from airflow_provider.spark.session import parallelism, tasks_end_with
from airflow_provider.spark.write_task import run_tasks
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import WriteStat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_on_spark(
    spark: SparkSession,
    table: HudiTable,
    instant: str | None = None,
    *,
    at_once: int | None = None,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> CompactionResult | None:
    """Execute a planned compaction: one task writes each new base file.

    ::

        instant = schedule_table_compaction(table)
        compact_on_spark(spark, table, instant)

    :param spark: a session, local or over Spark Connect.
    :param table: a merge-on-read table.
    :param instant: the plan's requested time; the oldest plan that nobody executes when None.
    :param at_once: the number of file groups of one Spark job; four for each core of the session when None.
    :param lock: the table lock; the lock of the table's options when None.
    :param is_alive: called before every heartbeat; False stops the compaction.
    :return: see :func:`~airflow_provider.services.table_compaction.run_table_compaction`, also for its
        errors.
    """

    return run_table_compaction(
        table,
        instant,
        write=_write_on(spark),
        at_once=at_once or _at_once(spark),
        lock=lock,
        is_alive=is_alive,
    )


def compact_by_job(
    spark: SparkSession, job: CompactionJob, *, is_alive: Callable[[], bool] | None = None
) -> dict[str, Any] | None:
    """Execute a planned compaction for an operator; see :func:`compact_on_spark`.

    :param spark: a session, local or over Spark Connect.
    :param job: the execution.
    :param is_alive: called before every heartbeat; False stops the compaction.
    :return: see :func:`~airflow_provider.services.table_compaction.run_compaction_job`, also for its errors.
    """
    table = HudiTable.open(job.location, job.storage_options)
    return run_compaction_job(job, table, write=_write_on(spark), at_once=_at_once(spark), is_alive=is_alive)


def _at_once(spark: SparkSession) -> int:
    return 4 * parallelism(spark)


def _write_on(spark: SparkSession) -> WriteSlices:
    def write(tasks: Sequence[CompactionTask]) -> list[WriteStat]:
        if not tasks:
            return []
        with tasks_end_with(spark, tasks[0].instant):
            return run_tasks(spark, tasks)

    return write

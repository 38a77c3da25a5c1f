"""Compaction of a merge-on-read table on any Spark session: a plan's file groups, several at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.locks import LockProvider
from airflow_provider.services.compaction import CompactionResult
from airflow_provider.services.table_compaction import CompactionTask, run_table_compaction
from airflow_provider.spark.session import parallelism, tagged
from airflow_provider.spark.write_task import spare_loaded_modules
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
    """Carry a planned compaction out: each new base file is written by one task.

    ::

        instant = schedule_table_compaction(table)
        compact_on_spark(spark, table, instant)

    :param spark: a session, local or over Spark Connect.
    :param table: a merge-on-read table.
    :param instant: the plan's requested time; the oldest plan that nobody carries out when None.
    :param at_once: the number of file groups of one Spark job; four for each core of the session when None.
    :param lock: the table lock; by the table's options when None.
    :param is_alive: asked before every heartbeat; False gives the compaction up.
    :return: see :func:`~airflow_provider.services.table_compaction.run_table_compaction`, also for what it
        raises.
    """

    def write(tasks: Sequence[CompactionTask]) -> list[WriteStat]:
        if not tasks:
            return []
        with tagged(spark, tasks[0].instant):
            return _write(spark, tasks)

    return run_table_compaction(
        table, instant, write=write, at_once=at_once or 4 * parallelism(spark), lock=lock, is_alive=is_alive
    )


def _write(spark: SparkSession, tasks: Sequence[CompactionTask]) -> list[WriteStat]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("runs only inside a Spark task")
        spare_loaded_modules()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                token = f"{tasks[number].number}-{context.stageId()}-{context.taskAttemptId()}"
                yield _described(tasks[number], token)

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    told = numbers.mapInArrow(run, "write_stat string, error string").toArrow().to_pylist()
    for row in told:
        if row["error"] is not None:
            raise from_dict(json.loads(row["error"]))
    return [WriteStat.from_dict(json.loads(row["write_stat"])) for row in told]


def _described(task: CompactionTask, write_token: str) -> pa.RecordBatch:
    row: dict[str, str | None] = {"write_stat": None, "error": None}
    try:
        row["write_stat"] = json.dumps(task.run(write_token).to_dict())
    except TableServiceError as error:  # to run the task again would not help
        row["error"] = json.dumps(to_dict(error))
    return pa.RecordBatch.from_pylist([row], pa.schema({name: pa.string() for name in row}))

"""Clustering on any Spark session, local or over Spark Connect: a plan's groups, several at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.locks import LockProvider
from airflow_provider.services.clustering import ClusteringJob, ClusteringTask, run_clustering
from airflow_provider.spark.session import parallelism, tagged, tasks_end_with
from airflow_provider.spark.write_task import spare_loaded_modules
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import WriteStat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cluster(
    spark: SparkSession,
    job: ClusteringJob,
    *,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> dict[str, Any] | None:
    """Carry a clustering plan out: each new file group is written by one task, no row moves between them.

    :param spark: a session, local or over Spark Connect.
    :param job: what to do.
    :param lock: the table lock; by ``job.lock`` when None.
    :param is_alive: asked before every heartbeat; False gives the clustering up.
    :return: see :func:`~airflow_provider.services.clustering.run_clustering`, also for what it raises.
    """
    table = HudiTable.open(job.location, job.storage_options)

    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        with tagged(spark, tasks[0].instant):
            return _write_group(spark, tasks)

    return run_clustering(
        job,
        table,
        write_group,
        parallel_groups=job.parallel_groups or parallelism(spark),
        lock=lock,
        is_alive=is_alive,
        around=lambda instant: tasks_end_with(spark, instant),
    )


def _write_group(spark: SparkSession, tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("runs only inside a Spark task")
        spare_loaded_modules()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                token = f"{number}-{context.stageId()}-{context.taskAttemptId()}"
                yield _described(tasks[number], token)

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    told = numbers.mapInArrow(run, "write_stat string, error string").toArrow().to_pylist()
    for row in told:
        if row["error"] is not None:
            raise from_dict(json.loads(row["error"]))
    return [WriteStat.from_dict(json.loads(row["write_stat"])) for row in told if row["write_stat"]]


def _described(task: ClusteringTask, write_token: str) -> pa.RecordBatch:
    row: dict[str, str | None] = {"write_stat": None, "error": None}
    try:
        stat = task.run(write_token)
        row["write_stat"] = None if stat is None else json.dumps(stat.to_dict())
    except TableServiceError as error:  # to run the task again would not help
        row["error"] = json.dumps(to_dict(error))
    return pa.RecordBatch.from_pylist([row], pa.schema({name: pa.string() for name in row}))

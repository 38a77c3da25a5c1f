"""Clustering on any Spark session, local or over Spark Connect: a plan's groups, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.locks import LockProvider
from airflow_provider.services.clustering import ClusteringJob, ClusteringTask, run_clustering
from airflow_provider.spark.session import parallelism, tagged, tasks_end_with
from airflow_provider.spark.write_task import run_tasks
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
    """Execute a clustering plan: one task writes each new file group, and no row moves between tasks.

    :param spark: a session, local or over Spark Connect.
    :param job: the execution.
    :param lock: the table lock; the lock that ``job.lock`` describes when None.
    :param is_alive: called before every heartbeat; False stops the clustering.
    :return: see :func:`~airflow_provider.services.clustering.run_clustering`, also for its errors.
    """
    table = HudiTable.open(job.location, job.storage_options)

    def write_group(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
        with tagged(spark, tasks[0].instant):
            return run_tasks(spark, tasks)

    return run_clustering(
        job,
        table,
        write_group,
        parallel_groups=job.parallel_groups or parallelism(spark),
        lock=lock,
        is_alive=is_alive,
        around=lambda instant: tasks_end_with(spark, instant),
    )

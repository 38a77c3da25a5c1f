"""A backfill on a Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.ingestion.backfill import Backfill
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import Window
from airflow_provider.managed import resolve_table
from airflow_provider.metastore import AnyMetastore
from airflow_provider.spark.ingestion.ingestion import ingest
from airflow_provider.spark.ingestion.windows import find_windows
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill(
    spark: SparkSession,
    job: IngestJob,
    windows: Sequence[Window] | None = None,
    *,
    order: str = "oldest_first",
    metastore: AnyMetastore | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Write the rows of a source into a table in windows, each as one commit.

    ::

        job = IngestJob.of("/srv/lake/flights", ("/srv/history/*.parquet",), priority=PRIORITIES["backfill"],
                        on_conflict="rebase", operation_key="history of 2013")
        backfill(spark, job)

    :param spark: a session, local or over Spark Connect.
    :param job: the ingestion of all windows. With an ``operation_key``, the backfill does not write windows
        again that were written under that key.
    :param windows: see :mod:`airflow_provider.ingestion.windows`; when None, the partitions of the
        source's rows.
    :param order: the order of these partitions.
    :param metastore: the metastore in which the table is registered, if the job gives ``database.table``.
        Then each window is a transaction of its own.
    :param settings: further fields of :class:`~airflow_provider.ingestion.backfill.Backfill`.
    :return: see :meth:`~airflow_provider.ingestion.backfill.Backfill.run`, also for its errors.
    """
    given = job.location
    if metastore is not None:
        job = replace(job, location=resolve_table(given, lambda: metastore).location)
    table = HudiTable.open(job.location, job.storage_options)
    if windows is None:
        windows = find_windows(spark, job, order=order)

    def write(_: Window, job: IngestJob) -> dict[str, Any]:
        return ingest(spark, replace(job, location=given), metastore=metastore)

    return Backfill(job, table, windows, **settings).run(write)

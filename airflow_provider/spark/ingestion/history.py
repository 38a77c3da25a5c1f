"""A backfill on a Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.ingestion.backfill import Backfill
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import Window
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
    **settings: Any,
) -> dict[str, Any]:
    """Write the rows of a source into a table in windows, each as one commit.

    ::

        job = IngestJob("/srv/lake/flights", ("/srv/history/*.parquet",), priority=PRIORITIES["backfill"],
                        on_conflict="rebase", operation_key="history of 2013")
        backfill(spark, job)

    :param spark: a session, local or over Spark Connect.
    :param job: the ingestion of all windows. With an ``operation_key``, windows that were written
        under that key are not written again.
    :param windows: see :mod:`airflow_provider.ingestion.windows`; the partitions that the source has
        rows of when None.
    :param order: of these partitions.
    :param settings: further fields of :class:`~airflow_provider.ingestion.backfill.Backfill`.
    :return: see :meth:`~airflow_provider.ingestion.backfill.Backfill.run`, which also says what it raises.
    """
    table = HudiTable.open(job.location, job.storage_options)
    if windows is None:
        windows = find_windows(spark, job, order=order)
    return Backfill(job, table, windows, **settings).run(lambda window, job: ingest(spark, job))

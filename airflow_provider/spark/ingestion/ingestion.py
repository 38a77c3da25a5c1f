"""Ingestion of a source into a table, on any Spark session, local or over Spark Connect."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider.exceptions import SparkNeededError, UnreadableSourceError
from airflow_provider.ingestion.columns import check_columns, check_locations
from airflow_provider.ingestion.files import find_files
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.ingestion import Ingestion
from airflow_provider.ingestion.one_commit import commit_once
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.locks import LockProvider
from airflow_provider.metastore import AnyMetastore
from airflow_provider.spark.indexing import write_base_files
from airflow_provider.spark.ingestion.batch_profile import profile_batch, profile_scan
from airflow_provider.spark.ingestion.rows import SparkRows
from airflow_provider.spark.ingestion.scan import SourceScan
from airflow_provider.spark.ingestion.source import arrow_schema, conformed, open_source
from airflow_provider.spark.ingestion.windows import in_window
from airflow_provider.spark.session import is_on_this_machine, parallelism, tasks_end_with, with_settings
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


def ingest(
    spark: SparkSession,
    job: IngestJob,
    dataframe: DataFrame | None = None,
    *,
    metastore: AnyMetastore | None = None,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Write the rows of a source into a table, as one commit.

    If the job gives the table by its name in a metastore, the write has a transaction, as with
    :class:`~airflow_provider.operators.IngestOperator`; see :class:`~airflow_provider.managed.ManagedWrite`.

    :param spark: a session, local or over Spark Connect; the call changes some of its settings until its end.
    :param job: the ingestion.
    :param dataframe: the rows, in place of ``job.source.paths``; Spark evaluates it more than once.
    :param metastore: the metastore in which the table is registered.
    :param lock: the table lock, to share it among many writes; the lock that ``job.lock`` describes when
        None.
    :param is_alive: called before every heartbeat; False stops the write.
    :return: see :func:`~airflow_provider.ingestion.result.result_of`.
    :raises InvalidInputError: when the job or a row is invalid; nothing was written.
    :raises TableError: when the location holds no table that can be written.
    :raises WriteConflictError: when another commit touched the same file groups first, or an
        earlier try of the same operation still runs.
    :raises CommitError: when the write ended without a commit for another reason.
    """

    def write(job: IngestJob, table: HudiTable) -> dict[str, Any]:
        return write_source(spark, job, table, dataframe, lock=lock, is_alive=is_alive)

    return commit_once(job, write, metastore=metastore)


def write_source(
    spark: SparkSession,
    job: IngestJob,
    table: HudiTable,
    dataframe: DataFrame | None = None,
    *,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """:func:`ingest` without the check for earlier tries.

    :param table: the job's table.
    """
    began = time.monotonic()
    before = table.schema
    rows = None if dataframe is not None else _scanned_by_tasks(spark, job, table, before)
    if rows is None:
        rows = _read_by_spark(spark, job, table, before, dataframe)
    log.info(
        "source %s read: %s%s rows of %d partitions, in %.1f s",
        *(job.source, _files_of(job, rows.scan), f"{sum(rows.counts.values()):,}", len(rows.counts)),
        time.monotonic() - began,
    )

    @contextmanager
    def around(ingestion: Ingestion) -> Iterator[None]:
        transfer = _transfer(rows.columns.table, ingestion.row_bytes)
        with tasks_end_with(spark, ingestion.writer.instant), with_settings(spark, transfer), rows:
            yield

    return write_rows(
        job,
        table,
        rows,
        lock=lock,
        is_alive=is_alive,
        around=around,
        build=lambda planned: write_base_files(spark, planned),
    )


def _scanned_by_tasks(
    spark: SparkSession, job: IngestJob, table: HudiTable, before: pa.Schema
) -> SparkRows | None:
    """The rows of plain Parquet files; None if Spark has to read the source."""
    sees_disk = is_on_this_machine(spark)
    scan = SourceScan.of(job, table, before, parallelism=parallelism(spark), sees_disk=sees_disk)
    if scan is None or any(spark.conf.get(name, usual) != usual for name, usual in _USUAL_READER.items()):
        return None
    columns = check_columns(job, scan.came, table, before)
    check_locations(columns.table, table.config)
    scan = scan.fitted(columns, arrival=job.kind_on(table).looks_up_keys)
    try:
        profile = profile_scan(spark, job, scan, table)
    except (SparkNeededError, UnreadableSourceError) as error:  # Spark may be told to skip broken files
        log.info("source %s is read by Spark: %s", job.source, error)
        return None

    @cache
    def read() -> DataFrame:
        return conformed(open_source(spark, job, before), columns.rows, table.config)

    return SparkRows.of(job, table, columns, profile, spark, read, scan)


def _read_by_spark(
    spark: SparkSession, job: IngestJob, table: HudiTable, before: pa.Schema, dataframe: DataFrame | None
) -> SparkRows:
    incoming = open_source(spark, job, before) if dataframe is None else dataframe
    columns = check_columns(job, arrow_schema(incoming, before), table, before)
    check_locations(columns.table, table.config)
    if job.source.window is not None:
        incoming = in_window(incoming, job.source.window, columns.table)
    frame = conformed(incoming, columns.rows, table.config)
    with with_settings(spark, _PROFILING):
        profile = profile_batch(job, frame, table, columns)
    return SparkRows.of(job, table, columns, profile, spark, lambda: frame)


def _files_of(job: IngestJob, scan: SourceScan | None) -> str:
    """Number and bytes of the source's files, if this process can find them out."""
    with suppress(Exception):  # Spark has read the source, perhaps from a storage that only Spark reaches
        found = find_files(job.source, job.storage_options) if scan is None else scan.files
        return f"{found}, {found.size:,} bytes, "
    return ""


# --- the session --------------------------------------------------------------------------

_USUAL_READER = {
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.binaryAsString": "false",
}
"""With other settings, Spark's reader gives columns other types than pyarrow."""

_PROFILING = {"spark.sql.shuffle.partitions": "8"}  # the shuffle adds up only a few counts

_ROWS_A_BATCH = 16_384
_LARGE_ROW = 2048  # bytes in a base file


def _transfer(columns: pa.Schema, row_bytes: float) -> dict[str, str]:
    """Spark's settings for sending rows to Python."""
    large = any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in columns.types)
    if large or row_bytes > _LARGE_ROW:
        return {}
    # With its largest value, Spark does not measure the batch after every row, which would cost more than
    # everything else on the way. Rows are small here, so their number is limit enough.
    return {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_A_BATCH),
    }

"""Ingestion of files that pyarrow reads, in this process, without Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    MissingSourceError,
    SparkNeededError,
    UnreadableSourceError,
)
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.ingestion.columns import as_coarse_as
from airflow_provider.ingestion.files.found import SourceFiles, find_files
from airflow_provider.ingestion.ingest_job import IngestJob, Source
from airflow_provider.ingestion.one_commit import commit_once
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.jobs import ARROW, AUTO, SPARK, Choice, choose_engine
from airflow_provider.locks import LockProvider
from airflow_provider.metastore import AnyMetastore
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import conform

log = logging.getLogger(__name__)

ARROW_FORMATS = frozenset({"arrow", "feather", "ipc"})
"""Formats that Spark does not read."""
FORMATS = frozenset({"parquet", "csv", "json"}) | ARROW_FORMATS


def ingest_files(
    location: str,
    source: Source | str | Sequence[str],
    operation: str = "upsert",
    *,
    metastore: AnyMetastore | None = None,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Write the rows of files into a table, as one commit, without Spark.

    ::

        ingest_files("/srv/lake/flights", "/srv/landing/2013-12-01/*.parquet")

    :param location: the table's absolute path or URL, or ``database.table``.
    :param source: paths, URLs or patterns of Parquet, CSV, JSON or Arrow files; all rows are read into
        memory.
    :param operation: a key of :data:`~airflow_provider.ingestion.OPERATIONS`.
    :param metastore: the metastore that knows the table's name.
    :param lock: the table lock; by the setting ``lock``, or the table's options, when None.
    :param is_alive: called before every heartbeat; False gives the write up.
    :param settings: further fields of :class:`~airflow_provider.ingestion.IngestJob`, such as
        ``source_format``, ``storage_options`` or ``on_conflict``.
    :return: see :func:`~airflow_provider.ingestion.result.result_of`.
    :raises MissingSourceError: when a path does not exist.
    :raises EmptySourceError: when the files hold no row.
    :raises UnreadableSourceError: when a file cannot be read.
    :raises SparkNeededError: when Spark would read the files in another way.
    :raises InvalidInputError: when a setting or a row is otherwise invalid; nothing was written.
    :raises WriteConflictError: see :func:`~airflow_provider.ingestion.ingest_arrow`.
    :raises CommitError: when the write ended otherwise without a commit.
    """
    job = IngestJob.of(location, source, operation=operation, engine=ARROW, **settings)

    def write(job: IngestJob, table: HudiTable) -> dict[str, Any]:
        return write_files(job, table, lock=lock, is_alive=is_alive)

    return commit_once(job, write, metastore=metastore)


def write_files(
    job: IngestJob,
    table: HudiTable,
    *,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Write the rows of files as :func:`ingest_files` does, without looking for earlier tries.

    :param job: the ingestion.
    :param table: its table.
    """
    if reason := _why_not(job.source):
        raise _spark_needed(job, reason)
    began = time.monotonic()
    columns = table.schema
    try:
        found = find_files(job.source, job.storage_options)
        data = _read(found, job.source, columns)
    except SparkNeededError as error:
        raise _spark_needed(job, str(error)) from error
    log.info(
        "source %s read: %s, %s bytes, %s rows, in %.1f s",
        *(job.source, found, f"{found.size:,}", f"{data.num_rows:,}", time.monotonic() - began),
    )
    if not data.num_rows:
        raise EmptySourceError(
            f"source {job.source} holds no row; nothing was written", source=list(job.source.paths)
        )
    data = conform(data, as_coarse_as(data.schema, columns))
    rows = ArrowRows.of(job, table, data)
    return write_rows(job, table, rows, lock=lock, is_alive=is_alive)


def _spark_needed(job: IngestJob, reason: str) -> SparkNeededError:
    return SparkNeededError(f"source {job.source}: {reason}; read it with engine='spark'", reason=reason)


def choose_engine_for(
    engine: str,
    source: Source,
    storage_options: Mapping[str, Any],
    arrow_max_bytes: int,
    *,
    sees_what_spark_sees: bool,
) -> Choice:
    """Choose the engine for a source, by its format and its size. No file is read.

    :param engine: the caller's choice, a key of :data:`~airflow_provider.jobs.ENGINES`.
    :param source: the source.
    :param storage_options: keyword arguments of its fsspec file system.
    :param arrow_max_bytes: bytes of files up to which ``auto`` chooses pyarrow.
    :param sees_what_spark_sees: whether Spark would run on this machine, so that a file that is missing here
        is missing for Spark too.
    :raises MissingSourceError: when the source is missing.
    :raises EmptySourceError: when the source contains no file.
    :raises UnreadableSourceError: when the engine is pyarrow, and cannot list the source; or when Spark would
        run on this machine, and a source on its disk cannot be listed.
    :raises SparkNeededError: when the engine is pyarrow, and only Spark finds the source's files.
    :raises InvalidInputError: when no engine can read the source.
    """
    is_arrow = source.source_format.lower() in ARROW_FORMATS
    if engine == SPARK and is_arrow:
        raise InvalidInputError(
            f"source_format {source.source_format!r} is one that Spark does not read; give engine='arrow'"
        )
    if engine == ARROW:
        find_files(source, storage_options)  # raises before a transaction is opened for a bad source
    if engine == SPARK and sees_what_spark_sees and _why_not(source) is None:
        _check_is_there(source, storage_options)
    if engine != AUTO:
        return choose_engine(engine, 0, "", arrow_max_bytes)
    if reason := _why_not(source):
        return Choice(SPARK, reason)
    try:
        found = find_files(source, storage_options)
    except SparkNeededError as error:
        return Choice(SPARK, str(error))
    except (MissingSourceError, EmptySourceError):
        if sees_what_spark_sees:
            raise
        return Choice(SPARK, f"this worker does not see {source}; Spark may")
    except UnreadableSourceError as error:
        if is_arrow or (sees_what_spark_sees and all(map(_is_on_disk, source.paths))):
            raise
        return Choice(SPARK, f"this worker does not see the source: {error}")
    choice = choose_engine(engine, found.size, f"{found} of format {source.source_format}", arrow_max_bytes)
    if choice.engine == SPARK and is_arrow:
        raise InvalidInputError(
            f"{choice.why}, and Spark does not read this format; give engine='arrow', or a larger "
            "arrow_max_bytes"
        )
    return choice


def _check_is_there(source: Source, storage_options: Mapping[str, Any]) -> None:
    """Find a missing source before Spark starts. Of what only Spark finds, this process knows nothing."""
    try:
        find_files(source, storage_options)
    except MissingSourceError:
        raise
    except (SparkNeededError, UnreadableSourceError, EmptySourceError) as error:
        log.debug("Spark finds out: %s", error)


def _is_on_disk(path: str) -> bool:
    return "://" not in path or path.startswith("file://")


def _why_not(source: Source) -> str | None:
    """The reason why pyarrow cannot read a source, whatever its content; None when it can."""
    if source.source_format.lower() not in FORMATS:
        return f"format {source.source_format!r} is read by Spark"
    if source.window is not None:
        return "windows are read by Spark"
    if source.source_options and source.source_format.lower() not in ("csv", "json"):
        return f"the source options {dict(source.source_options)} are Spark's"
    return None


def _read(found: SourceFiles, source: Source, columns: pa.Schema) -> pa.Table:
    # Imported here: the choice of an engine reads nothing.
    from airflow_provider.ingestion.files import parquet, text

    kind = source.source_format.lower()
    if kind == "parquet":
        return parquet.read_parquet(found)
    if kind == "csv":
        return text.read_csv(found, source.source_options, columns)
    if kind == "json":
        return text.read_json(found, source.source_options, columns)
    return _read_arrow(found)


def _read_arrow(found: SourceFiles) -> pa.Table:
    tables = []
    for file in found.files:
        try:
            with found.filesystem.open(file.path, "rb") as opened:
                tables.append(_opened(opened.read()).read_all())
        except (pa.ArrowException, OSError) as error:
            raise UnreadableSourceError(
                f"source {file.path} cannot be read: {error}; check the path and the format", source=file.path
            ) from error
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise UnreadableSourceError(
            f"the files of source {found.files[0].path} and others have different columns: {error}"
        ) from error


def _opened(data: bytes) -> pa.RecordBatchReader:
    """A file of Arrow's file format, of which Feather is another name, or of its stream format."""
    if data.startswith(b"ARROW1"):
        return pa.ipc.open_file(data)
    return pa.ipc.open_stream(data)

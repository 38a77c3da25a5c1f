"""The source of the incoming rows: opening it, and fitting its columns to the table's."""

from __future__ import annotations

import re
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider.exceptions import (
    EmptySourceError,
    IncompatibleSchemaError,
    InvalidInputError,
    MissingSourceError,
    UnreadableSourceError,
)
from airflow_provider.ingestion.columns import as_coarse_as
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.table.properties import TableConfig

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TEXT_FORMATS = frozenset({"csv", "json", "xml"})
_NO_SCHEMA = ("UNABLE_TO_INFER_SCHEMA",)
_NOT_THERE = "PATH_NOT_FOUND"
_NO_FILE_SYSTEM = "No FileSystem for scheme"
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] .*")


def is_text(job: IngestJob) -> bool:
    """Whether the source is text, whose values may not be of their column's type."""
    return bool(job.source.paths) and job.source.source_format.lower() in _TEXT_FORMATS


def open_source(spark: SparkSession, job: IngestJob, columns: pa.Schema) -> DataFrame:
    """Open the source of an ingestion, without reading its rows.

    Columns of text formats take their types from the table, and a value of another type fails the job:
    Spark's own default would make it null. ``inferSchema`` and ``mode`` in the source options override
    that.

    :param spark: the session.
    :param job: the ingestion.
    :param columns: the table's columns.
    :raises UnreadableSourceError: when a path does not exist, or Spark cannot read it.
    :raises EmptySourceError: when the source contains no files.
    """
    if not job.source.paths:
        raise InvalidInputError("an ingestion needs a source: paths to read, or a DataFrame")
    reader = spark.read.format(job.source.source_format)
    try:
        if not is_text(job):
            frame = reader.options(**job.source.source_options).load(list(job.source.paths))
            _ = frame.schema  # Spark Connect reads the source only on demand
            return frame
        options = {"mode": "FAILFAST", **job.source.source_options}
        frame = reader.options(**options).load(list(job.source.paths))
        if str(options.get("inferSchema", "false")).lower() == "true":
            return frame
        return reader.schema(_typed_as(frame.schema, columns)).load(list(job.source.paths))
    except spark_errors() as error:
        raise unreadable(job, error) from error


def unreadable(job: IngestJob, error: Exception) -> InvalidInputError:
    """Spark's error about the incoming rows, in terms of the job's arguments.

    :param job: the ingestion.
    :param error: one of :func:`spark_errors`.
    """
    where = f"source {job.source} ({job.source.source_format})" if job.source.paths else "the DataFrame"
    condition, reason = _explained(error)
    if condition in _NO_SCHEMA:
        return EmptySourceError(
            f"{where} holds no {job.source.source_format} file with a schema; check the path and the format",
            source=list(job.source.paths),
        )
    if condition == _NOT_THERE and job.source.paths:
        return MissingSourceError(
            f"{where} is not there: {reason}; check the path, or say by missing_source whether to wait for "
            "it or to do without",
            source=list(job.source.paths),
        )
    if _NO_FILE_SYSTEM in reason:
        reason = f"Spark has no file system for it ({reason})"
        return UnreadableSourceError(
            f"{where} cannot be read: {reason}; for S3 give the path as s3a://, and Spark the package "
            "hadoop-aws (spark.jars.packages); or read it without Spark, by engine='arrow' and "
            "storage_conn_id",
            source=list(job.source.paths),
        )
    return UnreadableSourceError(
        f"{where} cannot be read: {reason}; check the path, the format and the source options",
        source=list(job.source.paths),
        condition=condition,
    )


def spark_errors() -> tuple[type[Exception], ...]:
    """The errors that Spark raises; a local session also raises those of its JVM."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    except ImportError:  # a client of Spark Connect
        return (PySparkException,)
    return (PySparkException, Py4JJavaError)


def _explained(error: Exception) -> tuple[str | None, str]:
    """Spark's name for an error, and the first line of its innermost message."""
    from pyspark.errors import PySparkException

    messages = [str(error)]
    if not isinstance(error, PySparkException):
        cause, messages = error.java_exception, []  # type: ignore[attr-defined]
        while cause is not None:
            messages.append(cause.getMessage() or "")
            cause = cause.getCause()
    lines = [line.strip() for message in messages for line in message.splitlines() if line.strip()]
    named = [match for line in lines if (match := _CONDITION.search(line))]
    if named:
        # The innermost message names the file or the value; the outer ones only say that a task failed.
        return named[-1][1], named[-1][0]
    # The first line of a message is its text; the others are a stack trace.
    first_lines = [message.strip().partition("\n")[0] for message in messages if message.strip()]
    return None, first_lines[-1] if first_lines else type(error).__name__


def arrow_schema(frame: DataFrame, table: pa.Schema) -> pa.Schema:
    """The columns of a DataFrame in Arrow's types.

    Spark has microseconds only; if the table has milliseconds, a later step checks each value.

    :param frame: the rows.
    :param table: the table's columns.
    :raises IncompatibleSchemaError: when a column has a type that Arrow lacks.
    """
    from pyspark.errors import PySparkException

    try:
        incoming = in_arrow(frame.schema)
    except PySparkException as error:
        raise IncompatibleSchemaError(
            f"a column of the source has a type that no table can store ({error}); cast it in the source"
        ) from error
    return as_coarse_as(incoming, table)


def in_arrow(columns: StructType) -> pa.Schema:
    """Columns of Spark in the types in which Spark sends them to Python.

    :param columns: the columns in Spark's types.
    :raises PySparkException: when a column has a type that Arrow lacks.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2 the time zone is always UTC.
    names_zone = "timezone" in signature(to_arrow_schema).parameters
    convert = partial(to_arrow_schema, timezone="UTC") if names_zone else to_arrow_schema
    return convert(columns)


def conformed(frame: DataFrame, rows: pa.Schema, config: TableConfig) -> DataFrame:
    """Only the columns to write, with the table's types if Spark needs these.

    Keys and partition values need the table's type before Spark makes text of them, and ordering values
    before Spark compares them. The task that writes the other values converts them.

    :param frame: rows that passed :func:`~airflow_provider.ingestion.columns.check_columns`.
    :param rows: the columns to keep, in this order, with the table's types.
    :param config: the table's configuration.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    sources, targets = frame.schema, spark_schema(rows)
    by_value = {*config.record_key_fields, *config.partition_fields, *config.ordering_fields}
    casts = {
        name for name in rows.names if name in by_value and sources[name].dataType != targets[name].dataType
    }
    if not casts and sources.names == rows.names:
        return frame

    def cast(name: str) -> Column:
        kinds = sources[name].dataType.typeName(), targets[name].dataType.typeName()
        column = F.col(name).cast("string") if kinds == ("float", "double") else F.col(name)
        return column.cast(targets[name].dataType).alias(name)

    return frame.select(*(cast(name) if name in casts else F.col(name) for name in rows.names))


def spark_schema(schema: pa.Schema) -> StructType:
    """A table's columns in Spark's types.

    :param schema: the columns in Arrow's types.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _typed_as(found: StructType, table: pa.Schema) -> StructType:
    from pyspark.sql.types import StructField, StructType

    known = {field.name: field for field in spark_schema(table)}
    # Columns that are new to the table keep the source's type, and are added to the table.
    return StructType(
        [
            StructField(field.name, known[field.name].dataType if field.name in known else field.dataType)
            for field in found
        ]
    )

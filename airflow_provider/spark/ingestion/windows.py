"""The windows of a source: finding them, and the rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider.exceptions import EmptySourceError, InvalidInputError, MissingColumnError
from airflow_provider.ingestion.columns import check_columns
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import Window, column_of, value_windows
from airflow_provider.spark.ingestion.source import (
    arrow_schema,
    open_source,
    spark_errors,
    spark_schema,
    unreadable,
)
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROWS = "_rows"


def find_windows(
    spark: SparkSession, job: IngestJob, *, order: str, columns: Sequence[str] | None = None
) -> list[Window]:
    """A window for every partition of the source's rows, with the number of rows.

    :param spark: a session, local or over Spark Connect.
    :param job: the ingestion of all windows.
    :param order: one of :data:`~airflow_provider.ingestion.windows.ORDERS`.
    :param columns: the columns with the windows' values; the table's partition columns when None.
    :raises InvalidInputError: when the table has no such columns, or the source cannot be read.
    :raises EmptySourceError: when the source holds no row.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    table = HudiTable.open(job.location, job.storage_options)
    names = tuple(columns or table.config.partition_fields)
    if not names:
        raise InvalidInputError(
            f"table {table.location} has no partitions to make windows of; give the columns whose values are "
            "the windows, or a span of time"
        )
    schema = pa.schema([column_of(table, name) for name in names])
    before = table.schema
    incoming = open_source(spark, job, before)
    check_columns(job, arrow_schema(incoming, before), table, before)
    found = [
        _column(incoming, name, kind.dataType) for name, kind in zip(names, spark_schema(schema), strict=True)
    ]
    try:
        counted = incoming.groupBy(*found).agg(F.count(F.lit(1)).alias(_ROWS)).toArrow()
    except spark_errors() as error:
        raise unreadable(job, error) from error
    if not counted.num_rows:
        raise EmptySourceError(f"source {job.source} holds no row", source=list(job.source.paths))
    values = counted.select(list(names)).cast(schema)
    return value_windows(values, order=order, rows=counted[_ROWS].to_pylist())


def in_window(incoming: DataFrame, window: Window, columns: pa.Schema) -> DataFrame:
    """The rows of a source that belong to a window.

    :param incoming: all rows of the source.
    :param window: the window.
    :param columns: the table's columns; the window's values have their types.
    :raises MissingColumnError: when the source lacks a column that the window needs.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    kinds = spark_schema(columns)
    conditions = [
        _column(incoming, name, kinds[name].dataType).eqNullSafe(F.lit(text).cast(kinds[name].dataType))
        for name, text in window.values.items()
    ]
    if window.column is not None:
        when = _column(incoming, window.column, kinds[window.column].dataType)
        # A span is in UTC, independent of the session's time zone.
        zone = "+00:00" if getattr(columns.field(window.column).type, "tz", None) else ""
        low, high = (F.lit(f"{bound}{zone}").cast(kinds[window.column].dataType) for bound in _span(window))
        conditions += [when >= low, when < high]
    return incoming.where(reduce(lambda one, other: one & other, conditions))


def _span(window: Window) -> tuple[str, str]:
    if window.start is None or window.end is None:
        raise InvalidInputError(f"window {window.name} of column {window.column!r} needs a start and an end")
    return window.start, window.end


def _column(incoming: DataFrame, name: str, kind: object) -> Column:
    if name not in incoming.columns:
        raise MissingColumnError(
            f"column {name!r}, which says which window a row belongs to, is not in the source, which has "
            f"{', '.join(incoming.columns)}; add or rename it",
            column=name,
        )
    # Spark cannot skip row groups of the source's files by a column that is cast.
    return incoming[name] if incoming.schema[name].dataType == kind else incoming[name].cast(kind).alias(name)  # type: ignore[arg-type]

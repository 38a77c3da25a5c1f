"""Reading a table back as a Spark DataFrame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.spark.source import spark_schema
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.incremental import COMMIT_TIME, Increment, Order, increment
from airflow_provider.table.predicates import COMPARISONS, Filter, alternatives, expression, literal
from airflow_provider.table.schema import with_meta_columns
from airflow_provider.table.visibility import ValidWriteIds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_GLOB = re.compile(r"([\\*?\[\]{}])")


def read_snapshot(
    spark: SparkSession,
    table: HudiTable,
    as_of: str | None = None,
    *,
    valid_write_ids: ValidWriteIds | None = None,
    where: Sequence[Filter] | Sequence[Sequence[Filter]] | None = None,
    meta_columns: bool = False,
) -> DataFrame:
    """The rows of a table at one moment.

    :param spark: a session, local or over Spark Connect.
    :param table: the table.
    :param as_of: an instant (requested or completion time of a commit: right after it
        completed) or any instant time; now when None.
    :param valid_write_ids: see :meth:`~airflow_provider.table.hudi_table.HudiTable.select_files`.
    :param where: only rows for which these filters are true, see
        :data:`~airflow_provider.table.predicates.Where`; files that cannot hold one are not given to Spark.
    :param meta_columns: whether Hudi's five meta columns come along.
    :return: a DataFrame over the base files of that snapshot; it stays what it is while
        writers go on.
    :raises InvalidInputError: when ``where`` is no filters over the table's columns.
    :raises NoSuchInstantError: when nothing had completed as of then.
    :raises SnapshotUnavailableError: when the files cannot tell apart what is seen and what is not.
    """
    condition = None if where is None else _condition(where, table)
    found = table.base_files(as_of, valid_write_ids=valid_write_ids, where=where)
    paths = [base_file.path for base_file in found]
    rows = _read(spark, table, paths, with_meta_columns(table.schema) if meta_columns else table.schema)
    return rows if condition is None else rows.where(condition)


def read_incremental(
    spark: SparkSession,
    table: HudiTable,
    start: str | None = None,
    *,
    order: Order | str = Order.COMPLETION,
    end: str | None = None,
    meta_columns: bool = False,
) -> tuple[DataFrame, Increment]:
    """What changed in a table since a checkpoint.

    :param spark: a session, local or over Spark Connect.
    :param table: the table.
    :param start: see :func:`~airflow_provider.table.incremental.increment`.
    :param order: see :func:`~airflow_provider.table.incremental.increment`.
    :param end: see :func:`~airflow_provider.table.incremental.increment`.
    :param meta_columns: whether Hudi's five meta columns come along.
    :return: a DataFrame over the base files that the window needs, and the increment, whose
        ``end`` is the checkpoint to keep once the DataFrame was processed.
    :raises InvalidInputError: when a checkpoint is not an instant time, or the order is unknown.
    :raises CheckpointExpiredError: when the window was archived or cleaned.
    """
    found = increment(table, start, order=order, end=end)
    rows = _read(spark, table, found.paths, with_meta_columns(table.schema))
    if found.paths and (times := found.commit_times) is not None:
        rows = rows.where(rows[COMMIT_TIME].isin(times))
    return rows if meta_columns else rows.select(table.schema.names), found


def _condition(where: Sequence[Filter] | Sequence[Sequence[Filter]], table: HudiTable) -> Column:
    """Filters as Spark's condition, with pyarrow's meaning: what is no number compares with nothing."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    groups = alternatives(where)
    if not groups:
        raise InvalidInputError(
            f"where={where} is a pyarrow expression, which Spark cannot evaluate; give filters such as "
            '[("dep_delay", ">", 300)]'
        )
    _ = expression(where, table.schema)  # with its errors

    def condition(each: Filter) -> Column:
        name, operator, value = each
        column, kind = F.col(f"`{name}`"), table.schema.field(name).type
        if operator in ("is null", "is not null"):
            return column.isNull() if operator == "is null" else column.isNotNull()
        if operator in ("in", "not in"):
            is_in = column.isin([literal(one, kind).as_py() for one in value])
            found = is_in if operator == "in" else ~is_in
        else:
            found = COMPARISONS[operator](column, F.lit(literal(value, kind).as_py()))
        if pa.types.is_floating(kind) and operator not in ("!=", "not in"):
            found = found & ~F.isnan(column)
        return found

    return reduce(or_, (reduce(and_, map(condition, group)) for group in groups))


def _read(spark: SparkSession, table: HudiTable, paths: Iterable[str], schema: pa.Schema) -> DataFrame:
    # Spark takes a path for a pattern. Each file is its own root, so that Spark does not take
    # folders named column=value for columns: those are in the files.
    roots = [_GLOB.sub(r"\\\1", table.storage.url(path)) for path in paths]
    if not roots:
        return spark.createDataFrame([], spark_schema(schema))
    return spark.read.schema(spark_schema(schema)).parquet(*roots)

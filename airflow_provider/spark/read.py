"""Reading a table back as a Spark DataFrame."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.spark.ingestion import spark_schema
from airflow_provider.spark.numbered_tasks import numbered_tasks, numbers_of
from airflow_provider.table.file_groups import FileSlice, ValidWriteIds
from airflow_provider.table.files import BaseFileReader, FileColumns
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import (
    COMMIT_TIME,
    ROW_ID_COLUMNS,
    Increment,
    Order,
    RowIdMaker,
    SliceReader,
    increment,
    select_slices,
)
from airflow_provider.table.schema import META_COLUMNS, Origin, Origins, TableSchema, with_meta_columns
from airflow_provider.table.skipping import COMPARISONS, Filter, alternatives, expression, literal
from airflow_provider.table.timeline import has_never_changed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_GLOB = re.compile(r"([\\*?\[\]{}])")


def read_snapshot(
    spark: SparkSession,
    table: HudiTable,
    as_of: str | None = None,
    *,
    valid_write_ids: ValidWriteIds | None = None,
    where: Sequence[Filter] | Sequence[Sequence[Filter]] | None = None,
    meta_columns: bool = False,
    row_ids: bool = False,
) -> DataFrame:
    """The rows of a table at one moment.

    :param spark: a session, local or over Spark Connect.
    :param table: the table.
    :param as_of: an instant (requested or completion time of a commit: the snapshot right after its
        completion) or any instant time; the present when None.
    :param valid_write_ids: see :meth:`~airflow_provider.table.hudi_table.HudiTable.select_files`.
    :param where: only rows for which these filters are true, see
        :data:`~airflow_provider.table.skipping.Where`; Spark does not open files that cannot have such a row.
    :param meta_columns: whether the result has Hudi's five meta columns.
    :param row_ids: whether the result has the virtual columns ``row_id`` and ``current_write_id``, see
        :mod:`airflow_provider.table.reading.row_ids`. Spark fails with the text of ``NoWriteIdError`` when a
        commit that wrote some of the rows has no write id.
    :return: a DataFrame over the base files of that snapshot; writers do not change it.
    :raises InvalidInputError: when ``where`` is not a list of filters over the table's columns, or when a
        column of the table has the name of a requested virtual column.
    :raises NoSuchInstantError: when no commit had completed by ``as_of``.
    :raises SnapshotUnavailableError: when the files do not separate visible rows from others.
    """
    if row_ids:
        rows = read_snapshot(
            spark, table, as_of, valid_write_ids=valid_write_ids, where=where, meta_columns=True
        )
        return _with_row_ids(rows, table, meta_columns=meta_columns)
    if table.is_merge_on_read:
        reader, slices = select_slices(table, as_of, valid_write_ids=valid_write_ids, where=where)
        columns = with_meta_columns(reader.schema.columns) if meta_columns else reader.schema.columns
        merged = _merged(spark, reader, slices, columns)
        return merged if where is None else merged.where(_condition(where, columns))
    found, schema = table.select_rows(where, as_of, valid_write_ids=valid_write_ids)
    condition = None if where is None else _condition(where, schema.columns)
    paths = [base_file.path for base_file in found.base_files]
    rows = _read(spark, table, paths, schema, meta_columns=meta_columns)
    return rows if condition is None else rows.where(condition)


def read_incremental(
    spark: SparkSession,
    table: HudiTable,
    start: str | None = None,
    *,
    order: Order | str = Order.COMPLETION,
    end: str | None = None,
    meta_columns: bool = False,
    row_ids: bool = False,
) -> tuple[DataFrame, Increment]:
    """The changes of a table since a checkpoint.

    :param spark: a session, local or over Spark Connect.
    :param table: the table.
    :param start: see :func:`~airflow_provider.table.reading.increment`.
    :param order: see :func:`~airflow_provider.table.reading.increment`.
    :param end: see :func:`~airflow_provider.table.reading.increment`.
    :param meta_columns: whether the result has Hudi's five meta columns.
    :param row_ids: see :func:`read_snapshot`.
    :return: a DataFrame over the base files that the window needs, and the increment. Store the increment's
        ``end`` as the checkpoint once the DataFrame is processed.
    :raises InvalidInputError: when a checkpoint is not an instant time, or the order is unknown.
    :raises CheckpointExpiredError: when the window was archived or cleaned.
    """
    found = increment(table, start, order=order, end=end)
    if (reader := found.reader) is not None:
        rows = _merged(spark, reader, found.slices, with_meta_columns(found.schema.columns))
    else:
        rows = _read(spark, table, found.paths, found.schema, meta_columns=True)
    if found.paths and (times := found.commit_times) is not None:
        rows = rows.where(rows[COMMIT_TIME].isin(times))
    if row_ids:
        return _with_row_ids(rows, table, meta_columns=meta_columns), found
    return rows if meta_columns else rows.select(found.schema.columns.names), found


def _condition(where: Sequence[Filter] | Sequence[Sequence[Filter]], columns: pa.Schema) -> Column:
    """Filters as Spark's condition, with pyarrow's meaning: NaN is neither equal to anything nor above it."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    groups = alternatives(where)
    if not groups:
        raise InvalidInputError(
            f"where={where} is a pyarrow expression, which Spark cannot evaluate; give filters such as "
            '[("dep_delay", ">", 300)]'
        )
    _ = expression(where, columns)  # for its errors

    def condition(each: Filter) -> Column:
        name, operator, value = each
        column, kind = F.col(f"`{name}`"), columns.field(name).type
        if operator in ("is null", "is not null"):
            return column.isNull() if operator == "is null" else column.isNotNull()
        if operator in ("in", "not in"):
            is_in = column.isin([literal(one, kind).as_py() for one in value])
            return is_in if operator == "in" else ~is_in
        with_ = literal(value, kind).as_py()
        found: Column = COMPARISONS[operator](column, F.lit(with_))
        if not pa.types.is_floating(kind):
            return found
        # In Spark NaN equals NaN, and is above every number.
        if isinstance(with_, float) and math.isnan(with_):
            return column.isNotNull() if operator == "!=" else F.lit(False)
        return found if operator == "!=" else found & ~F.isnan(column)

    return reduce(or_, (reduce(and_, map(condition, group)) for group in groups))


def _read(
    spark: SparkSession,
    table: HudiTable,
    paths: Sequence[str],
    schema: TableSchema,
    *,
    meta_columns: bool,
) -> DataFrame:
    columns = with_meta_columns(schema.columns) if meta_columns else schema.columns
    if not paths:
        return spark.createDataFrame([], spark_schema(columns))
    if has_never_changed(schema, table.config):
        return _parquet(spark, table, paths, columns)
    return reduce(
        lambda one, other: one.unionByName(other),
        (
            _parquet(spark, table, alike, columns)
            if stored is None
            else _brought(_parquet(spark, table, alike, stored), columns, origins)
            for stored, origins, alike in _alike(table, paths, schema, columns)
        ),
    )


def _merged(
    spark: SparkSession, reader: SliceReader, slices: Sequence[FileSlice], columns: pa.Schema
) -> DataFrame:
    """The rows of file slices, each merged by the task that reads it."""
    if not slices:
        return spark.createDataFrame([], spark_schema(columns))

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            for rows in reader.rows(slices[number], columns.names):
                yield from rows.cast(columns).to_batches()

    return numbered_tasks(spark, len(slices)).mapInArrow(rows_of, spark_schema(columns))


def _with_row_ids(rows: DataFrame, table: HudiTable, *, meta_columns: bool) -> DataFrame:
    """Add the virtual columns to rows that have Hudi's columns."""
    from pyspark.sql.types import StructType

    maker = RowIdMaker.of(table, rows.columns)

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [maker.column(name, batch) for name in ROW_ID_COLUMNS.names]
            fields = [*batch.schema, *ROW_ID_COLUMNS]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema(fields))

    schema = StructType([*rows.schema, *spark_schema(ROW_ID_COLUMNS)])
    extended = rows.mapInArrow(made, schema)
    return extended if meta_columns else extended.drop(*META_COLUMNS)


def _parquet(spark: SparkSession, table: HudiTable, paths: Iterable[str], columns: pa.Schema) -> DataFrame:
    # Spark takes a path for a pattern. Each file is its own root, so that Spark does not take folders named
    # column=value for columns: the files contain those columns.
    roots = [_GLOB.sub(r"\\\1", table.storage.url(path)) for path in paths]
    return spark.read.schema(spark_schema(columns)).parquet(*roots)


# --- files of other columns than the table's ------------------------------------------------------

_AT_ONCE = 8  # number of footers that are read at the same time


def _alike(
    table: HudiTable, paths: Sequence[str], schema: TableSchema, columns: pa.Schema
) -> list[tuple[pa.Schema | None, Origins, list[str]]]:
    """Files in groups of equal columns, each with these columns; None for the table's own."""

    def look(path: str) -> tuple[pa.Schema | None, Origins]:
        found = FileColumns.of(table.storage, path, schema)
        with BaseFileReader(table.storage, path) as base_file:
            file = base_file.parquet.schema_arrow
        if found.is_same(file, columns.names):
            return None, {}
        wanted = found.stored(file, columns.names)
        # The reader has Hudi's columns as dictionaries, where Spark needs text.
        kinds = [pa.string() if name in META_COLUMNS else file.field(name).type for name in wanted]
        return pa.schema(list(zip(wanted, kinds, strict=True))), found.origins

    groups: list[tuple[pa.Schema | None, Origins, list[str]]] = []
    with ThreadPoolExecutor(_AT_ONCE, "footers") as pool:
        for path, (stored, origins) in zip(paths, pool.map(look, paths), strict=True):
            same = next((each for each in groups if each[0] == stored and each[1] == origins), None)
            if same is None:
                same = (stored, origins, [])
                groups.append(same)
            same[2].append(path)
    return groups


def _brought(rows: DataFrame, columns: pa.Schema, origins: Origins) -> DataFrame:
    """Convert rows of a file to rows of the table; :meth:`FileColumns.bring` in Spark."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    sources, targets = rows.schema, spark_schema(columns)

    def column(name: str) -> Column:
        kind, origin = targets[name].dataType, origins.get(name) or Origin(name)
        if origin.name is None or origin.name not in sources.names:
            return F.lit(origin.value).cast(kind).alias(name)
        return _cast(F.col(f"`{origin.name}`"), sources[origin.name].dataType, kind, origin.inner).alias(name)

    return rows.select(*(column(name) for name in columns.names))


def _cast(value: Column, source: DataType, kind: DataType, origins: Origins | None) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name
    from pyspark.sql.types import ArrayType, DecimalType, DoubleType, FloatType, MapType, StructType

    if source == kind and origins is None:
        return value
    if isinstance(kind, StructType) and isinstance(source, StructType):
        children = []
        for child in kind:
            origin = (origins or {}).get(child.name) or Origin(child.name)
            if origin.name is None or origin.name not in source.names:
                found = F.lit(None).cast(child.dataType)
            else:
                stored = source[origin.name].dataType
                found = _cast(value.getField(origin.name), stored, child.dataType, origin.inner)
            children.append(found.alias(child.name))
        return F.when(value.isNotNull(), F.struct(*children))
    if isinstance(kind, ArrayType) and isinstance(source, ArrayType):
        return F.transform(value, lambda each: _cast(each, source.elementType, kind.elementType, origins))
    if isinstance(kind, MapType) and isinstance(source, MapType):
        return F.transform_values(
            value, lambda _, each: _cast(each, source.valueType, kind.valueType, origins)
        )
    # As HoodieParquetFileFormatHelper does it, so that 1.1 stays 1.1; a text that is no number becomes null.
    by_text = isinstance(source, FloatType) and isinstance(kind, DoubleType)
    if by_text or (isinstance(kind, DecimalType) and not isinstance(source, DecimalType)):
        value = value.cast("string")
    return value.try_cast(kind)

"""The index records of a base file: statistics, bloom filter, record keys.

Sources: ``ParquetUtils.readColumnStatsFromMetadata``, ``ValueType`` and ``ValueMetadata`` of Apache
Hudi 1.1. Everything but the record keys is in the file's footer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.files import BaseFileFooter, BaseFileReader, WrappedValue
from airflow_provider.table.metadata_table.records import (
    ColumnStats,
    Kind,
    RecordLocation,
    RecordType,
    StoredBloomFilter,
    ValueType,
    merge,
)
from airflow_provider.table.schema import META_COLUMNS

MAX_COLUMNS = 32
"""Hudi's default for the number of columns whose statistics are indexed."""

_COMMIT_TIME, _, _RECORD_KEY, _PARTITION_PATH, _ = META_COLUMNS
INDEXED_META_COLUMNS = (_COMMIT_TIME, _PARTITION_PATH, _RECORD_KEY)
"""Hudi's own columns whose statistics are indexed besides those of the data columns."""

_TYPES: dict[pa.DataType, ValueType] = {
    pa.bool_(): ValueType.BOOLEAN,
    pa.int8(): ValueType.INT,
    pa.int16(): ValueType.INT,
    pa.int32(): ValueType.INT,
    pa.int64(): ValueType.LONG,
    pa.float32(): ValueType.FLOAT,
    pa.float64(): ValueType.DOUBLE,
    pa.string(): ValueType.STRING,
    pa.large_string(): ValueType.STRING,
    pa.binary(): ValueType.BYTES,
    pa.large_binary(): ValueType.BYTES,
    pa.date32(): ValueType.DATE,
    pa.time32("ms"): ValueType.TIME_MILLIS,
    pa.time64("us"): ValueType.TIME_MICROS,
}
_TIMESTAMPS = {
    ("ms", True): ValueType.TIMESTAMP_MILLIS,
    ("us", True): ValueType.TIMESTAMP_MICROS,
    ("ns", True): ValueType.TIMESTAMP_NANOS,
    ("ms", False): ValueType.LOCAL_TIMESTAMP_MILLIS,
    ("us", False): ValueType.LOCAL_TIMESTAMP_MICROS,
    ("ns", False): ValueType.LOCAL_TIMESTAMP_NANOS,
}

_WRAPPERS = {
    ValueType.BOOLEAN: "BooleanWrapper",
    ValueType.FLOAT: "FloatWrapper",
    ValueType.DOUBLE: "DoubleWrapper",
    ValueType.STRING: "StringWrapper",
    ValueType.BYTES: "BytesWrapper",
    ValueType.FIXED: "BytesWrapper",
    ValueType.DECIMAL: "BytesWrapper",
    ValueType.INT: "IntWrapper",
    ValueType.DATE: "IntWrapper",
    ValueType.TIME_MILLIS: "IntWrapper",
}
_OTHERS = "LongWrapper"


def value_type(data_type: pa.DataType) -> ValueType | None:
    """How statistics of a column of this type are stored; None for a type without statistics."""
    if pa.types.is_dictionary(data_type):
        return value_type(data_type.value_type)
    if pa.types.is_timestamp(data_type):
        return _TIMESTAMPS.get((data_type.unit, data_type.tz is not None))
    if pa.types.is_decimal(data_type):
        return ValueType.DECIMAL
    if pa.types.is_fixed_size_binary(data_type):
        return ValueType.FIXED
    return _TYPES.get(data_type)


def kind_of(data_type: pa.DataType) -> Kind:
    """The :attr:`ColumnStats.kind` of statistics of a column of this type."""
    kind = value_type(data_type)
    return kind, f"{data_type.precision},{data_type.scale}" if kind is ValueType.DECIMAL else None


def indexed_columns(
    schema: pa.Schema, columns: Sequence[str] | None = None, *, most: int = MAX_COLUMNS
) -> list[str]:
    """The columns of a table whose statistics are indexed.

    :param schema: the table's schema.
    :param columns: the chosen columns (``hoodie.metadata.index.column.stats.column.list``); None for the
        first columns with a type that has statistics.
    :param most: the number of columns without a list
        (``hoodie.metadata.index.column.stats.max.columns.to.index``).
    :raises InvalidInputError: when a chosen column does not exist or has a type without an order.
    """
    if columns is None:
        possible = [each.name for each in schema if each.name not in META_COLUMNS and value_type(each.type)]
        return [*INDEXED_META_COLUMNS, *possible[:most]]
    for column in columns:
        if column not in schema.names:
            raise InvalidInputError(
                f"column {column!r} cannot be indexed, the table has: {', '.join(schema.names)}",
                column=column,
            )
        if value_type(schema.field(column).type) is None:
            raise InvalidInputError(
                f"column {column!r} is of type {schema.field(column).type}, of which there are no statistics",
                column=column,
            )
    return [*INDEXED_META_COLUMNS, *(each for each in columns if each not in INDEXED_META_COLUMNS)]


def column_stats(file: pq.ParquetFile, file_name: str, columns: Iterable[str]) -> list[ColumnStats]:
    """The statistics of a base file's columns.

    They come from the footer. When the footer has none, as for very long values, the column is read.

    :param file: the opened file.
    :param file_name: its name.
    :param columns: names of columns; those that the file lacks, because they were added later, are left out.
    """
    schema, metadata = file.schema_arrow, file.metadata
    leaves = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    row_groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    found = []
    for column in columns:
        kind, type_info = kind_of(schema.field(column).type) if column in leaves else (None, None)
        if kind is not None:
            chunks = [row_group.column(leaves[column]) for row_group in row_groups]
            found.append(_column(file, file_name, column, kind, type_info, chunks))
    return found


def column_stats_as(reader: BaseFileReader, file_name: str, columns: Sequence[str]) -> list[ColumnStats]:
    """The statistics of a base file's columns in the types of the table's schema, not of the file.

    :param reader: reader of the file, with the table's schema.
    :param file_name: its name.
    :param columns: columns of the table, or Hudi's own. A column that the file lacks is null in all rows.
    :return: the statistics; those of converted columns have no sizes.
    """
    as_they_lie = [each for each in columns if reader.lies_as_read(each)]
    found = column_stats(reader.parquet, file_name, as_they_lie)
    others = [each for each in columns if each not in as_they_lie]
    rows = reader.read(others) if others else pa.table({})
    for column in rows.schema:
        kind, type_info = kind_of(column.type)
        if kind is None:
            continue
        values = rows.column(column.name)
        low, high = _ends(kind, _read_bounds(values, kind))
        found.append(
            ColumnStats(
                file_name=file_name,
                column_name=column.name,
                min_value=low,
                max_value=high,
                value_count=rows.num_rows,
                null_count=values.null_count,
                value_type=kind,
                type_info=type_info,
            )
        )
    return found


def partition_stats(partition_path: str, of_files: Iterable[ColumnStats]) -> list[ColumnStats]:
    """The statistics of a partition's columns, from those of all its files.

    :param of_files: statistics of every column of every file slice of the partition.
    """
    found: dict[str, ColumnStats] = {}
    for each in of_files:
        stats = replace(each, file_name=partition_path, record_type=RecordType.PARTITION_STATS)
        merged = merge(found.get(each.column_name), stats)
        if isinstance(merged, ColumnStats):
            found[each.column_name] = merged
    return [replace(each, is_tight_bound=True) for each in found.values()]


def stored_bloom_filter(footer: BaseFileFooter, instant: str) -> StoredBloomFilter | None:
    """The bloom filter in a base file's footer; None when it has none.

    :param instant: requested time of the instant that wrote the file.
    """
    bloom = footer.bloom
    if bloom is None:
        return None
    value, type_code = bloom.to_footer()
    return StoredBloomFilter(type_code, instant, value)


def record_locations(
    keys: pa.Array | pa.ChunkedArray, partition_path: str, file_id: str, instant: str
) -> Iterator[tuple[str, RecordLocation]]:
    """The location of each of a base file's record keys.

    :param keys: the file's record keys.
    :param instant: requested time of the instant that wrote the file.
    """
    location = RecordLocation.at(partition_path, file_id, instant)
    return ((key, location) for key in keys.to_pylist())


def _column(
    file: pq.ParquetFile,
    file_name: str,
    column: str,
    kind: ValueType,
    type_info: str | None,
    chunks: list[pq.ColumnChunkMetaData],
) -> ColumnStats:
    rows = sum(chunk.num_values for chunk in chunks)
    known = [chunk.statistics for chunk in chunks if chunk.statistics is not None]
    if len(known) == len(chunks) and all(_is_complete(each) for each in known):
        nulls = sum(each.null_count for each in known)
        bounds = [(_raw(each, kind, "min"), _raw(each, kind, "max")) for each in known if each.has_min_max]
    else:
        values = file.read([column]).column(column)
        nulls = values.null_count
        bounds = _read_bounds(values, kind)
    low, high = _ends(kind, bounds)
    return ColumnStats(
        file_name=file_name,
        column_name=column,
        min_value=low,
        max_value=high,
        value_count=rows,
        null_count=nulls,
        total_size=sum(chunk.total_compressed_size for chunk in chunks),
        total_uncompressed_size=sum(chunk.total_uncompressed_size for chunk in chunks),
        value_type=kind,
        type_info=type_info,
    )


def _ends(
    kind: ValueType, bounds: Sequence[tuple[Any, Any]]
) -> tuple[WrappedValue | None, WrappedValue | None]:
    low, high = min((low for low, _ in bounds), default=None), max((high for _, high in bounds), default=None)
    return _wrapped(kind, low), _wrapped(kind, high)


def _is_complete(statistics: pq.Statistics) -> bool:
    return bool(statistics.has_null_count and (statistics.has_min_max or statistics.num_values == 0))


def _raw(statistics: pq.Statistics, kind: ValueType, end: str) -> Any:
    if kind is ValueType.STRING:
        return getattr(statistics, end)
    raw = getattr(statistics, f"{end}_raw")
    if kind is ValueType.DECIMAL and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _read_bounds(values: pa.ChunkedArray, kind: ValueType) -> list[tuple[Any, Any]]:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if kind in (ValueType.FLOAT, ValueType.DOUBLE):
        values = values.filter(pc.invert(pc.is_nan(values)))  # as Parquet's statistics do
    ends = pc.min_max(values)
    if not ends["min"].is_valid:
        return []
    return [(_scalar(ends["min"], kind), _scalar(ends["max"], kind))]


def _scalar(value: pa.Scalar, kind: ValueType) -> Any:
    if kind is ValueType.DECIMAL:
        return int(format(value.as_py(), "f").replace(".", ""))
    if kind in _WRAPPERS and _WRAPPERS[kind] != "IntWrapper":
        return value.as_py()
    return value.cast(pa.int32() if kind in _WRAPPERS else pa.int64()).as_py()


def _wrapped(kind: ValueType, value: Any) -> WrappedValue | None:
    if value is None:
        return None
    if kind is ValueType.DECIMAL:
        # The fewest bytes that hold the signed number (BigInteger.toByteArray).
        size = (value if value >= 0 else ~value).bit_length() // 8 + 1
        value = value.to_bytes(size, "big", signed=True)
    return WrappedValue(_WRAPPERS.get(kind, _OTHERS), value)

"""Parquet files, read as Spark's reader reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.exceptions import SparkNeededError, UnreadableSourceError
from airflow_provider.ingestion.files.found import SourceFile, SourceFiles

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

# Spark shifts dates before the year 1900 in files with these keys.
_OF_ANOTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_PLAIN_CALENDAR = "3"


def read_parquet(found: SourceFiles) -> pa.Table:
    """Read Parquet files that have the same columns.

    :param found: the files.
    :raises UnreadableSourceError: when a file is broken.
    :raises SparkNeededError: when Spark would read a file in another way.
    """
    tables, columns = [], None
    for file in found.files:
        with open_parquet(found.filesystem, file, like=columns) as (parquet, columns):
            tables.append(parquet.read(use_threads=False).cast(columns))
    return pa.concat_tables(tables)


@contextmanager
def open_parquet(
    filesystem: AbstractFileSystem, file: SourceFile, like: pa.Schema | None = None
) -> Iterator[tuple[pq.ParquetFile, pa.Schema]]:
    """A context manager around a Parquet file, and its columns as Spark has them.

    :param filesystem: the file system of the file.
    :param file: the file.
    :param like: the columns of another file of the source, if one was read before.
    :raises UnreadableSourceError: when the file is broken; also for an error within the context.
    :raises SparkNeededError: when Spark would read the file in another way, or the other file has other
        columns.
    """
    try:
        with filesystem.open(file.path, "rb") as opened, pq.ParquetFile(opened) as parquet:
            _check_calendar(file, parquet.metadata.metadata or {})
            columns = pa.schema(
                [(field.name, as_spark_has(field.type, field.name)) for field in parquet.schema_arrow]
            )
            check_names(columns.names)
            if like is not None and not columns.equals(like):
                raise SparkNeededError(
                    f"{file.path} has other columns than another file of the source, and Spark takes those "
                    "of one file"
                )
            yield parquet, columns
    except (pa.ArrowException, OSError) as error:
        raise UnreadableSourceError(
            f"source {file.path} (parquet) cannot be read: {error}; check the path and the format",
            source=file.path,
        ) from error


def _check_calendar(file: SourceFile, metadata: dict[bytes, bytes]) -> None:
    writer = metadata.get(b"org.apache.spark.version", b"4").decode()
    if writer < _FIRST_PLAIN_CALENDAR or any(key in metadata for key in _OF_ANOTHER_CALENDAR):
        raise SparkNeededError(f"{file.path} was written with the calendar of Spark {writer}, of before 3.0")


def check_names(names: Iterable[str]) -> None:
    """Make sure that Spark, which ignores upper and lower case, can distinguish the columns.

    :param names: names of the columns.
    :raises SparkNeededError: when it cannot.
    """
    names = list(names)
    if len({name.lower() for name in names}) < len(names):
        raise SparkNeededError(f"the names of the columns {', '.join(names)} differ by case alone")


def as_spark_has(kind: pa.DataType, column: str) -> pa.DataType:
    """The Arrow type for the type that a column of a Parquet file has in Spark.

    :param kind: the column's type in Arrow.
    :param column: the column's name, for the error.
    :raises SparkNeededError: when the type in Spark is not known here.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return as_spark_has(kind.value_type, column)
    if kind in _SAME or types.is_decimal128(kind):
        return kind
    if kind in _OTHER:
        return _OTHER[kind]
    if types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_struct(kind):
        return pa.struct([(field.name, as_spark_has(field.type, column)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(as_spark_has(kind.value_type, column))
    if types.is_map(kind):
        return pa.map_(as_spark_has(kind.key_type, column), as_spark_has(kind.item_type, column))
    raise SparkNeededError(f"column {column!r} is of type {kind}, which Spark has in its own way")


_SAME = frozenset(
    (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()),
    )
)
_OTHER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}

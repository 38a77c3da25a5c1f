"""Base files: reading their rows and their footers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.files.bloom_filter import BloomFilter
from airflow_provider.table.files.column_properties import repeating_strings
from airflow_provider.table.files.file_columns import FileColumns
from airflow_provider.table.schema import META_COLUMNS, TableSchema
from airflow_provider.table.storage import Storage

FOOTER_AVRO_SCHEMA = "parquet.avro.schema"
FOOTER_MIN_KEY = "hoodie_min_record_key"
FOOTER_MAX_KEY = "hoodie_max_record_key"
FOOTER_BLOOM = "org.apache.hudi.bloomfilter"
FOOTER_BLOOM_TYPE = "hoodie_bloom_filter_type_code"

_COMMIT_TIME, _, _, _PARTITION_PATH, _FILE_NAME = META_COLUMNS
CONSTANT_COLUMNS = (_COMMIT_TIME, _PARTITION_PATH, _FILE_NAME)
"""Columns with one value, or a few after rewrites: dictionaries keep them small in memory and in the file."""

_WORTH_THREADS = 1 << 20  # from so many bytes on, threads make a read faster


class BaseFileFooter:
    """Hudi's entries in the footer of a base file.

    :param metadata: the Parquet footer.
    """

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self.num_rows: int = metadata.num_rows
        self._entries: dict[bytes, bytes] = metadata.metadata or {}

    @property
    def min_key(self) -> str | None:
        """Smallest record key; None when the footer does not have it."""
        return self._text(FOOTER_MIN_KEY)

    @property
    def max_key(self) -> str | None:
        """Largest record key; None when the footer does not have it."""
        return self._text(FOOTER_MAX_KEY)

    @property
    def avro_schema(self) -> str | None:
        """Avro schema of all columns, JSON; Hudi's row writer leaves it out."""
        return self._text(FOOTER_AVRO_SCHEMA)

    @cached_property
    def bloom(self) -> BloomFilter | None:
        """The bloom filter of the record keys, read at the first use; None when there is none.

        :raises CorruptTableError: when the filter cannot be read.
        :raises UnsupportedTableError: when the filter is of an unknown kind.
        """
        value, type_code = self._text(FOOTER_BLOOM), self._text(FOOTER_BLOOM_TYPE)
        return BloomFilter.from_footer(value, type_code) if value and type_code else None

    def _text(self, key: str) -> str | None:
        value = self._entries.get(key.encode())
        return None if value is None else value.decode()


class BaseFileReader:
    """Reads one base file; as a context manager it closes the file.

    :param storage: the table's storage.
    :param path: path relative to the table.
    :param schema: the table's schema. The rows get its columns and types, even if the file has others, see
        :class:`~airflow_provider.table.files.FileColumns`. None for the columns and types of the file.
    :param dictionaries: whether string columns with few values come as dictionaries too, which are faster to
        read, to reorder and to write.
    :raises CorruptTableError: when it is not a Parquet file.
    :raises FileNotFoundError: when there is no such file.
    """

    def __init__(
        self, storage: Storage, path: str, schema: TableSchema | None = None, *, dictionaries: bool = False
    ) -> None:
        filesystem, root = storage.arrow()
        try:
            source = filesystem.open_input_file(f"{root}/{path}")
            # Fetching ahead helps with remote storage; for local files it only costs a thread.
            ahead = not isinstance(filesystem, pyarrow.fs.LocalFileSystem)
            self._parquet = pq.ParquetFile(source, read_dictionary=list(CONSTANT_COLUMNS), pre_buffer=ahead)
            repeating = repeating_strings(self._parquet) if dictionaries else []
            if repeating:
                self._parquet = pq.ParquetFile(
                    source,
                    metadata=self._parquet.metadata,
                    read_dictionary=[*CONSTANT_COLUMNS, *repeating],
                    pre_buffer=ahead,
                )
        except pa.ArrowInvalid as error:
            raise CorruptTableError(
                f"base file {storage.url(path)} is not a Parquet file: {error}", path=path
            ) from error
        self._columns = None
        if schema is not None:
            self._columns = FileColumns.of(storage, path, schema, dictionaries=frozenset(repeating))

    @cached_property
    def footer(self) -> BaseFileFooter:
        """The file's footer."""
        return BaseFileFooter(self._parquet.metadata)

    @property
    def parquet(self) -> pq.ParquetFile:
        """The file, for its statistics."""
        return self._parquet

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows; see :func:`read_base_file`."""
        metadata = self._parquet.metadata
        size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        rows = self._parquet.read(columns=self._wanted(columns), use_threads=size >= _WORTH_THREADS)
        return self._brought(rows, columns)

    def row_groups(
        self, columns: Sequence[str] | None = None, *, use_threads: bool = True
    ) -> Iterator[pa.Table]:
        """The rows, one row group at a time, each as :func:`read_base_file` gives them.

        :param columns: the columns to read, all when None.
        :param use_threads: whether Arrow's threads may decode a large row group.
        """
        wanted = self._wanted(columns)
        for number in range(self._parquet.num_row_groups):
            is_large = self._parquet.metadata.row_group(number).total_byte_size >= _WORTH_THREADS
            rows = self._parquet.read_row_group(number, columns=wanted, use_threads=use_threads and is_large)
            yield self._brought(rows, columns)

    @property
    def row_counts(self) -> list[int]:
        """The number of rows of each row group."""
        metadata = self._parquet.metadata
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    def lies_as_read(self, column: str) -> bool:
        """Whether the file has a column with exactly the type in which it is read."""
        stored = self._parquet.schema_arrow
        return column in stored.names and (self._columns is None or self._columns.is_same(stored, [column]))

    def _wanted(self, columns: Sequence[str] | None) -> list[str] | None:
        if self._columns is not None:
            return self._columns.stored(self._parquet.schema_arrow, columns)
        return None if columns is None else list(columns)

    def _brought(self, rows: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        return rows if self._columns is None else self._columns.bring(rows, columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._parquet.close()


def read_footer(storage: Storage, path: str) -> BaseFileFooter:
    """Read a base file's footer only.

    :param storage: the table's storage.
    :param path: path relative to the table.
    :raises CorruptTableError: when it is not a Parquet file.
    :raises FileNotFoundError: when there is no such file.
    """
    with BaseFileReader(storage, path) as base_file:
        return base_file.footer


def read_base_file(
    storage: Storage,
    path: str,
    columns: Sequence[str] | None = None,
    *,
    schema: TableSchema | None = None,
    dictionaries: bool = False,
) -> pa.Table:
    """Read a base file, ready to be copied by :meth:`BaseFileWriter.write_preserved`.

    :param storage: the table's storage.
    :param path: path relative to the table.
    :param columns: the columns to read, all when None.
    :param schema: see :class:`BaseFileReader`.
    :param dictionaries: see :class:`BaseFileReader`.
    :return: the rows; Hudi's constant columns come as dictionaries.
    :raises CorruptTableError: when it is not a Parquet file.
    :raises FileNotFoundError: when there is no such file.
    """
    with BaseFileReader(storage, path, schema, dictionaries=dictionaries) as base_file:
        return base_file.read(columns)

"""Base files: Parquet with Hudi's five columns and footers, written without per-row Python."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.files.base_file_reader import (
    CONSTANT_COLUMNS,
    FOOTER_AVRO_SCHEMA,
    FOOTER_BLOOM,
    FOOTER_BLOOM_TYPE,
    FOOTER_MAX_KEY,
    FOOTER_MIN_KEY,
    read_base_file,
)
from airflow_provider.table.files.bloom_filter import BloomFilter
from airflow_provider.table.files.column_properties import with_statistics, worth_a_dictionary
from airflow_provider.table.files.markers import MarkerType, write_marker
from airflow_provider.table.schema import (
    META_COLUMNS,
    arrow_to_avro,
    conform,
    with_meta_columns,
    without_meta_columns,
)
from airflow_provider.table.storage import Storage, storage_full_errors

ROW_GROUP_ROWS = 524_288
ROW_GROUP_BYTES = 128 * 1024 * 1024  # in memory, not in the file

BLOOM_FALSE_POSITIVES = 1e-6
"""Hudi sizes every filter for 60,000 keys. With 250,000 keys such a filter has 6 false positives in 10,000,
and with 10 keys it takes 430 kB. This package sizes a filter for the keys in the file."""

_MOST_FALSE_POSITIVES = 10 * BLOOM_FALSE_POSITIVES  # the limit for a filter that was extended

_COMMIT_TIME, _SEQUENCE, _RECORD_KEY, _PARTITION_PATH, _FILE_NAME = META_COLUMNS
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class WrittenFile:
    """A finished base file.

    :param path: path relative to the table.
    :param size: bytes.
    :param rows: number of rows.
    :param min_key: smallest record key; None when there are no rows.
    :param max_key: largest record key; None when there are no rows.
    """

    path: str
    size: int
    rows: int
    min_key: str | None
    max_key: str | None


class BaseFileWriter:
    """Writes one base file under its final name. It is visible only once a commit names it.

    As a context manager it deletes the file when the block fails. On success the caller calls :meth:`close`,
    which returns the finished file.

    :param storage: the table's storage.
    :param partition_path: the file's partition.
    :param file_id: the file group.
    :param write_token: ``<task partition>-<stage>-<attempt>``, which distinguishes task attempts.
    :param instant: requested time of the commit.
    :param schema: the table's data columns.
    :param table_name: the name of the Avro record in the footer.
    :param first_row: number of the first new row in ``_hoodie_commit_seqno``. A task that writes several
        files continues the numbers of the file before, so that they are unique.
    :param preserved_bloom: a filter with the keys of all rows that will be preserved, so that they need not
        be hashed again. The writer builds a new filter if this one would become too full.
    :param row_group_rows: rows of a row group. With fewer rows, queries can skip more of a file whose rows
        are ordered.
    :param marker: the kind of the file, for its marker, which is put before the file.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        partition_path: str,
        file_id: str,
        write_token: str,
        instant: str,
        schema: pa.Schema,
        table_name: str = "hoodie_source",
        first_row: int = 0,
        preserved_bloom: BloomFilter | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
        marker: MarkerType = MarkerType.CREATE,
    ) -> None:
        name = base_file_name(file_id, write_token, instant)
        self.path = f"{partition_path}/{name}" if partition_path else name
        self.rows = 0
        self.next_row = first_row
        self._storage = storage
        self._instant = instant
        self._sequence_prefix = f"{instant}_{write_token.partition('-')[0]}_".encode()
        self._schema, self._file_schema, self._avro_schema = _schemas(schema, table_name)
        self._constants = {_COMMIT_TIME: instant, _PARTITION_PATH: partition_path, _FILE_NAME: name}
        self._preserved_bloom = preserved_bloom
        self._row_group_rows = row_group_rows
        self._marker = marker
        self._preserved_keys: list[pa.Array] = []
        self._new_keys: list[pa.Array] = []
        self._keys_to_hash: list[pa.Array] = []
        self._min_key: str | None = None
        self._max_key: str | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._sink: BinaryIO | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._with_statistics: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Bytes in the file so far, without the rows that wait for the next row group."""
        return self._sink.tell() if self._sink is not None else 0

    def write(
        self,
        data: pa.Table,
        record_keys: pa.Array | pa.ChunkedArray | None,
        in_preserved_bloom: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Add the rows of this commit: new ones, or new versions.

        :param data: the rows; columns as :func:`~airflow_provider.table.schema.conform` takes them.
        :param record_keys: their keys, in the same order. None where each row gets a new key: its sequence
            number, which no other row of the table has. The JVM's Hudi makes keys and sequence numbers in the
            same way, with separate counters (``HoodieRecord.generateSequenceId``).
        :param in_preserved_bloom: which keys the filter of the preserved rows has already; none when None.
        :raises IncompatibleSchemaError: when a value does not fit into its column.
        """
        if record_keys is not None and len(record_keys) != data.num_rows:
            raise ValueError(f"{data.num_rows} rows, but {len(record_keys)} record keys")
        rows, size = conform(data, self._schema), self._row_group_rows
        for begin in range(0, rows.num_rows, size):
            part = rows.slice(begin, size)
            sequence = sequence_numbers(self._sequence_prefix, self.next_row, part.num_rows)
            self.next_row += part.num_rows
            meta = self._meta_columns(part.num_rows)
            keys = sequence if record_keys is None else record_keys.slice(begin, size).cast(pa.string())
            self._append(meta | {_SEQUENCE: sequence, _RECORD_KEY: keys}, part)
            self._new_keys.extend(_chunks(keys))
            if in_preserved_bloom is not None:
                keys = keys.filter(pa.array(~in_preserved_bloom[begin : begin + size]))
            self._keys_to_hash.extend(_chunks(keys))

    def write_preserved(self, table_with_meta: pa.Table) -> None:
        """Add rows of an older base file unchanged, so that no incremental read takes them for changed.

        They keep commit time, sequence number and key; only the file name becomes that of this file.

        :param table_with_meta: the rows with Hudi's columns; cheapest in the form that :func:`read_base_file`
            returns. String columns that are dictionaries in the first rows of the file are written as such.
        """
        if not self.rows:
            self._take_dictionaries(table_with_meta.schema)
        rows, size = conform(table_with_meta, self._schema), self._row_group_rows
        for begin in range(0, rows.num_rows, size):
            part = rows.slice(begin, size)
            old = table_with_meta.slice(begin, size)
            kept = {name: _as_dictionary(old[name]) for name in (_COMMIT_TIME, _PARTITION_PATH)}
            kept |= {name: old[name].cast(pa.string()) for name in (_SEQUENCE, _RECORD_KEY)}
            self._append(self._meta_columns(part.num_rows) | kept, part)
            self._preserved_keys.extend(_chunks(kept[_RECORD_KEY]))

    def _take_dictionaries(self, given: pa.Schema) -> None:
        names = {field.name for field in given if field.type == _DICTIONARY}
        for name in names.intersection(self._schema.names):
            if self._schema.field(name).type == pa.string():
                self._schema = _with_dictionary(self._schema, name)
                self._file_schema = _with_dictionary(self._file_schema, name)

    def close(self) -> WrittenFile:
        """Finish the file.

        :return: the finished file, which may have no rows.
        :raises StorageFullError: when there is no room for the file. The methods that add rows raise it too.
        """
        with storage_full_errors(self._storage, self.path):
            size = self._finish()
        self._preserved_keys, self._new_keys, self._keys_to_hash = [], [], []
        return WrittenFile(self.path, size, self.rows, self._min_key, self._max_key)

    def _finish(self) -> int:
        if self.rows < _WORTH_A_THREAD:
            bloom = self._bloom()
            self._flush()
        else:
            with ThreadPoolExecutor(1, "bloom-filter") as pool:
                pending = pool.submit(self._bloom)  # it takes the most time at the end of a large file
                self._flush()
            bloom = pending.result()
        parquet = self._parquet or self._open(self._file_schema.empty_table())
        footer = {FOOTER_AVRO_SCHEMA: self._avro_schema}
        if self._min_key is not None and self._max_key is not None:
            footer |= {FOOTER_MIN_KEY: self._min_key, FOOTER_MAX_KEY: self._max_key}
        footer[FOOTER_BLOOM], footer[FOOTER_BLOOM_TYPE] = bloom.to_footer()
        parquet.add_key_value_metadata(footer)
        parquet.close()
        return self._close_sink()

    def abort(self) -> None:
        """Give up, and delete the unfinished file."""
        self._pending, self._preserved_keys, self._new_keys, self._keys_to_hash = [], [], [], []
        # An error here must not hide the reason for giving up; a rollback deletes the file if it stays.
        with suppress(OSError, pa.ArrowException):
            if self._parquet is not None:
                self._parquet.close()
        if self._sink is not None:
            with suppress(OSError):
                self._sink.close()
            self._sink = None
            with suppress(OSError):
                self._storage.delete(self.path)

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()

    def _meta_columns(self, count: int) -> dict[str, pa.Array | pa.ChunkedArray]:
        zeros = pa.array(np.zeros(count, np.int32))
        return {
            name: pa.DictionaryArray.from_arrays(zeros, [value]) for name, value in self._constants.items()
        }

    def _append(self, meta: dict[str, pa.Array | pa.ChunkedArray], data: pa.Table) -> None:
        keys = meta[_RECORD_KEY]
        if keys.null_count:
            raise ValueError(f"{keys.null_count} record keys of {self.path} are null")
        extremes = pc.min_max(keys).as_py()
        self._min_key = min(self._min_key or extremes["min"], extremes["min"])
        self._max_key = max(self._max_key or extremes["max"], extremes["max"])
        table = pa.Table.from_arrays(
            [*(meta[name] for name in META_COLUMNS), *data.columns], schema=self._file_schema
        )
        self.rows += table.num_rows
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += table.nbytes
        if self._pending_rows >= self._row_group_rows or self._pending_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _bloom(self) -> BloomFilter:
        if self._preserved_bloom is not None:
            new = pa.chunked_array(self._keys_to_hash, type=pa.string())
            extended = self._preserved_bloom.extended(new, false_positives=_MOST_FALSE_POSITIVES)
            if extended is not None:
                return extended
        keys = pa.chunked_array([*self._preserved_keys, *self._new_keys], type=pa.string())
        return BloomFilter.build(
            keys,
            entries=max(1, self.rows),
            false_positives=BLOOM_FALSE_POSITIVES,
            max_entries=max(1, self.rows),
        )

    def _flush(self) -> None:
        if not self._pending:
            return
        # Parquet keeps one dictionary per row group, and falls back to plain values at a second one.
        table = pa.concat_tables(self._pending).unify_dictionaries()
        for position, field in enumerate(self._file_schema):
            if field.type == _DICTIONARY and field.name not in META_COLUMNS:
                table = table.set_column(position, field, _with_own_values(table.column(position)))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if self._parquet is not None and not self._with_statistics.issubset(with_statistics(table)):
            table = pa.concat_tables([self._take_back(), table]).unify_dictionaries()
        with storage_full_errors(self._storage, self.path):
            parquet = self._parquet or self._open(table)
            parquet.write_table(table, row_group_size=self._row_group_rows)

    def _take_back(self) -> pa.Table:
        """Return the rows that were written, and begin the file anew, with statistics of fewer columns."""
        if self._parquet is not None:
            self._parquet.close()
        self._close_sink()
        self._parquet = None
        rows = read_base_file(self._storage, self.path)
        columns = rows.select(self._file_schema.names).columns  # strings become dictionaries again
        return pa.Table.from_arrays(columns, schema=self._file_schema)

    def _open(self, sample: pa.Table) -> pq.ParquetWriter:
        self._with_statistics = frozenset(with_statistics(sample))
        write_marker(self._storage, self._instant, self.path, self._marker)
        self._sink = self._storage.create(self.path)
        self._parquet = pq.ParquetWriter(
            self._sink,
            self._file_schema,
            compression="snappy",
            use_dictionary=worth_a_dictionary(sample),
            write_statistics=sorted(self._with_statistics),
            store_schema=False,  # the JVM's files have no Arrow schema
        )
        return self._parquet

    def _close_sink(self) -> int:
        if self._sink is None:
            return 0
        size = self._sink.tell()
        self._sink.close()  # if this fails, the file is given up
        self._sink = None
        return size


@lru_cache(maxsize=16)  # a write opens thousands of files
def _schemas(schema: pa.Schema, table_name: str) -> tuple[pa.Schema, pa.Schema, str]:
    """The table's data columns, the columns of its files in their written types, and these as Avro."""
    data, whole = without_meta_columns(schema), with_meta_columns(schema)
    fields = [each.with_type(_DICTIONARY) if each.name in CONSTANT_COLUMNS else each for each in whole]
    return data, pa.schema(fields), arrow_to_avro(whole, table_name)


def sequence_numbers(prefix: bytes, first: int, count: int) -> pa.Array:
    """``<prefix><number>`` for consecutive numbers, as one Arrow string array."""
    if count < _WORTH_ARRAYS:
        return pa.array([f"{prefix.decode()}{number}" for number in range(first, first + count)], pa.string())
    texts, lengths = [], []
    while count:
        digits = len(str(first))
        here = min(count, 10**digits - first)
        numbers = np.arange(first, first + here)
        block = np.empty((here, len(prefix) + digits), np.uint8)
        block[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        for position in range(1, digits + 1):
            shorter = numbers // 10  # vectorised in numpy, unlike divmod and the remainder
            block[:, -position] = numbers - shorter * 10 + ord("0")
            numbers = shorter
        texts.append(block.ravel())
        lengths.append(np.full(here, block.shape[1], np.int32))
        first, count = first + here, count - here
    offsets = np.concatenate([np.zeros(1, np.int32), *lengths]).cumsum(dtype=np.int32)
    data = np.concatenate(texts) if texts else np.empty(0, np.uint8)
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _with_dictionary(schema: pa.Schema, name: str) -> pa.Schema:
    position = schema.get_field_index(name)
    return schema.set(position, schema.field(position).with_type(_DICTIONARY))


def _with_own_values(column: pa.ChunkedArray) -> pa.Array:
    """A column of one dictionary, without the values that no row has: readers skip row groups by them."""
    dictionary = column.chunk(0).dictionary
    codes = pa.chunked_array([chunk.indices for chunk in column.chunks])
    nulls = codes.is_null().to_numpy() if codes.null_count else None
    numbers = codes.fill_null(0).to_numpy()
    used = np.bincount(numbers if nulls is None else numbers[~nulls], minlength=len(dictionary)) > 0
    numbered = np.zeros(max(1, len(dictionary)), np.int32)  # a null has a number too
    numbered[: len(dictionary)] = np.cumsum(used) - 1
    own = pa.array(numbered[numbers], mask=nulls)
    return pa.DictionaryArray.from_arrays(own, dictionary.filter(pa.array(used)))


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _as_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(_DICTIONARY)
    return column.cast(pa.string()).dictionary_encode()


_WORTH_ARRAYS = 200  # from so many sequence numbers on, arrays are faster
_WORTH_A_THREAD = 10_000  # from so many keys of a bloom filter on, a thread is faster

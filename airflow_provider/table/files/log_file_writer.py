"""Writing a log file of a merge-on-read table: new versions of records, and deleted keys.

One write appends one log file to a file group, and no other write touches this log file. The new versions are
a Parquet block, which is one Parquet file, or an Avro block. Source: ``HoodieAppendHandle``,
``HoodieParquetDataBlock``, ``HoodieAvroDataBlock`` and ``HoodieDeleteBlock`` of Apache Hudi.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.exceptions import InvalidInputError, UnsupportedTableError
from airflow_provider.table.files.base_file_reader import FOOTER_AVRO_SCHEMA
from airflow_provider.table.files.base_file_writer import sequence_numbers
from airflow_provider.table.files.column_properties import with_statistics, worth_a_dictionary
from airflow_provider.table.files.log_file import BlockType, HeaderKey, LogFileName, encode_log_block
from airflow_provider.table.files.log_records import DeletedRecord, WrappedValue, encode_deletes
from airflow_provider.table.files.log_rows import avro_rows
from airflow_provider.table.files.markers import MarkerType, write_marker
from airflow_provider.table.schema import (
    arrow_to_avro,
    conform,
    with_meta_columns,
    without_meta_columns,
)
from airflow_provider.table.storage import Storage, storage_full_errors


@dataclass(frozen=True)
class WrittenLogFile:
    """A finished log file.

    :param path: path relative to the table.
    :param size: bytes.
    :param rows: number of new versions.
    :param deletes: number of deleted keys.
    """

    path: str
    size: int
    rows: int
    deletes: int

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class LogFileWriter:
    """Writes one log file under its final name. It is visible only once a commit names it.

    :param storage: the table's storage.
    :param partition_path: the file's partition.
    :param file_id: the file group.
    :param write_token: ``<task partition>-<stage>-<attempt>``, which distinguishes task attempts.
    :param instant: requested time of the commit.
    :param schema: the table's data columns.
    :param table_name: the name of the Avro record in the blocks' headers.
    :param data_block: the type of the block with the new versions, a value of
        :data:`~airflow_provider.table.files.BLOCKS_OF_FORMATS`.
    """

    storage: Storage
    partition_path: str
    file_id: str
    write_token: str
    instant: str
    schema: pa.Schema
    table_name: str = "hoodie_source"
    data_block: BlockType = BlockType.PARQUET_DATA

    def write(
        self, rows: pa.Table, record_keys: pa.Array, deleted: Sequence[DeletedRecord] = ()
    ) -> WrittenLogFile:
        """Write the file, after its marker.

        :param rows: new versions of records, one for each key; columns as
            :func:`~airflow_provider.table.schema.conform` takes them.
        :param record_keys: their keys, in the same order.
        :param deleted: keys whose records are deleted.
        :raises IncompatibleSchemaError: when a value does not fit into its column.
        :raises StorageFullError: when there is no room for the file.
        """
        whole = self._with_meta_columns(conform(rows, self.schema), record_keys)
        return self._write(whole, deleted, {})

    def write_compacted(
        self, rows: pa.Table, deleted: Sequence[DeletedRecord], instants: Sequence[str]
    ) -> WrittenLogFile:
        """Write the file of a log compaction, after its marker. Its rows keep Hudi's own columns.

        :param rows: the newest versions of records, one for each key, with Hudi's columns.
        :param deleted: keys whose records are deleted.
        :param instants: requested times of the instants whose blocks this file replaces.
        :raises StorageFullError: when there is no room for the file.
        """
        plain = rows.cast(self._columns)
        return self._write(plain, deleted, {HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(instants)})

    def _write(
        self, rows: pa.Table, deleted: Sequence[DeletedRecord], more: Mapping[int, str]
    ) -> WrittenLogFile:
        text = arrow_to_avro(self._columns, self.table_name)
        header: dict[int, str] = {HeaderKey.SCHEMA: text, **more}
        blocks = []
        if rows.num_rows:
            is_avro = self.data_block is BlockType.AVRO_DATA
            blocks.append((self.data_block, avro_rows(rows, text) if is_avro else self._parquet(rows, text)))
        # hudi-rs cannot read a delete block with ordering values of several types. A missing value counts as
        # another type.
        alike: dict[str, list[DeletedRecord]] = {}
        for each in deleted:
            alike.setdefault(each.ordering_value.wrapper if each.ordering_value else "", []).append(each)
        blocks += [(BlockType.DELETE, encode_deletes(some)) for some in alike.values()]
        data = b"".join(
            encode_log_block(kind, content, instant=self.instant, header=header) for kind, content in blocks
        )
        name = str(LogFileName(self.file_id, self.instant, 1, self.write_token))
        path = f"{self.partition_path}/{name}".lstrip("/")
        write_marker(self.storage, self.instant, path, MarkerType.APPEND)
        with storage_full_errors(self.storage, path):
            self.storage.put(path, data)
        return WrittenLogFile(path, len(data), rows.num_rows, len(deleted))

    @property
    def _columns(self) -> pa.Schema:
        return with_meta_columns(without_meta_columns(self.schema))

    def _with_meta_columns(self, rows: pa.Table, keys: pa.Array) -> pa.Table:
        count = rows.num_rows
        prefix = f"{self.instant}_{self.write_token.partition('-')[0]}_".encode()
        meta = [
            pa.repeat(self.instant, count),
            sequence_numbers(prefix, 0, count),
            keys.cast(pa.string()),
            pa.repeat(self.partition_path, count),
            pa.repeat(self.file_id, count),  # as in the JVM's log files, which have the file id here
        ]
        return pa.Table.from_arrays([*meta, *rows.columns], schema=self._columns)

    def _parquet(self, rows: pa.Table, avro_schema: str) -> bytes:
        sink = io.BytesIO()
        with pq.ParquetWriter(
            sink,
            self._columns,
            compression="snappy",
            use_dictionary=worth_a_dictionary(rows),
            write_statistics=sorted(with_statistics(rows)),
            store_schema=False,
        ) as parquet:
            parquet.write_table(rows)
            parquet.add_key_value_metadata({FOOTER_AVRO_SCHEMA: avro_schema})
        return sink.getvalue()


def wrapped_ordering_values(
    names: Sequence[str], columns: Sequence[pa.Array]
) -> list[WrappedValue | None] | None:
    """The ordering values of deletes, in the form of a delete block.

    :param names: the ordering columns.
    :param columns: their values, one array for each column.
    :return: one for each delete; None where the order of commits decides.
    :raises UnsupportedTableError: when this package cannot write a column's type into a delete block.
    :raises InvalidInputError: when a value is null: a delete without a value would win against any row.
    """
    if not columns:
        return None
    found = []
    for name, values in zip(names, columns, strict=True):
        if values.null_count:
            raise InvalidInputError(
                f"a row that deletes its record has no value in the ordering column {name!r}: give it one, "
                "or delete by keys alone (operation='delete', without the column), which always wins",
                column=name,
            )
        wrapper, plain = _wrapping(name, values)
        found.append([WrappedValue(wrapper, each) for each in plain.to_pylist()])
    if len(found) == 1:
        return list(found[0])
    return [WrappedValue("ArrayWrapper", each) for each in zip(*found, strict=True)]


def _wrapping(name: str, values: pa.Array) -> tuple[str, pa.Array]:
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _wrapping(name, values.cast(kind.value_type))
    if pa.types.is_date32(kind):
        return "IntWrapper", values.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return "LongWrapper", values.cast(pa.int64())
    for is_a, wrapper in _WRAPPERS:
        if is_a(kind):
            return wrapper, values
    raise UnsupportedTableError(
        f"the ordering column {name!r} is {kind}: rows that delete their record are not written to log files "
        "with ordering values of that type; delete by keys alone (operation='delete', without the column)",
        column=name,
    )


_WRAPPERS = (
    (pa.types.is_boolean, "BooleanWrapper"),
    (pa.types.is_int64, "LongWrapper"),
    (pa.types.is_integer, "IntWrapper"),
    (pa.types.is_float64, "DoubleWrapper"),
    (pa.types.is_floating, "FloatWrapper"),
    (pa.types.is_string, "StringWrapper"),
    (pa.types.is_large_string, "StringWrapper"),
)

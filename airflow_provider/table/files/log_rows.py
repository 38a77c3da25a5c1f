"""The rows of a log file's data blocks, as Arrow tables.

Sources: ``HoodieAvroDataBlock``, ``HoodieParquetDataBlock`` and ``HoodieHFileDataBlock`` of Apache Hudi.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.files.log_file import BlockType, HeaderKey, LogBlock
from airflow_provider.table.files.log_records import (
    avro_records,
    block_hfile,
    decode_datum,
    encode_avro_records,
    row_schema,
)
from airflow_provider.table.schema import META_COLUMNS, avro_to_arrow, conform

DATA_BLOCKS = frozenset({BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA})
"""Blocks that hold rows."""

BLOCKS_OF_FORMATS: Mapping[str, BlockType] = MappingProxyType(
    {"parquet": BlockType.PARQUET_DATA, "avro": BlockType.AVRO_DATA}
)
"""The types of blocks that are written, by the names of ``hoodie.logfile.data.block.format``."""

_RECORD_KEY = META_COLUMNS[2]


def block_rows(
    block: LogBlock,
    choose: Callable[[pa.Schema], Sequence[str]] | None = None,
    *,
    use_threads: bool = True,
) -> pa.Table:
    """The rows of a data block, with the block's own columns and types.

    :param block: a block of one of the types in :data:`DATA_BLOCKS`.
    :param choose: returns which of the block's columns have to be read; all when None. An Avro block is read
        with all of them.
    :param use_threads: whether Arrow's threads may decode a Parquet block.
    :raises CorruptTableError: when its content is damaged.
    :raises UnsupportedTableError: when a column has a type that Arrow cannot hold, or the block is of a
        version that Hudi stopped writing long ago.
    """
    if block.block_type is BlockType.PARQUET_DATA:
        try:
            with pq.ParquetFile(pa.BufferReader(block.read())) as content:
                names = None if choose is None else choose(content.schema_arrow)
                return content.read(names, use_threads=use_threads)
        except pa.ArrowInvalid as error:
            raise CorruptTableError(f"a Parquet block in {block.content.name} is damaged: {error}") from error
    columns = avro_to_arrow(block.header[HeaderKey.SCHEMA])
    if block.block_type is BlockType.AVRO_DATA:
        return _table(avro_records(block), columns)
    schema = row_schema(block.header[HeaderKey.SCHEMA])
    # The key is not repeated in the row (HoodieHFileDataBlock.serializeRecords).
    rows = (
        {**decode_datum(schema, value), _RECORD_KEY: key.decode()} for key, value in block_hfile(block).scan()
    )
    return _table(rows, columns)


def avro_rows(rows: pa.Table, schema: str) -> bytes:
    """Rows as the content of an Avro data block.

    :param rows: the rows, with the columns of the schema.
    :param schema: JSON of the Avro record that the block's header has.
    """
    columns = avro_to_arrow(schema)
    numbers = pa.schema([each.with_type(_stored_as(each.type)) for each in columns])
    # Of entries of a map with one key Avro's readers see the last.
    records = conform(rows, columns).cast(numbers).to_pylist(maps_as_pydicts="lossy")
    return encode_avro_records(row_schema(schema), records)


def _stored_as(kind: pa.DataType) -> pa.DataType:
    """A type with numbers in place of dates and times, as Avro stores them."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_stored_as(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([child.with_type(_stored_as(child.type)) for child in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored_as(kind.value_type)))
    return kind


def _table(records: Iterable[Mapping[str, Any]], columns: pa.Schema) -> pa.Table:
    rows = list(records)
    arrays = [
        pa.array([_plain(row.get(each.name), each.type) for row in rows], each.type) for each in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value in the form that Arrow takes: a map becomes a list of its entries."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return [(key, _plain(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_struct(kind):
        return {child.name: _plain(value.get(child.name), child.type) for child in kind}
    return [_plain(each, kind.value_type) for each in value]

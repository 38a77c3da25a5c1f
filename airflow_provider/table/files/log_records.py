"""The content of log file blocks: Avro records, deleted keys, and HFiles.

Sources: ``HoodieAvroDataBlock``, ``HoodieDeleteBlock`` and ``HoodieHFileDataBlock`` of Apache Hudi.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import fastavro

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.avro import avro_schema
from airflow_provider.table.files.log_file import CONTENT_VERSION, BlockType, HeaderKey, LogBlock
from airflow_provider.table.hfile import HFileReader

_NAMESPACE = "org.apache.hudi.avro.model."
_INT = struct.Struct(">i")
_TWO_INTS = struct.Struct(">ii")
_DELETES = "HoodieDeleteRecordList"
_OLDEST_DELETES = 3  # earlier versions use Java's own serialisation
_OLDEST_AVRO = 1  # earlier versions do not have the number of records


class WrappedValue(NamedTuple):
    """A value in a record that names its type, because Avro's union alone does not name it.

    :param wrapper: name of Hudi's record, for example ``LongWrapper``.
    :param value: the value; for an ``ArrayWrapper`` a tuple of wrapped values.
    """

    wrapper: str
    value: Any

    def to_avro(self) -> tuple[str, dict[str, Any]]:
        """The value as fastavro writes a branch of a union."""
        if self.wrapper == "ArrayWrapper":
            items = [each if each is None else each.to_avro() for each in self.value]
            return _NAMESPACE + self.wrapper, {"wrappedValues": items}
        return _NAMESPACE + self.wrapper, {"value": self.value}

    @classmethod
    def from_avro(cls, read: tuple[str, Mapping[str, Any]] | None) -> WrappedValue | None:
        """Read a branch of such a union, as fastavro returns it."""
        if read is None:
            return None
        wrapper, fields = read[0].removeprefix(_NAMESPACE), read[1]
        if wrapper == "ArrayWrapper":
            return cls(wrapper, tuple(cls.from_avro(each) for each in fields["wrappedValues"] or ()))
        return cls(wrapper, fields["value"])


_NO_ORDER = WrappedValue("IntWrapper", 0)


@dataclass(frozen=True)
class DeletedRecord:
    """A key that a delete block deletes.

    :param record_key: the record key.
    :param partition_path: partition path relative to the table.
    :param ordering_value: rows with a larger ordering value stay; an ``IntWrapper`` of 0 when the order of
        commits decides.
    """

    record_key: str
    partition_path: str
    ordering_value: WrappedValue | None = _NO_ORDER


def encode_deletes(deleted: Iterable[DeletedRecord]) -> bytes:
    """The content of a delete block."""
    records = [
        {
            "recordKey": each.record_key,
            "partitionPath": each.partition_path,
            "orderingVal": each.ordering_value and each.ordering_value.to_avro(),
        }
        for each in deleted
    ]
    data = encode_datum(avro_schema(_DELETES), {"deleteRecordList": records})
    return _TWO_INTS.pack(CONTENT_VERSION, len(data)) + data


def deleted_records(block: LogBlock) -> list[DeletedRecord]:
    """The keys that a delete block deletes.

    :raises CorruptTableError: when its content is damaged.
    :raises UnsupportedTableError: when it is in Java's own serialisation, as before table version 5.
    """
    version, position = _content_version(block, _OLDEST_DELETES)
    content = block.read()
    try:
        (size,) = _INT.unpack_from(content, position)
        begin = position + _INT.size
        record = decode_datum(avro_schema(_DELETES), content[begin : begin + size])
    except (ValueError, EOFError, IndexError, struct.error) as error:
        raise CorruptTableError(
            f"a delete block of version {version} in {block.content.name} is damaged: {error}"
        ) from error
    return [
        DeletedRecord(
            each["recordKey"], each["partitionPath"] or "", WrappedValue.from_avro(each["orderingVal"])
        )
        for each in record["deleteRecordList"]
    ]


def encode_avro_records(schema: Any, records: Iterable[Mapping[str, Any]]) -> bytes:
    """The content of an Avro data block.

    :param schema: the records' schema; it goes into the block's header.
    """
    encoded = [encode_datum(schema, record) for record in records]
    parts = (_INT.pack(len(each)) + each for each in encoded)
    return _TWO_INTS.pack(CONTENT_VERSION, len(encoded)) + b"".join(parts)


def avro_records(block: LogBlock) -> Iterator[dict[str, Any]]:
    """The records of an Avro data block, by the schema in its header.

    Dates and times are the numbers that Avro stores, see :func:`row_schema`.

    :raises CorruptTableError: when its content is damaged.
    :raises UnsupportedTableError: when it is of a version that Hudi stopped writing long ago.
    """
    version, position = _content_version(block, _OLDEST_AVRO)
    content = block.read()
    schema = row_schema(block.header[HeaderKey.SCHEMA])
    try:
        (count,) = _INT.unpack_from(content, position)
        position += _INT.size
        for _ in range(count):
            (size,) = _INT.unpack_from(content, position)
            position += _INT.size
            yield decode_datum(schema, content[position : position + size])
            position += size
    except (ValueError, EOFError, IndexError, struct.error) as error:
        raise CorruptTableError(
            f"an Avro block of version {version} in {block.content.name} is damaged: {error}"
        ) from error


def block_hfile(block: LogBlock) -> HFileReader:
    """The HFile that an HFile data block is."""
    return HFileReader(block.content)


def encode_datum(schema: Any, record: Mapping[str, Any]) -> bytes:
    """One record in Avro's binary form, without its schema."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, dict(record))
    return buffer.getvalue()


def decode_datum(schema: Any, data: bytes) -> dict[str, Any]:
    """Read the bytes from :func:`encode_datum`; records in a union come with their names."""
    found = fastavro.schemaless_reader(
        io.BytesIO(data), schema, None, return_record_name=True, return_record_name_override=True
    )
    return cast(dict[str, Any], found)


@lru_cache(maxsize=32)
def parsed_schema(text: str) -> Any:
    """A parsed Avro schema; it is parsed once, because every block of a table repeats it.

    :raises CorruptTableError: when the text is no Avro schema.
    """
    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise CorruptTableError(f"{text[:80]!r} is no Avro schema: {error}") from error


@lru_cache(maxsize=32)
def row_schema(text: str) -> Any:
    """A parsed Avro schema of a table's rows, whose dates and times are plain numbers.

    Avro stores them as numbers. As Python's dates they would end with the year 9999, and a number of days or
    microseconds need not.

    :raises CorruptTableError: when the text is no Avro schema.
    """
    return parsed_schema(json.dumps(_with_plain_numbers(parsed_schema(text))))


def _with_plain_numbers(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_with_plain_numbers(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    keeps = avro.get("logicalType") == "decimal"
    return {
        key: _with_plain_numbers(value) if key in ("type", "fields", "items", "values") else value
        for key, value in avro.items()
        if (keeps or key != "logicalType") and not key.startswith("__")  # fastavro's own notes
    }


def _content_version(block: LogBlock, oldest: int) -> tuple[int, int]:
    (version,) = _INT.unpack(block.content.read(0, _INT.size))
    if not oldest <= version <= CONTENT_VERSION:
        kind = BlockType(block.block_type).name.lower().replace("_", " ")
        raise UnsupportedTableError(
            f"{block.content.name} has a {kind} block of version {version}; read are {oldest} to "
            f"{CONTENT_VERSION}: compact the file group with Hudi"
        )
    return version, _INT.size

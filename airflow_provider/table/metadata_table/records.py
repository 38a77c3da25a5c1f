"""The records of the metadata table: their fields, their bytes, and how two records of one key are merged.

Sources: ``HoodieMetadata.avsc``, ``HoodieMetadataPayload``, ``MetadataPartitionType``,
``HoodieTableMetadataUtil`` and ``ValueType`` of Apache Hudi 1.1. A record's bytes do not have the key: the
HFile has it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, NamedTuple

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.avro import avro_schema, avro_schema_text
from airflow_provider.table.file_names import FileGroupId
from airflow_provider.table.files import WrappedValue, decode_datum, encode_datum, parsed_schema
from airflow_provider.table.timeline import format_time, parse_time

_NAME, _NAMESPACE = "HoodieMetadataRecord", "org.apache.hudi.avro.model"

_MOST_LOCATIONS = 65_536
"""The number of cached locations; there are few, because all keys of a base file share one."""


class RecordType(IntEnum):
    """The type of a record."""

    ALL_PARTITIONS = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


class ValueType(IntEnum):
    """The type of a column with statistics, by its ordinal in Hudi's ``ValueType``."""

    V1 = 0
    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    UUID = 11
    DATE = 12
    TIME_MILLIS = 13
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


class FileInfo(NamedTuple):
    """A file or a partition that a list adds or deletes.

    :param size: bytes; 0 for a partition.
    :param is_deleted: whether the list deletes it.
    """

    size: int
    is_deleted: bool = False


@dataclass(frozen=True)
class FileList:
    """The files of a partition, or the partitions of the table.

    :param files: by name.
    :param record_type: ``FILES`` or ``ALL_PARTITIONS``.
    """

    files: Mapping[str, FileInfo]
    record_type: RecordType = RecordType.FILES

    def sizes(self) -> dict[str, int]:
        """Bytes of the existing files, by name."""
        return {name: info.size for name, info in self.files.items() if not info.is_deleted}


Kind = tuple[ValueType | None, str | None]
"""A type of values with its parameters: ``precision,scale`` for a decimal."""


@dataclass(frozen=True)
class ColumnStats:
    """A column's statistics in a file, or in a partition.

    :param file_name: name of the file; of partition statistics, the partition path.
    :param column_name: the column.
    :param min_value: smallest value; None when there is none or it is unknown.
    :param max_value: largest value; None when there is none or it is unknown.
    :param value_count: number of rows, nulls included.
    :param null_count: rows with null.
    :param total_size: bytes, compressed.
    :param total_uncompressed_size: bytes, uncompressed.
    :param is_deleted: whether the record deletes the statistics.
    :param is_tight_bound: whether the bounds are exactly those of the rows. Such a record replaces an older
        one; any other record only widens the older one's bounds.
    :param value_type: the column's type; None in an index of Hudi before 1.1.
    :param type_info: for a decimal, ``precision,scale``.
    :param record_type: ``COLUMN_STATS`` or ``PARTITION_STATS``.
    """

    file_name: str
    column_name: str
    min_value: WrappedValue | None
    max_value: WrappedValue | None
    value_count: int
    null_count: int
    total_size: int = 0
    total_uncompressed_size: int = 0
    is_deleted: bool = False
    is_tight_bound: bool = False
    value_type: ValueType | None = None
    type_info: str | None = None
    record_type: RecordType = RecordType.COLUMN_STATS

    @property
    def kind(self) -> Kind:
        """The type of the values; values of two statistics compare only if it is the same."""
        return self.value_type, self.type_info


@dataclass(frozen=True)
class StoredBloomFilter:
    """The bloom filter of a base file's record keys.

    :param type_code: ``SIMPLE`` or ``DYNAMIC_V0``.
    :param instant: requested time of the instant that wrote the file.
    :param footer: the filter as it is in the base file's footer.
    :param is_deleted: whether the record deletes the filter.
    """

    type_code: str
    instant: str
    footer: str
    is_deleted: bool = False


@lru_cache(maxsize=1024)  # a commit writes many files
def _millis(instant: str) -> int:
    return int(parse_time(instant).timestamp() * 1000 + 0.5)


class RecordLocation(NamedTuple):
    """The location of a record key.

    :param partition_path: partition path relative to the table.
    :param file_id: id of the file group.
    :param instant_millis: requested time of the instant that put the record there, in milliseconds since the
        epoch.
    :param position: number of the row in the file; Hudi does not fill it yet.
    """

    partition_path: str
    file_id: str
    instant_millis: int
    position: int | None = None

    @classmethod
    def at(cls, partition_path: str, file_id: str, instant: str) -> RecordLocation:
        """A location, from an instant time in UTC."""
        return cls(partition_path, file_id, _millis(instant))

    @property
    def file_group(self) -> FileGroupId:
        """The file group with the record."""
        return FileGroupId(self.partition_path, self.file_id)

    @property
    def instant(self) -> str:
        """The instant time, in UTC; a table whose timeline is in local time has another text for it."""
        return format_time(datetime.fromtimestamp(self.instant_millis / 1000, UTC))


@dataclass(frozen=True)
class SecondaryKey:
    """An entry of a secondary index; its key has the secondary key and the record key. Only Hudi writes
    it."""

    is_deleted: bool = False


Payload = FileList | ColumnStats | StoredBloomFilter | RecordLocation | SecondaryKey


def is_tombstone(payload: Payload) -> bool:
    """Whether a record only deletes an earlier one."""
    return isinstance(payload, _WITH_TOMBSTONES) and payload.is_deleted


_WITH_TOMBSTONES = (ColumnStats, StoredBloomFilter, SecondaryKey)


def merge(older: Payload | None, newer: Payload) -> Payload:
    """Merge two records of one key.

    Lists of files are united. A deletion removes its file from the older list; if the older list lacks the
    file, the deletion stays in the result. Partition statistics are widened, unless the newer ones are tight.
    For all other types the newer record wins. (Hudi widens statistics of a file, too. The bounds are the
    same, because a file never changes, but the counts double when a file was logged twice.)

    :param older: the record before; None when there is none.
    :param newer: the record after it.
    :raises CorruptTableError: when the records are of different types.
    """
    if older is None:
        return newer
    if type(older) is not type(newer):
        raise CorruptTableError(
            f"the metadata table has a {type(newer).__name__} and a {type(older).__name__} of one key; "
            "drop the index and build it again"
        )
    if isinstance(older, FileList) and isinstance(newer, FileList):
        return FileList(_merged_files(older.files, newer.files), newer.record_type)
    if isinstance(older, ColumnStats) and isinstance(newer, ColumnStats):
        is_whole = newer.is_tight_bound or newer.is_deleted or older.is_deleted
        if newer.record_type is RecordType.PARTITION_STATS and not is_whole:
            return _widened(older, newer)
    return newer


def _merged_files(older: Mapping[str, FileInfo], newer: Mapping[str, FileInfo]) -> dict[str, FileInfo]:
    merged = dict(older)
    for name, info in newer.items():
        known = merged.get(name)
        if known is None or (known.is_deleted and info.is_deleted):
            merged[name] = info
        elif info.is_deleted:
            del merged[name]
        else:
            merged[name] = FileInfo(max(known.size, info.size))
    return merged


def _widened(older: ColumnStats, newer: ColumnStats) -> ColumnStats:
    # Values of two types do not compare, so the bounds of such a column are unknown.
    is_same = older.kind == newer.kind
    smallest = [each for each in (older.min_value, newer.min_value) if is_same and each is not None]
    largest = [each for each in (older.max_value, newer.max_value) if is_same and each is not None]
    return replace(
        newer,
        value_type=newer.value_type if is_same else None,
        min_value=min(smallest, key=lambda each: _ordered(newer, each), default=None),
        max_value=max(largest, key=lambda each: _ordered(newer, each), default=None),
        value_count=older.value_count + newer.value_count,
        null_count=older.null_count + newer.null_count,
        total_size=older.total_size + newer.total_size,
        total_uncompressed_size=older.total_uncompressed_size + newer.total_uncompressed_size,
    )


def _ordered(stats: ColumnStats, wrapped: WrappedValue) -> Any:
    # The bytes of a decimal are a signed integer of any length.
    if stats.value_type is ValueType.DECIMAL:
        return int.from_bytes(wrapped.value, "big", signed=True)
    return wrapped.value


@cache
def schema_text() -> str:
    """The Avro schema that records are written with, for headers and footers."""
    return avro_schema_text(_NAME)


def encode_payload(payload: Payload) -> bytes:
    """A record's bytes, by the schema of :func:`schema_text`."""
    return _encode_location(payload) if isinstance(payload, RecordLocation) else _encode(payload)


def _encode(payload: Payload) -> bytes:
    return encode_datum(avro_schema(_NAME), {"key": ""} | _to_avro(payload))


_encode_location = lru_cache(maxsize=_MOST_LOCATIONS)(_encode)


class RecordDecoder:
    """Reads records that were written with one schema.

    :param schema: the schema's text.
    :raises CorruptTableError: when the text is no Avro schema.
    """

    def __init__(self, schema: str) -> None:
        self._schema = parsed_schema(schema)
        self._locations: dict[bytes, RecordLocation] = {}

    def __call__(self, data: bytes) -> Payload:
        """Read a record.

        :raises CorruptTableError: when the bytes are no such record.
        :raises UnsupportedTableError: when it is of an unknown type.
        """
        known = self._locations.get(data)
        if known is not None:
            return known
        payload = self._decode(data)
        if isinstance(payload, RecordLocation) and len(self._locations) < _MOST_LOCATIONS:
            self._locations[data] = payload
        return payload

    def _decode(self, data: bytes) -> Payload:
        try:
            record = decode_datum(self._schema, data)
            record_type = record["type"]
            if record_type not in _FROM_AVRO:
                raise UnsupportedTableError(
                    f"a record of the metadata table is of unknown type {record_type}"
                )
            return _FROM_AVRO[RecordType(record_type)](RecordType(record_type), record)
        except (ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError) as error:
            raise CorruptTableError(
                f"a record of the metadata table cannot be read: {error!r}; drop the index, build it again"
            ) from error


def _to_avro(payload: Payload) -> dict[str, Any]:
    if isinstance(payload, FileList):
        files = {
            name: {"size": info.size, "isDeleted": info.is_deleted} for name, info in payload.files.items()
        }
        return {"type": payload.record_type, "filesystemMetadata": files}
    if isinstance(payload, ColumnStats):
        stats = _named("HoodieMetadataColumnStats", _stats_to_avro(payload))
        return {"type": payload.record_type, "ColumnStatsMetadata": stats}
    if isinstance(payload, StoredBloomFilter):
        bloom = {
            "type": payload.type_code,
            "timestamp": payload.instant,
            "bloomFilter": payload.footer.encode("ascii"),
            "isDeleted": payload.is_deleted,
        }
        return {
            "type": RecordType.BLOOM_FILTER,
            "BloomFilterMetadata": _named("HoodieMetadataBloomFilter", bloom),
        }
    if isinstance(payload, RecordLocation):
        location = {
            "partitionName": payload.partition_path,
            **_file_id_to_avro(payload.file_id),
            "instantTime": payload.instant_millis,
            "position": payload.position,
        }
        return {
            "type": RecordType.RECORD_INDEX,
            "recordIndexMetadata": _named("HoodieRecordIndexInfo", location),
        }
    return {
        "type": RecordType.SECONDARY_INDEX,
        "SecondaryIndexMetadata": {"isDeleted": payload.is_deleted},
    }


def _named(name: str, record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A record with its name. Without the name, fastavro validates the record to find its place in a
    union."""
    return f"{_NAMESPACE}.{name}", record


def _stats_to_avro(stats: ColumnStats) -> dict[str, Any]:
    type_info = stats.value_type and _named(
        "HoodieValueTypeInfo", {"typeOrdinal": stats.value_type, "additionalInfo": stats.type_info}
    )
    return {
        "fileName": stats.file_name,
        "columnName": stats.column_name,
        "minValue": stats.min_value and stats.min_value.to_avro(),
        "maxValue": stats.max_value and stats.max_value.to_avro(),
        "valueCount": stats.value_count,
        "nullCount": stats.null_count,
        "totalSize": stats.total_size,
        "totalUncompressedSize": stats.total_uncompressed_size,
        "isDeleted": stats.is_deleted,
        "isTightBound": stats.is_tight_bound,
        "valueType": type_info,
    }


_UUID_LENGTH = 36
_NO_FILE_INDEX = -1


def _file_id_to_avro(file_id: str) -> dict[str, Any]:
    """The id as two numbers and the file's index if it has Hudi's form; otherwise as text."""
    try:
        head, index = file_id[:_UUID_LENGTH], file_id[_UUID_LENGTH:]
        value = uuid.UUID(head)
        number = int(index.removeprefix("-")) if index else _NO_FILE_INDEX
        high, low = (_signed(value.int >> 64), _signed(value.int & (1 << 64) - 1))
        found = {"fileIdHighBits": high, "fileIdLowBits": low, "fileIndex": number, "fileId": ""}
        if _file_id_from_avro(found | {"fileIdEncoding": 0}) == file_id:
            return found | {"fileIdEncoding": 0}
    except ValueError:
        pass
    return {
        "fileIdHighBits": -1,
        "fileIdLowBits": -1,
        "fileIndex": _NO_FILE_INDEX,
        "fileId": file_id,
        "fileIdEncoding": 1,
    }


def _file_id_from_avro(record: Mapping[str, Any]) -> str:
    if record.get("fileIdEncoding", 0) != 0:
        return str(record["fileId"])
    high, low = (record[each] & (1 << 64) - 1 for each in ("fileIdHighBits", "fileIdLowBits"))
    value = str(uuid.UUID(int=high << 64 | low))
    return value if record["fileIndex"] == _NO_FILE_INDEX else f"{value}-{record['fileIndex']}"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _files_from_avro(record_type: RecordType, record: Mapping[str, Any]) -> FileList:
    files = record["filesystemMetadata"] or {}
    return FileList(
        {name: FileInfo(info["size"], info["isDeleted"]) for name, info in files.items()}, record_type
    )


def _stats_from_avro(record_type: RecordType, record: Mapping[str, Any]) -> ColumnStats:
    stats = record["ColumnStatsMetadata"]
    type_info = stats.get("valueType") or {}
    return ColumnStats(
        file_name=stats["fileName"],
        column_name=stats["columnName"],
        min_value=WrappedValue.from_avro(stats["minValue"]),
        max_value=WrappedValue.from_avro(stats["maxValue"]),
        value_count=stats["valueCount"] or 0,
        null_count=stats["nullCount"] or 0,
        total_size=stats["totalSize"] or 0,
        total_uncompressed_size=stats["totalUncompressedSize"] or 0,
        is_deleted=stats["isDeleted"],
        is_tight_bound=stats.get("isTightBound", False),
        value_type=ValueType(type_info["typeOrdinal"]) if type_info else None,
        type_info=type_info.get("additionalInfo"),
        record_type=record_type,
    )


def _bloom_from_avro(_: RecordType, record: Mapping[str, Any]) -> StoredBloomFilter:
    bloom = record["BloomFilterMetadata"]
    footer = bloom["bloomFilter"].decode("ascii")
    return StoredBloomFilter(bloom["type"], bloom["timestamp"], footer, bloom["isDeleted"])


def _location_from_avro(_: RecordType, record: Mapping[str, Any]) -> RecordLocation:
    location = record["recordIndexMetadata"]
    return RecordLocation(
        location["partitionName"],
        _file_id_from_avro(location),
        location["instantTime"],
        location.get("position"),
    )


def _secondary_from_avro(_: RecordType, record: Mapping[str, Any]) -> SecondaryKey:
    return SecondaryKey(record["SecondaryIndexMetadata"]["isDeleted"])


_FROM_AVRO: dict[RecordType, Callable[[RecordType, Mapping[str, Any]], Payload]] = {
    RecordType.ALL_PARTITIONS: _files_from_avro,
    RecordType.FILES: _files_from_avro,
    RecordType.COLUMN_STATS: _stats_from_avro,
    RecordType.BLOOM_FILTER: _bloom_from_avro,
    RecordType.RECORD_INDEX: _location_from_avro,
    RecordType.PARTITION_STATS: _stats_from_avro,
    RecordType.SECONDARY_INDEX: _secondary_from_avro,
}

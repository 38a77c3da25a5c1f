"""The content of the timeline's files: commit metadata, plans, and other records.

Avro object container files, codec null, in the shapes that Hudi 1.1 writes. Tables of
version 6 and older have JSON instead.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, cast

import fastavro

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.avro import avro_schema
from airflow_provider.table.file_names import FileGroupId

_AVRO_MAGIC = b"Obj\x01"

COMMIT_METADATA = "HoodieCommitMetadata"
REPLACE_COMMIT_METADATA = "HoodieReplaceCommitMetadata"

REWRITES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT"})
"""Operation types that write the same rows into other files."""

RESTORED_TO = "restored_to"
"""Key in the extra metadata of our restores: requested time of the commit to which the table went back."""

RESTORED_TO_COMPLETION = "restored_to_completion"
"""Key in the extra metadata of our restores: completion time of that commit."""


@dataclass(frozen=True)
class WriteStat:
    """The statistics of one write to one file group (Hudi's ``HoodieWriteStat``).

    :param file_id: id of the file group.
    :param partition_path: partition path relative to the table.
    :param path: the base file's path relative to the table.
    :param prev_commit: instant of the slice that was rewritten; ``"null"`` for a new group.
    :param num_writes: rows in the file.
    :param num_inserts: rows that are new in the table.
    :param num_update_writes: rows that replaced an older version.
    :param num_deletes: rows that were deleted.
    :param total_write_bytes: bytes written.
    :param file_size: bytes of the file.
    :param prev_base_file: name of the base file that was rewritten.
    :param min_event_time: smallest value of the ordering column; unit as in the table.
    :param max_event_time: largest value of the ordering column; unit as in the table.
    :param log_version: for a log file, the number in its name.
    :param log_offset: for a log file, the position in it at which the write began.
    :param base_file: for a log file, empty, as in the JVM's Hudi from table version 8 on.
    :param log_files: names of the log files written; :attr:`path` is then that of the last one.
    """

    file_id: str
    partition_path: str
    path: str
    prev_commit: str = "null"
    num_writes: int = 0
    num_inserts: int = 0
    num_update_writes: int = 0
    num_deletes: int = 0
    total_write_bytes: int = 0
    file_size: int = 0
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None

    @property
    def file_group(self) -> FileGroupId:
        """The file group that was written to."""
        return FileGroupId(self.partition_path, self.file_id)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a JSON-able dict."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of_log_file(
        cls, file_id: str, path: str, instant: str, *, rows: int, deletes: int, size: int
    ) -> WriteStat:
        """The statistics of a write that appended a log file, as the JVM's Hudi sets them.

        :param file_id: id of the file group.
        :param path: the log file's path relative to the table.
        :param instant: requested time of the write.
        :param rows: rows in the file.
        :param deletes: number of keys that it deletes.
        :param size: bytes of the file.
        """
        partition_path, _, name = path.rpartition("/")
        return cls(
            file_id=file_id,
            partition_path=partition_path,
            path=path,
            prev_commit=instant,
            num_writes=rows,
            num_update_writes=rows,
            num_deletes=deletes,
            total_write_bytes=size,
            file_size=size,
            log_version=1,
            log_offset=0,
            base_file="",
            log_files=(name,),
        )

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> WriteStat:
        """Read what :meth:`to_dict` made."""
        log_files = described.get("log_files")
        return cls(**dict(described) | {"log_files": None if log_files is None else tuple(log_files)})


_STAT_FIELDS = {
    "file_id": "fileId",
    "partition_path": "partitionPath",
    "path": "path",
    "prev_commit": "prevCommit",
    "num_writes": "numWrites",
    "num_inserts": "numInserts",
    "num_update_writes": "numUpdateWrites",
    "num_deletes": "numDeletes",
    "total_write_bytes": "totalWriteBytes",
    "file_size": "fileSizeInBytes",
    "prev_base_file": "prevBaseFile",
    "min_event_time": "minEventTime",
    "max_event_time": "maxEventTime",
    "log_version": "logVersion",
    "log_offset": "logOffset",
    "base_file": "baseFile",
    "log_files": "logFiles",
}

# Counters that the JVM writes as 0, not null, for a copy-on-write file.
_ZERO_STATS = (
    "totalWriteErrors",
    "totalLogRecords",
    "totalUpdatedRecordsCompacted",
    "totalLogBlocks",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
    "totalLogFilesCompacted",
    "totalLogReadTimeMs",
    "totalLogSizeCompacted",
    "numUpdates",
)


@dataclass(frozen=True)
class CommitMetadata:
    """The metadata of a commit.

    :param operation_type: Hudi's ``WriteOperationType``, for example ``UPSERT``.
    :param write_stats: one entry per written file.
    :param replaced: ids of the file groups that the commit replaces, by partition path.
    :param extra_metadata: free text by key; ``schema`` holds the table's Avro schema.
    """

    operation_type: str
    write_stats: tuple[WriteStat, ...] = ()
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def replaced_groups(self) -> frozenset[FileGroupId]:
        """The file groups that the commit replaces."""
        return frozenset(FileGroupId(path, each) for path, ids in self.replaced.items() for each in ids)


def encode_commit_metadata(meta: CommitMetadata, action: str) -> bytes:
    """The content of a commit's completed (or inflight) timeline file.

    :param meta: the commit's metadata.
    :param action: the timeline's action; only ``replacecommit`` and ``clustering`` can name replaced file
        groups.
    :raises ValueError: when the metadata names replaced file groups and the action cannot.
    """
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for stat in meta.write_stats:
        by_partition.setdefault(stat.partition_path, []).append(_stat_to_avro(stat))
    record: dict[str, Any] = {
        "partitionToWriteStats": ("map", by_partition),  # without the type, fastavro validates all of it
        "compacted": meta.operation_type == "COMPACT",
        "extraMetadata": dict(meta.extra_metadata),
        "version": None,
        "operationType": meta.operation_type,
    }
    if action not in ("replacecommit", "clustering"):
        if meta.replaced:
            raise ValueError(f"a {action} cannot replace file groups, only a replacecommit can")
        return encode(COMMIT_METADATA, record)
    record["partitionToReplaceFileIds"] = {path: list(ids) for path, ids in meta.replaced.items()}
    return encode(REPLACE_COMMIT_METADATA, record)


def requested_metadata(action: str) -> bytes:
    """The content of a requested instant that has no plan.

    :param action: the timeline's action.
    """
    return encode("HoodieRequestedReplaceMetadata", {}) if action == "replacecommit" else b""


def decode_commit_metadata(data: bytes) -> CommitMetadata:
    """Read a commit's timeline file: Avro, or the JSON of table version 6.

    :param data: the file's content.
    :raises CorruptTableError: when it is neither, or not commit metadata.
    """
    record = decode_any(data)
    try:
        stats = record.get("partitionToWriteStats") or {}
        return CommitMetadata(
            operation_type=record.get("operationType") or "UNKNOWN",
            write_stats=tuple(
                _stat_from_avro(partition, stat) for partition, found in stats.items() for stat in found
            ),
            replaced={
                partition: tuple(file_ids)
                for partition, file_ids in (record.get("partitionToReplaceFileIds") or {}).items()
            },
            extra_metadata=record.get("extraMetadata") or {},
        )
    except (AttributeError, TypeError) as error:
        raise CorruptTableError(f"a timeline file is not commit metadata: {error!r}") from error


def encode(schema_name: str, record: Mapping[str, Any]) -> bytes:
    """Write one record as an Avro object container file.

    :param schema_name: Hudi's record name, for example ``HoodieRollbackPlan``.
    :param record: the fields; those left out take their default.
    """
    data, block, start = io.BytesIO(), io.BytesIO(), _file_start(schema_name)
    fastavro.schemaless_writer(data, avro_schema(schema_name), dict(record))
    fastavro.schemaless_writer(block, _BLOCK, {"records": 1, "data": data.getvalue()})
    return start + block.getvalue() + start[-_SYNC_BYTES:]


def stored_text(text: str) -> bytes:
    """The bytes of a text in an uncompressed Avro file."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, "string", text)
    return data.getvalue()


@cache
def _file_start(schema_name: str) -> bytes:
    """The header of a file. It is cached, because writing the schema takes longer than writing a record."""
    buffer = io.BytesIO()
    fastavro.writer(buffer, avro_schema(schema_name), [], codec="null")
    return buffer.getvalue()


_SYNC_BYTES = 16  # the bytes that end a file's header and every block
_BLOCK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Block",
        "fields": [{"name": "records", "type": "long"}, {"name": "data", "type": "bytes"}],
    }
)


def decode(data: bytes) -> dict[str, Any]:
    """Read the one record of an Avro object container file, by the schema inside it.

    :param data: the file's content.
    :raises CorruptTableError: when it is not such a file, or cut off.
    """
    try:
        records = cast(Iterable[dict[str, Any]], fastavro.reader(io.BytesIO(data)))
        (record,) = records
    except (ValueError, EOFError, IndexError, KeyError, TypeError) as error:
        raise CorruptTableError(
            f"a timeline file of {len(data)} bytes is not an Avro file with one record: {error!r}"
        ) from error
    return record


def decode_any(data: bytes) -> dict[str, Any]:
    """Read the record of a timeline file: Avro, or the JSON of table version 6.

    :param data: the file's content.
    :raises CorruptTableError: when it is neither.
    """
    return decode(data) if data.startswith(_AVRO_MAGIC) else _decode_json(data)


def _decode_json(data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except ValueError as error:
        raise CorruptTableError(
            f"a timeline file of {len(data)} bytes is neither Avro nor JSON: {data[:40]!r}"
        ) from error
    if not isinstance(record, dict):
        raise CorruptTableError(f"a timeline file is JSON, but not commit metadata: {data[:40]!r}")
    return record


def _stat_to_avro(stat: WriteStat) -> dict[str, Any]:
    record: dict[str, Any] = dict.fromkeys(_ZERO_STATS, 0)
    record |= {avro: getattr(stat, name) for name, avro in _STAT_FIELDS.items()}
    if stat.log_files is not None:
        record["logFiles"] = list(stat.log_files)  # a tuple in a union names its branch
    return record


def _stat_from_avro(partition: str, record: Mapping[str, Any]) -> WriteStat:
    found = {name: record.get(avro) for name, avro in _STAT_FIELDS.items()}
    known = {name: value for name, value in found.items() if value is not None}
    # A workload profile (an inflight file) names neither the path nor the partition of its files.
    return WriteStat.from_dict({"file_id": "", "path": "", "partition_path": partition} | known)

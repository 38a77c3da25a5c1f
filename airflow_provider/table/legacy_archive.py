"""The archived timeline of layout 1 (table version 6): ``.hoodie/archived/.commits_.archive.<n>_1-0-1``.

Each file is a Hudi log file: blocks of ``#HUDI#``, the size of what follows, version, type, headers
(among them the Avro schema), content, footers, and the whole size once more. A block holds
``HoodieArchivedMetaEntry`` records, one for each state that an instant went through
(``HoodieAvroDataBlock``, ``HoodieLogFormat``).
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import fastavro

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.instant import Action, Instant, State
from airflow_provider.table.metadata import encode
from airflow_provider.table.storage import Storage

LEGACY_FOLDER = ".hoodie/archived"

_NAME = re.compile(r"^\.commits_\.archive\.(\d+)_")
_MAGIC = b"#HUDI#"
_SCHEMA_HEADER = 2
_AVRO_DATA_BLOCK = 3

# What an entry may hold, and the record's own name.
_METADATA = {
    "hoodieCommitMetadata": "HoodieCommitMetadata",
    "hoodieReplaceCommitMetadata": "HoodieReplaceCommitMetadata",
    "hoodieCleanMetadata": "HoodieCleanMetadata",
    "hoodieRollbackMetadata": "HoodieRollbackMetadata",
    "hoodieIndexCommitMetadata": "HoodieIndexCommitMetadata",
}
_PLANS = {
    "hoodieRequestedReplaceMetadata": "HoodieRequestedReplaceMetadata",
    "hoodieCleanerPlan": "HoodieCleanerPlan",
    "hoodieCompactionPlan": "HoodieCompactionPlan",
}


@dataclass(frozen=True)
class LegacyRecord:
    """A completed instant of an archive of layout 1.

    :param instant: the instant.
    :param metadata: what layout 2 would keep of the completed instant, Avro.
    :param plan: what layout 2 would keep of the requested instant, Avro.
    """

    instant: Instant
    metadata: bytes | None
    plan: bytes | None


def legacy_records(storage: Storage) -> Iterator[LegacyRecord]:
    """The completed instants of a table's archives of layout 1, in the order in which they were archived.

    :param storage: the table's storage.
    :raises CorruptTableError: when a file is no such archive. A last block that was not written to its
        end is left out, as Hudi does.
    """
    plans: dict[str, bytes | None] = {}
    for path in archive_paths(storage):
        for entry in _entries(storage, path):
            requested_time, state = entry["commitTime"], str(entry.get("actionState") or "COMPLETED")
            if state == "REQUESTED":
                plans[requested_time] = _encoded(entry, _PLANS)
            elif state == "COMPLETED" and entry["actionType"] in set(Action):
                action = Action(entry["actionType"])
                yield LegacyRecord(
                    Instant(requested_time, action, State.COMPLETED, requested_time, layout=1),
                    _encoded(entry, _METADATA),
                    plans.pop(requested_time, None),
                )


def archive_paths(storage: Storage) -> list[str]:
    """The archives of layout 1, from the oldest on.

    :param storage: the table's storage.
    """
    found = [(int(match[1]), name) for name in storage.names(LEGACY_FOLDER) if (match := _NAME.match(name))]
    return [f"{LEGACY_FOLDER}/{name}" for _, name in sorted(found)]


def _encoded(entry: dict[str, Any], names: dict[str, str]) -> bytes | None:
    for field, name in names.items():
        if (record := entry.get(field)) is not None:
            return encode(name, record)
    return None


def _entries(storage: Storage, path: str) -> Iterator[dict[str, Any]]:
    data = storage.read(path)
    try:
        for schema, content in _blocks(data):
            (count,) = struct.unpack_from(">I", content, 4)  # after the content's version
            position = 8
            for _ in range(count):
                (length,) = struct.unpack_from(">I", content, position)
                source = io.BytesIO(content[position + 4 : position + 4 + length])
                yield cast(dict[str, Any], fastavro.schemaless_reader(source, schema, None))
                position += 4 + length
    except (struct.error, ValueError, EOFError, IndexError, KeyError) as error:
        raise CorruptTableError(
            f"table {storage.root}: {path} is not an archive of layout 1: {error!r}", path=path
        ) from error


def _blocks(data: bytes) -> Iterator[tuple[Any, bytes]]:
    position = 0
    schemas: dict[bytes, Any] = {}
    while position < len(data):
        if data[position : position + 6] != _MAGIC:
            raise ValueError(f"no block begins at byte {position}")
        (size,) = struct.unpack_from(">Q", data, position + 6)
        end = position + 14 + size
        if end > len(data):
            return  # its writer died
        _, kind, headers = struct.unpack_from(">III", data, position + 14)
        position += 26
        schema = b""
        for _ in range(headers):
            header, length = struct.unpack_from(">II", data, position)
            if header == _SCHEMA_HEADER:
                schema = data[position + 8 : position + 8 + length]
            position += 8 + length
        (length,) = struct.unpack_from(">Q", data, position)
        if kind == _AVRO_DATA_BLOCK:
            if schema not in schemas:
                schemas[schema] = fastavro.parse_schema(json.loads(schema))
            yield schemas[schema], data[position + 8 : position + 8 + length]
        position = end

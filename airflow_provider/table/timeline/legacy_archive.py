"""The archived timeline of layout 1 (table version 6): ``.hoodie/archived/.commits_.archive.<n>_1-0-1``.

Each file is a Hudi log file whose Avro blocks hold ``HoodieArchivedMetaEntry`` records, one for each state
that an instant went through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider.table.files import BlockType, avro_records, read_log_blocks
from airflow_provider.table.storage import ByteRange, Storage
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import encode

LEGACY_FOLDER = ".hoodie/archived"

_NAME = re.compile(r"^\.commits_\.archive\.(\d+)_")

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
    :raises CorruptTableError: when a file is no such archive. An incomplete last block is left out, as in
        Hudi.
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
    for block in read_log_blocks(ByteRange.of_bytes(storage.read(path), storage.url(path))):
        if block.block_type is BlockType.AVRO_DATA:
            yield from avro_records(block)

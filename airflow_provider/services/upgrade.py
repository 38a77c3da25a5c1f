"""Upgrade of a copy-on-write table of version 6 or 8 to 9, which this package writes, and downgrade to 8.

No data file is touched. An upgrade from version 6 moves the timeline: its files get a folder and new names,
commit metadata becomes Avro, and the archived timeline becomes an LSM timeline. Version 6 keeps no completion
times. Its readers order commits by their requested times. So these become the completion times, and every
checkpoint and every ``as of`` keeps its meaning.

Upgrade and downgrade both delete the metadata table, as Hudi does, because its versions differ. They delete
the properties by which readers find it first, then its files. Indexes can be built again afterwards.

The properties are the switch; they are put in one step after the new timeline exists. Before that step the
table has the old version, after it the new one. The next run removes the leftovers of a crash. The rules for
the properties are those of Hudi's ``SevenToEightUpgradeHandler``, ``EightToNineUpgradeHandler`` and
``NineToEightDowngradeHandler``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.concurrency import CommitLog, pending_instants
from airflow_provider.concurrency.commit import drop_indexes, publish_head
from airflow_provider.concurrency.indexes import DEFINITIONS
from airflow_provider.exceptions import TableError, UnsupportedTableError
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.merge_semantics import (
    COMMIT_TIME,
    EVENT_TIME,
    LEGACY_PAYLOAD,
    MERGE_MODE,
    PAYLOAD,
    PAYLOADS,
    STRATEGIES,
    STRATEGY,
    MergeSemantics,
    properties_of_payload,
)
from airflow_provider.table.metadata_table import DEFINITIONS_PATH, METADATA_FOLDER
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, dump_properties
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    COMMIT_METADATA,
    REPLACE_COMMIT_METADATA,
    Action,
    Instant,
    State,
    append_history,
    archive_paths,
    archived,
    decode_commit_metadata,
    encode,
    instant_path,
    timeline_folder,
)
from airflow_provider.table.writable import check_layout

log = logging.getLogger(__name__)

_ORDERING = "hoodie.table.ordering.fields"
_PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"  # HoodieRecordMerger
_STRATEGY_OF = {mode: strategy for strategy, mode in STRATEGIES.items()}
_DEFAULT_PAYLOADS = {
    COMMIT_TIME: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    EVENT_TIME: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
}
# Properties that versions 8 and 9 no longer have.
_GONE = (
    PAYLOAD,
    "hoodie.compaction.record.merger.strategy",
    "hoodie.table.keygenerator.class",
    "hoodie.table.precombine.field",
)


@dataclass(frozen=True)
class VersionChange:
    """The change of a table's version.

    :param location: location of the table.
    :param before: the old version.
    :param after: the new version.
    :param instants: number of instants that were written in the new layout.
    :param dropped_indexes: indexes that the table had, and that have to be built again.
    """

    location: str
    before: int
    after: int
    instants: int = 0
    dropped_indexes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The change as a JSON-able dict: ``location``, ``before``, ``after``, ``instants``,
        ``dropped_indexes``."""
        return {
            "location": self.location,
            "before": self.before,
            "after": self.after,
            "instants": self.instants,
            "dropped_indexes": list(self.dropped_indexes),
        }


def upgrade(
    location: str, *, storage_options: Mapping[str, Any] | None = None, lock: LockProvider | None = None
) -> VersionChange:
    """Bring a table of version 6 or 8 to version 9. A second call changes nothing.

    :param location: absolute path or URL of the table.
    :param storage_options: keyword arguments of the fsspec file system.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None. All other writers
        of the table have to be stopped, or to take the same lock.
    :raises UnsupportedTableError: for a merge-on-read table, for a table with a merger class of its own, or
        when record keys would change.
    :raises TableError: when a write is in flight, or a plan is pending.
    :raises NotATableError: when there is no table.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    """
    table = _opened(location, storage_options)
    with lock or default_lock(table):
        table = _opened(location, storage_options)
        before = table.config
        if before.version == 9:
            _remove_layout_1(table.storage)
            return VersionChange(location, 9, 9)
        dropped, before = _indexes(before), _without_indexes(before)
        properties = _properties_of_9(before)
        _check_idle(table)
        if dropped:
            log.warning("table %s: its metadata table goes, with %s", location, ", ".join(dropped))
            _switch(table.storage, before)
        _remove_metadata_table(table.storage)
        moved = _move_timeline(table.storage) if before.layout == 1 else 0
        ordering = tuple(filter(None, properties.pop(_ORDERING, "").split(","))) or before.ordering_fields
        after = replace(before, version=9, layout=2, ordering_fields=ordering, raw=properties)
        _switch(table.storage, after)
        _remove_layout_1(table.storage)
    log.info("table %s: upgraded from version %d to 9", location, before.version)
    return VersionChange(location, before.version, 9, moved, dropped)


def downgrade(
    location: str, *, storage_options: Mapping[str, Any] | None = None, lock: LockProvider | None = None
) -> VersionChange:
    """Bring a table of version 9 to version 8, for readers and writers that know no later version.

    This package cannot write the table until it is upgraded again. A second call changes nothing.

    :param location: absolute path or URL of the table.
    :param storage_options: keyword arguments of the fsspec file system.
    :param lock: see :func:`upgrade`.
    :raises UnsupportedTableError: see :func:`upgrade`; and for a table of version 6.
    :raises TableError: when a write is in flight, or a plan is pending.
    :raises NotATableError: when there is no table.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    """
    table = _opened(location, storage_options)
    lock = lock or default_lock(table)
    version = table.config.version
    if version == 8:
        return VersionChange(location, 8, 8)
    if version != 9:
        raise UnsupportedTableError(
            f"table {location} is of version {version}; only one of version 9 is downgraded to 8",
            location=location,
        )
    _check_idle(table)
    dropped = drop_indexes(table.storage, lambda _: True, lock)
    with lock:
        publish_head(table.storage, CommitLog(table.storage))
        table = _opened(location, storage_options)
        before = table.config
        _check_idle(table)
        if kept := _indexes(before):
            raise TableError(
                f"table {location} got the indexes {', '.join(kept)} in this moment; stop those who build "
                "them, and downgrade it again",
                location=location,
            )
        if before.version == 9:
            _switch(table.storage, replace(before, version=8, raw=_properties_of_8(before)))
    log.info("table %s: downgraded from version 9 to 8", location)
    return VersionChange(location, 9, 8, dropped_indexes=dropped[1] if dropped else ())


# --- what cannot be changed -------------------------------------------------------------------


def _opened(location: str, storage_options: Mapping[str, Any] | None) -> HudiTable:
    table = HudiTable.open(location, storage_options)
    config, why = table.config, None
    check_layout(config)
    if config.table_type != "COPY_ON_WRITE":
        why = f"it is {config.table_type}, and only copy-on-write tables are"
    elif config.key_generator == "COMPLEX" and len(config.record_key_fields) == 1:
        why = "its complex key generator makes other record keys in version 9 (HUDI-7001)"
    if why is not None:
        told = f"table {location} of version {config.version} is neither upgraded nor downgraded here: {why}"
        raise UnsupportedTableError(told, location=location)
    return table


def _check_idle(table: HudiTable) -> None:
    if pending := pending_instants(table):
        first = pending[0]
        raise TableError(
            f"table {table.location} has {len(pending)} instants in flight, the first is {first.action} "
            f"{first.instant} by {first.owner}; let them end or roll them back, and stop its writers",
            location=table.location,
            instant=first.instant,
        )


# --- the metadata table -------------------------------------------------------------------


def _indexes(config: TableConfig) -> tuple[str, ...]:
    return (*config.metadata_partitions, *config.inflight_metadata_partitions)


def _without_indexes(config: TableConfig) -> TableConfig:
    if not _indexes(config):
        return config
    raw = config.with_metadata_partitions(()).raw
    return replace(config, raw={name: value for name, value in raw.items() if name != DEFINITIONS})


def _remove_metadata_table(storage: Storage) -> None:
    """Delete the metadata table's files, which neither properties nor the commit log name any more."""
    for status in storage.list(METADATA_FOLDER, recursive=True):
        storage.delete(status.path)
    storage.delete(DEFINITIONS_PATH)


# --- properties ---------------------------------------------------------------------------


def _properties_of_9(config: TableConfig) -> dict[str, str]:
    kept = {name: value for name, value in config.raw.items() if name not in _GONE}
    mode = kept.get(MERGE_MODE) or EVENT_TIME
    if payload := config.raw.get(PAYLOAD):
        if payload not in PAYLOADS:
            raise UnsupportedTableError(
                f"table {config.name!r} has {PAYLOAD}={payload}: rows that a class merges are not "
                f"merged here; known are {', '.join(PAYLOADS)}",
                table=config.name,
                property=PAYLOAD,
            )
        mode = PAYLOADS[payload]
        kept |= {LEGACY_PAYLOAD: payload, **properties_of_payload(payload)}
    elif not config.ordering_fields:
        mode = COMMIT_TIME
    return _since_8(config, kept) | {
        MERGE_MODE: mode,
        STRATEGY: _STRATEGY_OF[mode],
        "hoodie.table.format": "native",
    }


def _properties_of_8(config: TableConfig) -> dict[str, str]:
    _ = MergeSemantics.of(config)  # raises for unsupported merge semantics
    payload = config.raw.get(LEGACY_PAYLOAD)
    gone = {"hoodie.table.format", _ORDERING, LEGACY_PAYLOAD}
    mode = config.raw.get(MERGE_MODE) or (EVENT_TIME if config.ordering_fields else COMMIT_TIME)
    strategy = _STRATEGY_OF.get(mode, _PAYLOAD_STRATEGY)
    if payload is not None and (by_payload := properties_of_payload(payload)):
        # In version 8 the payload class itself merges, and implies these properties.
        gone |= set(by_payload)
        mode, strategy = "CUSTOM", _PAYLOAD_STRATEGY
    kept = {name: value for name, value in config.raw.items() if name not in gone}
    return _since_8(config, kept) | {
        MERGE_MODE: mode,
        STRATEGY: strategy,
        PAYLOAD: payload or _DEFAULT_PAYLOADS[mode],
    }


def _since_8(config: TableConfig, kept: Mapping[str, str]) -> dict[str, str]:
    return {
        "hoodie.table.initial.version": str(config.version),
        **kept,
        "hoodie.table.keygenerator.type": config.key_generator,
        "hoodie.timeline.history.path": "history",
        "hoodie.timeline.path": "timeline",
    }


def _switch(storage: Storage, config: TableConfig) -> None:
    storage.put(PROPERTIES_PATH, dump_properties(config.to_properties()).encode())


# --- the timeline -------------------------------------------------------------------------


def _move_timeline(storage: Storage) -> int:
    """Write all instants of layout 1 in layout 2, including archived ones, and keep the present files."""
    instants = _layout_1(storage)
    clusterings = {
        each.requested_time
        for each in instants
        if each.state is State.COMPLETED
        and each.action is Action.REPLACE_COMMIT
        and decode_commit_metadata(storage.read(instant_path(each))).operation_type == "CLUSTER"
    }
    for instant in instants:
        content, moved = storage.read(instant_path(instant)), replace(instant, layout=2)
        if instant.state is not State.COMPLETED and instant.requested_time in clusterings:
            moved = replace(moved, action=Action.CLUSTERING)
        storage.put(instant_path(moved), _as_avro(content, instant))
    append_history(
        storage,
        sorted(
            (replace(each, instant=replace(each.instant, layout=2)) for each in archived(storage, 1)),
            key=lambda each: each.instant.requested_time,
        ),
    )
    return sum(instant.state is State.COMPLETED for instant in instants)


def _layout_1(storage: Storage) -> list[Instant]:
    found = (Instant.parse(name, layout=1) for name in storage.names(timeline_folder(1)))
    return sorted((each for each in found if each is not None), key=lambda each: each.file_name)


def _as_avro(content: bytes, instant: Instant) -> bytes:
    if not content.startswith(b"{"):
        return content  # the content is empty, or Avro already
    replaces = instant.action is Action.REPLACE_COMMIT
    return encode(REPLACE_COMMIT_METADATA if replaces else COMMIT_METADATA, json.loads(content))


def _remove_layout_1(storage: Storage) -> None:
    """Delete the files that a table of layout 2 does not use any more."""
    for instant in _layout_1(storage):
        storage.delete(instant_path(instant))
    for path in archive_paths(storage):
        storage.delete(path)

"""Publishing an entry that changes the indexes themselves: one is planned, complete, or dropped.

All steps follow from the entry, so that any process that finds it unpublished takes the same steps. In the
table's properties, a publisher changes only the indexes that the entry names, because other Hudi writers
change the properties too. Readers trust the properties, so a publisher that was paused must not bring an
older state back: if the log has newer entries by then, it writes the state of the newest one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from airflow_provider.concurrency.indexes.first_base_files import complete_base_files, drop_base_files
from airflow_provider.concurrency.indexes.state import read_properties
from airflow_provider.concurrency.log import CommitLog, LogEntry, Plan
from airflow_provider.exceptions import NotATableError
from airflow_provider.table.metadata_table import (
    BULK_INSERT,
    DEFINITIONS_PATH,
    METADATA_FOLDER,
    IndexDefinition,
    MetadataPartition,
    column_stats_definition,
    create_metadata_table,
    initialise_file_groups,
    metadata_storage,
    read_index_definitions,
    record_index_definition,
    write_index_definitions,
    write_instant,
)
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, dump_properties, parse_properties
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, Instant, State, Timeline, decode, instant_path

INDEX = "INDEX"
"""Operation type of an entry that plans or completes indexes."""

DROP_INDEX = "DROP_INDEX"
"""Operation type of an entry after which there are fewer indexes."""

DEFINITIONS = "hoodie.table.index.defs.path"
"""The property that names the file with the definitions of the indexes."""

COLUMNS = "columns"
"""In the extra metadata of an index's plan: the columns whose statistics it keeps, a JSON array."""


def publish_index_change(storage: Storage, entry: LogEntry, staged: str) -> None:
    """Publish an entry that changes the indexes: make file groups, complete an index, or drop it.

    The instant of an indexing plan is on the timeline only while it is pending. If the newest completed
    instant were an indexing, the next Hudi writer that initialises several partitions of the metadata table
    would use its time for each of them, and each would roll the one before back
    (``generateUniqueInstantTime``). So an indexing leaves no completed instant, just as Hudi's own
    initialisation leaves none.

    :param storage: the table's storage.
    :param entry: the newest entry of the commit log.
    :param staged: path of the instant's staged content; unless the entry is a plan, it is deleted last.
    """
    try:
        content = decode(storage.read(staged))
    except FileNotFoundError:
        return  # an earlier publisher has finished
    if isinstance(entry, Plan):
        try:
            _make_file_groups(storage, entry, content)
        except NotATableError:
            if CommitLog(storage).head() == entry.sequence:
                raise
            # The index was dropped since, with all others.
        return
    if CommitLog(storage).head() != entry.sequence:
        return  # others have published the entry while this process was paused
    named = [info["metadataPartitionPath"] for info in content["indexPartitionInfos"]]
    if entry.operation == DROP_INDEX:
        _settle(storage, dict.fromkeys(named, _ABSENT), entry)
        _remove(storage, entry, set(named))
    else:
        complete = complete_base_files(storage, entry, named)
        _settle(storage, dict.fromkeys(complete, _COMPLETE), entry)
        if len(complete) == len(named):
            # The requested file goes first: no run begins without it.
            for state in (State.REQUESTED, State.INFLIGHT):
                storage.delete(instant_path(Instant(entry.instant, Action.INDEXING, state)))
    storage.delete(staged)


def settle_index_config(storage: Storage, partitions: Collection[str]) -> None:
    """Bring the table's properties in line with the newest entry of the log, for some indexes.

    An index counts as in flight once a run has begun to build it. The properties keep what they say of other
    indexes. The caller holds the table lock.

    :param storage: the table's storage.
    :param partitions: the partitions of the metadata table that this package is changing.
    """
    _settle(storage, dict.fromkeys(partitions, _ABSENT), None)


_ABSENT, _IN_FLIGHT, _COMPLETE = range(3)


def _settle(storage: Storage, wanted: Mapping[str, int], entry: LogEntry | None) -> None:
    """Write the wanted states into the properties, or those of the log if it has newer entries."""
    commit_log = CommitLog(storage)
    while True:
        newest = commit_log.newest()
        if entry is None or newest is None or newest.sequence != entry.sequence:
            wanted = {partition: _state_of(storage, newest, partition) for partition in wanted}
        properties = parse_properties(read_properties(storage).decode())
        config = TableConfig.from_properties(properties)
        complete, inflight = (
            ({*named}.difference(wanted)) | {each for each, state in wanted.items() if state == what}
            for named, what in (
                (config.metadata_partitions, _COMPLETE),
                (config.inflight_metadata_partitions, _IN_FLIGHT),
            )
        )
        named = (set(config.metadata_partitions), set(config.inflight_metadata_partitions))
        if named == (complete, inflight):
            return
        properties = config.with_metadata_partitions(complete, inflight).to_properties()
        if complete or inflight:
            properties.setdefault(DEFINITIONS, DEFINITIONS_PATH)
        else:
            properties.pop(DEFINITIONS, None)
        storage.put(PROPERTIES_PATH, dump_properties(properties).encode())
        # The loop checks again: the log may have newer entries if this process was paused before the put.


def _state_of(storage: Storage, newest: LogEntry | None, partition: str) -> int:
    known = {each.partition: each for each in (newest.indexes if newest else None) or ()}
    index = known.get(partition)
    if index is None:
        return _ABSENT
    if index.is_complete:
        return _COMPLETE
    begun = instant_path(Instant(index.instant, Action.INDEXING, State.INFLIGHT))
    return _ABSENT if storage.stat(begun) is None else _IN_FLIGHT


def _make_file_groups(storage: Storage, entry: LogEntry, plan: dict[str, Any]) -> None:
    config = TableConfig.from_properties(parse_properties(storage.read(PROPERTIES_PATH).decode()))
    metadata_table = metadata_storage(storage)
    create_metadata_table(metadata_table, config)
    definitions = read_index_definitions(storage)
    for info in plan["indexPartitionInfos"]:
        if definition := _definition(info):
            definitions[definition.name] = definition
    write_index_definitions(storage, definitions.values())
    for index in entry.indexes or ():
        if index.instant == entry.instant:
            initialise_file_groups(metadata_table, index.partition, index.file_groups, entry.instant)
    # By this instant another Hudi writer sees all file groups. While the plan is pending on the table's
    # timeline, that writer compacts no log file that came after this instant
    # (HoodieBackedTableMetadataWriter.compactIfNecessary).
    write_instant(metadata_table, Action.DELTA_COMMIT, entry.instant, entry.completion_time, BULK_INSERT, ())


def _definition(info: dict[str, Any]) -> IndexDefinition | None:
    partition, extra = info["metadataPartitionPath"], info["extraMetadata"] or {}
    if partition == MetadataPartition.RECORD_INDEX:
        return record_index_definition()
    return column_stats_definition(json.loads(extra[COLUMNS])) if COLUMNS in extra else None


def _remove(storage: Storage, entry: LogEntry, dropped: Collection[str]) -> None:
    """Delete the files of the dropped indexes."""
    config = TableConfig.from_properties(parse_properties(read_properties(storage).decode()))
    kept = {*config.metadata_partitions, *config.inflight_metadata_partitions}
    kept.update(index.partition for index in entry.indexes or ())
    if kept:
        definitions = read_index_definitions(storage)
        left = [each for name, each in definitions.items() if name not in dropped]
        if len(left) < len(definitions):
            write_index_definitions(storage, left)
        folders = [f"{METADATA_FOLDER}/{partition}" for partition in sorted(dropped)]
        paths = [status.path for folder in folders for status in storage.list(folder)]
    else:
        paths = [DEFINITIONS_PATH, *(each.path for each in storage.list(METADATA_FOLDER, recursive=True))]
    # A writer deletes its own staged files, or stages them again under the same names for an index that was
    # scheduled since.
    pending = {i.requested_time for i in Timeline.load(storage).pending() if i.action is not Action.INDEXING}
    paths = [path for path in paths if not any(instant in path for instant in pending)]
    # If this is still the newest entry, the list has no file of an index that was scheduled later, nor of a
    # writer that began later.
    if CommitLog(storage).head() != entry.sequence:
        return
    for path in paths:
        storage.delete(path)
    drop_base_files(storage, dropped, entry.completion_time)
    _remove_plans(storage, entry, dropped)


def _remove_plans(storage: Storage, entry: LogEntry, dropped: Collection[str]) -> None:
    """Delete from the timeline the pending plans whose indexes are all dropped."""
    kept, timeline = entry.indexes or (), Timeline.load(storage)
    for pending in timeline.pending():
        if pending.action is not Action.INDEXING or pending.requested_time > entry.completion_time:
            continue  # planned since
        plan = timeline.plan(pending)
        named = {info["metadataPartitionPath"] for info in (plan or {}).get("indexPartitionInfos") or ()}
        # The entry names no instant for an index of another Hudi writer.
        left = any(each.partition in named and each.instant in (pending.requested_time, "") for each in kept)
        # A process that was killed between the two deletions below leaves an instant without a plan.
        if plan is None or (named.intersection(dropped) and not left):
            # The requested file goes first: no run begins without it.
            for state in (State.REQUESTED, State.INFLIGHT):
                storage.delete(instant_path(Instant(pending.requested_time, Action.INDEXING, state)))

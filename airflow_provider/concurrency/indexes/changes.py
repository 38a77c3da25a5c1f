"""Publishing what the log says about the indexes themselves: one is planned, complete, or dropped.

Everything follows from the entry, so that any process that finds it unpublished does the same again. Of the
table's properties only what the entry is about is written, because they are other Hudi writers' too. Readers
trust them, and a process that was paused must not bring an older state back: where the log has gone on, what
it says by then is written.
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
"""The property that says where the definitions of indexes are."""

COLUMNS = "columns"
"""In the extra metadata of an index's plan: the columns whose statistics it keeps, a JSON array."""


def publish_index_change(storage: Storage, entry: LogEntry, staged: str) -> None:
    """What an entry that changes the indexes brings: file groups, a complete index, or nothing of it any
    more.

    An instant of a plan is on the timeline as long as the plan is carried out. Completed it is not: where the
    newest completed instant is such a one, the next Hudi writer that initialises partitions of the metadata
    table takes its time for each of them, and rolls the one before back (``generateUniqueInstantTime``). So
    an indexing leaves nothing there, as Hudi's own initialisation does not.

    :param storage: the table's storage.
    :param entry: the newest entry of the commit log.
    :param staged: path of the instant's staged content; it goes last, if the entry is no plan.
    """
    try:
        content = decode(storage.read(staged))
    except FileNotFoundError:
        return  # the one before got it done
    if isinstance(entry, Plan):
        try:
            _make_file_groups(storage, entry, content)
        except NotATableError:
            if CommitLog(storage).head() == entry.sequence:
                raise
            # Dropped since, with all other indexes.
        return
    if CommitLog(storage).head() != entry.sequence:
        return  # done while this process was paused
    named = [info["metadataPartitionPath"] for info in content["indexPartitionInfos"]]
    if entry.operation == DROP_INDEX:
        _settle(storage, dict.fromkeys(named, _ABSENT), entry)
        _remove(storage, entry, set(named))
    else:
        complete = complete_base_files(storage, entry, named)
        _settle(storage, dict.fromkeys(complete, _COMPLETE), entry)
        if len(complete) == len(named):
            # The plan first: without it no run begins.
            for state in (State.REQUESTED, State.INFLIGHT):
                storage.delete(instant_path(Instant(entry.instant, Action.INDEXING, state)))
    storage.delete(staged)


def settle_index_config(storage: Storage, partitions: Collection[str]) -> None:
    """Bring the table's properties in line with the newest entry of the log, for some indexes.

    In flight are those that somebody has begun to build. Of others nothing is changed: what the properties
    say of them is true. To be called under the table lock.

    :param storage: the table's storage.
    :param partitions: the partitions of the metadata table that this package is changing.
    """
    _settle(storage, dict.fromkeys(partitions, _ABSENT), None)


_ABSENT, _IN_FLIGHT, _COMPLETE = range(3)


def _settle(storage: Storage, wanted: Mapping[str, int], entry: LogEntry | None) -> None:
    """Make the properties say what is wanted, or, where the log has gone on since an entry, what it says."""
    commit_log = CommitLog(storage)
    while True:
        newest = commit_log.newest()
        if entry is None or newest is None or newest.sequence != entry.sequence:
            wanted = {partition: _state_of(storage, newest, partition) for partition in wanted}
        properties = parse_properties(read_properties(storage).decode())
        config = TableConfig.from_properties(properties)
        complete, in_flight = (
            ({*named}.difference(wanted)) | {each for each, state in wanted.items() if state == what}
            for named, what in (
                (config.metadata_partitions, _COMPLETE),
                (config.inflight_metadata_partitions, _IN_FLIGHT),
            )
        )
        named = (set(config.metadata_partitions), set(config.inflight_metadata_partitions))
        if named == (complete, in_flight):
            return
        properties = config.with_metadata_partitions(complete, in_flight).to_properties()
        if complete or in_flight:
            properties.setdefault(DEFINITIONS, DEFINITIONS_PATH)
        else:
            properties.pop(DEFINITIONS, None)
        storage.put(PROPERTIES_PATH, dump_properties(properties).encode())
        # And once more: if this process was paused before it wrote, the log has gone on.


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
    # With it another Hudi writer sees all file groups. And as long as the plan is pending on the table's
    # timeline, it compacts nothing that was logged after this
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
    # What a writer has staged it takes away itself, or stages again under the same names for an index that
    # was scheduled since.
    pending = {i.requested_time for i in Timeline.load(storage).pending() if i.action is not Action.INDEXING}
    paths = [path for path in paths if not any(instant in path for instant in pending)]
    # What somebody has scheduled since is not in this list, nor a writer's of after that entry.
    if CommitLog(storage).head() != entry.sequence:
        return
    for path in paths:
        storage.delete(path)
    drop_base_files(storage, dropped, entry.completion_time)
    _remove_plans(storage, entry, dropped)


def _remove_plans(storage: Storage, entry: LogEntry, dropped: Collection[str]) -> None:
    """Take plans of dropped indexes from the timeline of which nothing is left to be built."""
    kept, timeline = entry.indexes or (), Timeline.load(storage)
    for pending in timeline.pending():
        if pending.action is not Action.INDEXING or pending.requested_time > entry.completion_time:
            continue  # planned since
        plan = timeline.plan(pending)
        named = {info["metadataPartitionPath"] for info in (plan or {}).get("indexPartitionInfos") or ()}
        # One of another Hudi writer's has no instant here.
        left = any(each.partition in named and each.instant in (pending.requested_time, "") for each in kept)
        # Without a plan: a process that began with this was killed between the two.
        if plan is None or (named.intersection(dropped) and not left):
            # The plan first: without it no run begins.
            for state in (State.REQUESTED, State.INFLIGHT):
                storage.delete(instant_path(Instant(pending.requested_time, Action.INDEXING, state)))

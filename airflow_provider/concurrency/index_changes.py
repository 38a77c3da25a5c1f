"""Publishing what the log says about the indexes themselves: one is planned, complete, or dropped.

Everything follows from the entry, so that whoever finds it unpublished does the same again. The table's
properties are written first and from the log's newest entry, whatever that is by then: readers trust
them, and somebody who stood still must not bring an older state back.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from airflow_provider.concurrency.commit_log import CommitLog
from airflow_provider.concurrency.indexes import current_indexes
from airflow_provider.concurrency.log_entry import IndexState, LogEntry, Plan
from airflow_provider.exceptions import NotATableError
from airflow_provider.table.instant import Action, Instant, State
from airflow_provider.table.metadata import decode, encode
from airflow_provider.table.metadata_table.index_definitions import (
    DEFINITIONS_PATH,
    IndexDefinition,
    column_stats_definition,
    read_index_definitions,
    record_index_definition,
    write_index_definitions,
)
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, metadata_storage
from airflow_provider.table.metadata_table.writer import create_metadata_table, initialise_file_groups
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, dump_properties, parse_properties
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline, instant_path

INDEX = "INDEX"
"""Operation type of an entry that plans or completes indexes."""

DROP_INDEX = "DROP_INDEX"
"""Operation type of an entry after which there are fewer indexes."""

DEFINITIONS = "hoodie.table.index.defs.path"
"""The property that says where the definitions of indexes are."""

COLUMNS = "columns"
"""In the extra metadata of an index's plan: the columns whose statistics it keeps, a JSON array."""


def publish_index_change(storage: Storage, entry: LogEntry, staged: str) -> None:
    """What comes before the instant of an entry that changes the indexes.

    :param storage: the table's storage.
    :param entry: the newest entry of the commit log.
    :param staged: path of the instant's staged content.
    """
    if isinstance(entry, Plan):
        try:
            _make_file_groups(storage, entry, decode(storage.read(staged)))
        except FileNotFoundError:
            pass  # the one before got it done
        except NotATableError:
            if CommitLog(storage).head() == entry.sequence:
                raise
            # Dropped since, with all other indexes.
        return
    write_index_config(storage)
    if entry.operation == DROP_INDEX:
        with suppress(FileNotFoundError):
            dropped = decode(storage.read(staged))["indexPartitionInfos"]
            _remove(storage, entry, {info["metadataPartitionPath"] for info in dropped})


def write_index_config(storage: Storage) -> None:
    """Make the table's properties name the indexes that there are, by the log's newest entry.

    In flight are those that somebody has begun to build. To be called under the table lock.

    :param storage: the table's storage.
    """
    commit_log = CommitLog(storage)
    while True:
        indexes = current_indexes(storage, commit_log, commit_log.newest())
        config = TableConfig.from_properties(parse_properties(storage.read(PROPERTIES_PATH).decode()))
        complete = {each.partition for each in indexes if each.is_complete}
        in_flight = {
            each.partition for each in indexes if not each.is_complete and _is_begun(storage, config, each)
        }
        named = (set(config.metadata_partitions), set(config.inflight_metadata_partitions))
        if named == (complete, in_flight):
            return
        properties = config.with_metadata_partitions(complete, in_flight).to_properties()
        properties.pop(DEFINITIONS, None)
        if indexes:
            properties[DEFINITIONS] = DEFINITIONS_PATH
        storage.put(PROPERTIES_PATH, dump_properties(properties).encode())
        # And once more: if this one stood still before it wrote, the log has gone on.


def _is_begun(storage: Storage, config: TableConfig, index: IndexState) -> bool:
    if not index.instant:
        return index.partition in config.inflight_metadata_partitions  # another Hudi writer's
    return storage.stat(instant_path(Instant(index.instant, Action.INDEXING, State.INFLIGHT))) is not None


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


def _definition(info: dict[str, Any]) -> IndexDefinition | None:
    partition, extra = info["metadataPartitionPath"], info["extraMetadata"] or {}
    if partition == MetadataPartition.RECORD_INDEX:
        return record_index_definition()
    return column_stats_definition(json.loads(extra[COLUMNS])) if COLUMNS in extra else None


def _remove(storage: Storage, entry: LogEntry, dropped: Collection[str]) -> None:
    """Delete what the dropped indexes left: nobody uses them any more."""
    kept = {index.partition for index in entry.indexes or ()}
    gone = set(MetadataPartition) - kept
    definitions = read_index_definitions(storage).values()
    if kept:
        write_index_definitions(storage, [each for each in definitions if each.name not in gone])
        folders = [f"{METADATA_FOLDER}/{partition}" for partition in sorted(gone)]
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
    _remove_plans(storage, entry, dropped)
    nothing = encode("HoodieIndexPlan", {"version": 1, "indexPartitionInfos": []})
    for state, content in ((State.REQUESTED, nothing), (State.INFLIGHT, b"")):
        storage.put_if_absent(instant_path(Instant(entry.instant, Action.INDEXING, state)), content)


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
        # Without a plan: whoever began with this was killed between the two.
        if plan is None or (named.intersection(dropped) and not left):
            # The plan first: without it no run begins.
            for state in (State.REQUESTED, State.INFLIGHT):
                storage.delete(instant_path(Instant(pending.requested_time, Action.INDEXING, state)))

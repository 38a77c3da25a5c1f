"""Indexes inside a commit: what a write logs to the metadata table, before it may complete.

The commit log says which indexes there are (:class:`~airflow_provider.concurrency.log_entry.IndexState`),
so that a writer learns it with the entry that it reads anyway, and none can miss an index that was
scheduled before its own entry. A write's records are staged before the table lock is taken: log files
under their final names, and an instant of the metadata table that does not complete. They count for
nothing until the write's entry is published, whose first step completes that instant.

Where another Hudi writer has committed without logging, the next of ours makes up for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from airflow_provider.concurrency.commit_log import CommitLog
from airflow_provider.concurrency.log_entry import IndexState, LogEntry
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.table.archived_timeline import content_of, find_archived, newest_archived
from airflow_provider.table.base_file import parse_base_file_name
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action, Instant, State
from airflow_provider.table.log_file import LogFileName
from airflow_provider.table.metadata import (
    REWRITES,
    CommitMetadata,
    WriteStat,
    decode,
    decode_commit_metadata,
)
from airflow_provider.table.metadata_table.changes import TableChange, records_of
from airflow_provider.table.metadata_table.index_definitions import read_index_definitions
from airflow_provider.table.metadata_table.keys import by_file_group
from airflow_provider.table.metadata_table.partitions import MetadataPartition, file_group_id
from airflow_provider.table.metadata_table.reader import (
    METADATA_FOLDER,
    MetadataTable,
    metadata_storage,
)
from airflow_provider.table.metadata_table.statistics import indexed_columns
from airflow_provider.table.metadata_table.writer import (
    UPSERT,
    begin_instant,
    completed_content,
    write_log_file,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline, instant_path

log = logging.getLogger(__name__)

_FIRST = "00000000000000"  # of the instants with which Hudi's own indexes begin

_WITH_COLUMNS = frozenset({MetadataPartition.COLUMN_STATS, MetadataPartition.PARTITION_STATS})


def current_indexes(
    storage: Storage, commit_log: CommitLog, newest: LogEntry | None
) -> tuple[IndexState, ...]:
    """The indexes as of an entry: what the next entry carries on.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param newest: the entry; None for an empty log.
    """
    if newest is None:
        return _configured(storage)
    if newest.indexes is not None:
        return newest.indexes
    # Writers that know nothing of indexes were here.
    said = (entry.indexes for entry in commit_log.backwards() if entry.indexes is not None)
    found = next(said, None)
    return _configured(storage) if found is None else found


def _configured(storage: Storage) -> tuple[IndexState, ...]:
    """The indexes that another Hudi writer made, as the table's properties say."""
    config = HudiTable.at(storage).config
    metadata_table = MetadataTable(metadata_storage(storage))
    complete, inflight = config.metadata_partitions, config.inflight_metadata_partitions
    return tuple(
        IndexState(partition, "", len(metadata_table.file_slices(partition)), partition in complete)
        for partition in sorted({*complete, *inflight})
    )


class StagedChange:
    """What one instant will have logged to the indexes once it completes.

    A log file never changes under its name, because readers may have listed it. So what is staged again gets
    other names where it says something else, and what was staged before goes, before the instant's entry: all
    log files of an instant count once it completes. Several may carry out one instant at once, as a clean,
    or one after the other was killed. They say the same, under the same names, or less of it where files are
    gone meanwhile; so neither takes away what the other has staged.

    :param storage: the table's storage.
    :param instant: requested time of the instant.
    """

    def __init__(self, storage: Storage, instant: str) -> None:
        self._storage = storage
        self._instant = instant
        self._paths: set[str] = set()
        self._indexes: tuple[IndexState, ...] = ()

    def is_for(self, indexes: Collection[IndexState]) -> bool:
        """Whether these are the indexes that it was staged for; one that completed since is the same."""
        return _identities(indexes) == _identities(self._indexes)

    def stage(self, indexes: tuple[IndexState, ...], change: Callable[[], TableChange]) -> None:
        """Write what a change means in the indexes; what was staged before for this instant goes.

        :param indexes: to which it has to be logged.
        :param change: asked only where there is an index.
        :raises FileNotFoundError: when a data file of the change is not there.
        """
        before, self._paths, self._indexes = self._paths, set(), indexes
        if indexes:
            self._write(indexes, change())
        elif before:
            drop_staged(self._storage, self._instant)
        for path in before - self._paths:
            self._storage.delete(path)

    def _write(self, indexes: Sequence[IndexState], change: TableChange) -> None:
        metadata_table = metadata_storage(self._storage)
        partitions = [index.partition for index in indexes]
        columns = _indexed_columns(self._storage, indexes)
        records = records_of(self._storage, change, partitions, columns)
        stats = []
        for index in indexes:
            of_partition = records.get(index.partition, {})
            for number, keys in by_file_group(of_partition, index.file_groups).items():
                group = file_group_id(index.partition, number)
                of_group = {key: of_partition[key] for key in keys}
                stats.append(write_log_file(metadata_table, index.partition, group, self._instant, of_group))
        self._paths = {f"{METADATA_FOLDER}/{stat.path}" for stat in stats}
        begin_instant(metadata_table, Action.DELTA_COMMIT, self._instant, UPSERT)
        self._storage.put(staged_path(self._instant), completed_content(Action.DELTA_COMMIT, UPSERT, stats))


def staged_path(instant: str) -> str:
    """Where an instant's completed instant of the metadata table is staged."""
    return f".hoodie/commit_log/staged/{instant}.metadata_table.avro"


def publish_staged(storage: Storage, instant: str, completion_time: str) -> None:
    """Let count what an instant has logged: the first step of its publication; twice does no harm.

    :param storage: the table's storage.
    :param instant: requested time.
    :param completion_time: that of its entry, so that the metadata table's instants complete in log order.
    """
    path = instant_path(Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, completion_time))
    metadata_table = metadata_storage(storage)
    with suppress(FileNotFoundError):  # moved by the one before, or nothing was staged
        moved = storage.move_if_absent(staged_path(instant), f"{METADATA_FOLDER}/{path}")
        if moved and not storage.moves_atomically and instant <= newest_archived(metadata_table):
            metadata_table.delete(path)  # it came too late


def state_in_indexes(storage: Storage, instant: str, completion_time: str) -> State | None:
    """How far what an instant has logged to the indexes has come.

    :param storage: the table's storage.
    :param instant: requested time.
    :param completion_time: that of its entry.
    :return: completed, or in flight; None where there is nothing: another Hudi writer has taken it back,
        because what is pending on the metadata table's timeline looks like a dead writer's.
    """
    metadata_table = metadata_storage(storage)
    for state, at in ((State.COMPLETED, completion_time), (State.INFLIGHT, None)):
        if metadata_table.stat(instant_path(Instant(instant, Action.DELTA_COMMIT, state, at))) is not None:
            return state
    return None


def drop_staged(storage: Storage, instant: str) -> None:
    """Delete what a dead instant has staged for the indexes.

    :param storage: the table's storage.
    :param instant: requested time of an instant that a log entry declared dead.
    """
    folders = storage.names(METADATA_FOLDER)
    if not folders:
        return
    storage.delete(staged_path(instant))
    for folder in folders:
        for name in storage.names(f"{METADATA_FOLDER}/{folder}"):
            parsed = LogFileName.parse(name) if instant in name else None
            if parsed is not None and parsed.instant == instant:
                storage.delete(f"{METADATA_FOLDER}/{folder}/{name}")
    for state in (State.INFLIGHT, State.REQUESTED):
        pending = Instant(instant, Action.DELTA_COMMIT, state)
        storage.delete(f"{METADATA_FOLDER}/{instant_path(pending)}")


# --- what a change is -------------------------------------------------------------------------


def change_of_write(
    write_stats: Iterable[WriteStat],
    replaced: Iterable[FileGroupId],
    operation: str,
    instant: str,
    view: Callable[[], FileSystemView],
) -> TableChange:
    """What a write changes.

    :param write_stats: of its data files.
    :param replaced: file groups that it takes out.
    :param operation: Hudi's operation type.
    :param instant: requested time.
    :param view: the snapshot that it is based on; asked only where it takes file groups out.
    """
    added: list[BaseFile] = []
    slices: list[tuple[BaseFile | None, BaseFile | None]] = []
    seen: set[FileGroupId] = set()
    for stat in write_stats:
        after = _base_file(stat.path, stat.file_size)
        if after is None:
            continue
        before = None
        if stat.prev_base_file and operation not in REWRITES:
            before = _base_file(f"{stat.partition_path}/{stat.prev_base_file}".lstrip("/"))
        added.append(after)
        if before is not None:
            seen.add(before.file_group)
        if before is None or before.file_id != after.file_id or stat.num_inserts or stat.num_deletes:
            slices.append((before, after))
    gone = set(replaced) - seen
    if gone and operation not in REWRITES:  # whose rows are in the new files, all of them
        slices += [(view().base_file(group), None) for group in sorted(gone)]
    return TableChange(tuple(added), (), tuple(slices))


def change_of_undoing(
    before: FileSystemView,
    after: FileSystemView,
    file_groups: Iterable[FileGroupId],
    removed: Iterable[str],
) -> TableChange:
    """What it changes that commits are undone.

    :param before: the snapshot with them.
    :param after: the snapshot without them.
    :param file_groups: that they wrote, or took out.
    :param removed: paths of their data files.
    """
    slices = [(before.base_file(group), after.base_file(group)) for group in sorted(set(file_groups))]
    changed = [(old, new) for old, new in slices if old != new]
    # Rows that come back to a file group leave the one that they were in: both are named.
    return TableChange((), tuple(sorted(removed)), tuple(changed))


def change_of_completed(storage: Storage, timeline: Timeline, instant: Instant) -> TableChange:
    """What a completed instant has changed, by what it says of itself.

    :param storage: the table's storage.
    :param timeline: a timeline that has it.
    :param instant: a commit, clean, rollback or restore.
    :raises NoSuchInstantError: when it was undone since.
    """
    content = content_of(storage, timeline, instant)  # nobody else has logged one that is archived meanwhile
    if instant.action in (Action.CLEAN, Action.ROLLBACK, Action.RESTORE):
        return TableChange(removed=tuple(sorted(_deleted(decode(content)))))
    said, moment = decode_commit_metadata(content), instant.completion_time or ""
    return change_of_metadata(storage, timeline, said, instant.requested_time, moment)


def change_of_metadata(
    storage: Storage, timeline: Timeline, said: CommitMetadata, instant: str, moment: str
) -> TableChange:
    """What a commit has changed, or will, by its commit metadata.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param said: the commit metadata.
    :param instant: requested time.
    :param moment: completion time.
    """
    replaced = [FileGroupId(path, each) for path, ids in said.replaced.items() for each in ids]

    def view() -> FileSystemView:
        return FileSystemView(storage, timeline.showing(lambda i: (i.completion_time or "") < moment))

    # Without what was cleaned since; of a slice whose predecessor was, the keys that left cannot be told.
    there = [stat for stat in said.write_stats if storage.stat(stat.path) is not None]
    known = [
        stat if _has_predecessor(storage, stat) else replace(stat, prev_base_file=None) for stat in there
    ]
    return change_of_write(known, replaced, said.operation_type.upper(), instant, view)


def _has_predecessor(storage: Storage, stat: WriteStat) -> bool:
    path = f"{stat.partition_path}/{stat.prev_base_file}".lstrip("/")
    return stat.prev_base_file is not None and storage.stat(path) is not None


def _deleted(record: Mapping[str, Any]) -> Iterable[str]:
    """Paths of the files that a clean, rollback or restore deleted."""
    rollbacks = record.get("hoodieRestoreMetadata") or {}
    for each in (record, *(one for of_instant in rollbacks.values() for one in of_instant)):
        for partition, said in (each.get("partitionMetadata") or {}).items():
            for file in said.get("successDeleteFiles") or ():
                yield f"{partition}/{file.rpartition('/')[2]}".lstrip("/")


def _base_file(path: str, size: int = 0) -> BaseFile | None:
    partition, _, name = path.rpartition("/")
    parsed = parse_base_file_name(name)
    return BaseFile(partition, *parsed, path, size) if parsed else None


# --- what others did not log ------------------------------------------------------------------


def log_missed(storage: Storage, indexes: tuple[IndexState, ...], timeline: Timeline) -> list[Instant]:
    """Log what completed without logging: commits of writers that know nothing of an index.

    To be called before an entry is put. Several may do so at once: they say the same.

    :param storage: the table's storage.
    :param indexes: the indexes that there are.
    :param timeline: the active timeline of now.
    :return: the instants logged, in the order in which they completed.
    """
    if not indexes:
        return []
    logged = []
    for each in missed(storage, indexes, timeline):
        with suppress(NoSuchInstantError):  # undone in this moment, by an earlier entry than the caller's
            logged.append(_log(storage, indexes, timeline, each))
    return logged


def missed(storage: Storage, indexes: Iterable[IndexState], timeline: Timeline) -> list[Instant]:
    """The instants that completed without logging to the indexes, in the order in which they completed.

    :param storage: the table's storage.
    :param indexes: the indexes that there are.
    :param timeline: the active timeline of now.
    """
    plans = [index.instant for index in indexes if index.instant]
    metadata_table = metadata_storage(storage)
    # One that is pending there is of somebody who failed, or died, while making up for it.
    logged = {each.requested_time for each in Timeline.load(metadata_table).completed()}
    # What completed before is in what the first index began with.
    since = min(plans, default="")
    if any(not index.instant for index in indexes):  # another Hudi writer's, whose plan nobody knows
        since = min((each for each in logged if not each.startswith(_FIRST)), default="")
    found = [
        instant
        for instant in timeline.completed()
        if instant.action in _LOGGED
        and (instant.completion_time or "") > since
        and instant.requested_time not in logged
        and find_archived(metadata_table, instant.requested_time) is None
    ]
    return sorted(found, key=lambda each: each.completion_time or "")


def _log(storage: Storage, indexes: tuple[IndexState, ...], timeline: Timeline, instant: Instant) -> Instant:
    change = change_of_completed(storage, timeline, instant)
    StagedChange(storage, instant.requested_time).stage(indexes, lambda: change)
    publish_staged(storage, instant.requested_time, instant.completion_time or "")
    log.info("table %s: logged %s to its indexes, whose writer did not", storage.root, instant)
    return instant


_LOGGED = frozenset(
    {
        Action.COMMIT,
        Action.DELTA_COMMIT,
        Action.REPLACE_COMMIT,
        Action.CLEAN,
        Action.ROLLBACK,
        Action.RESTORE,
    }
)


def _identities(indexes: Iterable[IndexState]) -> set[tuple[str, str, int]]:
    return {(index.partition, index.instant, index.file_groups) for index in indexes}


def _indexed_columns(storage: Storage, indexes: Iterable[IndexState]) -> Sequence[str]:
    """The columns whose statistics are kept."""
    wanted = next((index for index in indexes if index.partition in _WITH_COLUMNS), None)
    if wanted is None:
        return ()
    known = _columns.setdefault(storage, {})
    if wanted.instant not in known or not wanted.instant:
        definition = read_index_definitions(storage).get(MetadataPartition.COLUMN_STATS)
        named = definition.source_fields if definition else ()
        known[wanted.instant] = named or tuple(indexed_columns(HudiTable.at(storage).schema))
    return known[wanted.instant]


_columns: WeakKeyDictionary[Storage, dict[str, Sequence[str]]] = WeakKeyDictionary()

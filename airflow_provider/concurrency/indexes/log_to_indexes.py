"""Indexes inside a commit: what a write logs to the metadata table, before it may complete.

The table's properties name its indexes, and the commit log names those that are being built
(:mod:`~airflow_provider.concurrency.indexes.state`). So no write can miss an index that was scheduled before
the write's entry. A write stages its index records before it takes the table lock: log files under their
final names, and an instant of the metadata table that stays pending. Readers ignore them until the write's
entry is published, because the first step of the publication completes that instant.

If another Hudi writer has committed without logging, the next commit of this package logs for it
(:mod:`~airflow_provider.concurrency.commit.unlogged_commits`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_provider.concurrency.indexes.key_slices import (
    LivingKeys,
    SlicePair,
    data_file,
    keeps_record_index,
    slices_of_undoing,
    slices_of_write,
)
from airflow_provider.concurrency.indexes.state import check_made, table_indexes
from airflow_provider.concurrency.log import CommitLog, IndexState, LogEntry
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.files import LogFileName
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    METADATA_FOLDER,
    UPSERT,
    ColumnStats,
    FileChanges,
    MetadataPartition,
    Payload,
    Records,
    begin_instant,
    by_file_group,
    completed_metadata,
    file_group_id,
    indexed_columns,
    keys_to_recompute,
    metadata_storage,
    read_index_definitions,
    recomputed_partition_stats,
    records_of,
    write_log_file,
)
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    CommitMetadata,
    Instant,
    State,
    Timeline,
    WriteStat,
    created_schema,
    decode,
    decode_commit_metadata,
    instant_path,
    newest_archived,
    read_completed,
    table_schema,
)

_WITH_COLUMNS = frozenset({MetadataPartition.COLUMN_STATS, MetadataPartition.PARTITION_STATS})


def current_indexes(
    storage: Storage, commit_log: CommitLog, newest: LogEntry | None
) -> tuple[IndexState, ...]:
    """The indexes of a table that this package maintains, as of an entry; see :func:`table_indexes`.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param newest: the log's newest entry; None for an empty log.
    """
    return table_indexes(storage, commit_log, newest).kept


class StagedChange:
    """The staged index records of one instant, which become visible once it completes.

    A log file never changes under its name, because readers may have listed it. So records that are staged
    again with other content get other names. The files staged before are deleted before the instant's entry
    is put, because all log files of an instant become visible once it completes.

    Several processes may carry out one instant, such as a clean: at once, or one after another was killed.
    They stage the same records under the same names, or fewer records where files are gone meanwhile. So no
    process deletes what another one has staged.

    :param storage: the table's storage.
    :param instant: requested time of the instant.
    :ivar tells_anew_in: partition paths whose statistics are computed anew, not only widened: they stand for
        all files of the partition, up to the snapshot.
    """

    def __init__(self, storage: Storage, instant: str) -> None:
        self._storage = storage
        self._instant = instant
        self._paths: set[str] = set()
        self._indexes: tuple[IndexState, ...] = ()
        self.tells_anew_in: frozenset[str] = frozenset()

    def is_for(self, indexes: Collection[IndexState]) -> bool:
        """Whether the records were staged for these indexes; an index that completed since is the same."""
        return _identities(indexes) == _identities(self._indexes)

    def stage(
        self,
        indexes: tuple[IndexState, ...],
        change: Callable[[], FileChanges],
        view: Callable[[], FileSystemView],
        schema: TableSchema | None = None,
    ) -> None:
        """Write the index records of a change, and delete those that this object has staged before.

        :param indexes: the indexes to which the commit has to be logged.
        :param change: returns the change; called only if there is an index.
        :param view: returns the snapshot that the change joins; called only if a partition's statistics have
            to be computed again.
        :param schema: the table's schema with the change; the snapshot's schema when None.
        :raises FileNotFoundError: when a data file of the change is not there.
        """
        before, self._paths, self._indexes = self._paths, set(), indexes
        self.tells_anew_in = frozenset()
        if indexes:
            self._write(indexes, change(), view, schema)
        elif before:
            drop_staged(self._storage, self._instant)
        for path in before - self._paths:
            self._storage.delete(path)

    def _write(
        self,
        indexes: Sequence[IndexState],
        change: FileChanges,
        view: Callable[[], FileSystemView],
        schema: TableSchema | None,
    ) -> None:
        metadata_table = metadata_storage(self._storage)
        for index in indexes:
            check_made(self._storage.root, index)
        partitions = [index.partition for index in indexes]
        columns = columns_of(self._storage, partitions)
        living = LivingKeys(
            self._storage, schema or (lambda: HudiTable.at(self._storage).schema_on(view().timeline))
        )
        records = records_of(self._storage, change, partitions, columns, living=living)
        if ranges := records.get(MetadataPartition.PARTITION_STATS):
            ranges.update(self._told_anew(ranges, change, view, schema))
        stats = [
            stat
            for index in indexes
            for stat in write_records(metadata_table, index, self._instant, records.get(index.partition, {}))
        ]
        self._paths = {f"{METADATA_FOLDER}/{stat.path}" for stat in stats}
        begin_instant(metadata_table, Action.DELTA_COMMIT, self._instant, UPSERT)
        self._storage.put(staged_path(self._instant), completed_metadata(Action.DELTA_COMMIT, UPSERT, stats))

    def _told_anew(
        self,
        ranges: Records,
        change: FileChanges,
        view: Callable[[], FileSystemView],
        schema: TableSchema | None,
    ) -> Records:
        storage = self._storage
        config = HudiTable.at(storage).config
        # An undone commit may have had other column types than the table has without it.
        keys = list(ranges) if change.back else keys_to_recompute(ranges, created_schema(config))
        if not keys:
            return {}
        snapshot = view()
        schema = schema or table_schema(storage, snapshot.timeline, config)
        files = (*change.added, *change.back)
        found = recomputed_partition_stats(storage, ranges, keys, files, snapshot, schema)
        self.tells_anew_in = frozenset(
            each.file_name for each in found.values() if isinstance(each, ColumnStats)
        )
        return found


def staged_path(instant: str) -> str:
    """Path of the staged deltacommit with which an instant logs to the metadata table."""
    return f".hoodie/commit_log/staged/{instant}.metadata_table.avro"


def publish_staged(storage: Storage, instant: str, completion_time: str) -> None:
    """Complete the deltacommit with which an instant has logged to the indexes. Its publication begins here.

    A second call changes nothing.

    :param storage: the table's storage.
    :param instant: requested time.
    :param completion_time: the completion time of its entry, so that the metadata table's instants complete
        in log order.
    """
    path = instant_path(Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, completion_time))
    metadata_table = metadata_storage(storage)
    with suppress(FileNotFoundError):  # an earlier publisher has moved it, or nothing was staged
        moved = storage.move_if_absent(staged_path(instant), f"{METADATA_FOLDER}/{path}")
        if moved and not storage.moves_atomically and instant <= newest_archived(metadata_table):
            metadata_table.delete(path)  # it came too late


def state_in_indexes(storage: Storage, instant: str, completion_time: str) -> State | None:
    """The state of the metadata table's deltacommit of an instant.

    :param storage: the table's storage.
    :param instant: requested time.
    :param completion_time: the completion time of its entry.
    :return: completed, or in flight; None where there is no such deltacommit. Then another Hudi writer has
        rolled it back, because a pending instant of the metadata table looks like a dead writer's. An
        inflight file without a requested one is none either: its writer was paused between the two, and put
        it after the rollback.
    """
    metadata_table = metadata_storage(storage)

    def is_there(state: State, at: str | None = None) -> bool:
        return metadata_table.stat(instant_path(Instant(instant, Action.DELTA_COMMIT, state, at))) is not None

    if is_there(State.COMPLETED, completion_time):
        return State.COMPLETED
    return State.INFLIGHT if is_there(State.REQUESTED) and is_there(State.INFLIGHT) else None


def drop_staged(storage: Storage, instant: str) -> None:
    """Delete the index records that a dead instant has staged.

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


def write_records(
    metadata_table: Storage, index: IndexState, instant: str, records: Mapping[str, Payload | None]
) -> list[WriteStat]:
    """Write the log files of an instant that hold its records in an index.

    :param metadata_table: the metadata table's storage.
    :param index: the index.
    :param instant: requested time.
    :param records: the records by key; None deletes a key.
    """
    return [
        write_log_file(
            metadata_table,
            index.partition,
            file_group_id(index.partition, number),
            instant,
            {key: records[key] for key in keys},
        )
        for number, keys in by_file_group(records, index.file_groups).items()
    ]


def _identities(indexes: Iterable[IndexState]) -> set[tuple[str, str, str, int]]:
    return {(index.partition, index.instant, index.made, index.file_groups) for index in indexes}


def columns_of(storage: Storage, partitions: Collection[str]) -> Sequence[str]:
    """The columns whose statistics are indexed, if any are; another Hudi writer may have changed them.

    :param storage: the table's storage.
    :param partitions: names of the table's indexes.
    """
    if not _WITH_COLUMNS.intersection(partitions):
        return ()
    definition = read_index_definitions(storage).get(MetadataPartition.COLUMN_STATS)
    named = definition.source_fields if definition else ()
    return named or tuple(indexed_columns(HudiTable.at(storage).schema))


# --- what a change is -------------------------------------------------------------------------


def change_of_write(
    storage: Storage,
    write_stats: Iterable[WriteStat],
    replaced: Iterable[FileGroupId],
    operation: str,
    view: Callable[[], FileSystemView],
    indexes: Iterable[IndexState],
    *,
    logs_add_keys: bool = False,
) -> FileChanges:
    """The change of the indexes by a write.

    :param storage: the table's storage.
    :param write_stats: the statistics of the commit's data files.
    :param replaced: the file groups that the commit replaces.
    :param operation: Hudi's operation type.
    :param view: returns the snapshot that the write is based on; called only where keys come or go.
    :param indexes: the indexes to which it is logged.
    :param logs_add_keys: see :func:`~airflow_provider.concurrency.indexes.key_slices.slices_of_write`.
    """
    stats = list(write_stats)
    added = [file for stat in stats if (file := data_file(stat.path, stat.file_size)) is not None]
    slices: tuple[SlicePair, ...] = ()
    if keeps_record_index(indexes):
        slices = slices_of_write(storage, stats, replaced, operation, view, logs_add_keys=logs_add_keys)
    return FileChanges(tuple(added), (), slices)


def change_of_undoing(
    storage: Storage,
    before: FileSystemView,
    after: FileSystemView,
    file_groups: Iterable[FileGroupId],
    removed: Iterable[str],
    indexes: Iterable[IndexState],
) -> FileChanges:
    """The change of the indexes when commits are undone.

    :param storage: the table's storage.
    :param before: the snapshot with the commits.
    :param after: the snapshot without the commits.
    :param file_groups: the file groups that the commits wrote or replaced.
    :param removed: the paths of the commits' data files.
    :param indexes: the indexes to which it is logged.
    """
    groups = sorted(set(file_groups))
    bases = [(before.base_file(group), after.base_file(group)) for group in groups]
    back = tuple(new for old, new in bases if new is not None and old != new)
    # A row that comes back to a file group leaves another one, and ``file_groups`` names both.
    slices = slices_of_undoing(storage, before, after, groups) if keeps_record_index(indexes) else ()
    return FileChanges((), tuple(sorted(removed)), slices, back)


def change_of_completed(
    storage: Storage, timeline: Timeline, instant: Instant, indexes: Iterable[IndexState]
) -> FileChanges:
    """The change of the indexes by a completed instant, from its own metadata.

    :param storage: the table's storage.
    :param timeline: a timeline that shows the instant.
    :param instant: a commit, clean, rollback or restore.
    :param indexes: the indexes to which it is logged.
    :raises NoSuchInstantError: when it was undone since.
    """
    # The instant is read even if it was archived meanwhile, because no other process logs it.
    content = read_completed(storage, timeline, instant)
    if instant.action in (Action.CLEAN, Action.ROLLBACK, Action.RESTORE):
        return FileChanges(removed=tuple(sorted(_deleted(decode(content)))))
    said, moment = decode_commit_metadata(content), instant.completion_time or ""
    return change_of_metadata(storage, timeline, said, moment, indexes)


def change_of_metadata(
    storage: Storage,
    timeline: Timeline,
    said: CommitMetadata,
    moment: str,
    indexes: Iterable[IndexState],
) -> FileChanges:
    """The change of the indexes by a commit, from its commit metadata; it may not have completed yet.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param said: the commit metadata.
    :param moment: the commit's completion time.
    :param indexes: the indexes to which it is logged.
    """
    replaced = sorted(said.replaced_groups)

    def view() -> FileSystemView:
        return FileSystemView(storage, timeline.showing(lambda i: (i.completion_time or "") < moment))

    # Files that were cleaned since are left out. If the previous base file was cleaned, the keys that left it
    # are unknown.
    there = [stat for each in said.write_stats for stat in _files_of(storage, each)]
    known = [
        stat if _has_predecessor(storage, stat) else replace(stat, prev_base_file=None) for stat in there
    ]
    return change_of_write(
        storage, known, replaced, said.operation_type.upper(), view, indexes, logs_add_keys=True
    )


def _files_of(storage: Storage, stat: WriteStat) -> Iterator[WriteStat]:
    """One statistic for each file that still exists; another Hudi writer's may name several log files."""
    folder = stat.path.rpartition("/")[0]
    named = [f"{folder}/{name}".lstrip("/") for name in stat.log_files or ()]
    for path in named or [stat.path]:
        if (status := storage.stat(path)) is not None:
            yield replace(stat, path=path, file_size=status.size) if named else stat


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

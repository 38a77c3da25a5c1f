"""Histories of writers that maintain the indexes, as this package's writers do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.file_slice import FileSlice
from airflow_provider.table.file_groups.view import BaseFile, FileGroupId
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.metadata_table.index_records.changes import FileChanges, records_of
from airflow_provider.table.metadata_table.index_records.statistics import indexed_columns
from airflow_provider.table.metadata_table.keys import by_file_group
from airflow_provider.table.metadata_table.partitions import MetadataPartition, file_group_id
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.writer import (
    BULK_INSERT,
    COMPACT,
    UPSERT,
    compacted,
    create_metadata_table,
    initialise_file_groups,
    log_changes,
    write_base_file,
    write_instant,
)
from airflow_provider.table.properties import PROPERTIES_PATH, dump_properties
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.table.histories import History, Slice, Write

ALL = tuple(MetadataPartition)


def build_indexes(
    table: HudiTable,
    partitions: Sequence[str],
    instant: str,
    completion_time: str,
    *,
    is_complete: bool = True,
    file_groups: int = 2,
) -> None:
    """Make indexes of a table's content, as if one commit had added it, and name them in its properties.

    :param instant: requested time of the indexing plan.
    :param completion_time: the completion time of the indexes.
    :param is_complete: whether the properties name them as complete, or as in flight.
    """
    storage = metadata_storage(table.storage)
    create_metadata_table(storage, table.config)
    view = table.view()
    there = [
        BaseFile(partition, *parsed, status.path, status.size)
        for partition in view.all_partitions()
        for status in table.storage.list(partition)
        if (parsed := parse_base_file_name(status.name)) and view.shows(parsed[2])
    ]
    change = FileChanges(
        tuple(there), slices=tuple((None, FileSlice.of(each)) for each in view.all_base_files())
    )
    records = records_of(table.storage, change, partitions, indexed_columns(table.schema))
    stats = []
    for partition in partitions:
        count = 1 if partition == MetadataPartition.FILES else file_groups
        initialise_file_groups(storage, partition, count, instant)
        of_partition = records.get(partition, {})
        by_group = by_file_group(of_partition, count)
        for number in range(count):
            group = [(key, payload) for key in by_group.get(number, []) if (payload := of_partition[key])]
            group_id = file_group_id(partition, number)
            stats.append(write_base_file(storage, partition, group_id, instant, group))
    write_instant(storage, Action.DELTA_COMMIT, instant, completion_time, BULK_INSERT, stats)
    table.storage.put(instant_path(Instant(instant, Action.INDEXING, State.COMPLETED, completion_time)), b"")
    config = HudiTable.open(table.location).config
    before = (config.metadata_partitions, config.inflight_metadata_partitions)
    complete, inflight = ({*before[0]} | {*partitions}, before[1]) if is_complete else (before[0], partitions)
    config = config.with_metadata_partitions(complete, inflight)
    table.storage.put(PROPERTIES_PATH, dump_properties(config.to_properties()).encode())


class IndexedHistory(History):
    """A history that maintains its indexes once they are built."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.indexes: tuple[str, ...] = ()
        self.is_forgetful = False

    @property
    def opened(self) -> HudiTable:
        """The table with its present properties."""
        return HudiTable.open(self.table.location)

    def build(self, *partitions: str) -> None:
        instant = self.tick()
        build_indexes(self.table, partitions, instant, self.tick())
        self.indexes += partitions

    def complete(self, write: Write) -> Write:
        before = dict(self.live)
        write = super().complete(write)
        if write in self.commits:
            groups = {*before, *self.live}
            added = tuple(
                self._base_file(group, each)
                for group, each in self.live.items()
                if each.instant == write.instant
            )
            slices = [(before.get(group), self.live.get(group), group) for group in sorted(groups)]
            changed = tuple(
                (old and self._slice(group, old), new and self._slice(group, new))
                for old, new, group in slices
                if old != new
            )
            if not self.is_forgetful:
                self._log(FileChanges(added, (), changed), write.instant, write.completion_time)
        return write

    def revert(self, write: Write) -> bool:
        before = dict(self.live)
        outputs = [each.path for each in self.live.values() if each.instant == write.instant]
        there = {path: self.storage.read(path) for path in outputs}
        if not super().revert(write):
            return False
        for path, content in there.items():  # deleted later, so that its keys can be read until then
            self.storage.put(path, content)
        slices = tuple(
            (old and self._slice(group, old), new and self._slice(group, new))
            for group in sorted({*before, *self.live})
            for old, new in ((before.get(group), self.live.get(group)),)
            if old != new
        )
        self._log_service(Action.ROLLBACK, FileChanges((), tuple(there), slices))
        return True

    def clean(self) -> None:
        """Delete the files of every slice that no reader sees any more."""
        shown = {each.path for each in self.table.view().all_base_files()}
        view = self.table.view()
        old = [
            status.path
            for partition in view.all_partitions()
            for status in self.storage.list(partition)
            if (parsed := parse_base_file_name(status.name))
            and view.shows(parsed[2])
            and status.path not in shown
            and not any(each.path == status.path for each in self._taken_out.values())
        ]
        self._log_service(Action.CLEAN, FileChanges(removed=tuple(old)))
        for path in old:
            self.storage.delete(path)

    def compact(self) -> None:
        """Write new base files of all indexes; the old ones stay."""
        storage, instant = metadata_storage(self.storage), self.tick()
        table = MetadataTable(storage)
        stats = [
            compacted(storage, table, each, instant)
            for partition in self.indexes
            for each in table.file_slices(partition)
        ]
        write_instant(storage, Action.COMPACTION, instant, self.tick(), COMPACT, stats)

    def _log_service(self, action: Action, change: FileChanges) -> None:
        instant, completion_time = self.tick(), self.tick()
        self._log(change, instant, completion_time)
        self.storage.put(instant_path(Instant(instant, action, State.COMPLETED, completion_time)), b"")

    def _log(self, change: FileChanges, instant: str, completion_time: str) -> None:
        if not self.indexes:
            return
        storage = metadata_storage(self.storage)
        records: dict[str, Any] = records_of(
            self.storage, change, self.indexes, indexed_columns(self.table.schema)
        )
        stats = log_changes(storage, MetadataTable(storage), instant, records)
        write_instant(storage, Action.DELTA_COMMIT, instant, completion_time, UPSERT, stats)

    def _slice(self, group: FileGroupId, each: Slice) -> FileSlice:
        return FileSlice.of(self._base_file(group, each))

    def _base_file(self, group: FileGroupId, each: Slice) -> BaseFile:
        parsed, status = parse_base_file_name(each.path.rpartition("/")[2]), self.storage.stat(each.path)
        assert parsed is not None
        return BaseFile(group.partition_path, *parsed, each.path, status.size if status else 0)

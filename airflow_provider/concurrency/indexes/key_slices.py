"""The file slices between which record keys come and go, and the keys that live in them.

The record index has one record for each key that a reader finds. A key that a log file deletes leaves the
index when the delete commits, as in Hudi's ``HoodieTableMetadataUtil.convertMetadataToRecordIndexRecords``.
The base file has the key until the next compaction. A compaction logs nothing, because the same keys live in
the same file groups after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from airflow_provider.concurrency.log import IndexState
from airflow_provider.table.file_groups import COMPACTIONS, BaseFile, FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition
from airflow_provider.table.reading import EVERY_INSTANT, SliceReader, merge_memory, slices_of
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import REWRITES, WriteStat

SlicePair = tuple[FileSlice | None, FileSlice | None]
"""The slice of a file group before a change and after it."""


def keeps_record_index(indexes: Iterable[IndexState]) -> bool:
    """Whether the record index is among some indexes, complete or not.

    :param indexes: the indexes.
    """
    return any(each.partition == MetadataPartition.RECORD_INDEX for each in indexes)


class LivingKeys:
    """Reads the record keys that live in file slices with log files.

    :param storage: the table's storage.
    :param schema: the table's schema, or a function that returns it when a slice is read.
    """

    def __init__(self, storage: Storage, schema: TableSchema | Callable[[], TableSchema]) -> None:
        self._storage = storage
        self._schema = schema
        self._reader: SliceReader | None = None

    def __call__(self, file_slice: FileSlice) -> pa.ChunkedArray:
        """The record keys of a file slice.

        :param file_slice: the slice.
        :raises FileNotFoundError: when a file of it is not there.
        """
        if self._reader is None:
            table = HudiTable.at(self._storage)
            schema = self._schema() if callable(self._schema) else self._schema
            self._reader = SliceReader(
                self._storage,
                table.config,
                schema,
                table.merge_semantics,
                EVERY_INSTANT,
                memory=merge_memory(table.config),
            )
        return self._reader.keys(file_slice)


class SnapshotSlices:
    """The file slices of a snapshot, by file group. A partition is listed when it is asked for.

    :param table: the table.
    :param view: returns the snapshot.
    """

    def __init__(self, table: HudiTable, view: Callable[[], FileSystemView]) -> None:
        self._table = table
        self._load = view
        self._view: FileSystemView | None = None
        self._listed: dict[str, dict[FileGroupId, FileSlice]] = {}

    def of(self, group: FileGroupId) -> FileSlice | None:
        """The slice of a file group; None when it is not live.

        :param group: the file group.
        """
        if not self._table.is_merge_on_read:
            base_file = self.view.base_file(group)
            return base_file and FileSlice.of(base_file)
        partition = group.partition_path
        if partition not in self._listed:
            found = slices_of(self._table, self.view, [partition])
            self._listed[partition] = {each.file_group: each for each in found}
        return self._listed[partition].get(group)

    @property
    def view(self) -> FileSystemView:
        """The snapshot."""
        if self._view is None:
            self._view = self._load()
        return self._view

    def rewritten(self, before: FileSlice | None, base_file: BaseFile) -> FileSlice:
        """The slice that a new base file begins, with the log files that readers merge with it.

        :param before: the slice before.
        :param base_file: the new base file.
        """
        after = FileSlice.of(base_file)
        if before is None or before.file_group != after.file_group:
            return after
        names = ((path, parse_data_file_name(path.rpartition("/")[2])) for path in before.log_paths)
        stay = (
            path
            for path, parsed in names
            if parsed is not None
            and max(parsed.instant, self.view.completed_at(parsed.instant)) >= base_file.instant
        )
        return replace(after, log_paths=tuple(stay))


def slices_of_write(
    storage: Storage,
    write_stats: Iterable[WriteStat],
    replaced: Iterable[FileGroupId],
    operation: str,
    view: Callable[[], FileSystemView],
    *,
    logs_add_keys: bool,
) -> tuple[SlicePair, ...]:
    """The slices between which a write's keys come and go.

    :param storage: the table's storage.
    :param write_stats: the statistics of the commit's data files.
    :param replaced: the file groups that the commit replaces.
    :param operation: Hudi's operation type.
    :param view: the snapshot that the write is based on.
    :param logs_add_keys: whether the writer may have put new keys into log files; this package never does.
    """
    if operation in COMPACTIONS:
        return ()
    table = HudiTable.at(storage)
    snapshot = SnapshotSlices(table, view)
    pairs: list[SlicePair] = []
    appended: dict[FileGroupId, list[BaseFile]] = {}
    seen: set[FileGroupId] = set()
    for stat in write_stats:
        written = data_file(stat.path, stat.file_size)
        if written is None:
            continue
        if written.is_log:
            if logs_add_keys or stat.num_deletes:
                appended.setdefault(written.file_group, []).append(written)
            continue
        before = None
        if stat.prev_base_file and operation not in REWRITES:
            old = data_file(f"{stat.partition_path}/{stat.prev_base_file}".lstrip("/"))
            if old is not None:
                before = snapshot.of(old.file_group) if table.is_merge_on_read else FileSlice.of(old)
                seen.add(old.file_group)
        is_other = before is None or before.file_id != written.file_id
        if is_other or stat.num_inserts or stat.num_deletes:
            pairs.append((before, snapshot.rewritten(before, written)))
    for group, logs in sorted(appended.items()):
        before = snapshot.of(group)
        base = before or FileSlice(*group, logs[0].instant, None)
        paths = (*base.log_paths, *(each.path for each in logs))
        pairs.append((before, replace(base, log_paths=tuple(dict.fromkeys(paths)))))
    gone = set(replaced) - seen
    if gone and operation not in REWRITES:  # a rewrite has all rows in its new files
        pairs += [(snapshot.of(group), None) for group in sorted(gone)]
    return tuple(pairs)


def slices_of_undoing(
    storage: Storage, before: FileSystemView, after: FileSystemView, file_groups: Iterable[FileGroupId]
) -> tuple[SlicePair, ...]:
    """The slices between which keys come and go when commits are undone.

    :param storage: the table's storage.
    :param before: the snapshot with the commits.
    :param after: the snapshot without the commits.
    :param file_groups: the file groups that the commits wrote or replaced.
    """
    table = HudiTable.at(storage)
    old, new = SnapshotSlices(table, lambda: before), SnapshotSlices(table, lambda: after)
    pairs = [(old.of(group), new.of(group)) for group in sorted(set(file_groups))]
    return tuple((one, other) for one, other in pairs if one != other)


def data_file(path: str, size: int = 0) -> BaseFile | None:
    """A base file or log file by its path; None when it is neither.

    :param path: path relative to the table.
    :param size: bytes.
    """
    partition, _, name = path.rpartition("/")
    parsed = parse_data_file_name(name)
    return BaseFile(partition, *parsed[:3], path, size) if parsed else None

"""The indexes of a table that a reader may use for one snapshot.

A reader may use an index that the table's properties name as complete. It reads the properties after it has
listed the index's files, because a drop removes the index from the properties first. It does not use an index
that lacks a commit of the snapshot, as after a writer that updates no indexes; this package's next writer
adds the missing records. If an index cannot answer, the reader reads the table without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.table.files import BloomFilter
from airflow_provider.table.metadata_table.foreign_partitions import unsupported_indexes
from airflow_provider.table.metadata_table.initial_instants import is_initial
from airflow_provider.table.metadata_table.keys import (
    ALL_PARTITIONS,
    bloom_filter_key,
    column_stats_key,
    files_key,
    partition_of_files_key,
    partition_stats_key,
)
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import (
    ColumnStats,
    FileList,
    Payload,
    RecordLocation,
    StoredBloomFilter,
)
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, parse_properties
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import State, Timeline

_Found = TypeVar("_Found")

log = logging.getLogger(__name__)

_RECORD_KEY = META_COLUMNS[2]

_LOOKS = 3

_OF_THE_MOMENT = (MetadataPartition.RECORD_INDEX, MetadataPartition.PARTITION_STATS)
"""Indexes whose answers change with later commits."""

_SAY_WHERE_ROWS_ARE = (MetadataPartition.FILES, MetadataPartition.RECORD_INDEX)
"""Indexes that hide rows where they lack a commit. Without an answer of another index a file is read."""


class UsableIndexes:
    """The indexes of a table, for one snapshot.

    Every answer is None when the index cannot be used: it does not exist, is not complete, lacks a commit, or
    was dropped or compacted while it was read.

    :param storage: the table's storage.
    :param timeline: the snapshot's timeline, which was loaded before the index is read.
    :param is_moment: whether the timeline shows every instant up to its newest completion time. Only then can
        the record index and ``partition_stats`` answer.
    :param known: the indexes that may be complete, when the caller knows; other indexes are not looked for.
    :param was_undone: whether an instant that the timeline shows has been undone since the timeline was
        loaded. The indexes lack its files and keys then, although the timeline still needs them.
    """

    def __init__(
        self,
        storage: Storage,
        timeline: Timeline,
        *,
        is_moment: bool = True,
        known: Collection[str] | None = None,
        was_undone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._storage = storage
        self._timeline = timeline
        self._is_moment = is_moment
        self._known = known
        self._was_undone = was_undone
        self._look_anew()

    def _look_anew(self) -> None:
        own = metadata_storage(self._storage)
        # The newest state also answers for older snapshots: no reader looks up files that its snapshot does
        # not show, and a file that was deleted since is gone for every reader.
        self._newest = MetadataTable(own)
        pending = [instant.requested_time for instant in self._timeline.pending()]
        self._at_moment = MetadataTable(own, pending, as_of=self._timeline.newest_completion)
        self._usable: dict[str, bool] = {}

    def has(self, partition: str) -> bool:
        """Whether an index can be used.

        :param partition: its metadata partition.
        """
        if partition not in self._usable:
            self._usable[partition] = self._is_usable(partition)
        return self._usable[partition]

    def file_groups(self, partition: str) -> int:
        """The number of file groups of an index; 0 when it cannot be used.

        :param partition: its metadata partition.
        """
        return len(self._table(partition).file_slices(partition)) if self.has(partition) else 0

    def partitions(self) -> list[str] | None:
        """Partition paths that have a file, by ``files``."""
        found = self._look_up(MetadataPartition.FILES, [ALL_PARTITIONS])
        if found is None:
            return None
        listed = found.get(ALL_PARTITIONS)
        return sorted(map(partition_of_files_key, listed.sizes())) if isinstance(listed, FileList) else []

    def files(self, partition_paths: Iterable[str]) -> dict[str, Mapping[str, int]] | None:
        """The files of partitions, with their sizes in bytes by name, by ``files``.

        :param partition_paths: partition paths relative to the table; those with files are in the answer.
        """
        keys = {files_key(partition): partition for partition in partition_paths}
        found = self._look_up(MetadataPartition.FILES, keys)
        if found is None:
            return None
        return {keys[key]: each.sizes() for key, each in found.items() if isinstance(each, FileList)}

    def column_stats(
        self, paths: Iterable[str], columns: Sequence[str]
    ) -> dict[str, dict[str, ColumnStats]] | None:
        """The known statistics by base file and column, from ``column_stats``.

        :param paths: paths of base files, relative to the table.
        :param columns: names of columns.
        """
        keys = {
            column_stats_key(column, partition, name): (path, column)
            for path in paths
            for partition, _, name in (path.rpartition("/"),)
            for column in columns
        }
        found = self._look_up(MetadataPartition.COLUMN_STATS, keys)
        if found is None:
            return None
        stats: dict[str, dict[str, ColumnStats]] = {}
        for key, payload in found.items():
            if isinstance(payload, ColumnStats):
                path, column = keys[key]
                stats.setdefault(path, {})[column] = payload
        return stats

    def partition_stats(
        self, partition_paths: Iterable[str], columns: Sequence[str]
    ) -> dict[str, dict[str, ColumnStats]] | None:
        """Statistics by partition and column, from ``partition_stats``, if they cover all rows of the
        partition.

        :param partition_paths: partition paths relative to the table.
        :param columns: names of columns.
        """
        keys = {
            partition_stats_key(column, path): (path, column)
            for path in partition_paths
            for column in {*columns, _RECORD_KEY}
        }
        found = self._look_up(MetadataPartition.PARTITION_STATS, keys)
        if found is None:
            return None
        stats: dict[str, dict[str, ColumnStats]] = {}
        for key, payload in found.items():
            if isinstance(payload, ColumnStats):
                path, column = keys[key]
                stats.setdefault(path, {})[column] = payload
        return {path: _of_all_rows(of_partition) for path, of_partition in stats.items()}

    def bloom_filters(self, paths: Iterable[str]) -> dict[str, BloomFilter] | None:
        """The known bloom filters of base files' record keys, from ``bloom_filters``.

        :param paths: paths of base files, relative to the table.
        """
        keys = {
            bloom_filter_key(partition, name): path
            for path in paths
            for partition, _, name in (path.rpartition("/"),)
        }
        found = self._look_up(MetadataPartition.BLOOM_FILTERS, keys)
        if found is None:
            return None
        return {
            keys[key]: BloomFilter.from_footer(payload.footer, payload.type_code)
            for key, payload in found.items()
            if isinstance(payload, StoredBloomFilter)
        }

    def locations(self, keys: Iterable[str]) -> dict[str, RecordLocation] | None:
        """The locations of record keys, by ``record_index``; a key without one is not in the table.

        :param keys: record keys.
        """
        found = self._look_up(MetadataPartition.RECORD_INDEX, keys)
        if found is None:
            return None
        return {key: payload for key, payload in found.items() if isinstance(payload, RecordLocation)}

    def locate(self, keys: pa.Array) -> tuple[npt.NDArray[np.int64], list[RecordLocation]] | None:
        """The locations of many record keys, by ``record_index``; a key without one is not in the table.

        :param keys: strings without nulls.
        :return: for each key the number of its location, or -1 where it has none; and the locations. None
            where the index cannot be used.
        """
        return self._look(MetadataPartition.RECORD_INDEX, lambda table: table.locate(keys))

    def _look_up(self, partition: str, keys: Iterable[str]) -> dict[str, Payload] | None:
        wanted = list(keys)
        return self._look(partition, lambda table: table.look_up(partition, wanted))

    def _look(self, partition: str, look: Callable[[MetadataTable], _Found]) -> _Found | None:
        # A listed file may disappear, because a write stages it again, or a clean deletes it after
        # compactions.
        looks = Retrying(
            retry=retry_if_exception_type(FileNotFoundError),
            stop=stop_after_attempt(_LOOKS),
            before_sleep=lambda _: self._look_anew(),
            reraise=True,
        )
        try:
            found = looks(lambda: look(self._table(partition)) if self.has(partition) else None)
        except FileNotFoundError as error:
            log.info("table %s: index %s went away: %s", self._storage.root, partition, error)
            self._usable[partition] = False
            return None
        if found is not None and partition in _SAY_WHERE_ROWS_ARE and self._was_undone():
            told = "table %s: index %s is not used: a commit of the snapshot was undone meanwhile"
            log.info(told, self._storage.root, partition)
            self._usable[partition] = False
            return None
        return found

    def _table(self, partition: str) -> MetadataTable:
        return self._at_moment if partition in _OF_THE_MOMENT else self._newest

    def _is_usable(self, partition: str) -> bool:
        if partition in _OF_THE_MOMENT and not self._is_moment:
            return False
        if self._known is not None and partition not in self._known:
            return False
        table = self._table(partition)
        try:
            slices = table.file_slices(partition)
        except SnapshotUnavailableError as error:
            log.info("table %s: index %s is not used: %s", self._storage.root, partition, error)
            return False
        built = {each.base_file.instant for each in slices if each.base_file is not None}
        if not built or partition not in self._complete() or unsupported_indexes(self._storage, [partition]):
            return False
        if partition in _OF_THE_MOMENT and not all(self._was_complete(table, each) for each in built):
            return False
        since = min(map(table.complete_up_to, built))  # the base files have all earlier commits
        unknown = [
            commit
            for commit in self._timeline.commits()
            if (commit.completion_time or "") > since and not table.has_logged(commit.requested_time)
        ]
        if unknown:
            log.warning(
                "table %s: index %s is not used: commit %s is not in it, until this package's next commit",
                self._storage.root,
                partition,
                unknown[0].requested_time,
            )
        return not unknown

    def _was_complete(self, table: MetadataTable, instant: str) -> bool:
        """Whether a base file has no commit beyond the snapshot's.

        The base files of an indexing also have commits that completed while it ran.
        """
        if is_initial(instant):
            newest, began = self._timeline.newest_completion, table.complete_up_to(instant)
            return began <= newest or not any(
                newest < (each.completion_time or "") <= began
                for each in Timeline.load(self._storage).completed()
            )
        known = self._timeline.find(instant) or Timeline.load(self._storage).find(instant)
        if known is None:  # the instant is a compaction, or archived
            return True
        return (
            known.state is State.COMPLETED
            and (known.completion_time or "") <= self._timeline.newest_completion
        )

    def _complete(self) -> Sequence[str]:
        try:
            text = self._storage.read(PROPERTIES_PATH).decode()
        except FileNotFoundError:  # the JVM is replacing the file
            return ()
        return TableConfig.from_properties(parse_properties(text)).metadata_partitions


def _of_all_rows(stats: Mapping[str, ColumnStats]) -> dict[str, ColumnStats]:
    """The statistics to which every file of the partition contributes. Older files lack a newer column."""
    rows = stats[_RECORD_KEY].value_count if _RECORD_KEY in stats else None
    return {column: each for column, each in stats.items() if each.value_count == rows}

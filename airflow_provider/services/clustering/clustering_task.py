"""One task writes one new file group of a clustering, wherever it runs.

Every task of a clustering group computes the order of all rows of the group from the columns to order by.
Then it reads, and keeps in memory, only the rows of its own file. So no row is sent from one task to another,
and no task needs more memory than its file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.concurrency.heartbeats import check_wanted
from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.services.clustering.bucket_resizing import Resizing
from airflow_provider.services.clustering.clustering_plan import ClusteringGroup, ClusteringSettings
from airflow_provider.services.clustering.row_order import row_order
from airflow_provider.table.bucket_index import ConsistentBucketIndex, HashingNode, bucket_index_of
from airflow_provider.table.file_groups import FileSlice
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files import (
    ROW_GROUP_ROWS,
    BaseFileWriter,
    WrittenFile,
    read_base_file,
    read_footer,
)
from airflow_provider.table.merge_semantics import MergeSemantics
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.reading import EVERY_INSTANT, SliceReader
from airflow_provider.table.schema import META_COLUMNS, TableSchema, with_meta_columns
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import WriteStat

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_Numbers = npt.NDArray[np.int64]

_ORDERED_ROW_GROUP_ROWS = 131_072
_ROWS_A_TAKE = 524_288  # rows per look-up, because each look-up in many chunks costs time
_AHEAD = 2  # results made in advance; enough to keep a writer busy
_KEPT = META_COLUMNS[:-1]  # the last column is the file's name


@dataclass(frozen=True)
class ClusteringTask:
    """The work on one new file group.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :param schema: the table's schema when the clustering was planned.
    :param instant: requested time of the clustering.
    :param settings: the plan's settings.
    :param group: the clustering group.
    :param number: index of the task's file among the group's new file groups, from 0.
    """

    storage: Storage
    config: TableConfig
    schema: TableSchema
    instant: str
    settings: ClusteringSettings
    group: ClusteringGroup
    number: int = 0

    def run(self, write_token: str) -> WriteStat | None:
        """Write the file group.

        :param write_token: distinguishes this attempt's file from those of other attempts.
        :return: None when there are fewer rows than new file groups.
        :raises InstantRolledBackError: when the clustering was rolled back meanwhile.
        """
        check_wanted(self.storage, self.instant)
        file_id = new_file_id() if self._bucket is None else self._bucket.file_id
        with BaseFileWriter(
            self.storage,
            partition_path=self.group.partition_path,
            file_id=file_id,
            write_token=write_token,
            instant=self.instant,
            schema=self.schema.columns,
            table_name=self.config.name,
            row_group_rows=_ORDERED_ROW_GROUP_ROWS if self.settings.sort_by else ROW_GROUP_ROWS,
        ) as writer:
            for rows in self._rows():
                writer.write_preserved(rows)
            if not writer.rows:
                writer.abort()
                return None
            written = writer.close()
        check_wanted(self.storage, self.instant, [written.path])
        return self._write_stat(file_id, written)

    @property
    def _bucket(self) -> HashingNode | None:
        """The new bucket of the file, if the clustering splits or merges buckets."""
        resizing = self.group.resizing
        return None if resizing is None else resizing.made[self.number]

    def _rows(self) -> Iterator[pa.Table]:
        if self.group.resizing is not None:
            return self._of_bucket(self.group.resizing)
        return self._ordered() if self.settings.sort_by else self._packed()

    def _of_bucket(self, resizing: Resizing) -> Iterator[pa.Table]:
        """The rows whose keys belong to the bucket."""
        index, settings = bucket_index_of(self.config), self.settings
        if not isinstance(index, ConsistentBucketIndex):
            raise UnsupportedTableError(
                f"table {self.config.name!r}: clustering {self.instant} splits and merges buckets by "
                "consistent hashing, and the table's options do not name them any more; roll it back",
                instant=self.instant,
            )
        parts = []
        for rows in _ahead(self._read, self.group.slices):
            if self.group.outputs > 1:
                hashes = index.hashes(pa.array(rows[META_COLUMNS[2]].to_pylist(), pa.string()))
                rows = rows.filter(pa.array(resizing.made_of(hashes) == self.number))
            if settings.sort_by:
                parts.append(rows)
            else:
                yield rows
        if parts:
            rows = _together(parts)
            yield rows.take(pa.array(row_order(settings.layout, [rows[name] for name in settings.sort_by])))

    def _packed(self) -> Iterator[pa.Table]:
        if self.group.outputs == 1:
            yield from _ahead(self._read, self.group.slices)
            return
        counts = list(_ahead(self._count, self.group.slices))
        begin, end = self._share(sum(counts))
        own: dict[FileSlice, tuple[int, int]] = {}
        first = 0
        for each, count in zip(self.group.slices, counts, strict=True):
            if first < end and begin < first + count:
                own[each] = max(0, begin - first), min(end, first + count) - max(begin, first)
            first += count
        for rows, share in zip(_ahead(self._read, own), own.values(), strict=True):
            yield rows.slice(*share)

    def _ordered(self) -> Iterator[pa.Table]:
        settings, slices = self.settings, self.group.slices
        if self.group.outputs == 1:
            rows = _together(_ahead(self._read, slices))
            order = row_order(settings.layout, [rows[name] for name in settings.sort_by])
        else:
            keys = list(_ahead(self._read_keys, slices))
            own = row_order(settings.layout, _together(keys).columns)
            own = own[slice(*self._share(len(own)))]
            if not len(own):
                return
            in_files = np.sort(own)
            ends = np.cumsum([each.num_rows for each in keys])
            by_file = np.split(in_files, np.searchsorted(in_files, ends[:-1]))
            begins = [0, *ends[:-1].tolist()]
            shares = [
                (each, pa.array(found - begin))
                for each, found, begin in zip(slices, by_file, begins, strict=True)
                if len(found)
            ]
            rows = _together(_ahead(lambda share: _taken(self._read(share[0]), share[1]), shares))
            order = np.searchsorted(in_files, own)
        portions = (pa.array(order[at : at + _ROWS_A_TAKE]) for at in range(0, len(order), _ROWS_A_TAKE))
        yield from _ahead(partial(_taken, rows), portions)

    def _share(self, rows: int) -> tuple[int, int]:
        """The range of this file's rows in the order of all rows."""
        return rows * self.number // self.group.outputs, rows * (self.number + 1) // self.group.outputs

    def _read(self, file_slice: FileSlice) -> pa.Table:
        return self._rows_of(file_slice, [*_KEPT, *self.schema.columns.names])

    def _read_keys(self, file_slice: FileSlice) -> pa.Table:
        return self._rows_of(file_slice, self.settings.sort_by)

    def _count(self, file_slice: FileSlice) -> int:
        if file_slice.base_path is None or file_slice.log_paths:
            return len(self._merged.keys(file_slice))
        return read_footer(self.storage, file_slice.base_path).num_rows

    def _rows_of(self, file_slice: FileSlice, columns: Sequence[str]) -> pa.Table:
        if file_slice.base_path is not None and not any(each.log_paths for each in self.group.slices):
            return read_base_file(
                self.storage, file_slice.base_path, columns, schema=self.schema, dictionaries=True
            )
        kinds = with_meta_columns(self.schema.columns)
        wanted = pa.schema([kinds.field(name) for name in columns])  # a base file may have dictionaries
        parts = [rows.cast(wanted) for rows in self._merged.rows(file_slice, columns)]
        return pa.concat_tables(parts) if parts else wanted.empty_table()

    @property
    def _merged(self) -> SliceReader:
        # Without a bound of memory: a task reads some columns first, and finds the rows again by position.
        semantics = MergeSemantics.of(self.config)
        return SliceReader(self.storage, self.config, self.schema, semantics, EVERY_INSTANT)

    def _write_stat(self, file_id: str, written: WrittenFile) -> WriteStat:
        return WriteStat(
            file_id,
            self.group.partition_path,
            written.path,
            num_writes=written.rows,
            total_write_bytes=written.size,
            file_size=written.size,
        )


def _taken(rows: pa.Table, positions: pa.Array) -> pa.Table:
    # Other allocators give the memory of each portion back to the kernel, which clears it for the next one.
    has_it = "mimalloc" in pa.supported_memory_backends()
    return pc.take(rows, positions, memory_pool=pa.mimalloc_memory_pool() if has_it else None)


def _together(parts: Iterable[pa.Table]) -> pa.Table:
    parts = list(parts)
    for name in parts[0].schema.names:
        kinds = {part.schema.field(name).type for part in parts}
        if len(kinds) > 1:  # some files have a dictionary of the column
            [kind] = {each for each in kinds if not pa.types.is_dictionary(each)}
            at = parts[0].schema.get_field_index(name)
            parts = [part.set_column(at, name, part.column(at).cast(kind)) for part in parts]
    return pa.concat_tables(parts).unify_dictionaries()


def _ahead(make: Callable[[_Item], _Made], items: Iterable[_Item]) -> Iterator[_Made]:
    """Make a result from each item; while the caller uses one, the next ones are being made."""
    with ThreadPoolExecutor(_AHEAD, "ahead") as pool:
        made: deque[Future[_Made]] = deque()
        for item in items:
            made.append(pool.submit(make, item))
            if len(made) > _AHEAD:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()

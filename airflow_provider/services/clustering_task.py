"""One task writes one new file group of a clustering, wherever it runs.

Every task of a clustering group finds the order of all its rows by itself, from the columns that it is
ordered by, and then reads, and keeps in memory, only the rows of its own file. So no row is sent from
one task to another, and no task needs more memory than its file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.concurrency.heartbeat import check_wanted
from airflow_provider.services.clustering_plan import ClusteringGroup, ClusteringSettings
from airflow_provider.services.row_order import row_order
from airflow_provider.table.base_file import (
    BaseFileWriter,
    WrittenFile,
    new_file_id,
    read_base_file,
    read_footer,
)
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.schema import META_COLUMNS, conform
from airflow_provider.table.storage import Storage

_Numbers = npt.NDArray[np.int64]

_KEPT = META_COLUMNS[:-1]  # the last one names the file


@dataclass(frozen=True)
class ClusteringTask:
    """The work on one new file group.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :param schema: the table's data columns.
    :param instant: requested time of the clustering.
    :param settings: of the plan.
    :param group: the clustering group.
    :param number: which of the group's new file groups, from 0.
    """

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    instant: str
    settings: ClusteringSettings
    group: ClusteringGroup
    number: int = 0

    def run(self, write_token: str) -> WriteStat | None:
        """Write the file group.

        :param write_token: tells this attempt's file from those of other attempts.
        :return: None when there are fewer rows than new file groups.
        :raises InstantRolledBackError: when the clustering was rolled back meanwhile.
        """
        check_wanted(self.storage, self.instant)
        rows = self._ordered() if self.settings.sort_by else self._packed()
        if not rows.num_rows:
            return None
        file_id = new_file_id()
        with BaseFileWriter(
            self.storage,
            partition_path=self.group.partition_path,
            file_id=file_id,
            write_token=write_token,
            instant=self.instant,
            schema=self.schema,
            table_name=self.config.name,
        ) as writer:
            writer.write_preserved(rows)
            written = writer.close()
        check_wanted(self.storage, self.instant, [written.path])
        return self._write_stat(file_id, written)

    def _packed(self) -> pa.Table:
        counts = [read_footer(self.storage, path).num_rows for path in self.group.paths]
        begin, end = self._share(sum(counts))
        parts, first = [], 0
        for path, count in zip(self.group.paths, counts, strict=True):
            if first < end and begin < first + count:
                rows = self._read(path)
                parts.append(rows.slice(max(0, begin - first), min(end, first + count) - max(begin, first)))
            first += count
        return _together(parts)

    def _ordered(self) -> pa.Table:
        settings, paths = self.settings, self.group.paths
        if self.group.outputs == 1:
            rows = _together([self._read(path) for path in paths])
            order = row_order(settings.layout, [rows[name] for name in settings.sort_by])
            return rows.take(pa.array(order))
        keys = [self._read_keys(path) for path in paths]
        order = row_order(settings.layout, pa.concat_tables(keys).columns)
        own = order[slice(*self._share(len(order)))]
        parts, first = [], 0
        in_files = np.sort(own)
        for path, key in zip(paths, keys, strict=True):
            begin, end = np.searchsorted(in_files, [first, first + key.num_rows])
            if begin < end:
                parts.append(self._read(path).take(pa.array(in_files[begin:end] - first)))
            first += key.num_rows
        return _together(parts).take(pa.array(np.searchsorted(in_files, own)))

    def _share(self, rows: int) -> tuple[int, int]:
        """The rows of this file, among all in their order."""
        return rows * self.number // self.group.outputs, rows * (self.number + 1) // self.group.outputs

    def _read(self, path: str) -> pa.Table:
        rows = read_base_file(self.storage, path, [*_KEPT, *self.schema.names])
        data = conform(rows, self.schema)
        return pa.table([*(rows[name] for name in _KEPT), *data.columns], [*_KEPT, *data.column_names])

    def _read_keys(self, path: str) -> pa.Table:
        columns = self.settings.sort_by
        keys = pa.schema([self.schema.field(name).with_nullable(True) for name in columns])
        return conform(read_base_file(self.storage, path, columns), keys)

    def _write_stat(self, file_id: str, written: WrittenFile) -> WriteStat:
        return WriteStat(
            file_id,
            self.group.partition_path,
            written.path,
            num_writes=written.rows,
            total_write_bytes=written.size,
            file_size=written.size,
        )


def _together(parts: list[pa.Table]) -> pa.Table:
    if not parts:
        return pa.table({})
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

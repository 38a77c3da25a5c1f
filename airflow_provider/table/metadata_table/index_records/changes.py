"""The index records that follow from a change of a table's files.

They are a pure function of the files. So a writer that finishes another writer's commit, and a new build of
the index, get the same records. An index is rebuilt as if all files were added at once.

Sources: ``HoodieTableMetadataUtil.convertMetadataToRecords`` and its ``convert...`` functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.file_groups import BaseFile, FileSlice
from airflow_provider.table.files import BaseFileReader
from airflow_provider.table.metadata_table.index_records.logged import logged_column_stats
from airflow_provider.table.metadata_table.index_records.statistics import (
    column_stats,
    column_stats_as,
    partition_stats,
    stored_bloom_filter,
)
from airflow_provider.table.metadata_table.keys import (
    ALL_PARTITIONS,
    bloom_filter_key,
    column_stats_key,
    files_key,
    partition_stats_key,
)
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.records import (
    ColumnStats,
    FileInfo,
    FileList,
    Payload,
    RecordLocation,
    RecordType,
    StoredBloomFilter,
)
from airflow_provider.table.schema import META_COLUMNS, TableSchema
from airflow_provider.table.storage import Storage

_RECORD_KEY = META_COLUMNS[2]

Records = dict[str, Payload | None]
"""Records by key; None deletes a key."""

_OF_FOOTERS = frozenset(
    {MetadataPartition.COLUMN_STATS, MetadataPartition.BLOOM_FILTERS, MetadataPartition.PARTITION_STATS}
)


LivingKeys = Callable[[FileSlice], pa.ChunkedArray]
"""The record keys that live in a file slice with log files."""


@dataclass(frozen=True)
class FileChanges:
    """How the files of a table change.

    :param added: base files and log files that the change adds.
    :param removed: paths of base files and log files, relative to the table, that no reader sees any more.
    :param slices: for every file group in which record keys come or go, the file slice that a reader saw
        before and the one that it sees afterwards; None when it sees none. A key that leaves one file group
        and enters another moves.
    :param back: base files that readers see again. The indexes know them, but statistics of their partition
        may have been recomputed without them.
    """

    added: tuple[BaseFile, ...] = ()
    removed: tuple[str, ...] = ()
    slices: tuple[tuple[FileSlice | None, FileSlice | None], ...] = ()
    back: tuple[BaseFile, ...] = ()


def records_of(
    storage: Storage,
    change: FileChanges,
    partitions: Iterable[str],
    columns: Sequence[str] = (),
    schema: TableSchema | None = None,
    *,
    living: LivingKeys | None = None,
) -> dict[str, Records]:
    """The records that a change adds to some partitions of the metadata table.

    :param storage: the table's storage.
    :param change: what changes.
    :param partitions: names of metadata partitions.
    :param columns: the columns of the table whose statistics are indexed.
    :param schema: the table's schema, when base files may be older than it: a partition's statistics have the
        types of this schema. None when all base files have one schema.
    :param living: reads file slices with log files, for ``record_index``. None when there are none.
    :return: records by key and by metadata partition; a partition without records is left out.
    :raises FileNotFoundError: when an added file does not exist.
    """
    wanted = [MetadataPartition(each) for each in partitions]
    found: dict[str, Records] = {each: {} for each in wanted}
    if MetadataPartition.FILES in found:
        found[MetadataPartition.FILES] = _files(change)
    keys: dict[str, pa.ChunkedArray] = {}
    if _OF_FOOTERS & found.keys():
        keys = _add_footers(storage, change, found, columns, schema)
    if MetadataPartition.RECORD_INDEX in found:
        found[MetadataPartition.RECORD_INDEX] = _locations(storage, change, keys, living)
    return {partition: records for partition, records in found.items() if records}


def _files(change: FileChanges) -> Records:
    files: dict[str, dict[str, FileInfo]] = {}
    for path in change.removed:
        partition, _, name = path.rpartition("/")
        files.setdefault(partition, {})[name] = FileInfo(0, is_deleted=True)
    for base_file in change.added:
        files.setdefault(base_file.partition_path, {})[_name(base_file)] = FileInfo(base_file.size)
    records: Records = {files_key(partition): FileList(of_it) for partition, of_it in files.items()}
    if grown := {files_key(base_file.partition_path): FileInfo(0) for base_file in change.added}:
        records[ALL_PARTITIONS] = FileList(grown, RecordType.ALL_PARTITIONS)
    return records


def _add_footers(
    storage: Storage,
    change: FileChanges,
    found: Mapping[str, Records],
    columns: Sequence[str],
    schema: TableSchema | None,
) -> dict[str, pa.ChunkedArray]:
    """Add the records that come from the footers of base files.

    :return: by path, the record keys that the caller needs next. They are read here while the file is open.
    """
    of_keys = {
        after.base_path
        for _, after in change.slices
        if after and not after.log_paths and MetadataPartition.RECORD_INDEX in found
    }
    keys: dict[str, pa.ChunkedArray] = {}
    stats_of = found.get(MetadataPartition.COLUMN_STATS)
    blooms = found.get(MetadataPartition.BLOOM_FILTERS)
    ranges = found.get(MetadataPartition.PARTITION_STATS)
    for path in change.removed:
        partition, _, name = path.rpartition("/")
        if stats_of is not None:
            for column in columns:
                gone = ColumnStats(name, column, None, None, 0, 0, is_deleted=True)
                stats_of[column_stats_key(column, partition, name)] = gone
        if blooms is not None:
            blooms[bloom_filter_key(partition, name)] = StoredBloomFilter("", "", "", is_deleted=True)
    of_partition: dict[str, list[ColumnStats]] = {}
    for base_file in change.added if ranges is None else (*change.added, *change.back):
        partition, name = base_file.partition_path, _name(base_file)
        if base_file.is_log:  # a log file has no bloom filter: its keys are in the base file's
            if stats_of is not None or ranges is not None:
                stats = logged_column_stats(storage, base_file, columns, schema)
                of_partition.setdefault(partition, []).extend(stats)
                if stats_of is not None:
                    stats_of.update(
                        {column_stats_key(each.column_name, partition, name): each for each in stats}
                    )
            continue
        with BaseFileReader(storage, base_file.path, schema) as reader:
            if stats_of is not None or ranges is not None:
                stats = column_stats(reader.parquet, name, columns)
                told = stats if schema is None or ranges is None else column_stats_as(reader, name, columns)
                of_partition.setdefault(partition, []).extend(told)
                if stats_of is not None:
                    keyed = {column_stats_key(each.column_name, partition, name): each for each in stats}
                    stats_of.update(keyed)
            if blooms is not None and (bloom := stored_bloom_filter(reader.footer, base_file.instant)):
                blooms[bloom_filter_key(partition, name)] = bloom
            if base_file.path in of_keys:
                keys[base_file.path] = _read_keys(reader)
    if ranges is None:
        return keys
    for partition, of_files in of_partition.items():
        for each in partition_stats(partition, of_files):
            # The bounds only widen the known ones, so that no other file has to be read.
            key = partition_stats_key(each.column_name, partition)
            ranges[key] = replace(each, is_tight_bound=False)
    return keys


def _locations(
    storage: Storage, change: FileChanges, keys: Mapping[str, pa.ChunkedArray], living: LivingKeys | None
) -> Records:
    gone: Records = {}
    come: Records = {}

    def moved(of_group: tuple[FileSlice | None, FileSlice | None]) -> tuple[list[str], list[str]]:
        before, after = of_group
        old, new = (_keys(storage, each, keys, living) for each in of_group)
        left, entered = _difference(old, new)
        stays = before is not None and after is not None and before.file_group == after.file_group
        return left, entered if stays else new.to_pylist()

    has_logs = any(each is not None and each.log_paths for of_group in change.slices for each in of_group)
    workers = 1 if has_logs or len(change.slices) == 1 else os.cpu_count()
    with ThreadPoolExecutor(workers, "record-keys") as pool:
        for (_, after), (left, entered) in zip(change.slices, pool.map(moved, change.slices), strict=True):
            if after is not None:
                location = RecordLocation.at(after.partition_path, after.file_id, after.base_instant)
                come.update(dict.fromkeys(entered, location))
            gone.update(dict.fromkeys(left))
    return gone | come


def _keys(
    storage: Storage,
    file_slice: FileSlice | None,
    known: Mapping[str, pa.ChunkedArray],
    living: LivingKeys | None,
) -> pa.ChunkedArray:
    if file_slice is None:
        return pa.chunked_array([], pa.string())
    path = file_slice.base_path
    if path is not None and path in known and not file_slice.log_paths:
        return known[path]
    return record_keys(storage, file_slice, living)


def record_keys(storage: Storage, file_slice: FileSlice, living: LivingKeys | None = None) -> pa.ChunkedArray:
    """The record keys that live in a file slice.

    :param storage: the table's storage.
    :param file_slice: the slice.
    :param living: reads slices with log files.
    :raises FileNotFoundError: when a file of the slice does not exist.
    """
    if file_slice.base_path is None or file_slice.log_paths:
        if living is None:
            raise ValueError(f"the log files of {file_slice.file_id} need a reader of living keys")
        return living(file_slice)
    with BaseFileReader(storage, file_slice.base_path) as reader:
        return _read_keys(reader)


def _read_keys(reader: BaseFileReader) -> pa.ChunkedArray:
    return reader.read([_RECORD_KEY])[_RECORD_KEY]


def _difference(old: pa.ChunkedArray, new: pa.ChunkedArray) -> tuple[list[str], list[str]]:
    """The keys that only the old slice has, and those that only the new slice has."""
    if not len(old) or not len(new):
        return old.to_pylist(), new.to_pylist()
    before, after = (pa.concat_arrays(each.chunks) for each in (old, new))
    places = pc.index_in(after, value_set=before)
    is_kept = np.zeros(len(before), np.bool_)
    is_kept[places.drop_null().to_numpy()] = True
    left = before.filter(pa.array(~is_kept))
    if len(left):  # index_in finds only the first place of a key that occurs twice
        left = left.filter(pc.invert(pc.is_in(left, value_set=after)))
    return left.to_pylist(), after.filter(places.is_null()).to_pylist()


def _name(base_file: BaseFile) -> str:
    return base_file.path.rpartition("/")[2]

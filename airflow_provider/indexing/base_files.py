"""The base files with which new indexes begin: records of the table's files, by file group of the index.

They describe the table at some moment after the plan. The moment may be any, and may differ between files,
because every commit since the plan logs to the index, and readers merge its records with the base file. So
another run, or another attempt of a task, may write a file again under the same name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby, islice
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.indexes import LivingKeys, SnapshotSlices, current_indexes
from airflow_provider.concurrency.log import Fate, fate_of
from airflow_provider.exceptions import DuplicateRecordKeyError
from airflow_provider.table.file_groups import BaseFile, FileSlice, FileSystemView
from airflow_provider.table.files import parse_data_file_name
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import (
    FileChanges,
    MetadataPartition,
    MetadataTable,
    Payload,
    RecordDecoder,
    RecordLocation,
    encode_payload,
    file_group_id,
    file_group_indexes,
    merge,
    metadata_storage,
    record_keys,
    records_of,
    schema_text,
    write_encoded_base_file,
)
from airflow_provider.table.reading import slices_of
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import WriteStat, has_never_changed, table_schema

ENTRIES = pa.schema(
    [
        ("file_group", pa.int32()),
        ("key", pa.large_string()),
        # In the record index, all keys of a data file have one record.
        ("record", pa.dictionary(pa.int32(), pa.binary())),
    ]
)
"""Records to write: the number of the file group among all file groups of the build, key, encoded payload."""

_WORTH_THREADS = 50_000  # from so many records on, threads are faster
_RECORDS_A_BATCH = 131_072
_FILES_AT_ONCE = 256  # small files take less time together, and the records of their footers are few

Batches = Iterable[tuple[pa.Array, pa.Array]]
"""Keys and encoded payloads of one file group, in the order of the keys' bytes."""


def write_token_of(plan: str) -> str:
    """The write token of all base files that runs of a plan write.

    Runs of one plan write under the same names, and runs of different plans never do. A run may be paused
    while its plan is dropped, and another plan is made and executed. Then it deletes none of the new plan's
    files.

    :param plan: requested time of the indexing plan.
    """
    return f"0-{int(plan) % 10**9}-0"


@dataclass(frozen=True)
class IndexBuild:
    """The description of an index build; it is pickled for Spark's executors.

    :param storage: the table's storage.
    :param instant: requested time of the plan.
    :param file_groups: number of file groups of each index.
    :param initial: instant of the metadata table under which each index's base files are written.
    :param columns: the columns with statistics.
    :param files: every committed base file and log file.
    :param live: the file slices that a reader sees, by the path of their first file.
    :param logged_until: completion time of the newest entry of the commit log that the snapshot shows.
    :param schema: the table's schema, if some of the files may have another one.
    :param living: reads the record keys of file slices with log files.
    """

    storage: Storage
    instant: str
    file_groups: dict[MetadataPartition, int]
    initial: dict[MetadataPartition, str]
    columns: tuple[str, ...]
    files: tuple[BaseFile, ...]
    live: Mapping[str, FileSlice]
    logged_until: str
    schema: TableSchema | None
    living: LivingKeys
    _first: dict[MetadataPartition, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        first, total = {}, 0
        for partition, count in self.file_groups.items():
            first[partition] = total
            total += count
        object.__setattr__(self, "_first", first)

    @property
    def total_file_groups(self) -> int:
        """Number of file groups of all indexes."""
        return sum(self.file_groups.values())

    @property
    def numbers_of_files(self) -> list[int]:
        """The numbers of the file groups whose records come from data files."""
        return [
            self._first[partition] + index
            for partition, count in self.file_groups.items()
            if partition is not MetadataPartition.FILES
            for index in range(count)
        ]

    def entries_of_listing(self) -> Iterator[pa.RecordBatch]:
        """The records of ``files``; making them opens no file."""
        if MetadataPartition.FILES in self.file_groups:
            yield from self._entries(FileChanges(self.files), [MetadataPartition.FILES])

    def entries_of(self, base_files: Iterable[BaseFile]) -> Iterator[pa.RecordBatch]:
        """The records of some files in all other indexes. A file that was cleaned, or whose commit was
        undone, has none.

        :param base_files: some of :attr:`files`.
        """
        left = iter(base_files)
        of_footers = sorted(
            self.file_groups.keys() - {MetadataPartition.FILES, MetadataPartition.RECORD_INDEX}
        )
        while some := list(islice(left, _FILES_AT_ONCE)):
            if of_footers:
                yield from self._entries_of_footers(some, of_footers)
            if MetadataPartition.RECORD_INDEX in self.file_groups:
                yield from self._entries_of_keys(self.live.get(each.path) for each in some)

    def _entries_of_footers(
        self, base_files: Sequence[BaseFile], partitions: Sequence[MetadataPartition]
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._entries(FileChanges(tuple(base_files)), partitions)
        except FileNotFoundError:
            # The file of an older slice may have been cleaned, or its commit was undone.
            if len(base_files) > 1:
                for each in base_files:
                    yield from self._entries_of_footers([each], partitions)
                return
            file_slice = self.live.get(base_files[0].path)
            if file_slice is not None and not self._is_undone(file_slice):
                raise

    def _entries_of_keys(self, slices: Iterable[FileSlice | None]) -> Iterator[pa.RecordBatch]:
        """The locations of the keys of live slices."""
        keys: list[pa.Array] = []
        payloads: list[bytes] = []
        rows = 0
        for file_slice in slices:
            found, payload = self._keys_of(file_slice)
            for chunk in found.chunks:
                keys.append(chunk)
                payloads.append(payload)
                rows += len(chunk)
                if rows >= _RECORDS_A_BATCH:
                    yield self._batch_of_keys(keys, payloads)
                    keys, payloads, rows = [], [], 0
        if keys:
            yield self._batch_of_keys(keys, payloads)

    def _batch_of_keys(self, keys: Sequence[pa.Array], payloads: Sequence[bytes]) -> pa.RecordBatch:
        lengths = list(map(len, keys))
        which = pa.array(np.repeat(np.arange(len(keys), dtype=np.int32), lengths))
        records = pa.DictionaryArray.from_arrays(which, pa.array(payloads, pa.binary()))
        joined = pa.concat_arrays(keys).cast(pa.large_string())
        return self._batch(MetadataPartition.RECORD_INDEX, joined, records)

    def _keys_of(self, file_slice: FileSlice | None) -> tuple[pa.ChunkedArray, bytes]:
        """The keys of a live slice, and the record of their location. If the slice's commit was undone, those
        of the slice that its file group has now.

        The process that undid the commit has logged only the keys in which the two slices differ.
        """
        while file_slice is not None:
            try:
                keys = record_keys(self.storage, file_slice, self.living)
            except FileNotFoundError:
                if not self._is_undone(file_slice):
                    raise
                table = HudiTable.at(self.storage)
                file_slice = SnapshotSlices(table, table.view).of(file_slice.file_group)
            else:
                location = RecordLocation.at(
                    file_slice.partition_path, file_slice.file_id, file_slice.base_instant
                )
                # Another writer's file may have large strings.
                return keys if keys.type == pa.string() else keys.cast(pa.string()), encode_payload(location)
        return pa.chunked_array([], pa.string()), b""

    def _is_undone(self, file_slice: FileSlice) -> bool:
        log = CommitLog(self.storage)
        names = (parse_data_file_name(path.rpartition("/")[2]) for path in file_slice.paths)
        fates = (fate_of(self.storage, log, parsed.instant) for parsed in names if parsed)
        return any(fate in (Fate.UNDONE, Fate.DEAD) for fate in fates)

    def write(self, number: int, entries: Batches) -> WriteStat:
        """Write the base file of a file group.

        :param number: number of the file group.
        :param entries: its records, in the order of the keys' bytes.
        :raises DuplicateRecordKeyError: when a record key exists twice, or existed twice when the index was
            planned.
        """
        partition = [each for each, first in self._first.items() if first <= number][-1]
        file_id = file_group_id(partition, number - self._first[partition])
        metadata_table, records = metadata_storage(self.storage), self._merged(entries)
        if partition is MetadataPartition.RECORD_INDEX:
            records = self._checked(records, self._taken_out(MetadataTable(metadata_table), file_id))
        return write_encoded_base_file(
            metadata_table,
            partition.value,
            file_id,
            self.initial[partition],
            records,
            write_token=write_token_of(self.instant),
        )

    def _entries(
        self, change: FileChanges, partitions: Sequence[MetadataPartition]
    ) -> Iterator[pa.RecordBatch]:
        for name, records in records_of(self.storage, change, partitions, self.columns, self.schema).items():
            added = {key: payload for key, payload in records.items() if payload is not None}
            payloads = pa.array(map(encode_payload, added.values()), pa.binary())
            yield self._batch(
                MetadataPartition(name), pa.array(added, pa.large_string()), payloads.dictionary_encode()
            )

    def _batch(
        self, partition: MetadataPartition, keys: pa.Array, records: pa.DictionaryArray
    ) -> pa.RecordBatch:
        numbers = self._first[partition] + file_group_indexes(keys, self.file_groups[partition])
        return pa.record_batch([pa.array(numbers.astype(np.int32)), keys, records], schema=ENTRIES)

    def _merged(self, entries: Batches) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Merge the records of each key; only keys with several records are decoded."""
        last: tuple[pa.Array, pa.Array] | None = None  # the last key, which the next batch may continue
        for batch in entries:
            keys, records = batch[0].cast(pa.large_string()), batch[1].cast(pa.binary())
            if not len(keys):
                continue
            if last is not None:
                keys, records = pa.concat_arrays([last[0], keys]), pa.concat_arrays([last[1], records])
            if pc.any(pc.equal(keys[1:], keys[:-1])).as_py():
                keys, records = self._one_a_key(keys, records)
            yield keys[:-1], records[:-1]
            last = keys[-1:], records[-1:]
        if last is not None:
            yield last

    def _one_a_key(self, keys: pa.Array, records: pa.Array) -> tuple[pa.Array, pa.Array]:
        decode = RecordDecoder(schema_text())
        merged: dict[str, bytes] = {}
        entries = zip(keys.to_pylist(), records.to_pylist(), strict=True)
        for key, same in groupby(entries, key=itemgetter(0)):
            first, *others = dict.fromkeys(data for _, data in same)
            if others:
                both = partial(self._both, key)
                merged[key] = encode_payload(reduce(both, map(decode, (first, *others))))
            else:
                merged[key] = first
        return pa.array(merged, pa.large_string()), pa.array(merged.values(), pa.binary())

    def _both(self, key: str, one: Payload, other: Payload) -> Payload:
        if isinstance(one, RecordLocation) and isinstance(other, RecordLocation):
            raise self._duplicate(key, one, other)
        return merge(one, other)

    def _taken_out(self, metadata_table: MetadataTable, file_id: str) -> set[str]:
        """The keys that were deleted between the plan and the snapshot."""
        slices = metadata_table.file_slices(MetadataPartition.RECORD_INDEX)
        logs = next((each for each in slices if each.file_id == file_id), None)
        if logs is None:
            return set()  # the index was dropped
        since = (e for e in logs.log_files if self.instant < e.completion_time <= self.logged_until)
        try:
            return metadata_table.deleted_keys(replace(logs, log_files=tuple(since)))
        except FileNotFoundError:
            commit_log = CommitLog(self.storage)
            indexes = current_indexes(self.storage, commit_log, commit_log.newest())
            if any(each[:2] == (MetadataPartition.RECORD_INDEX, self.instant) for each in indexes):
                raise
            return set()  # the index was just dropped

    def _checked(self, records: Batches, taken_out: Collection[str]) -> Iterator[tuple[pa.Array, pa.Array]]:
        # A key that was deleted since the plan, and still exists, was in two places. The logged deletion of
        # one place would hide the record of the other one in this base file.
        gone = pa.array(taken_out, pa.large_string())
        for keys, payloads in records:
            if len(gone) and len(twice := keys.filter(pc.is_in(keys, gone))):
                key = twice[0].as_py()
                raise DuplicateRecordKeyError(
                    f"table {self.storage.root}: record key {key!r} lived in two file groups when "
                    f"record_index was planned by {self.instant}, and was deleted in one of them since; "
                    "drop record_index and build it again",
                    key=key,
                )
            yield keys, payloads

    def _duplicate(self, key: str, one: RecordLocation, other: RecordLocation) -> DuplicateRecordKeyError:
        places = [f"{each.partition_path}/{each.file_id}".lstrip("/") for each in (one, other)]
        return DuplicateRecordKeyError(
            f"table {self.storage.root}: record key {key!r} lives in {places[0]} and in {places[1]}, and "
            "record_index has one place for a key of the whole table; drop record_index, and delete one of "
            "the two before it is built again",
            key=key,
            file_groups=places,
        )


Build = Callable[[IndexBuild], list[WriteStat]]
"""Writes the base files of all file groups."""


def index_build(
    storage: Storage,
    view: FileSystemView,
    instant: str,
    file_groups: dict[MetadataPartition, int],
    initial: dict[MetadataPartition, str],
    columns: tuple[str, ...],
    logged_until: str,
) -> IndexBuild:
    """The description of an index build on a snapshot, with all committed base files.

    :param storage: the table's storage.
    :param view: the snapshot.
    :param instant: requested time of the plan.
    :param file_groups: number of file groups of each index.
    :param initial: instant of the metadata table under which each index's base files are written.
    :param columns: the columns with statistics.
    :param logged_until: completion time of an entry of the commit log that the snapshot shows.
    """
    files = []
    table = HudiTable.at(storage)
    if table.is_merge_on_read:
        slices = slices_of(table, view, view.all_partitions())
    else:
        slices = [FileSlice.of(each) for each in view.all_base_files()]
    for partition in view.all_partitions():
        for status in storage.list(partition):
            parsed = parse_data_file_name(status.name)
            if parsed is not None and view.shows(parsed.instant):
                files.append(BaseFile(partition, *parsed[:3], status.path, status.size))
    schema = table_schema(storage, view.timeline, table.config)
    return IndexBuild(
        storage,
        instant,
        file_groups,
        initial,
        columns,
        tuple(files),
        {each.paths[0]: each for each in slices},
        logged_until,
        None if has_never_changed(schema, table.config) else schema,
        LivingKeys(storage, schema),
    )


def build_in_process(build: IndexBuild) -> list[WriteStat]:
    """Write all base files in this process. This holds all records in memory.

    :param build: the index build.
    :raises DuplicateRecordKeyError: when a record key is in two file groups.
    """
    return write_listing(build) + _write(build, build.numbers_of_files, build.entries_of(build.files))


def write_listing(build: IndexBuild) -> list[WriteStat]:
    """Write the base files of ``files``, which need only the listing, unless they exist.

    :param build: the index build.
    """
    others = set(build.numbers_of_files)
    numbers = [number for number in range(build.total_file_groups) if number not in others]
    return _write(build, numbers, build.entries_of_listing())


def in_key_order(entries: pa.Table) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The records of a file group, in the order of the keys' bytes.

    :param entries: the records, with the columns ``key`` and ``record`` of :data:`ENTRIES`.
    """
    entries = entries.unify_dictionaries().combine_chunks()
    order = pc.sort_indices(entries["key"])
    # In portions: a whole copy in order would take as much memory again.
    for begin in range(0, len(order), _RECORDS_A_BATCH):
        for some in entries.take(order[begin : begin + _RECORDS_A_BATCH]).to_batches():
            yield some["key"], some["record"]


def _write(build: IndexBuild, numbers: Iterable[int], batches: Iterable[pa.RecordBatch]) -> list[WriteStat]:
    entries = pa.Table.from_batches(batches, ENTRIES).unify_dictionaries().combine_chunks()
    groups = entries["file_group"].to_numpy()
    order = np.argsort(groups, kind="stable")

    def write(number: int) -> WriteStat:
        begin, end = np.searchsorted(groups, [number, number + 1], sorter=order)
        return build.write(number, in_key_order(entries.take(pa.array(order[begin:end]))))

    if len(entries) < _WORTH_THREADS:
        return list(map(write, numbers))
    with ThreadPoolExecutor(os.cpu_count(), "index-base-files") as pool:
        return list(pool.map(write, numbers))

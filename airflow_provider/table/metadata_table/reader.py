"""Reading the metadata table: a merge-on-read table of HFiles and log files, with its own timeline.

Sources: ``HoodieBackedTableMetadata``, ``HoodieFileGroup`` and
``HoodieTableMetadataUtil.getValidInstantTimestamps`` of Apache Hudi.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import CorruptTableError, SnapshotUnavailableError
from airflow_provider.table.files import (
    BlockType,
    LogBlock,
    LogFileName,
    block_hfile,
    deleted_records,
    read_log_blocks,
    valid_log_blocks,
)
from airflow_provider.table.hfile import HFileReader
from airflow_provider.table.metadata_table.file_groups import (
    BASE_FILE,
    FileGroup,
    MetadataFile,
    MetadataFileSlice,
    is_base_file,
    is_empty_log_file,
    log_order,
    of_dropped_indexes,
)
from airflow_provider.table.metadata_table.initial_instants import is_initial
from airflow_provider.table.metadata_table.key_locations import Numbers, locate_keys
from airflow_provider.table.metadata_table.keys import by_file_group
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.records import (
    Payload,
    RecordDecoder,
    RecordLocation,
    is_tombstone,
    merge,
)
from airflow_provider.table.storage import ByteRange, FileStatus, Storage
from airflow_provider.table.timeline import Action, State, Timeline, archived_commits

METADATA_FOLDER = ".hoodie/metadata"

_DELETED = None
"""The version of a key that a log file deletes."""

Changes = list[Payload | None]
Find = Callable[[HFileReader], Iterator[tuple[bytes, bytes]]]


def metadata_storage(table: Storage) -> Storage:
    """The storage of a table's metadata table.

    :param table: the storage of the table.
    """
    return table.within(METADATA_FOLDER)


class MetadataTable:
    """The content of the metadata table at the moment when its timeline was loaded.

    A record is merged from the base file and every later log file whose instant has completed, both on the
    metadata table's timeline and on the table's own. The metadata table's instant completes first. Until the
    table's instant has completed too, this class ignores its log files.

    Log files are merged in the order in which their instants completed, which is the order of the commits.
    (Hudi merges them in the order of requested times. The result differs only if two instants changed one
    key, and one of them began earlier and completed later.)

    The object caches the indexes of HFiles, and small log files.

    :param storage: the metadata table's storage, see :func:`metadata_storage`.
    :param pending: requested times of the instants that are pending on the table's timeline.
    :param as_of: a completion time of the table's commits; instants that completed later are ignored. None
        for all completed instants.
    """

    def __init__(self, storage: Storage, pending: Collection[str] = (), *, as_of: str | None = None) -> None:
        self._storage = storage
        self._pending = frozenset(pending)
        self._as_of = as_of
        self._slices: dict[str, list[MetadataFileSlice]] = {}
        self._readers: dict[str, HFileReader] = {}
        self._blocks: dict[str, list[LogBlock]] = {}
        self._block_readers: dict[int, HFileReader] = {}  # of the blocks in _blocks

    def __getstate__(self) -> dict[str, Any]:
        # The file slices are pickled, so that another process reads the same files; the caches are not.
        return {**self.__dict__, "_readers": {}, "_blocks": {}, "_block_readers": {}}

    @cached_property
    def timeline(self) -> Timeline:
        """The metadata table's own timeline."""
        return Timeline.load(self._storage)

    def file_slices(self, partition: str) -> list[MetadataFileSlice]:
        """The newest slice of every file group of a partition, in the order of their ids.

        :return: empty when there is no such partition.
        :raises SnapshotUnavailableError: when files of this moment may have been cleaned, because two later
            compactions have completed.
        """
        if partition not in self._slices:
            groups = self.file_groups(partition)
            self._check_not_cleaned(groups)
            self._slices[partition] = [self.newest_slice(group) for group in groups]
        return self._slices[partition]

    def file_groups(self, partition: str) -> list[FileGroup]:
        """All file groups of a partition with all their files, in the order of their ids.

        :return: none where there is no such partition.
        """
        found: dict[str, list[tuple[FileStatus, str, bool]]] = {}
        for status in self._storage.list(partition):
            if (name := LogFileName.parse(status.name)) is not None:
                found.setdefault(name.file_id, []).append((status, name.instant, True))
            elif match := BASE_FILE.match(status.name):
                found.setdefault(match["id"], []).append((status, match["instant"], False))
        return [self._group(partition, file_id, found[file_id]) for file_id in sorted(found)]

    def newest_slice(self, group: FileGroup) -> MetadataFileSlice:
        """The slice of a file group as of this object's moment."""
        base_file = next((each for each in reversed(group.base_files) if self._is_current(each)), None)
        # The base file of a compaction lacks every log file whose instant completed after the compaction was
        # planned, even if the instant was requested before (HoodieFileGroup.getBaseInstantTime).
        since = base_file.instant if base_file else ""
        logs = (each for each in group.log_files if base_file is None or not each.is_empty)
        after = (each for each in logs if each.completion_time > since != each.instant)
        shown = tuple(each for each in after if self._as_of is None or each.completion_time <= self._as_of)
        return MetadataFileSlice(group.partition, group.file_id, base_file, shown)

    def records(self, partition: str) -> Iterator[tuple[str, Payload]]:
        """All records of a partition, file group by file group, each in the order of its keys."""
        for file_slice in self.file_slices(partition):
            yield from self.slice_records(file_slice)

    def slice_records(self, file_slice: MetadataFileSlice) -> Iterator[tuple[str, Payload]]:
        """All records of a file slice, in the order of the keys.

        The records of the log files are in memory; those of the base file are streamed.
        """
        changes = self._changes(file_slice, HFileReader.scan)
        yield from _merged(self._base_records(file_slice, HFileReader.scan), changes)

    def deleted_keys(self, file_slice: MetadataFileSlice) -> set[str]:
        """The keys that the log files of a file slice delete, and do not add again."""
        changes = self._changes(file_slice, HFileReader.scan)
        return {key.decode() for key, of_key in changes.items() if of_key[-1] is _DELETED}

    def changed_versions(self, file_slice: MetadataFileSlice, since: str) -> Iterator[tuple[str, Changes]]:
        """All versions of the keys that log files have changed: of the base file, then of each log file.

        A version of None deletes the key.

        :param since: a completion time; only keys that were changed after it are returned.
        """
        later = (each for each in file_slice.log_files if each.completion_time > since)
        changed = set(self._changes(replace(file_slice, log_files=tuple(later)), HFileReader.scan))
        if not changed:
            return
        find = partial(HFileReader.get_all, keys=changed)
        base = dict(self._base_records(file_slice, find))
        for key, said in sorted(self._changes(file_slice, find, changed).items()):
            yield key.decode(), [*([base[key]] if key in base else []), *said]

    def look_up(self, partition: str, keys: Iterable[str]) -> dict[str, Payload]:
        """The records of some keys; a key without a record is left out.

        It reads only the blocks that can have the keys, in their file groups.

        :param keys: in any order.
        """
        found: dict[str, Payload] = {}
        for base, changes in self._versions(partition, keys):
            found.update(_merged(base, changes))
        return found

    def versions_of(self, partition: str, keys: Iterable[str]) -> dict[str, Changes]:
        """All versions of some keys: of the base file, then of each log file. None deletes the key.

        :param keys: in any order; a key without a version is left out.
        """
        found: dict[str, Changes] = {}
        for base, changes in self._versions(partition, keys):
            for key, payload in base:
                found[key.decode()] = [payload]
            for key, said in changes.items():
                found.setdefault(key.decode(), []).extend(said)
        return found

    def locate(self, keys: pa.Array) -> tuple[Numbers, list[RecordLocation]]:
        """The locations of many record keys, by ``record_index``.

        It reads only the blocks that can have the keys.

        :param keys: strings without nulls.
        :return: for each key the number of its location, or -1 where it has none; and the locations.
        """
        file_slices = self.file_slices(MetadataPartition.RECORD_INDEX)
        return locate_keys(
            keys, len(file_slices), lambda number, those: self._located(file_slices[number], those)
        )

    def _located(self, file_slice: MetadataFileSlice, keys: pa.Array) -> tuple[Numbers, list[RecordLocation]]:
        """The locations of keys that are in one file group of the index; see :meth:`locate`."""
        which = np.full(len(keys), -1, np.int64)
        numbers: dict[RecordLocation, int] = {}
        binary = keys.cast(pa.large_string()).cast(pa.large_binary())
        wanted = set(binary.to_pylist())
        for those, theirs in (
            self._base_locations(file_slice, wanted, numbers),
            self._changed_locations(file_slice, wanted, numbers),  # log files come later, so they win
        ):
            at = pc.index_in(binary, value_set=those)
            which[np.array(at.is_valid())] = theirs[at.drop_null().to_numpy()]
        return which, list(numbers)

    def _base_locations(
        self, file_slice: MetadataFileSlice, wanted: Collection[bytes], numbers: dict[RecordLocation, int]
    ) -> tuple[pa.Array, Numbers]:
        """The keys that a base file has, and the numbers of their locations. It adds new locations."""
        reader = self._base_reader(file_slice)
        if reader is None:
            return pa.array([], pa.large_binary()), np.zeros(0, np.int64)
        found, values = reader.get_arrays(wanted, search=True)
        decode = _decoder(reader)
        of_value = values.dictionary_encode()  # all keys of a data file have the same location
        known = [_numbered(decode(value), numbers) for value in of_value.dictionary.to_pylist()]
        return found, np.array(known, np.int64)[of_value.indices.to_numpy()]

    def _changed_locations(
        self, file_slice: MetadataFileSlice, wanted: Collection[bytes], numbers: dict[RecordLocation, int]
    ) -> tuple[pa.Array, Numbers]:
        """The keys that log files have, and the numbers of their locations; -1 for a deleted key."""
        find = partial(HFileReader.get_all, keys=wanted, search=True)
        changes = self._changes(file_slice, find, wanted)
        known = [_numbered(said[-1], numbers) for said in changes.values()]
        return pa.array(list(changes), pa.large_binary()), np.array(known, np.int64)

    def _versions(
        self, partition: str, keys: Iterable[str]
    ) -> Iterator[tuple[Iterator[tuple[bytes, Payload]], dict[bytes, Changes]]]:
        file_slices = self.file_slices(partition)
        # A location has a folder, a file id and a time: nothing in it can look like a pair.
        search = partition == MetadataPartition.RECORD_INDEX
        for index, of_group in by_file_group(keys, len(file_slices)).items() if file_slices else ():
            file_slice, wanted = file_slices[index], {key.encode() for key in of_group}
            find = partial(HFileReader.get_all, keys=wanted, search=search)
            yield self._base_records(file_slice, find), self._changes(file_slice, find, wanted)

    def with_prefix(self, partition: str, prefix: str) -> Iterator[tuple[str, Payload]]:
        """The records whose keys begin with a prefix, such as all statistics of a column."""
        begin = prefix.encode()
        for file_slice in self.file_slices(partition):
            find = partial(HFileReader.with_prefix, prefix=begin)
            changes = self._changes(file_slice, find)
            changes = {key: value for key, value in changes.items() if key.startswith(begin)}
            yield from _merged(self._base_records(file_slice, find), changes)

    def logged_by(self, partition: str, instants: Sequence[str]) -> list[dict[str, Payload | None]]:
        """The records that each of some instants has logged to a partition, by key; None deletes a key.

        It reads only the log files of these instants.

        :param instants: requested times.
        :raises SnapshotUnavailableError: when one of their log files was compacted.
        """
        found: list[dict[str, Payload | None]] = [{} for _ in instants]
        for file_slice in self.file_slices(partition):
            since = file_slice.base_file.instant if file_slice.base_file else ""
            if compacted := [each for each in instants if (self._completion(each) or "") <= since]:
                raise SnapshotUnavailableError(
                    f"what {compacted[0]} has logged to {partition} in {self._storage.root} was compacted",
                    instant=compacted[0],
                )
            for log_file in file_slice.log_files:
                if log_file.instant in instants:
                    logged = self._changes(replace(file_slice, log_files=(log_file,)), HFileReader.scan)
                    of_instant = found[instants.index(log_file.instant)]
                    of_instant.update((key.decode(), said[-1]) for key, said in logged.items())
        return found

    def has_logged(self, instant: str) -> bool:
        """Whether an instant of the table has logged here.

        :param instant: requested time.
        """
        return self._is_committed(instant)

    def complete_up_to(self, instant: str) -> str:
        """The time up to which a base file has every commit.

        :param instant: requested time of the instant that wrote the base file.
        :return: this requested time. The requested time of an initial instant is only a name, so for such an
            instant it is the completion time; empty when this is unknown.
        """
        if not is_initial(instant):
            return instant
        known = self.timeline.find(instant)
        return (known and known.completion_time) or self._archived.get(instant, "")

    def _check_not_cleaned(self, groups: Iterable[FileGroup]) -> None:
        """Raise if a slice may have been cleaned. A cleaner deletes a replaced slice only after a further
        compaction has completed."""
        newer = set()
        for group in groups:
            base_file = self.newest_slice(group).base_file
            # This includes base files that completed between the loading of the timeline and the listing.
            others = (each for each in (*group.base_files, *group.uncommitted) if is_base_file(each))
            newer |= {
                each.instant for each in others if base_file is None or each.instant > base_file.instant
            }
        if not newer:
            return
        now = MetadataTable(self._storage, self._pending)
        superseded_by = min((each for each in newer if now._is_committed(each)), default=None)
        compactions = (i.requested_time for i in now.timeline.commits() if i.action is Action.COMMIT)
        if superseded_by is not None and superseded_by < max(compactions, default=""):
            raise SnapshotUnavailableError(
                f"the metadata table {self._storage.root} no longer tells what it said as of "
                f"{self._as_of or 'the moment when its timeline was loaded'}: it has been compacted and "
                "cleaned since; read a later moment",
                location=self._storage.root,
            )

    def _group(self, partition: str, file_id: str, statuses: list[tuple[FileStatus, str, bool]]) -> FileGroup:
        bases: list[MetadataFile] = []
        logs: list[MetadataFile] = []
        uncommitted: list[MetadataFile] = []
        for status, instant, is_log in statuses:
            completed = self._completion(instant) if is_log else instant
            if completed is None or not self._is_committed(instant):
                uncommitted.append(MetadataFile(status.path, instant, instant, status.size))
            else:
                file = MetadataFile(status.path, instant, completed, status.size, is_empty_log_file(status))
                (logs if is_log else bases).append(file)
        bases.sort(key=lambda each: each.instant)
        logs.sort(key=log_order)
        dropped = of_dropped_indexes(bases, self.timeline)
        kept = tuple(each for each in bases if each not in dropped)
        return FileGroup(partition, file_id, kept, tuple(logs), tuple(uncommitted), dropped)

    def _completion(self, instant: str) -> str | None:
        """The completion time of a log file's instant; None when it has not completed.

        An instant that is older than the timeline must be in the archived one: a writer that was rolled back
        while it was paused may leave a log file much later.
        """
        known = self.timeline.find(instant)
        if known is not None:
            return known.completion_time
        return self._archived.get(instant) if self._is_committed(instant) else None

    @cached_property
    def _archived(self) -> dict[str, str]:
        """Completion times of archived instants; read when a log file is as old as one of them."""
        found = archived_commits(self._storage)
        return {each.requested_time: each.completion_time or each.requested_time for each in found}

    def _is_committed(self, instant: str) -> bool:
        if instant in self._pending:
            return False
        known = self.timeline.find(instant)
        if known is not None:
            return known.state is State.COMPLETED
        return instant < self.timeline.starts

    def _is_current(self, base_file: MetadataFile) -> bool:
        """Whether a base file has no record of an instant that completed after this object's moment."""
        if self._as_of is None or base_file.instant <= self._as_of:
            return True
        between = (
            instant
            for instant in self.timeline.completed()
            if instant.action is Action.DELTA_COMMIT and instant.requested_time != base_file.instant
            if self._as_of < (instant.completion_time or "") <= base_file.instant
        )
        return next(between, None) is None

    def _base_records(self, file_slice: MetadataFileSlice, find: Find) -> Iterator[tuple[bytes, Payload]]:
        reader = self._base_reader(file_slice)
        if reader is None:
            return
        decode = _decoder(reader)
        for key, value in find(reader):
            yield key, decode(value)

    def _base_reader(self, file_slice: MetadataFileSlice) -> HFileReader | None:
        base_file = file_slice.base_file
        if base_file is None:
            return None
        path, size = base_file.path, base_file.size
        if path not in self._readers:
            self._readers[path] = HFileReader.open(self._storage, path, size=size)
        return self._readers[path]

    def _changes(
        self, file_slice: MetadataFileSlice, find: Find, wanted: Collection[bytes] | None = None
    ) -> dict[bytes, Changes]:
        """The versions of keys in the log files, in their order."""
        changes: dict[bytes, Changes] = {}
        blocks = [block for log_file in file_slice.log_files for block in self._log_blocks(log_file)]
        for block in valid_log_blocks(blocks, self._is_committed):
            if block.block_type is BlockType.DELETE:
                for deleted in deleted_records(block):
                    key = deleted.record_key.encode()
                    if wanted is None or key in wanted:
                        changes.setdefault(key, []).append(_DELETED)
            elif block.block_type is BlockType.HFILE_DATA:
                reader = self._block_reader(block)
                decode = _decoder(reader)
                for key, value in find(reader):
                    changes.setdefault(key, []).append(decode(value))
            else:
                raise CorruptTableError(
                    f"{block.content.name} has a block of type {block.block_type.name}; the metadata table "
                    "has HFile and delete blocks: drop the index and build it again"
                )
        return changes

    def _block_reader(self, block: LogBlock) -> HFileReader:
        if id(block) not in self._block_readers:
            self._block_readers[id(block)] = block_hfile(block)
        return self._block_readers[id(block)]

    def _log_blocks(self, log_file: MetadataFile) -> list[LogBlock]:
        if log_file.path not in self._blocks:
            content = ByteRange.of_file(self._storage, log_file.path, size=log_file.size)
            self._blocks[log_file.path] = list(read_log_blocks(content))
        return self._blocks[log_file.path]


def _numbered(location: Payload | None, numbers: dict[RecordLocation, int]) -> int:
    if location is _DELETED:
        return -1
    if not isinstance(location, RecordLocation):
        raise CorruptTableError(
            f"the record index has a {type(location).__name__}: drop the index and build it again"
        )
    return numbers.setdefault(location, len(numbers))


def _decoder(reader: HFileReader) -> RecordDecoder:
    try:
        return _decoder_of(reader.file_info["schema"].decode())
    except KeyError:
        raise CorruptTableError(
            "an HFile of the metadata table has no schema; drop the index and build it again"
        ) from None


_decoder_of = lru_cache(maxsize=32)(RecordDecoder)


def _merged(
    base: Iterable[tuple[bytes, Payload]], changes: dict[bytes, Changes]
) -> Iterator[tuple[str, Payload]]:
    """Base records merged with their versions in the logs, and new records, in the order of the keys."""
    if not changes:
        yield from ((key.decode(), payload) for key, payload in base if not is_tombstone(payload))
        return
    new = iter(sorted(changes))
    upcoming = next(new, None)
    for key, payload in base:
        while upcoming is not None and upcoming < key:
            yield from _applied(upcoming, None, changes[upcoming])
            upcoming = next(new, None)
        if upcoming == key:
            yield from _applied(key, payload, changes[key])
            upcoming = next(new, None)
        else:
            yield from _applied(key, payload, [])
    while upcoming is not None:
        yield from _applied(upcoming, None, changes[upcoming])
        upcoming = next(new, None)


def _applied(key: bytes, base: Payload | None, changes: Changes) -> Iterator[tuple[str, Payload]]:
    # The versions are merged one after the other, beginning with the base file's. Hudi merges the log files
    # among themselves first; then a file that was logged twice and deleted after that would come back.
    merged = base
    for change in changes:
        merged = _DELETED if change is _DELETED else merge(merged, change)
    if merged is not None and not is_tombstone(merged):
        yield key.decode(), merged

"""Unique record keys under concurrent upserts (C5 of ARCHITECTURE.md).

Shared file groups do not show this conflict: two writers that add the same new key each open, or fill, a file
group of their own. So an upsert compares the keys that it wrote with those that the commits since its base
have added, in the partitions where both added keys. It compares key ranges and bloom filters first. Then it
reads the key column of its own files, and of those files of the concurrent commits that may have one of the
keys. It reads no other file of the table.

A table with a record index has one record per key, across all partitions. There the upsert reads
from the index's log files which keys the commits since have added, and reads no data file of theirs. If the
index itself became complete since the base, the upsert looks up all its keys in the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from airflow_provider.concurrency.commit import CommitContent, CompletedEntry
from airflow_provider.concurrency.conflicts import (
    Conflict,
    ConflictPolicy,
    Outcome,
    WriteDescription,
    resolve_conflict,
)
from airflow_provider.concurrency.indexes import current_indexes
from airflow_provider.concurrency.log import Commit, CommitLog, Plan, Revert
from airflow_provider.exceptions import NoSuchInstantError, SnapshotUnavailableError
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.files import BaseFileFooter, read_base_file, read_footer
from airflow_provider.table.metadata_table import (
    MetadataPartition,
    MetadataTable,
    Payload,
    RecordLocation,
    metadata_storage,
)
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import REWRITES, Action, WriteStat

_COMMIT_TIME, _, _RECORD_KEY = META_COLUMNS[:3]
_SHOWN = 3


def same_new_keys(
    storage: Storage,
    committing: WriteDescription,
    content: CommitContent,
    changes: Iterable[CompletedEntry],
    policy: ConflictPolicy,
) -> list[Conflict]:
    """Conflicts with commits that added, or brought back, a record key which this write adds too.

    If a record index became complete since this write's base, the write has not looked its keys up. Then it
    is a conflict if the index has a key that the write adds, or if the write adds a key twice.

    :param storage: the table's storage.
    :param committing: the write that is about to commit.
    :param content: the content that the write is about to commit.
    :param changes: the entries since the write's base.
    :param policy: the write's decision where the conflict rules leave a choice.
    """
    changes = [change for change in changes if not isinstance(change.entry, Plan)]
    adds = any(change.entry.adds_records_in for change in changes)
    tells_more = any(map(_tells_more, changes))
    if committing.operation in REWRITES or not (adds or tells_more):
        return []
    is_indexed = _has_record_index(storage, changes)
    if not is_indexed and not (adds and content.unique_keys):
        return []
    own = [
        _WrittenKeys(storage, stat, committing.instant) for stat in content.write_stats if stat.num_inserts
    ]
    if not own:
        return []
    if not is_indexed:
        return _by_files(storage, committing, own, changes, policy)
    metadata_table = MetadataTable(metadata_storage(storage))
    came: Mapping[str, tuple[CompletedEntry, Payload | None]] | None = None
    if not tells_more:
        with suppress(SnapshotUnavailableError):  # the log files have been compacted and cleaned
            came = _came(metadata_table, changes)
    twice: set[str] = set()
    if came is None:
        last = next(filter(_tells_more, reversed(changes)), changes[-1])
        keys = pa.chunked_array([keys.keys for keys in own], pa.string())
        came = {key: (last, at) for key, at in _look_up(storage, keys.unique().to_pylist()).items()}
        twice = _added_twice(own) if tells_more else set()
        came = {**dict.fromkeys(twice, (last, None)), **came}
    conflicts = _by_record_index(committing, content, own, came, twice, policy)
    # The index may lack a commit of another Hudi writer until the next entry is put.
    unknown = [
        change
        for change in changes
        if _is_foreign(change) and not metadata_table.has_logged(change.entry.instant)
    ]
    return conflicts + _by_files(storage, committing, own, unknown, policy, anywhere=True)


def _tells_more(change: CompletedEntry) -> bool:
    """Whether the record index may have new keys after a change that the change has not logged to it."""
    # A view of a moment before a revert does not use the index (Moment.view).
    return change.entry.action is Action.INDEXING or isinstance(change.entry, Revert)


def _is_foreign(change: CompletedEntry) -> bool:
    return change.entry.indexes is None


def _has_record_index(storage: Storage, changes: Iterable[CompletedEntry]) -> bool:
    """Whether the table has a complete record index as of the last change."""
    said = [change.entry.indexes for change in changes if change.entry.indexes is not None]
    if not said:
        commit_log = CommitLog(storage)
        said = [current_indexes(storage, commit_log, commit_log.newest())]
    return any(each.partition == MetadataPartition.RECORD_INDEX and each.is_complete for each in said[-1])


def _by_files(
    storage: Storage,
    committing: WriteDescription,
    own: Sequence[_WrittenKeys],
    changes: Iterable[CompletedEntry],
    policy: ConflictPolicy,
    *,
    anywhere: bool = False,
) -> list[Conflict]:
    """The conflicts by the data files of both writes, in the partitions to which both add, or in all."""
    conflicts = []
    for change in changes:
        entry = change.entry
        concerned = [keys for keys in own if anywhere or keys.stat.partition_path in entry.adds_records_in]
        if not concerned:
            continue
        if isinstance(entry, Revert):
            # A revert does not say which rows have come back.
            back = frozenset(keys.file_group for keys in concerned)
            conflicts.append(Conflict(WriteDescription.of_entry(entry), back, Outcome.CONFLICT))
        elif isinstance(entry, Commit) and entry.operation not in REWRITES:
            try:
                written = change.metadata.write_stats
            except NoSuchInstantError:
                continue  # another Hudi writer has just undone it, and with it the keys
            their_stats = [s for s in written if s.partition_path not in committing.overwrites]
            groups, keys = _shared(storage, concerned, entry.instant, their_stats, anywhere=anywhere)
            if groups:
                other = WriteDescription.of_entry(entry)
                answer = resolve_conflict(committing, other, policy, same_new_keys=True)
                conflicts.append(Conflict(other, frozenset(groups), answer, tuple(sorted(keys)[:_SHOWN])))
    return conflicts


def _by_record_index(
    committing: WriteDescription,
    content: CommitContent,
    own: Sequence[_WrittenKeys],
    came: Mapping[str, tuple[CompletedEntry, Payload | None]],
    twice: Collection[str],
    policy: ConflictPolicy,
) -> list[Conflict]:
    """The conflicts by the record index: keys that would exist in a second file group."""
    merged_into = content.merged_into

    def is_elsewhere(key: str, here: FileGroupId) -> bool:
        there = _file_group(came[key][1])
        if there is not None and there.partition_path in committing.overwrites:
            there = None
        elif there in content.taken_out:  # this write merged its rows into another file group, or into none
            there = merged_into.get(there)
        return key in twice or there not in (None, here)

    known, conflicts = pa.array(list(came), pa.string()), []
    for keys in own:
        added = pc.unique(keys.keys.filter(pc.is_in(keys.keys, value_set=known))).to_pylist()
        elsewhere = [key for key in added if is_elsewhere(key, keys.file_group)]
        for change, shared in _by_change(came, elsewhere):
            other = WriteDescription.of_entry(change.entry)
            answer = resolve_conflict(committing, other, policy, same_new_keys=True)
            conflicts.append(Conflict(other, frozenset({keys.file_group}), answer, tuple(shared[:_SHOWN])))
    return conflicts


@retry(
    retry=retry_if_exception_type((SnapshotUnavailableError, FileNotFoundError)),
    stop=stop_after_attempt(3),
    reraise=True,
)
def _look_up(storage: Storage, keys: Iterable[str]) -> dict[str, Payload]:
    """The present locations of keys; looked up again if the index is compacted and cleaned meanwhile."""
    return MetadataTable(metadata_storage(storage)).look_up(MetadataPartition.RECORD_INDEX, keys)


def _added_twice(own: Sequence[_WrittenKeys]) -> set[str]:
    """Keys that a write adds to several file groups, or that are in one of its files several times."""
    in_files = [set(pc.unique(keys.keys).to_pylist()) for keys in own]
    in_several = Counter(key for in_file in in_files for key in in_file)
    twice = {key for key, count in in_several.items() if count > 1}
    return twice.union(*(keys.repeated() for keys in own))


def _came(
    metadata_table: MetadataTable, changes: Sequence[CompletedEntry]
) -> dict[str, tuple[CompletedEntry, Payload]]:
    """The keys that these entries have added, with their file groups and the entry that added them."""
    came: dict[str, tuple[CompletedEntry, Payload]] = {}
    logged = metadata_table.logged_by(
        MetadataPartition.RECORD_INDEX, [change.entry.instant for change in changes]
    )
    for change, said in zip(changes, logged, strict=True):
        for key, location in said.items():
            if location is None:
                came.pop(key, None)
            elif change.entry.operation not in REWRITES:
                came[key] = (change, location)
            elif key in came:  # moved, not new
                came[key] = (came[key][0], location)
    return came


def _by_change(
    came: Mapping[str, tuple[CompletedEntry, Payload | None]], keys: Iterable[str]
) -> Iterable[tuple[CompletedEntry, list[str]]]:
    found: dict[str, tuple[CompletedEntry, list[str]]] = {}
    for key in sorted(keys):
        change = came[key][0]
        found.setdefault(change.entry.instant, (change, []))[1].append(key)
    return found.values()


def _file_group(location: Payload | None) -> FileGroupId | None:
    return location.file_group if isinstance(location, RecordLocation) else None


def _shared(
    storage: Storage,
    own: Sequence[_WrittenKeys],
    instant: str,
    their_stats: Iterable[WriteStat],
    *,
    anywhere: bool,
) -> tuple[set[FileGroupId], set[str]]:
    groups: set[FileGroupId] = set()
    found: set[str] = set()
    for stat in their_stats:
        beside = [keys for keys in own if anywhere or keys.stat.partition_path == stat.partition_path]
        # The rules already find a conflict in a file group that both wrote.
        beside = [keys for keys in beside if keys.stat.file_id != stat.file_id]
        if not stat.num_inserts or not beside:
            continue
        theirs = _WrittenKeys(storage, stat, instant)
        for keys in beside:
            if keys.may_share(theirs):
                both = keys.keys.filter(pc.is_in(keys.keys, value_set=theirs.keys))
                if len(both):
                    groups.add(keys.file_group)
                    found.update(both.slice(0, _SHOWN).to_pylist())
    return groups, found


class _WrittenKeys:
    """The record keys that one instant wrote into one file; read on demand."""

    def __init__(self, storage: Storage, stat: WriteStat, instant: str) -> None:
        self.stat = stat
        self._storage = storage
        self._instant = instant
        # Not a cached_property: before Python 3.12 that holds one lock for all instances while it reads.
        self._keys: pa.Array | None = None
        self._read_footer: BaseFileFooter | None = None

    @property
    def file_group(self) -> FileGroupId:
        """The file group of the file."""
        return self.stat.file_group

    def may_share(self, other: _WrittenKeys) -> bool:
        """Whether both files may have a key in common, by key ranges and the other file's bloom filter."""
        mine, theirs = self._footer, other._footer
        ends = (mine.min_key, mine.max_key, theirs.min_key, theirs.max_key)
        if None not in ends:
            first, last, their_first, their_last = map(str, ends)
            if last < their_first or their_last < first:
                return False
        return theirs.bloom is None or bool(theirs.bloom.might_contain(self.keys).any())

    @property
    def keys(self) -> pa.Array:
        """The keys; read from the file at the first call."""
        if self._keys is None:
            self._keys = self._written()
        return self._keys

    def repeated(self) -> list[str]:
        """The keys that are in the file more than once."""
        counts = read_base_file(self._storage, self.stat.path, [_RECORD_KEY])[_RECORD_KEY].value_counts()
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        found: list[str] = repeated.filter(pc.is_in(repeated, value_set=self.keys)).to_pylist()
        return found

    def _written(self) -> pa.Array:
        rows = read_base_file(self._storage, self.stat.path, [_COMMIT_TIME, _RECORD_KEY])
        written = pc.equal(rows[_COMMIT_TIME].cast(pa.string()), self._instant)
        return rows[_RECORD_KEY].filter(written).combine_chunks()

    @property
    def _footer(self) -> BaseFileFooter:
        if self._read_footer is None:
            self._read_footer = read_footer(self._storage, self.stat.path)
        return self._read_footer

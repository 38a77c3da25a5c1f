"""Unique record keys under concurrent upserts (invariant C5).

File groups alone do not tell: two writers that add the same new key each open, or fill, a file
group of their own. So an upsert compares the keys that it wrote with those that the commits since
its base have added, in the partitions where both did. Key ranges and bloom filters come first: what
is read is the key column of this write's files, and of the concurrent commits' files that may hold
one of these keys. The rest of the table does not matter.

A table with a record index has one record per key, in whatever partition. There it is the index that says
which keys the commits since have added: their log files, and no data file of theirs, are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.concurrency.conflicts import (
    Conflict,
    ConflictPolicy,
    Outcome,
    WriteDescription,
    outcome,
)
from airflow_provider.concurrency.history import Change
from airflow_provider.concurrency.log_entry import Commit, IndexState, Plan, Revert
from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.table.base_file import BaseFileFooter, read_base_file, read_footer
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.instant import Action
from airflow_provider.table.metadata import REWRITES, WriteStat
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import Payload, RecordLocation
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import Storage

_COMMIT_TIME, _, _RECORD_KEY = META_COLUMNS[:3]
_SHOWN = 3


def same_new_keys(
    storage: Storage,
    committing: WriteDescription,
    write_stats: Sequence[WriteStat],
    changes: Iterable[Change],
    policy: ConflictPolicy,
) -> list[Conflict]:
    """Conflicts with commits that added a record key which this write adds too, or brought some back.

    :param storage: the table's storage.
    :param committing: the write that is about to commit.
    :param write_stats: of its data files.
    :param changes: what completed since its base.
    :param policy: what it does where it has a choice.
    """
    own = [_WrittenKeys(storage, stat, committing.instant) for stat in write_stats if stat.num_inserts]
    changes = [change for change in changes if not isinstance(change.entry, Plan)]
    if not own or not changes:
        return []
    by_index = _by_record_index(storage, committing, own, changes, policy)
    if by_index is not None:
        return by_index
    partitions = {keys.stat.partition_path for keys in own}
    conflicts = []
    for change in changes:
        entry = change.entry
        if isinstance(entry, Revert) and entry.inserted_in & partitions:
            # Rows have come back, and nothing says which.
            back = frozenset(
                FileGroupId(keys.stat.partition_path, keys.stat.file_id)
                for keys in own
                if keys.stat.partition_path in entry.inserted_in
            )
            conflicts.append(Conflict(WriteDescription.of_entry(entry), back, Outcome.CONFLICT))
        if not isinstance(entry, Commit) or entry.operation in REWRITES or not entry.inserted_in & partitions:
            continue
        groups, keys = _shared(storage, own, entry.instant, change.metadata.write_stats)
        if groups:
            other = WriteDescription.of_entry(entry)
            answer = outcome(committing, other, policy, same_new_keys=True)
            conflicts.append(Conflict(other, frozenset(groups), answer, tuple(sorted(keys)[:_SHOWN])))
    return conflicts


def _by_record_index(
    storage: Storage,
    committing: WriteDescription,
    own: Sequence[_WrittenKeys],
    changes: Sequence[Change],
    policy: ConflictPolicy,
) -> list[Conflict] | None:
    """The conflicts, where the record index tells of all changes; None where it does not."""
    states = [_record_index(change) for change in changes]
    if states[-1] is None or not states[-1].is_complete or None in states:
        return None
    metadata_table = MetadataTable(metadata_storage(storage))
    try:
        if all(state is not None and state.is_complete for state in states) and not any(
            change.entry.action is Action.INDEXING for change in changes
        ):
            came = _came(metadata_table, changes)
        else:  # it became complete since, so that nobody has asked it for what was there before
            wanted = pa.chunked_array([keys.keys for keys in own], pa.string()).to_pylist()
            found = metadata_table.look_up(MetadataPartition.RECORD_INDEX, wanted)
            came = {key: (changes[-1], location) for key, location in found.items()}
    except SnapshotUnavailableError:
        return None
    known = pa.array(
        [key for key, (_, at) in came.items() if _file_group(at) not in committing.file_groups], pa.string()
    )
    conflicts = []
    for keys in own:
        for change, shared in _by_change(came, keys.keys.filter(pc.is_in(keys.keys, value_set=known))):
            other = WriteDescription.of_entry(change.entry)
            group = FileGroupId(keys.stat.partition_path, keys.stat.file_id)
            answer = outcome(committing, other, policy, same_new_keys=True)
            conflicts.append(Conflict(other, frozenset({group}), answer, tuple(shared[:_SHOWN])))
    return conflicts


def _record_index(change: Change) -> IndexState | None:
    states = change.entry.indexes or ()
    return next((each for each in states if each.partition == MetadataPartition.RECORD_INDEX), None)


def _came(metadata_table: MetadataTable, changes: Sequence[Change]) -> dict[str, tuple[Change, Payload]]:
    """The keys that are new since, where they are, and by whom they came."""
    came: dict[str, tuple[Change, Payload]] = {}
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
    came: Mapping[str, tuple[Change, Payload]], keys: pa.Array
) -> Iterable[tuple[Change, list[str]]]:
    found: dict[str, tuple[Change, list[str]]] = {}
    for key in sorted(keys.to_pylist()):
        change = came[key][0]
        found.setdefault(change.entry.instant, (change, []))[1].append(key)
    return found.values()


def _file_group(location: Payload) -> FileGroupId | None:
    if not isinstance(location, RecordLocation):
        return None
    return FileGroupId(location.partition_path, location.file_id)


def _shared(
    storage: Storage, own: Sequence[_WrittenKeys], instant: str, their_stats: Iterable[WriteStat]
) -> tuple[set[FileGroupId], set[str]]:
    groups: set[FileGroupId] = set()
    found: set[str] = set()
    for stat in their_stats:
        beside = [keys for keys in own if keys.stat.partition_path == stat.partition_path]
        # Of a group that both wrote the rules know by its id.
        beside = [keys for keys in beside if keys.stat.file_id != stat.file_id]
        if not stat.num_inserts or not beside:
            continue
        theirs = _WrittenKeys(storage, stat, instant)
        for keys in beside:
            if keys.may_share(theirs):
                both = keys.keys.filter(pc.is_in(keys.keys, value_set=theirs.keys))
                if len(both):
                    groups.add(FileGroupId(stat.partition_path, keys.stat.file_id))
                    found.update(both.slice(0, _SHOWN).to_pylist())
    return groups, found


class _WrittenKeys:
    """The record keys that one instant wrote into one file; read when they are needed."""

    def __init__(self, storage: Storage, stat: WriteStat, instant: str) -> None:
        self.stat = stat
        self._storage = storage
        self._instant = instant
        # No cached_property: before Python 3.12 it holds one lock for all instances while it reads.
        self._keys: pa.Array | None = None
        self._read_footer: BaseFileFooter | None = None

    def may_share(self, other: _WrittenKeys) -> bool:
        """Whether key ranges and the other file's bloom filter leave it open."""
        mine, theirs = self._footer, other._footer
        ends = (mine.min_key, mine.max_key, theirs.min_key, theirs.max_key)
        if None not in ends:
            first, last, their_first, their_last = map(str, ends)
            if last < their_first or their_last < first:
                return False
        return theirs.bloom is None or bool(theirs.bloom.might_contain(self.keys).any())

    @property
    def keys(self) -> pa.Array:
        """The keys; from the file when asked first."""
        if self._keys is None:
            self._keys = self._written()
        return self._keys

    def _written(self) -> pa.Array:
        rows = read_base_file(self._storage, self.stat.path, [_COMMIT_TIME, _RECORD_KEY])
        written = pc.equal(rows[_COMMIT_TIME].cast(pa.string()), self._instant)
        return rows[_RECORD_KEY].filter(written).combine_chunks()

    @property
    def _footer(self) -> BaseFileFooter:
        if self._read_footer is None:
            self._read_footer = read_footer(self._storage, self.stat.path)
        return self._read_footer

"""The commits that a reader with a list of valid write ids sees.

A commit of a metastore transaction carries the table's write id in its commit metadata; the reader sees the
commit exactly when that id is valid. A commit without a write id belongs to no transaction (the writer named
the table by its path, or is another Hudi writer): every reader sees it once it has completed.

A snapshot without a commit shows the file slices from before it. This is exact unless a visible commit was
merged on an invisible one: the files of the visible commit then hold rows of the invisible one, and lack the
rows that it replaced. Writers avoid the file groups of an open transaction
(``concurrency/conflicts/open_transactions.py``). So this happens only for a moment between a commit and the
end of its own transaction, or after another Hudi writer; the reader then gets SnapshotUnavailableError. A
rewrite (clustering, compaction) has no rows of its own: it is invisible together with the commit that it has
rewritten.

The commit of an aborted transaction is undone. But an administrator may abort the transaction of a commit on
which another commit has been merged already. Then the first commit cannot be undone. It stays, and a reader
that sees the other commit sees it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.table.file_groups.view import BaseFile, FileSystemView
from airflow_provider.table.file_names import FileGroupId, parse_base_file_name
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    REWRITES,
    CommitMetadata,
    Instant,
    Timeline,
    WriteStat,
    archived_write_ids,
    metadata_of,
)

OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"})
"""Operation types that keep no row of the file groups that they replace."""

COMPACTIONS = frozenset({"COMPACT", "LOG_COMPACT"})
"""Operation types that merge the files of a file slice, and change no record."""


class ValidWriteIds(Protocol):
    """A reader's view of a table's write ids, such as a ``ValidWriteIdList``."""

    def is_valid(self, write_id: int) -> bool:
        """Whether the reader sees the writes with this id."""

    def is_aborted(self, write_id: int) -> bool:
        """Whether the id is known to belong to an aborted transaction."""


MERGES_IN_ANY_ORDER = "merges_in_any_order"
"""Key in a commit's extra metadata: ``true`` when its log files need no other file of their file groups."""


@dataclass(frozen=True)
class Effect:
    """The effects of a commit on which later commits may depend.

    :param instant: the commit.
    :param operation: Hudi's operation type.
    :param txn_id: its metastore transaction; None when it belongs to none.
    :param write_id: the table's write id in that transaction.
    :param written: file groups that got a new slice.
    :param merged_on: file groups whose rows were merged into its files.
    :param replaced: file groups that it replaced.
    :param inserted_in: partition paths in which it wrote new records.
    :param taken_out_of: partition paths in which it deleted records or replaced file groups.
    :param appended: file groups that got log files alone.
    """

    instant: Instant
    operation: str
    txn_id: int | None
    write_id: int | None
    written: frozenset[FileGroupId]
    merged_on: frozenset[FileGroupId]
    replaced: frozenset[FileGroupId]
    inserted_in: frozenset[str]
    taken_out_of: frozenset[str]
    appended: frozenset[FileGroupId] = frozenset()

    @classmethod
    def of(cls, instant: Instant, described: CommitMetadata) -> Effect:
        """Read a commit's metadata."""
        operation, stats = described.operation_type.upper(), described.write_stats
        replaced = described.replaced_groups
        logged = {s.file_group for s in stats if s.log_files is not None}
        appended = frozenset(logged - {s.file_group for s in stats if s.log_files is None})
        merged_on = frozenset(group for stat in stats for group in _merged_on(stat))
        written = frozenset(stat.file_group for stat in stats)
        if described.extra_metadata.get(MERGES_IN_ANY_ORDER) == "true":
            merged_on -= appended
        if operation in COMPACTIONS:
            merged_on |= written  # also a file group that had log files alone
        taken_out_of: set[str] = set()
        if operation not in REWRITES:
            taken_out_of = {group.partition_path for group in replaced}
            taken_out_of |= {stat.partition_path for stat in stats if stat.num_deletes}
        return cls(
            instant,
            operation,
            _number(described, "txn_id"),
            _number(described, "write_id"),
            written,
            merged_on if operation in OVERWRITES else merged_on | replaced,
            replaced,
            frozenset(stat.partition_path for stat in stats if stat.num_inserts),
            frozenset(taken_out_of),
            appended,
        )

    @property
    def is_rewrite(self) -> bool:
        """Whether the commit only moved rows to other files."""
        return self.operation in REWRITES

    def rests_on(self, earlier: Effect) -> bool:
        """Whether this commit depends on an earlier one, and would have written other files without it.

        :param earlier: a commit that completed before this one.
        """
        if self.merged_on & earlier.written:
            return True
        if self.instant.requested_time < (earlier.instant.completion_time or ""):
            return False
        return self.wrote_where_was_taken_out(earlier)

    def wrote_where_was_taken_out(self, earlier: Effect) -> bool:
        """Whether this commit may have inserted a key that an earlier commit had deleted.

        The writer did not know that the key had existed, so its metadata does not name the old file group.

        :param earlier: a commit in the base of this one.
        """
        if self.is_rewrite:
            return False
        worked_in = self.inserted_in | {group.partition_path for group in self.replaced}
        return touches_partitions(earlier.taken_out_of, worked_in, self.operation)


def touches_partitions(taken_out_of: frozenset[str], partitions: Iterable[str], operation: str) -> bool:
    """Whether a write works in a partition from which another write has deleted rows.

    :param taken_out_of: the partitions from which the other write has deleted rows.
    :param partitions: the write's partitions.
    :param operation: the write's operation type; INSERT_OVERWRITE_TABLE works in all partitions.
    """
    if operation.upper() == "INSERT_OVERWRITE_TABLE":
        return bool(taken_out_of)
    return not taken_out_of.isdisjoint(partitions)


def effect_of(storage: Storage, timeline: Timeline, commit: Instant) -> Effect:
    """The effect of a completed commit; its metadata is read once, because it never changes.

    :raises NoSuchInstantError: when it was undone since the timeline was loaded.
    """
    known = _effects.setdefault(storage, {})
    if commit.file_name not in known:
        known[commit.file_name] = Effect.of(commit, metadata_of(storage, timeline, commit))
    return known[commit.file_name]


def invisible_commits(storage: Storage, timeline: Timeline, valid_write_ids: ValidWriteIds) -> list[Effect]:
    """The commits on a timeline that are invisible to a reader, in the order of their completion.

    :param storage: the table's storage.
    :param timeline: the active timeline; archived commits are visible.
    :param valid_write_ids: the write ids that the reader sees.
    :raises SnapshotUnavailableError: when a visible commit depends on an invisible one, or an invisible
        commit was archived.
    """
    for write_id in archived_write_ids(storage):
        # The commit of an aborted transaction was undone before it could be archived.
        if not valid_write_ids.is_valid(write_id) and not valid_write_ids.is_aborted(write_id):
            raise SnapshotUnavailableError(
                f"table {storage.root}: the commit of write id {write_id}, which this snapshot does not see, "
                "was archived since, and can no longer be left out; read with a new snapshot",
                write_id=write_id,
            )
    hidden: list[Effect] = []
    effects = [effect_of(storage, timeline, commit) for commit in timeline.commits()]
    for effect in hidden_effects(effects, valid_write_ids):
        # A commit that is hidden only because it depends on another one has a valid write id, or none.
        is_own = effect.write_id is not None and not valid_write_ids.is_valid(effect.write_id)
        if not is_own and not effect.is_rewrite:
            below = next(each for each in hidden if effect.rests_on(each))
            commit = effect.instant.requested_time
            raise SnapshotUnavailableError(
                f"table {storage.root}: commit {commit} is visible, but was merged on commit "
                f"{below.instant.requested_time} of transaction {below.txn_id}, which is not visible; read "
                f"with a new snapshot once transaction {below.txn_id} has ended",
                instant=commit,
                resting_on=below.instant.requested_time,
            )
        hidden.append(effect)
    return hidden


def hidden_effects(effects: Sequence[Effect], valid_write_ids: ValidWriteIds) -> list[Effect]:
    """The commits that a reader does not see, and those that depend on them.

    A commit of an aborted transaction is visible when a visible commit depends on it, because it cannot be
    undone any more.

    :param effects: all commits, in the order of their completion.
    :param valid_write_ids: the write ids that the reader sees.
    :return: in the same order.
    """
    standing: set[str] = set()
    while True:
        hidden: list[Effect] = []
        for effect in effects:
            is_seen = effect.write_id is None or valid_write_ids.is_valid(effect.write_id)
            below = [number for number, each in enumerate(hidden) if effect.rests_on(each)]
            if effect.instant.requested_time in standing or (is_seen and not below):
                continue
            if is_seen and not effect.is_rewrite and (found := _aborted(hidden, below, valid_write_ids)):
                standing |= found
                break
            hidden.append(effect)
        else:
            return hidden


def _aborted(hidden: Sequence[Effect], among: Iterable[int], valid: ValidWriteIds) -> set[str]:
    """The commits of aborted transactions among hidden ones, including those that hidden rewrites rewrote."""
    found: set[str] = set()
    for number in among:
        each = hidden[number]
        if each.write_id is not None:
            if valid.is_aborted(each.write_id):
                found.add(each.instant.requested_time)
            continue
        under = [earlier for earlier in range(number) if each.rests_on(hidden[earlier])]
        if aborted := _aborted(hidden, under, valid):
            found |= aborted | {each.instant.requested_time}
    return found


def check_not_cleaned(
    storage: Storage, view: FileSystemView, shown: Iterable[BaseFile], hidden: Sequence[Effect]
) -> None:
    """Make sure that the file slices that invisible commits have replaced still exist.

    A listing does not show that a file is missing.

    :param storage: the table's storage.
    :param view: a view of the timeline without these commits.
    :param shown: all base files and log files of the view.
    :param hidden: the invisible commits, in the order of their completion.
    :raises SnapshotUnavailableError: when a cleaner has deleted some of these slices.
    """
    there = {each.file_group for each in shown} | set(view.replaced) if hidden else set()
    for effect in hidden:
        if gone := sorted((effect.merged_on | effect.replaced) - there):
            name = f"{gone[0].partition_path}/{gone[0].file_id}".lstrip("/")
            raise SnapshotUnavailableError(
                f"table {storage.root}: file group {name} as it was before commit "
                f"{effect.instant.requested_time} was cleaned; read with a new snapshot",
                instant=effect.instant.requested_time,
            )
        there |= effect.written


def _merged_on(stat: WriteStat) -> Iterable[FileGroupId]:
    if parsed := parse_base_file_name(stat.prev_base_file or ""):
        yield FileGroupId(stat.partition_path, parsed[0])
    if stat.prev_commit != "null":
        yield stat.file_group


def _number(described: CommitMetadata, name: str) -> int | None:
    text = described.extra_metadata.get(name)
    return None if text is None else int(text)


_effects: WeakKeyDictionary[Storage, dict[str, Effect]] = WeakKeyDictionary()

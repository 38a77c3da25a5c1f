"""The commit log: the totally ordered record of what was committed, planned, kept, and is dead.

``.hoodie/commit_log/<20-digit sequence>.json``: each entry is created once, by
put-if-absent, and never changed. The entry *is* the commit point (design section 4).
Everything else on storage, the completed instant included, is derived from it and can be
derived again by anybody.

Archival trims the log from its beginning. ``.hoodie/commit_log/trimmed/<20-digit sequence>`` says up to
where, from before the first of these entries is deleted. A writer that stood still meanwhile, so that
where it puts its entry there is none any more, finds that out by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import CorruptTableError, InstantRolledBackError
from airflow_provider.table.archived_timeline import find_archived, newest_archived
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.instant import Action
from airflow_provider.table.storage import Storage

COMMIT_LOG_FOLDER = ".hoodie/commit_log"
TRIMMED_FOLDER = f"{COMMIT_LOG_FOLDER}/trimmed"


class IndexState(NamedTuple):
    """An index as of an entry of the log: whoever commits after that entry has to log to it.

    :param partition: the metadata partition, for example ``column_stats``.
    :param instant: requested time of the indexing plan that made it; ``""`` of another Hudi writer's.
    :param file_groups: how many file groups the partition has; that never changes.
    :param is_complete: whether it may be read; else it is being built.
    """

    partition: str
    instant: str
    file_groups: int
    is_complete: bool


@dataclass(frozen=True)
class LogEntry:
    """One entry: a commit, a rollback that makes an instant dead, a table service's plan, a savepoint, a
    restore, or an archival.

    :param instant: requested time of the instant that this entry completes, or schedules; of a savepoint:
        that of the commit that it keeps; empty of an archival, which is no instant.
    :param action: its action on the timeline.
    :param completion_time: larger than every earlier entry's.
    :param operation: Hudi's operation type, for example ``UPSERT``.
    :param priority: of the writer.
    :param written: file groups that got a new slice; of a plan: those that it will rewrite.
    :param replaced: file groups that were taken out.
    :param inserted_in: partition paths in which records were written that had not been there, or of a
        revert: in which records have come back.
    :param metadata_path: the staged commit metadata or plan, relative to the table.
    :param pending_action: the action under which the instant was pending, where that is another
        one: a commit that had to take file groups out becomes a replacecommit.
    :param plans: whether the instant is scheduled by this entry, and not completed.
    :param on_metadata_table: of a plan: whether its instant lies on the metadata table's timeline, to be
        carried out there by anybody without another entry. The partition paths of its file groups are
        relative to the table all the same, so that they are never taken for the table's own.
    :param rolls_back: of a rollback: requested time of the instant that is dead.
    :param rolled_back_action: of a rollback: that instant's action.
    :param reverts: of a rollback: sequence of the entry that had completed the instant; None
        when it was pending. A revert's file groups are those of that entry.
    :param undoes: of a restore: requested times of the commits that are undone by it, all at once.
    :param operation_key: the caller's key for finding this commit again.
    :param owner: who wrote it.
    :param reason: of a rollback: why, for people.
    :param indexes: the table's indexes as of this entry, which has carried on what the one before it
        said; None when its writer knew nothing of indexes.
    :param archived: of an archival: requested time up to which instants leave the timeline. Every later
        entry carries it on.
    """

    instant: str
    action: Action
    completion_time: str
    operation: str
    priority: int
    written: frozenset[FileGroupId] = frozenset()
    replaced: frozenset[FileGroupId] = frozenset()
    inserted_in: frozenset[str] = frozenset()
    metadata_path: str | None = None
    pending_action: Action | None = None
    plans: bool = False
    on_metadata_table: bool = False
    rolls_back: str | None = None
    rolled_back_action: Action | None = None
    reverts: int | None = None
    undoes: frozenset[str] = frozenset()
    operation_key: str | None = None
    owner: str = ""
    reason: str = ""
    indexes: tuple[IndexState, ...] | None = None
    archived: str = ""
    sequence: int = field(default=0, compare=False)

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """File groups whose content this entry changed."""
        return frozenset() if self.plans else self.written | self.replaced

    @property
    def leaves_pending(self) -> bool:
        """Whether its instant stays pending on the table's timeline, for somebody who carries it out."""
        return self.plans and not self.on_metadata_table

    @property
    def commits(self) -> bool:
        """Whether this entry completes a write, and neither schedules nor undoes one."""
        return not self.plans and self.rolls_back is None and self.action not in _OF_NO_WRITE

    @property
    def shown_or_hidden(self) -> frozenset[str]:
        """Requested times of the instants that this entry brings to the timeline, or takes from it."""
        if self.action in _OF_NO_WRITE or self.on_metadata_table:
            return frozenset()
        return self.undoes or frozenset({self.instant if self.reverts is None else self.rolls_back or ""})

    def to_json(self) -> bytes:
        """The entry's file content."""
        content = {
            each.name: sorted(value) if isinstance(value, frozenset) else value
            for each in fields(self)
            if each.name != "sequence" and (value := getattr(self, each.name)) != each.default
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    @lru_cache(maxsize=64)  # the newest are asked for again and again
    def from_json(cls, sequence: int, data: bytes) -> LogEntry:
        """Read a file's content; fields of later versions are ignored."""
        content = json.loads(data)
        for name in ("written", "replaced"):
            content[name] = frozenset(FileGroupId(*group) for group in content.get(name, ()))
        for name in ("inserted_in", "undoes"):
            content[name] = frozenset(content.get(name, ()))
        for name in ("action", "pending_action", "rolled_back_action"):
            if content.get(name) is not None:
                content[name] = Action(content[name])
        if content.get("indexes") is not None:
            content["indexes"] = tuple(IndexState(*each) for each in content["indexes"])
        known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        return cls(**{**known, "sequence": sequence})


_OF_NO_WRITE = frozenset({Action.SAVEPOINT, Action.ARCHIVE})


def without_reverted(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Entries without those that a later one of them undoes, and without their reverts.

    What was done and undone after a writer's base left every file group as the writer knows it. A restore
    stays: it may have undone earlier ones as well.

    :param entries: in log order.
    """
    entries = list(entries)
    known = {entry.sequence for entry in entries}
    undone = {entry.reverts for entry in entries} & known
    restored = frozenset[str]().union(*(entry.undoes for entry in entries))
    undone |= {entry.sequence for entry in entries if entry.commits and entry.instant in restored}
    return [entry for entry in entries if entry.sequence not in undone and entry.reverts not in undone]


class CommitLog:
    """A table's commit log.

    :param storage: the table's storage.
    """

    # The newest entries that were read: they never change, and every write asks several times for those that
    # came since. From the last one the log's end is found by a step or two and no listing.
    _known: WeakKeyDictionary[Storage, dict[int, LogEntry]] = WeakKeyDictionary()

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._entries = self._known.setdefault(storage, {})

    def head(self) -> int:
        """Sequence of the newest entry; 0 when there is none."""
        return newest.sequence if (newest := self.newest()) else 0

    def newest(self) -> LogEntry | None:
        """The newest entry; None for an empty log."""
        last = max(self._entries, default=0)
        newest = self._load(last)
        if newest != self._entries.get(last):  # trimmed, or the table was made anew
            self._entries.clear()
        # What is in the trimmed part is of somebody who was killed there after standing still (see append).
        while newest is None or newest.sequence <= self.trimmed():  # or trimmed since, perhaps right now
            listed = max(self._listed(), default=0)
            if not listed:
                return None
            newest = self.read(listed)
        for entry in self.after(newest.sequence):
            newest = entry
        return newest

    def read(self, sequence: int) -> LogEntry | None:
        """An entry, or None when it was not written yet, or was trimmed before it was read here.

        :raises CorruptTableError: when the file is not an entry.
        """
        if (known := self._entries.get(sequence)) is not None:
            return known
        entry = self._load(sequence)
        if entry is not None:
            self._entries[sequence] = entry
            if len(self._entries) > _KEPT:
                self._entries.pop(min(self._entries), None)
        return entry

    def _load(self, sequence: int) -> LogEntry | None:
        if sequence < 1:
            return None
        path = _path(sequence)
        try:
            data = self._storage.read(path)
        except FileNotFoundError:
            return None
        try:
            return LogEntry.from_json(sequence, data)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTableError(
                f"table {self._storage.root}: {path} is not a commit log entry: {error}", path=path
            ) from error

    def after(self, sequence: int) -> Iterator[LogEntry]:
        """Entries with a larger sequence, in order, up to the head at the moment of asking."""
        while (entry := self.read(sequence + 1)) is not None:
            yield entry
            sequence += 1

    def backwards(self) -> Iterator[LogEntry]:
        """Entries from the newest to the oldest that is kept."""
        sequence, trimmed = self.head(), self.trimmed()
        while sequence > trimmed and (entry := self.read(sequence)) is not None:
            yield entry
            sequence -= 1

    def about(self, instant: str) -> Iterator[LogEntry]:
        """Entries that schedule, complete, keep, roll back or undo an instant, from the newest on.

        :param instant: its requested time, before which nothing is said about it.
        """
        for entry in self.backwards():
            if instant in (entry.instant, entry.rolls_back) or instant in entry.undoes:
                yield entry
            if entry.completion_time < instant:
                return

    def append(self, sequence: int, entry: LogEntry) -> bool:
        """Put an entry at a sequence, if nobody has; what was archived is carried on.

        :return: True when this call put it: the commit is done.
        :raises OSError: when it is not known whether it was put, nor found there now.
        :raises InstantRolledBackError: when others were there and have been trimmed since: who puts
            entries stood still for so long.
        """
        if (last := self.read(sequence - 1)) is not None:
            entry = replace(entry, archived=max(entry.archived, last.archived))
        try:
            put = self._storage.put_if_absent(_path(sequence), entry.to_json())
        except OSError:
            # The answer was lost, not necessarily the put: the log says which.
            if self.read(sequence) != entry:
                raise
            put = True
        # Whoever was slow only after the put has been published, archived and then trimmed by others.
        if put and sequence <= self.trimmed() and not self._is_archived(entry):
            self._storage.delete(_path(sequence))
            raise InstantRolledBackError(
                f"table {self._storage.root}: {entry.operation} {entry.instant} stood still while the commit "
                f"log went on past its place {sequence} and was trimmed; run it again",
                instant=entry.instant,
            )
        return put

    def _is_archived(self, entry: LogEntry) -> bool:
        found = find_archived(self._storage, entry.instant)
        if found is None or not entry.commits:
            return found is not None
        # What several carry out, such as a clean, may have been completed by another one's entry.
        return found.instant.completion_time == entry.completion_time

    def archived(self, newest: LogEntry | None) -> str:
        """Requested time up to which instants have left the timeline, or leave it; empty where none has.

        The next entry must neither undo nor keep one of them. They may still be on the timeline: an archiver
        is at it, or died, and the next one goes on there.

        :param newest: the newest entry that the next one is to follow.
        """
        # An archiver of an earlier version has put no entry.
        return max(newest.archived if newest else "", newest_archived(self._storage))

    def trimmed(self) -> int:
        """Sequence of the last entry that was trimmed; 0 when none was."""
        return max((int(name) for name in self._storage.names(TRIMMED_FOLDER)), default=0)

    def trim(self, sequence: int) -> None:
        """Delete the log's entries up to one; the newest is never among them.

        :param sequence: of the last entry that nobody needs any more.
        """
        sequence = min(sequence, self.head() - 1)
        if sequence > self.trimmed():
            self._storage.put_if_absent(f"{TRIMMED_FOLDER}/{sequence:020d}", b"")
        trimmed = self.trimmed()
        for each in sorted(each for each in self._listed() if each <= trimmed):
            self._storage.delete(_path(each))
        for name in self._storage.names(TRIMMED_FOLDER):
            if int(name) < trimmed:
                self._storage.delete(f"{TRIMMED_FOLDER}/{name}")

    def _listed(self) -> list[int]:
        names = self._storage.names(COMMIT_LOG_FOLDER)
        return [int(name[:-5]) for name in names if name.endswith(".json")]


_KEPT = 256


def _path(sequence: int) -> str:
    return f"{COMMIT_LOG_FOLDER}/{sequence:020d}.json"

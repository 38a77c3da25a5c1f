"""What has completed since a writer's base: by the commit log, and by other Hudi writers.

A commit on the timeline that no entry of the log names was made by a writer that does not know the log,
such as the JVM's Hudi under the same table lock. It counts as an entry at its completion time. If such a
writer undoes a commit, the next entry of the log says so (docs/commit-protocol.md, "Beside another Hudi
writer").
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from airflow_provider.concurrency.commit.publish import (
    completed_instant,
    ensure_published,
    staged_metadata_path,
    staged_plan_path,
)
from airflow_provider.concurrency.conflicts import as_entry, changes_something
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.indexes import TableIndexes, drop_staged, table_indexes
from airflow_provider.concurrency.log import (
    Archival,
    CommitLog,
    Fate,
    IndexState,
    LogEntry,
    Restore,
    Revert,
    Savepoint,
    fate_of,
    request_instant,
    without_reverted,
)
from airflow_provider.exceptions import InstantRolledBackError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.metadata_table import UsableIndexes
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import UNDOING, Action, CommitMetadata, Instant, Timeline, metadata_of


class CompletedEntry:
    """One thing that completed; its commit metadata is read on demand.

    :param storage: the table's storage.
    :param entry: the log's entry, or what stands for it where another Hudi writer committed.
    """

    def __init__(self, storage: Storage, entry: LogEntry) -> None:
        self.entry = entry
        self._storage = storage
        self._metadata: CommitMetadata | None = None

    @property
    def metadata(self) -> CommitMetadata:
        """The commit metadata; it is published by now."""
        if self._metadata is None:
            timeline = Timeline(self._storage, ())
            self._metadata = metadata_of(self._storage, timeline, completed_instant(self.entry))
        return self._metadata


class Moment:
    """What is true of a table at one moment: an entry of the log, and the timeline of that moment.

    A write is based on one, and an entry is decided on one. What costs a look is loaded on demand: a write
    that never looks at what there is, such as one that only adds files, need not list the timeline.

    :param storage: the table's storage.
    :param newest: the newest entry of the log at that moment; published.
    :param before: instants that completed at or after this time are not part of the moment.
    :param timeline: loaded after the newest entry was published; it may show later entries too.
    :ivar newest: the newest entry.
    :ivar is_newest_lost: whether another Hudi writer has undone that one, or come first: it is not shown.
    """

    def __init__(
        self,
        storage: Storage,
        newest: LogEntry | None,
        *,
        before: str | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self._storage = storage
        self._log = CommitLog(storage)
        self._before = before
        self._timeline = timeline
        self._seen: Timeline | None = None
        self._indexes: TableIndexes | None = None
        self._requested: list[str] = []
        self.newest = newest
        self.is_newest_lost = False

    @classmethod
    def now(cls, storage: Storage) -> Moment:
        """This moment; finishes the newest entry if its writer did not."""
        return cls(storage, CommitLog(storage).newest()).published()

    @classmethod
    def at(cls, storage: Storage, entry: LogEntry) -> Moment:
        """The moment at which an entry was put."""
        return cls(storage, entry, timeline=Timeline.load(storage).until(entry.completion_time))

    def following(self) -> Moment:
        """This moment, as :meth:`now`, where it is known that the log was not trimmed past the one before."""
        newest = self.newest
        for entry in self._log.after(self.sequence):
            newest = entry
        if newest is not self.newest:
            return Moment(self._storage, newest).published()
        same = Moment(self._storage, newest)
        same.is_newest_lost = self.is_newest_lost
        return same

    def published(self) -> Moment:
        """This moment; finishes its newest entry if its writer did not."""
        if self.newest is not None:
            self.is_newest_lost = not ensure_published(self._storage, self.newest)
        return self

    def look(self) -> Timeline:
        """The active timeline, for who only looks, and builds nothing on it."""
        if self._seen is None:
            self._seen = Timeline.load(self._storage)
        return self._seen

    @property
    def last_look(self) -> Timeline:
        """The timeline of the last look at it, at this moment or a little later; see :meth:`look`."""
        return self._timeline or self._seen or self.timeline

    @property
    def known_timeline(self) -> Timeline | None:
        """The timeline of the moment, if it has been loaded."""
        return self._timeline

    @property
    def timeline(self) -> Timeline:
        """The timeline of the moment."""
        if self._timeline is None:
            self._timeline = self._seen or Timeline.load(self._storage)
            if self._before is not None and self._timeline.newest_completion >= self._before:
                before = self._before
                self._timeline = self._timeline.showing(lambda i: (i.completion_time or "") < before)
        return self._timeline

    @property
    def newest_completion(self) -> str:
        """The largest completion time that is known; whatever comes after this moment has to exceed it.

        Only a lock that other Hudi writers hold as well makes it worth a listing to look for theirs: under
        another one they may complete something right after the look. A holder of such a lock loads the
        timeline.
        """
        known = self.newest.completion_time if self.newest else ""
        return known if self._timeline is None else max(known, self._timeline.newest_completion)

    @property
    def completed_until(self) -> str:
        """Completion time of the newest entry. Only another Hudi writer has completed anything later."""
        return self.newest.completion_time if self.newest else ""

    @property
    def sequence(self) -> int:
        """Sequence of the newest entry; 0 for an empty log."""
        return self.newest.sequence if self.newest else 0

    @property
    def indexes(self) -> tuple[IndexState, ...]:
        """The indexes that there are: the next commit has to log to them.

        :raises UnsupportedTableError: when there is one that is not kept here.
        """
        return self.table_indexes.for_writing(self._storage.root)

    @property
    def table_indexes(self) -> TableIndexes:
        """The indexes that there are, also those that are not kept here."""
        if self._indexes is None:
            self._indexes = table_indexes(self._storage, self._log, self.newest)
        return self._indexes

    @property
    def archived(self) -> str:
        """Requested time up to which instants have left the timeline, or leave it; empty where none has.

        The next entry neither undoes nor keeps one of them. They may still be on the timeline: an archiver
        is at it, or died, and the next one goes on there.
        """
        return self._log.archived(self.newest)

    def fate_of(self, instant: str) -> Fate | None:
        """What became of an instant; see :func:`~airflow_provider.concurrency.log.fate_of`."""
        return fate_of(self._storage, self._log, instant)

    def view(self) -> FileSystemView:
        """The snapshot at this moment."""
        undone: list[LogEntry] = []

        def load() -> Timeline:
            timeline = self.timeline  # before the look at the log, which knows all that it shows
            later = list(self._log.after(self.sequence))
            # Of what was undone since not even the file can be read; the commit will meet it.
            undone[:] = [
                entry
                for entry in later
                if isinstance(entry, Restore)
                or (isinstance(entry, Revert) and entry.reverts <= self.sequence)
            ]
            hidden = {instant for entry in later for instant in entry.shown_or_hidden}
            if not hidden:
                return timeline
            return timeline.showing(lambda i: i.requested_time not in hidden)

        def indexes(timeline: Callable[[], Timeline]) -> UsableIndexes | None:
            there = self.table_indexes.kept
            # Another Hudi writer may have completed its own since.
            known = {each.partition for each in there if each.is_complete or not each.instant}
            if not known:
                return None
            return UsableIndexes(self._storage, timeline(), is_moment=not undone, known=known)

        return FileSystemView(self._storage, load, indexes)

    def later_entries(self) -> list[LogEntry]:
        """The entries that this package has put since, without those that were undone."""
        return without_reverted(self._log.after(self.sequence))

    def changes_since(self, base: Moment) -> list[CompletedEntry]:
        """The entries that completed between an earlier moment and this one, without the undone ones.

        :param base: the earlier moment.
        :return: in the order of completion.
        :raises InstantRolledBackError: when the caller was paused while the log was trimmed past the earlier
            moment, so that the log does not tell.
        """
        later = self._log.after(base.sequence) if base.sequence < self.sequence else ()
        entries = list(itertools.takewhile(self._is_known, later))
        if base.sequence + len(entries) < self.sequence:
            raise InstantRolledBackError(
                f"table {self._storage.root}: what is based on entry {base.sequence} of the commit log stood "
                "still while the log went on and was trimmed past it; run it again"
            )
        foreign: list[LogEntry] = []
        if base._timeline is not None:
            foreign = self._foreign(self.timeline.new_since(base._timeline), entries, base)
        entries = [entry for entry in entries if not base.shows_undone(entry)]
        ours = (entry for entry in without_reverted(entries) if not isinstance(entry, Archival))
        found = sorted([*ours, *foreign], key=lambda entry: entry.completion_time)
        return [CompletedEntry(self._storage, entry) for entry in found]

    def shows_undone(self, later: LogEntry) -> bool:
        """Whether a later entry only records that another Hudi writer had undone a commit before this moment.

        :param later: an entry that was put after this moment.
        """
        if not isinstance(later, Revert):
            return False
        if self.is_newest_lost and later.reverts == self.sequence:
            return True
        undoing = self._timeline.find(later.instant) if later.by_another and self._timeline else None
        return undoing is not None and undoing.action in UNDOING

    def _is_known(self, entry: LogEntry) -> bool:
        return entry.sequence <= self.sequence

    def _foreign(
        self, appeared: Iterable[Instant], entries: Iterable[LogEntry], base: Moment
    ) -> list[LogEntry]:
        known = _instants(entries)
        unknown = [i for i in appeared if i.requested_time not in known and changes_something(i)]
        if not unknown:
            return []
        # What was published after the look at the log just now is the log's.
        known |= _instants(self._log.after(base.sequence))
        return [as_entry(self._storage, i) for i in unknown if i.requested_time not in known]

    # --- requested times for an entry that is decided on this moment --------------------------------

    def request_instant(
        self,
        action: Action,
        operation: str,
        *,
        priority: int = 0,
        later_than: str = "",
        operation_key: str | None = None,
    ) -> str:
        """Take a requested time for the entry that follows this moment.

        :param action: the action of the entry's instant.
        :param operation: Hudi's operation type.
        :param priority: the priority of the entry's writer.
        :param later_than: a time that it must exceed, besides all that has completed.
        :param operation_key: stored in the heartbeat, so that a later try finds what this one has left.
        """
        info = HeartbeatInfo(
            describe_owner(),
            action,
            operation,
            priority,
            10.0,
            6,
            base=self.sequence,
            operation_key=operation_key,
        )
        bound = max(later_than, self.newest_completion)
        while True:
            instant, _ = request_instant(self._storage, self._log, self.newest, info, later_than=bound)
            # Another Hudi writer knows no such claims, and may have taken the same millisecond for anything.
            if Timeline.load(self._storage).find(instant) is None:
                break
            self._storage.delete(heartbeat_path(instant))
            bound = instant
        self._requested.append(instant)
        return instant

    def keep_requested(self, entry: LogEntry) -> None:
        """The entry is put and published: the claim on the requested time that it took here may go."""
        if entry.instant in self._requested:
            self._storage.delete(heartbeat_path(entry.instant))

    def give_up_requested(self) -> None:
        """No entry has come of the requested times taken here: they go, with all that was staged."""
        for instant in self._requested:
            for path in (staged_metadata_path(instant), staged_plan_path(instant)):
                self._storage.delete(path)
            drop_staged(self._storage, instant)
            self._storage.delete(heartbeat_path(instant))
        self._requested.clear()


def _instants(entries: Iterable[LogEntry]) -> set[str]:
    return {entry.instant for entry in entries if not _has_anothers_instant(entry)}


def _has_anothers_instant(entry: LogEntry) -> bool:
    # A savepoint has that of a commit. A restore of another Hudi writer has perhaps undone more than the log
    # knows.
    return isinstance(entry, Savepoint) or (isinstance(entry, Revert) and entry.by_another)

"""The changes since a writer's base: entries of the commit log, and commits of other Hudi writers.

A commit on the timeline that no entry of the log names was made by a writer that does not know the log,
such as the JVM's Hudi under the same table lock. It counts as an entry at its completion time. If such a
writer undoes a commit, the next entry of the log says so (docs/commit-protocol.md, "Beside another Hudi
writer").
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from airflow_provider.concurrency.commit.publish import completed_instant, ensure_published
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.conflicts import as_entry, changes_something, has_other_writers
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
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.metadata_table import UsableIndexes
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import UNDOING, Action, CommitMetadata, Instant, Timeline, metadata_of


class CompletedEntry:
    """A change that completed; its commit metadata is read on demand.

    :param storage: the table's storage.
    :param entry: the log's entry, or the entry that stands for a commit of another Hudi writer.
    """

    def __init__(self, storage: Storage, entry: LogEntry) -> None:
        self.entry = entry
        self._storage = storage
        self._metadata: CommitMetadata | None = None

    @property
    def metadata(self) -> CommitMetadata:
        """The commit metadata; the entry is published by now."""
        if self._metadata is None:
            timeline = Timeline(self._storage, ())
            self._metadata = metadata_of(self._storage, timeline, completed_instant(self.entry))
        return self._metadata


class Moment:
    """The state of a table at one moment: the newest entry of the log, and the timeline of that moment.

    A write is based on a moment, and an entry is decided on a moment. The timeline and the indexes are loaded
    on demand: a write that needs neither, such as one that only adds files, does not list the timeline.

    :param storage: the table's storage.
    :param newest: the newest entry of the log at that moment; published.
    :param before: instants that completed at or after this time are not part of the moment.
    :param timeline: loaded after the newest entry was published; it may show later entries too.
    :ivar newest: the newest entry.
    :ivar is_newest_lost: whether the newest entry is not shown, because another Hudi writer has undone it or
        was faster.
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
        """The present moment; publishes the newest entry if its writer did not."""
        return cls(storage, CommitLog(storage).newest()).published()

    @classmethod
    def at(cls, storage: Storage, entry: LogEntry) -> Moment:
        """The moment at which an entry was put."""
        return cls(storage, entry, timeline=Timeline.load(storage).until(entry.completion_time))

    def following(self) -> Moment:
        """The present moment, as :meth:`now`; for a caller that knows that the log was not trimmed past this
        one."""
        newest = self.newest
        for entry in self._log.after(self.sequence):
            newest = entry
        if newest is not self.newest:
            return Moment(self._storage, newest).published()
        same = Moment(self._storage, newest)
        same.is_newest_lost = self.is_newest_lost
        return same

    def published(self) -> Moment:
        """This moment; publishes its newest entry if its writer did not."""
        if self.newest is not None:
            self.is_newest_lost = not ensure_published(self._storage, self.newest)
        return self

    def look(self) -> Timeline:
        """The active timeline, for a caller that only reads it and decides no entry on it."""
        if self._seen is None:
            self._seen = Timeline.load(self._storage)
        return self._seen

    @property
    def last_look(self) -> Timeline:
        """The timeline as last loaded, at this moment or a little later; see :meth:`look`."""
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
        """The largest completion time that is known; every later entry has to exceed it.

        This property does not list the timeline. A listing would help only under a lock that other Hudi
        writers share, because otherwise they may complete an instant right after it. The holder of such a
        lock loads the timeline first.
        """
        known = self.newest.completion_time if self.newest else ""
        return known if self._timeline is None else max(known, self._timeline.newest_completion)

    @property
    def completed_until(self) -> str:
        """Completion time of the newest entry. Only other Hudi writers have completed instants later."""
        return self.newest.completion_time if self.newest else ""

    @property
    def sequence(self) -> int:
        """Sequence of the newest entry; 0 for an empty log."""
        return self.newest.sequence if self.newest else 0

    @property
    def indexes(self) -> tuple[IndexState, ...]:
        """The table's indexes; the next commit has to log to them.

        :raises UnsupportedTableError: when the table has an index that this package does not maintain.
        """
        return self.table_indexes.for_writing(self._storage.root)

    @property
    def table_indexes(self) -> TableIndexes:
        """The table's indexes, including those that this package does not maintain."""
        if self._indexes is None:
            self._indexes = table_indexes(self._storage, self._log, self.newest)
        return self._indexes

    @property
    def archived(self) -> str:
        """Requested time up to which instants are archived, or being archived; empty when none is.

        The next entry must neither undo nor keep one of them. They may still be on the timeline, if their
        archiver still works or has died; the next archiver finishes its work.
        """
        return self._log.archived(self.newest)

    def fate_of(self, instant: str) -> Fate | None:
        """How an instant has ended; see :func:`~airflow_provider.concurrency.log.fate_of`."""
        return fate_of(self._storage, self._log, instant)

    def view(self) -> FileSystemView:
        """The snapshot at this moment."""
        undone: list[LogEntry] = []

        def undone_of(later: Iterable[LogEntry]) -> list[LogEntry]:
            return [
                entry
                for entry in later
                if isinstance(entry, Restore)
                or (isinstance(entry, Revert) and entry.reverts <= self.sequence)
            ]

        def load() -> Timeline:
            timeline = self.timeline  # loaded before the log is read, so that the log knows all it shows
            later = list(self._log.after(self.sequence))
            # The files of instants that were undone since may be gone; the commit will find the conflict.
            undone[:] = undone_of(later)
            hidden = {instant for entry in later for instant in entry.shown_or_hidden}
            if not hidden:
                return timeline
            return timeline.showing(lambda i: i.requested_time not in hidden)

        def indexes(timeline: Callable[[], Timeline]) -> UsableIndexes | None:
            there = self.table_indexes.kept
            # Another Hudi writer may have completed an index of its own since.
            known = {each.partition for each in there if each.is_complete or not each.instant}
            if not known:
                return None
            return UsableIndexes(
                self._storage,
                timeline(),
                is_moment=not undone,
                known=known,
                was_undone=lambda: len(undone_of(self._log.after(self.sequence))) > len(undone),
            )

        return FileSystemView(self._storage, load, indexes)

    def later_entries(self) -> list[LogEntry]:
        """The entries that this package has put since, without those that were undone."""
        return without_reverted(self._log.after(self.sequence))

    def changes_since(self, base: Moment) -> list[CompletedEntry]:
        """The entries that completed between an earlier moment and this one, without the undone ones.

        :param base: the earlier moment.
        :return: in the order of completion.
        :raises InstantRolledBackError: when the caller was paused while the log was trimmed past the earlier
            moment, so that the changes are not known any more.
        """
        later = self._log.after(base.sequence) if base.sequence < self.sequence else ()
        entries = list(itertools.takewhile(self._is_known, later))
        if base.sequence + len(entries) < self.sequence:
            raise InstantRolledBackError(
                f"table {self._storage.root}: a process based on entry {base.sequence} of the commit log was "
                "paused until the log was trimmed past that entry; run it again"
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
        # An instant whose entry came after the caller read the log is not a foreign one: read the log again.
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
        :param later_than: a time that it must exceed, besides all completion times.
        :param operation_key: stored in the heartbeat, so that a later try finds the leftovers of this one.
        """
        info = HeartbeatInfo.of_this_process(
            action, operation, priority, operation_key=operation_key, base=self.sequence
        )
        bound, soonest = max(later_than, self.newest_completion), self.takes_soonest(action)
        if soonest:
            bound = max(bound, Timeline.load(self._storage).newest_completion)
        while True:
            instant, _ = request_instant(
                self._storage, self._log, self.newest, info, later_than=bound, soonest=soonest
            )
            # Other Hudi writers claim no time by a heartbeat, and may have taken this millisecond.
            if Timeline.load(self._storage).find(instant) is None:
                break
            self._storage.delete(heartbeat_path(instant))
            bound = instant
        self._requested.append(instant)
        return instant

    def takes_soonest(self, action: Action) -> bool:
        """Whether an entry's times follow right after the newest completion, instead of the present.

        A rollback needs no lock, and the other engine takes the present millisecond before others can see it.
        Under the lock of both engines no time right after a completion is taken: the lock was held then.

        :param action: the action of the entry's instant.
        """
        return action is Action.ROLLBACK and has_other_writers(self._storage)

    def keep_requested(self, entry: LogEntry) -> None:
        """Release the claim on the requested time of an entry that is put and published."""
        if entry.instant in self._requested:
            self._storage.delete(heartbeat_path(entry.instant))

    def give_up_requested(self) -> None:
        """Release the requested times that no entry has used, and delete the files staged under them."""
        for instant in self._requested:
            for path in (staged_metadata_path(instant), staged_plan_path(instant)):
                self._storage.delete(path)
            drop_staged(self._storage, instant)
            self._storage.delete(heartbeat_path(instant))
        self._requested.clear()


def _instants(entries: Iterable[LogEntry]) -> set[str]:
    return {entry.instant for entry in entries if not _has_anothers_instant(entry)}


def _has_anothers_instant(entry: LogEntry) -> bool:
    # A savepoint has the instant of its commit. A revert may have that of another Hudi writer's restore,
    # which may have undone more than the log knows.
    return isinstance(entry, Savepoint) or (isinstance(entry, Revert) and entry.by_another)

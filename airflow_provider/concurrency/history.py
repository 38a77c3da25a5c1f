"""What has completed since a writer's base: by the commit log, and by other Hudi writers.

A commit on the timeline that is not in the log was made by a writer that knows no log, such as the
JVM Hudi under the same table lock. It is treated as a log entry at its completion time (design
section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry, without_reverted
from airflow_provider.concurrency.conflicts import PRIORITIES, RESTORE
from airflow_provider.concurrency.publish import completed_instant, ensure_published
from airflow_provider.locks import LockProvider
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.instant import WRITE_ACTIONS, Action, Instant, State
from airflow_provider.table.metadata import REWRITES, CommitMetadata, decode, decode_commit_metadata
from airflow_provider.table.metadata_table.usable import UsableIndexes
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline, instant_path


class Change:
    """One thing that completed, with its commit metadata when somebody asks for it.

    :param storage: the table's storage.
    :param entry: the log's entry, or what stands for it where another Hudi writer committed.
    """

    def __init__(self, storage: Storage, entry: LogEntry) -> None:
        self.entry = entry
        self._storage = storage
        self._metadata: CommitMetadata | None = None

    @property
    def metadata(self) -> CommitMetadata:
        """The commit metadata; it is published before anybody asks."""
        if self._metadata is None:
            content = self._storage.read(instant_path(completed_instant(self.entry)))
            self._metadata = decode_commit_metadata(content)
        return self._metadata


class Base:
    """The moment on which a write is based: an entry of the log, and the timeline of that moment.

    The timeline is loaded when somebody asks for it: a write that never looks at what there is, such
    as one that only adds files, depends on nothing and need not list it.

    :param storage: the table's storage.
    :param newest: the newest entry of the log at that moment; published.
    :param before: instants that completed at or after this time are not part of the moment.
    :param timeline: loaded after the newest entry was published; it may show later entries too.
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
        self._before = before
        self._timeline = timeline
        self.newest = newest

    @classmethod
    def now(cls, storage: Storage, log: CommitLog) -> Base:
        """This moment; finishes the newest entry if its writer did not."""
        newest = log.newest()
        if newest is not None:
            ensure_published(storage, newest)
        return cls(storage, newest, timeline=Timeline.load(storage))

    @classmethod
    def at(cls, storage: Storage, entry: LogEntry) -> Base:
        """The moment at which an entry was put."""
        return cls(storage, entry, timeline=Timeline.load(storage).until(entry.completion_time))

    @property
    def timeline(self) -> Timeline:
        """The timeline of the moment."""
        if self._timeline is None:
            self._timeline = Timeline.load(self._storage)
            if self._before is not None and self._timeline.newest_completion >= self._before:
                before = self._before
                self._timeline = self._timeline.showing(lambda i: (i.completion_time or "") < before)
        return self._timeline

    def newest_completion(self, lock: LockProvider) -> str:
        """The largest completion time that a commit after this moment has to exceed.

        Only a lock that other Hudi writers hold as well makes it worth a listing to look for theirs:
        under another one they may complete something right after the look.

        :param lock: the table lock; held.
        """
        if lock.excludes_hudi or self._timeline is not None:
            return self.timeline.newest_completion
        return self.newest.completion_time if self.newest else ""

    @property
    def sequence(self) -> int:
        """Sequence of the newest entry; 0 for an empty log."""
        return self.newest.sequence if self.newest else 0

    def view(self, log: CommitLog) -> FileSystemView:
        """The snapshot at this moment.

        :param log: the table's commit log.
        """
        undone: list[LogEntry] = []

        def load() -> Timeline:
            timeline = self.timeline  # before the look at the log, which knows all that it shows
            later = list(log.after(self.sequence))
            # Of what was undone since not even the file can be read; the commit will meet it.
            undone[:] = [entry for entry in later if entry.reverts is not None or entry.undoes]
            hidden = {instant for entry in later for instant in entry.shown_or_hidden}
            if not hidden:
                return timeline
            return timeline.showing(lambda i: i.requested_time not in hidden)

        def indexes(timeline: Callable[[], Timeline]) -> UsableIndexes | None:
            if self.newest is None or not self.newest.indexes:
                return None
            # Another Hudi writer may have completed its own since.
            known = {each.partition for each in self.newest.indexes if each.is_complete or not each.instant}
            return UsableIndexes(self._storage, timeline(), is_moment=not undone, known=known)

        return FileSystemView(self._storage, load, indexes)

    def entries(self, log: CommitLog) -> list[LogEntry]:
        """What this package has committed since, without what was done and undone.

        :param log: the table's commit log.
        """
        return without_reverted(log.after(self.sequence))

    def changes(self, log: CommitLog) -> tuple[list[Change], Base]:
        """What has completed since, without what was done and undone.

        :param log: the table's commit log.
        :return: the changes in the order of completion, and the moment up to which they go.
        """
        entries = list(log.after(self.sequence))
        newest = entries[-1] if entries else self.newest
        if entries:
            ensure_published(self._storage, entries[-1])
        moment = Base(self._storage, newest)
        foreign: list[LogEntry] = []
        if self._timeline is not None:
            foreign = self._foreign(moment.timeline.new_since(self._timeline), entries, log)
        ours = (entry for entry in without_reverted(entries) if entry.action is not Action.ARCHIVE)
        found = sorted([*ours, *foreign], key=lambda entry: entry.completion_time)
        return [Change(self._storage, entry) for entry in found], moment

    def _foreign(
        self, appeared: Iterable[Instant], entries: Iterable[LogEntry], log: CommitLog
    ) -> list[LogEntry]:
        known = _instants(entries)
        unknown = [i for i in appeared if i.requested_time not in known and _changes_something(i)]
        if not unknown:
            return []
        # What was published after the look at the log just now is the log's.
        known |= _instants(log.after(self.sequence))
        return [_as_entry(self._storage, i) for i in unknown if i.requested_time not in known]


def _instants(entries: Iterable[LogEntry]) -> set[str]:
    # A savepoint's is that of a commit, perhaps of another Hudi writer's.
    return {entry.instant for entry in entries if entry.action is not Action.SAVEPOINT}


def _changes_something(instant: Instant) -> bool:
    if instant.action in (Action.ROLLBACK, Action.RESTORE):
        return instant.state is not State.INFLIGHT  # from its plan on it deletes files
    return instant.state is State.COMPLETED and instant.action in WRITE_ACTIONS


def _as_entry(storage: Storage, instant: Instant) -> LogEntry:
    content = storage.read(instant_path(instant))
    completion_time = instant.completion_time or instant.requested_time
    owner = "another Hudi writer"
    if instant.action is Action.RESTORE:
        return LogEntry(
            instant=instant.requested_time,
            action=instant.action,
            completion_time=completion_time,
            operation=RESTORE,
            priority=PRIORITIES["ingestion"],
            owner=owner,
        )
    if instant.action is Action.ROLLBACK:
        return LogEntry(
            instant=instant.requested_time,
            action=instant.action,
            completion_time=completion_time,
            operation="ROLLBACK",
            priority=PRIORITIES["cleaning"],
            rolls_back=_rolled_back(decode(content)),
            owner=owner,
        )
    metadata = decode_commit_metadata(content)
    operation = metadata.operation_type
    replaced = ((partition, file_id) for partition, ids in metadata.replaced.items() for file_id in ids)
    return LogEntry(
        instant=instant.requested_time,
        action=instant.action,
        completion_time=completion_time,
        operation=operation,
        priority=PRIORITIES["table_service" if operation in REWRITES else "ingestion"],
        written=frozenset(FileGroupId(s.partition_path, s.file_id) for s in metadata.write_stats),
        replaced=frozenset(FileGroupId(*group) for group in replaced),
        inserted_in=frozenset(s.partition_path for s in metadata.write_stats if s.num_inserts),
        owner=owner,
    )


def _rolled_back(record: Mapping[str, Any]) -> str:
    """The dead instant, from the plan or from the metadata of a rollback."""
    if planned := record.get("instantToRollback"):
        return str(planned["commitTime"])
    return str(next(iter(record.get("commitsRollback") or ()), ""))

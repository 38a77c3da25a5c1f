"""The commit log: the totally ordered record of commits, plans, savepoints, and undone instants.

``.hoodie/commit_log/<20-digit sequence>.json``: each entry is created once, by put-if-absent, and never
changed. The put of an entry *is* the commit point (see ARCHITECTURE.md). Everything else on storage, the
completed instant included, is derived from the entry, and any process can derive it again.

Archival trims the log from its beginning. Before it deletes the first entry, it puts
``.hoodie/commit_log/trimmed/<20-digit sequence>``, which names the last entry to be deleted. By this file a
writer that was paused learns that it has put its entry into the trimmed part.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from airflow_provider.concurrency.log.log_entry import Commit, LogEntry, Restore, Savepoint
from airflow_provider.exceptions import CorruptTableError, InstantRolledBackError
from airflow_provider.table.storage import PUBLISHED_FOLDERS, Storage
from airflow_provider.table.timeline import find_archived, newest_archived

COMMIT_LOG_FOLDER = ".hoodie/commit_log"
TRIMMED_FOLDER = f"{COMMIT_LOG_FOLDER}/trimmed"


class CommitLog:
    """A table's commit log.

    :param storage: the table's storage.
    """

    # The newest entries that were read or put, with their content. Entries never change, and every write
    # reads the newest ones several times. From the last known entry, the log's end is a read or two away,
    # and no listing is needed.
    _known: WeakKeyDictionary[Storage, dict[int, tuple[bytes, LogEntry]]] = WeakKeyDictionary()

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._entries = self._known.setdefault(storage, {})

    def head(self) -> int:
        """Sequence of the newest entry; 0 when there is none."""
        return newest.sequence if (newest := self.newest()) else 0

    def newest(self) -> LogEntry | None:
        """The newest entry; None for an empty log."""
        last = max(self._entries, default=0)
        known = self._entries.get(last)
        newest = self._load(last)
        if known is None or newest != known[1]:  # trimmed, or the table was made anew
            self._entries.clear()
        # An entry in the trimmed part was put by a paused process, which was killed before it could delete
        # the entry again (append).
        while newest is None or newest.sequence <= self.trimmed():  # or the log was trimmed just now
            listed = max(self._listed(), default=0)
            if not listed:
                return None
            newest = self.read(listed)
        for entry in self.after(newest.sequence):
            newest = entry
        return newest

    def read(self, sequence: int) -> LogEntry | None:
        """An entry; None when it is not written yet, or was trimmed before this process read it.

        :raises CorruptTableError: when the file is not an entry.
        """
        if (known := self._entries.get(sequence)) is not None:
            return known[1]
        return self._load(sequence, keeps=True)

    def _load(self, sequence: int, *, keeps: bool = False) -> LogEntry | None:
        if sequence < 1:
            return None
        path = _path(sequence)
        try:
            data = self._storage.read(path)
        except FileNotFoundError:
            return None
        if (known := self._entries.get(sequence)) is not None and known[0] == data:
            return known[1]
        try:
            entry = LogEntry.from_json(sequence, data)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTableError(
                f"table {self._storage.root}: {path} is not a commit log entry: {error}", path=path
            ) from error
        if keeps:
            self._keep(sequence, data, entry)
        return entry

    def _keep(self, sequence: int, data: bytes, entry: LogEntry) -> None:
        self._entries[sequence] = data, entry
        if len(self._entries) > _KEPT:
            self._entries.pop(min(self._entries), None)

    def after(self, sequence: int) -> Iterator[LogEntry]:
        """Entries with a larger sequence, in order, up to the end of the log."""
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

        :param instant: the instant's requested time; no earlier entry is about it.
        """
        for entry in self.backwards():
            if instant == entry.instant or instant in entry.undone:
                yield entry
            if entry.completion_time < instant:
                return

    def append(self, sequence: int, entry: LogEntry) -> bool:
        """Put an entry at a sequence, if no other process has.

        Only :func:`~airflow_provider.concurrency.commit.commit` does so.

        :return: True when this call put it: the commit is done.
        :raises OSError: when the put failed and the entry is not found, or when it is not known whether the
            entry survives a power failure.
        :raises InstantRolledBackError: when the caller was paused until another entry at this sequence had
            been put and trimmed.
        """
        # The entry builds on earlier entries and on what others have published, so these are forced to disk
        # with it.
        self._storage.sync_later(folders=PUBLISHED_FOLDERS)
        data = entry.to_json()
        try:
            put = self._storage.put_if_absent(_path(sequence), data)
        except OSError:
            # The put may have succeeded although its answer was lost; the log tells.
            if self.read(sequence) != entry:
                raise
            put = True
        # An object store's client repeats a put that gets no answer. The second put finds the file of the
        # first one, and reports a conflict.
        put = put or self.read(sequence) == entry
        if put:
            self._storage.sync(COMMIT_LOG_FOLDER)  # before the commit is reported or shown
        # If the process was paused only after the put, others may have published, archived and trimmed its
        # entry; then the instant is archived, and the commit stands.
        if put and sequence <= self.trimmed() and not self._is_archived(entry):
            self._storage.delete(_path(sequence))
            raise InstantRolledBackError(
                f"table {self._storage.root}: {entry.operation} {entry.instant} was paused while the commit "
                f"log went on past its place {sequence} and was trimmed; run it again",
                instant=entry.instant,
            )
        if put and entry.sequence == sequence:
            self._keep(sequence, data, entry)
        return put

    def _is_archived(self, entry: LogEntry) -> bool:
        if isinstance(entry, Savepoint):
            return False  # the archived instant of this time is the commit that the savepoint keeps
        found = find_archived(self._storage, entry.instant)
        if found is None or not isinstance(entry, Commit | Restore):
            return found is not None
        # An instant that several processes carry out, such as a clean, may have been completed by another
        # entry.
        return found.instant.completion_time == entry.shown_completion

    def archived(self, newest: LogEntry | None) -> str:
        """Requested time up to which instants are archived, or being archived; empty when none is.

        The next entry must neither undo nor keep one of them. They may still be on the timeline, if their
        archiver still works or has died; the next archiver finishes its work.

        :param newest: the newest entry, which the next one follows.
        """
        # Archivers of earlier releases put no entry.
        return max(newest.archived if newest else "", newest_archived(self._storage))

    def trimmed(self) -> int:
        """Sequence of the last entry that was trimmed; 0 when none was."""
        return max((int(name) for name in self._storage.names(TRIMMED_FOLDER)), default=0)

    def trim(self, sequence: int) -> None:
        """Delete the log's entries up to a sequence, but never the newest one.

        :param sequence: sequence of the last entry that no process needs any more.
        """
        sequence = min(sequence, self.head() - 1)
        if sequence > self.trimmed():
            self._storage.put_if_absent(f"{TRIMMED_FOLDER}/{sequence:020d}", b"")
        trimmed = self.trimmed()
        self._storage.sync(TRIMMED_FOLDER)  # another archiver may have put the file
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

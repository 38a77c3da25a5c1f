"""The line of contenders that wait for a file lock, first come first served.

A waiter is a file ``waiter<N>`` in the folder of the lock's files. Its process rewrites the file as long as
it waits. A contender that finds a living waiter before itself does not try to take the lock. Without the
line, the holder that releases the lock could take it again while the others sleep between two looks. The line
makes the lock fair, not safe: only the lock's own put-if-absent keeps two contenders apart.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable

from airflow_provider.table.storage import FileStatus, Storage

_NAME = re.compile(r"^waiter(\d+)$")
# A waiter that has not rewritten its file for so long is skipped; until then the line waits for it.
_PATIENCE_SECONDS = 2.0
_SHOWN_EVERY_SECONDS = 0.5
# A waiter's file is deleted after so long, because its process is gone, or has been paused for very long.
_ABANDONED_SECONDS = 60.0


class WaitingLine:
    """One contender's place in the line.

    :param storage: the table's storage.
    :param folder: the folder of the lock's files.
    :param owner: name of the contender, for people.
    """

    def __init__(self, storage: Storage, folder: str, owner: str) -> None:
        self._storage = storage
        self._folder = folder
        self._content = json.dumps({"owner": owner}).encode()
        self._place: int | None = None
        self._shown = 0.0
        self._clock_ahead = 0.0

    def stand(self, files: Iterable[FileStatus]) -> None:
        """Take a place in the line, or rewrite the file of the place that this contender has.

        :param files: the folder's files.
        """
        if self._place is None:
            place = max(_waiters(files), default=0) + 1
            while not self._storage.put_if_absent(self._path(place), self._content):
                place += 1
            self._place = place
            status = self._storage.stat(self._path(place))
            if status is None:  # another contender deleted it, because this process was paused for very long
                self._place = None
                self.stand(files)
                return
            self._shown = time.monotonic()
            self._clock_ahead = status.modified - self._shown
        elif time.monotonic() - self._shown > _SHOWN_EVERY_SECONDS:
            self._shown = time.monotonic()
            self._storage.put(self._path(self._place), self._content)

    def now(self) -> float:
        """The time by the storage's clock, which dates heartbeats. Only a contender in the line knows it.

        A contender whose own clock is ahead would otherwise take the lock from a living holder.
        """
        return time.monotonic() + self._clock_ahead

    def before(self, files: Iterable[FileStatus]) -> list[str]:
        """Paths of the living waiters that stand before this one, the nearest one last.

        :param files: the folder's files.
        """
        waiters = sorted(_waiters(files).items())
        if self._place is not None:
            waiters = [(place, status) for place, status in waiters if place < self._place]
        return [status.path for _, status in waiters if self.now() - status.modified <= _PATIENCE_SECONDS]

    def leave(self) -> None:
        """Give the place up."""
        if self._place is not None:
            self._storage.delete(self._path(self._place))
            self._place = None

    def sweep(self, files: Iterable[FileStatus]) -> None:
        """Delete the files of waiters that are gone. Only a contender in the line calls this.

        :param files: the folder's files.
        """
        for place, status in _waiters(files).items():
            if self._place is not None and self.now() - status.modified > _ABANDONED_SECONDS:
                self._storage.delete(self._path(place))

    def owners(self, files: Iterable[FileStatus]) -> list[str]:
        """The owners of the living waiters, in their order.

        :param files: the folder's files.
        """
        found = []
        for place, status in sorted(_waiters(files).items()):
            if time.time() - status.modified <= _PATIENCE_SECONDS:
                try:
                    found.append(str(json.loads(self._storage.read(self._path(place)))["owner"]))
                except (FileNotFoundError, ValueError):
                    continue  # the waiter has left, or a power failure has emptied its file
        return found

    def _path(self, place: int) -> str:
        return f"{self._folder}/waiter{place}"


def _waiters(files: Iterable[FileStatus]) -> dict[int, FileStatus]:
    return {int(match[1]): status for status in files if (match := _NAME.match(status.name))}

"""RFC-22's lock (concurrency control, option 2): files with ever larger ids.

The contender that takes the lock for the Nth time creates ``.hoodie/locks/lock<N>.acquired``.
``lock<N>.released`` ends that holding; it is a second name of the same file. Neither file is ever replaced.
So

* of two contenders for holding N + 1, one wins; * two contenders that reclaim an expired holding may both
write ``lock<N>.released``, with the same result, and then contend for N + 1 like any other contender; * an
owner that lost its lease and releases late finds ``lock<N>.released`` in place, and changes no file of the
next holding.

A holder renews its lease by rewriting ``lock<N>.heartbeat`` from a thread. A holding has expired when its
heartbeat is older than its lease. N is the fencing token. Contenders wait in a line
(:mod:`~airflow_provider.locks.waiting_line`).
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Unpack

from airflow_provider.locks.lease import LeaseLock, LeaseOptions
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.locks.waiting_line import WaitingLine
from airflow_provider.table.storage import FileStatus, Storage

LOCKS_FOLDER = ".hoodie/locks"
# The first waiter in the line looks so many times per poll interval.
_LOOKS = 100
_NAME = re.compile(r"^lock(\d+)\.(acquired|released|heartbeat)$")


class FilesystemLockProvider(LeaseLock):
    """A lock in the table's own storage; it needs only put-if-absent.

    :param storage: the table's storage.
    :param lease: the options of every :class:`LeaseLock`. ``poll_interval_seconds`` is the longest pause
        between two listings. In between a waiter looks for one file; the first waiter in the line does so 100
        times per interval.
    """

    def __init__(self, storage: Storage, **lease: Unpack[LeaseOptions]) -> None:
        super().__init__(storage.root, **lease)
        self._storage = storage
        self._line = WaitingLine(storage, LOCKS_FOLDER, self._owner)
        self._earlier: list[str] = []
        self._awaited: _Awaited | None = None

    def acquire(self, timeout: float | None = None) -> None:
        """See :meth:`LeaseLock.acquire`."""
        self._awaited = None
        try:
            super().acquire(timeout)
        finally:
            # If the file cannot be deleted, the others soon skip it, because it is not rewritten.
            with contextlib.suppress(OSError):
                self._line.leave()

    def _try_acquire(self) -> int | None:
        self._awaited = None
        files = self._storage.list(LOCKS_FOLDER)
        newest, newest_files = _newest(files)
        is_held = newest > 0 and "released" not in newest_files
        if is_held or self._line.before(files):
            self._line.stand(files)
            before = self._line.before(files)
            if before:
                self._awaited = _Awaited(before[-1], gone=True, ahead=len(before))
                return None
            if is_held:
                if self._line.now() - _renewed(newest_files) <= self._lease_of(newest):
                    self._awaited = _Awaited(_path(newest, "released"))
                    return None
                self._end(newest)
        token = newest + 1
        if not self._storage.put_if_absent(_path(token, "acquired"), self._content()):
            return None
        names = list(self._storage.names(LOCKS_FOLDER))
        if max(_acquired(names), default=0) != token:
            # This id was used before. Its files are deleted, so an old listing made it look free. A larger id
            # is the lock.
            self._storage.delete(_path(token, "acquired"))
            return None
        self._line.sweep(files)
        self._earlier = [name for name in names if (match := _NAME.match(name)) and int(match[1]) < token]
        return token

    def _waiting_owners(self) -> list[str]:
        return self._line.owners(self._storage.list(LOCKS_FOLDER))

    def _pause(self, attempt: int) -> float:
        return self._poll_interval if self._awaited else self._short_pause(1, 0.0)

    def _sleep(self, seconds: float) -> None:
        begun = time.monotonic()
        ahead = self._awaited.ahead if self._awaited else 1
        while (passed := time.monotonic() - begun) < seconds:
            time.sleep(min(seconds - passed, self._short_pause(ahead, passed)))
            ahead -= 1
            try:
                if self._awaited is not None and self._awaited.has_come(self._storage):
                    break
            except OSError:
                break  # the next look reports it

    def _short_pause(self, ahead: int, passed: float) -> float:
        # The first waiter in the line looks most often, so that the lock is not idle for long. A pause may be
        # a tenth of the time waited so far. Otherwise many waiting contenders would load the storage with
        # looks.
        longest = max(self._poll_interval / _LOOKS * max(1, ahead), passed / 10)
        return random.uniform(0.5, 1) * min(self._poll_interval, longest)  # noqa: S311 - no secret

    def _look(self) -> LockHolder | None:
        newest, files = _newest(self._storage.list(LOCKS_FOLDER))
        if newest == 0 or "released" in files:
            return None
        try:
            fields = json.loads(self._storage.read(_path(newest, "acquired")))
        except FileNotFoundError:
            return None
        except ValueError:
            fields = {"owner": "unknown"}  # a power failure has emptied the file and ended the holder
        age = max(0.0, time.time() - _renewed(files))
        seconds_left = float(fields.get("lease_seconds", self._lease)) - age
        return LockHolder(fields["owner"], newest, age, max(0.0, seconds_left))

    def _renew(self, token: int) -> bool:
        if self._storage.stat(_path(token, "released")) is not None:
            return False
        self._storage.put(_path(token, "heartbeat"), b"")
        return True

    def _holds(self, token: int) -> bool:
        newest, files = _newest(self._storage.list(LOCKS_FOLDER))
        return newest == token and "released" not in files

    def _give_back(self, token: int) -> bool:
        given_back = self._end(token)
        with contextlib.suppress(OSError):  # the next holder deletes the files that are left
            for name in self._earlier:
                self._storage.delete(f"{LOCKS_FOLDER}/{name}")
        return given_back

    def _end(self, token: int) -> bool:
        """End a holding; False when it has ended already, or its files are deleted."""
        try:
            return self._storage.link_if_absent(_path(token, "acquired"), _path(token, "released"))
        except FileNotFoundError:
            return False  # a larger id exists

    def _lease_of(self, token: int) -> float:
        # The holder's own lease decides, because a contender with a shorter lease must not take the lock
        # away.
        try:
            return float(json.loads(self._storage.read(_path(token, "acquired")))["lease_seconds"])
        except FileNotFoundError:
            return self._lease  # the file was deleted, so a larger id exists, and the next look finds it
        except ValueError:
            return self._lease  # a power failure has emptied the file and ended the holder

    def _content(self) -> bytes:
        return json.dumps({"owner": self._owner, "lease_seconds": self._lease}).encode()


@dataclass(frozen=True)
class _Awaited:
    """The one file by which a waiter learns that its turn may have come.

    :param path: path relative to the table.
    :param gone: whether the waiter waits for the file to disappear; otherwise it waits for it to appear.
    :param ahead: number of contenders before the waiter, the holder included.
    """

    path: str
    gone: bool = False
    ahead: int = 1

    def has_come(self, storage: Storage) -> bool:
        """Whether the waiter should list all files of the lock."""
        return (storage.stat(self.path) is None) is self.gone


def _acquired(names: Iterable[str]) -> list[int]:
    matches = (_NAME.match(name) for name in names)
    return [int(match[1]) for match in matches if match and match[2] == "acquired"]


def _newest(files: list[FileStatus]) -> tuple[int, dict[str, FileStatus]]:
    holdings: dict[int, dict[str, FileStatus]] = {}
    for status in files:
        if match := _NAME.match(status.name):
            holdings.setdefault(int(match[1]), {})[match[2]] = status
    newest = max(_acquired(status.name for status in files), default=0)
    return newest, holdings.get(newest, {})


def _renewed(files: dict[str, FileStatus]) -> float:
    return max(status.modified for status in files.values())


def _path(token: int, kind: str) -> str:
    return f"{LOCKS_FOLDER}/lock{token}.{kind}"

"""RFC-22's lock, concurrency control option 2: files with ever larger ids.

``.hoodie/locks/lock<N>.acquired`` is created, once, by the contender that takes the lock
for the Nth time; ``lock<N>.released`` ends that holding, also once. Both by put-if-absent,
so that

* of two contenders for holding N + 1 one wins;
* of two reclaimers of an expired holding both may write ``lock<N>.released``, which is
  one and the same fact, and then they contend for N + 1 like anybody else;
* a late release by an owner that lost its lease finds ``lock<N>.released`` in place and
  touches nothing of the next holding.

A holder renews its lease by rewriting ``lock<N>.heartbeat`` from a thread; a holding whose
heartbeat is older than the lease that it was acquired with is expired. N is the fencing token.
"""

from __future__ import annotations

import json
import re
import time
import uuid

from airflow_provider.locks.lease import LeaseLock
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.table.storage import FileStatus, Storage

LOCKS_FOLDER = ".hoodie/locks"
_NAME = re.compile(r"^lock(\d+)\.(acquired|released|heartbeat)$")


class FilesystemLockProvider(LeaseLock):
    """A lock in the table's own storage; needs put-if-absent and nothing else.

    :param storage: the table's storage.
    :param timeout_seconds: how long :meth:`acquire` waits by default.
    :param lease_seconds: a holder that did not renew for so long has lost the lock.
    :param poll_interval_seconds: the longest pause between two looks while waiting.
    :param owner: who contends, for people; host and process by default.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        timeout_seconds: float = 60.0,
        lease_seconds: float = 30.0,
        poll_interval_seconds: float = 0.1,
        owner: str | None = None,
    ) -> None:
        super().__init__(
            storage.root,
            timeout_seconds=timeout_seconds,
            lease_seconds=lease_seconds,
            poll_interval_seconds=poll_interval_seconds,
            outage_seconds=0.0,
            owner=owner,
        )
        self._storage = storage
        self._clock_ahead: float | None = None

    def acquire(self, timeout: float | None = None) -> None:
        """See :meth:`LeaseLock.acquire`."""
        self._clock_ahead = None
        super().acquire(timeout)

    def _look(self) -> LockHolder | None:
        newest, files = self._newest()
        if newest == 0 or "released" in files:
            return None
        try:
            owner = json.loads(self._storage.read(_path(newest, "acquired")))["owner"]
        except FileNotFoundError:
            return None
        return LockHolder(owner, newest, max(0.0, time.time() - _renewed(files)))

    def _try_acquire(self) -> int | None:
        newest, files = self._newest()
        if newest and "released" not in files:
            if self._now() - _renewed(files) <= self._lease_of(newest):
                return None
            self._storage.put_if_absent(_path(newest, "released"), self._content(reclaimed=True))
        token = newest + 1
        if not self._storage.put_if_absent(_path(token, "acquired"), self._content()):
            return None
        if self._newest()[0] != token:
            # An old listing made this id look free after its files were swept; the larger
            # id is the lock.
            self._storage.delete(_path(token, "acquired"))
            return None
        self._sweep(token)
        return token

    def _renew(self, token: int) -> bool:
        if self._storage.stat(_path(token, "released")) is not None:
            return False
        self._storage.put(_path(token, "heartbeat"), b"")
        return True

    def _holds(self, token: int) -> bool:
        newest, files = self._newest()
        return newest == token and "released" not in files

    def _give_back(self, token: int) -> bool:
        return self._newest()[0] == token and self._storage.put_if_absent(
            _path(token, "released"), self._content()
        )

    def _newest(self) -> tuple[int, dict[str, FileStatus]]:
        holdings: dict[int, dict[str, FileStatus]] = {}
        for status in self._storage.list(LOCKS_FOLDER):
            if match := _NAME.match(status.name):
                holdings.setdefault(int(match[1]), {})[match[2]] = status
        acquired = [token for token, files in holdings.items() if "acquired" in files]
        newest = max(acquired, default=0)
        return newest, holdings.get(newest, {})

    def _sweep(self, token: int) -> None:
        for status in self._storage.list(LOCKS_FOLDER):
            if (match := _NAME.match(status.name)) and int(match[1]) < token:
                self._storage.delete(status.path)

    def _now(self) -> float:
        """The time by the storage's clock, which is the one that dates the heartbeats.

        A contender whose own clock is ahead would take the lock from a living holder.
        """
        if self._clock_ahead is None:
            path = f"{LOCKS_FOLDER}/clock-{uuid.uuid4().hex}"
            self._storage.put(path, b"")
            status = self._storage.stat(path)
            self._storage.delete(path)
            if status is None:
                raise FileNotFoundError(path)
            self._clock_ahead = status.modified - time.monotonic()
        return time.monotonic() + self._clock_ahead

    def _lease_of(self, token: int) -> float:
        # The holder's own lease counts: a contender with a shorter one must not rob it.
        try:
            return float(json.loads(self._storage.read(_path(token, "acquired")))["lease_seconds"])
        except FileNotFoundError:
            return self._lease  # swept: a larger id exists, the next look finds it

    def _content(self, *, reclaimed: bool = False) -> bytes:
        return json.dumps(
            {"owner": self._owner, "lease_seconds": self._lease, "reclaimed": reclaimed}
        ).encode()


def _renewed(files: dict[str, FileStatus]) -> float:
    return max(status.modified for status in files.values())


def _path(token: int, kind: str) -> str:
    return f"{LOCKS_FOLDER}/lock{token}.{kind}"

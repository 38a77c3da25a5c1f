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

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import tenacity

from airflow_provider.exceptions import LockLostError, LockTimeoutError, LockUnavailableError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.table.storage import FileStatus, Storage

LOCKS_FOLDER = ".hoodie/locks"
_NAME = re.compile(r"^lock(\d+)\.(acquired|released|heartbeat)$")


class FilesystemLockProvider:
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
        self._storage = storage
        self._timeout = timeout_seconds
        self._lease = lease_seconds
        self._poll_interval = poll_interval_seconds
        self._owner = owner or describe_owner()
        self._held: int | None = None
        self._renewal: _Renewal | None = None

    def acquire(self, timeout: float | None = None) -> None:
        """See :meth:`LockProvider.acquire`.

        :raises LockTimeoutError: naming the holder.
        :raises LockUnavailableError: when the storage cannot be read or written.
        """
        limit = self._timeout if timeout is None else timeout
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda acquired: not acquired),
            wait=tenacity.wait_random_exponential(multiplier=0.002, max=self._poll_interval),
            stop=tenacity.stop_after_delay(limit),
        )
        try:
            retrying(self._try_acquire)
        except tenacity.RetryError:
            holder = self.holder()
            by = (
                f"held by {holder.owner}, last renewed {holder.age_seconds:.1f} s ago"
                if holder
                else "contended"
            )
            raise LockTimeoutError(
                f"lock of table {self._storage.root} not acquired in {limit:g} s: {by}; "
                "raise timeout_seconds, or look for a writer that hangs",
                table=self._storage.root,
                holder=holder.owner if holder else None,
            ) from None
        except OSError as error:
            raise LockUnavailableError(
                f"lock of table {self._storage.root}: storage cannot be used: {error}",
                table=self._storage.root,
            ) from error

    def release(self) -> None:
        """See :meth:`LockProvider.release`."""
        token = self.fencing_token
        self._forget()
        if self._newest()[0] != token or not self._storage.put_if_absent(
            _path(token, "released"), self._content()
        ):
            raise LockLostError(
                f"lock of table {self._storage.root}: holding {token} had expired and was taken away",
                table=self._storage.root,
                fencing_token=token,
            )

    def is_held(self) -> bool:
        """See :meth:`LockProvider.is_held`."""
        if self._held is None or self._renewal is None or not self._renewal.in_time():
            return False
        newest, files = self._newest()
        return newest == self._held and "released" not in files

    @property
    def fencing_token(self) -> int:
        """See :attr:`LockProvider.fencing_token`."""
        if self._held is None:
            raise LockLostError(f"lock of table {self._storage.root} is not held", table=self._storage.root)
        return self._held

    def holder(self) -> LockHolder | None:
        """See :meth:`LockProvider.holder`."""
        newest, files = self._newest()
        if newest == 0 or "released" in files:
            return None
        try:
            owner = json.loads(self._storage.read(_path(newest, "acquired")))["owner"]
        except FileNotFoundError:
            return None
        return LockHolder(owner, newest, self._age(files))

    def waiters(self) -> list[str]:
        """Unknown to this backend: contenders poll, they do not queue."""
        return []

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was done under the lock stands or falls by the commit log: a lease that ran
        # out meanwhile is no reason to fail a caller whose work is done.
        with contextlib.suppress(LockLostError):
            self.release()

    def _try_acquire(self) -> bool:
        newest, files = self._newest()
        if newest and "released" not in files:
            if self._age(files) <= self._lease_of(newest):
                return False
            self._storage.put_if_absent(_path(newest, "released"), self._content(reclaimed=True))
        token = newest + 1
        if not self._storage.put_if_absent(_path(token, "acquired"), self._content()):
            return False
        if self._newest()[0] != token:
            # An old listing made this id look free after its files were swept; the larger
            # id is the lock.
            self._storage.delete(_path(token, "acquired"))
            return False
        self._held = token
        self._renewal = _Renewal(lambda: self._renew(token), self._lease)
        self._sweep(token)
        return True

    def _renew(self, token: int) -> bool:
        if self._storage.stat(_path(token, "released")) is not None:
            return False
        self._storage.put(_path(token, "heartbeat"), b"")
        return True

    def _forget(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
        self._held = self._renewal = None

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

    def _age(self, files: dict[str, FileStatus]) -> float:
        return time.time() - max(status.modified for status in files.values())

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


class _Renewal:
    """Renews a lease three times per lease until told to stop or until it was lost."""

    def __init__(self, renew: Callable[[], bool], lease: float) -> None:
        self._renew = renew
        self._lease = lease
        self._renewed = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lock-renewal", daemon=True)
        self._thread.start()

    def in_time(self) -> bool:
        """Whether the lease cannot have run out by this process's own clock."""
        return time.monotonic() - self._renewed <= self._lease

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._lease / 3):
            begun = time.monotonic()
            try:
                if not self.in_time() or not self._renew():
                    return
            except OSError:
                continue  # unreachable storage: the lease runs out by itself
            self._renewed = begun


def _path(token: int, kind: str) -> str:
    return f"{LOCKS_FOLDER}/lock{token}.{kind}"

"""The lock file of Hudi's ``FileSystemBasedLockProvider``: JVM writers and writers of this package exclude
each other.

The contender that creates the file ``lock``, in ``.hoodie`` or in the folder
``hoodie.write.lock.filesystem.path``, holds the lock; it deletes the file to release the lock. A JVM never
renews the file and stores no lease in it: ``hoodie.write.lock.filesystem.expire`` says, for all contenders,
after how many minutes a file belongs to a dead holder. This provider renews its file and stores its lease.

Hudi's provider has two gaps. On a local file system the JVM checks for the file and creates it in two steps,
so that it may replace a file that this provider has created in between. And after a release the JVM deletes
the file once more, even if another contender holds the lock by then (``FileSystemBasedLockProvider.close``).
So this provider checks its file again a moment after it has created it. If the file is lost later, the lock
is lost.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Unpack

from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.locks.contender import invalid_option
from airflow_provider.locks.lease import LeaseLock, LeaseOptions
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.table.storage import Storage

LOCK_FILE = "lock"
_FOLDER = ".hoodie"
# The time that a JVM may take between its check and its creation, or between release and close.
_TWO_STEPS_SECONDS = 0.05


@dataclass(frozen=True)
class _File:
    """The content and the age of the lock's file.

    :param owner: the holder's name, for people.
    :param contender: the holder's id; empty when a JVM has written the file.
    :param age_seconds: seconds since the last write, by the storage's clock.
    :param lease_seconds: seconds after which the holder has lost the lock; None when it never expires.
    """

    owner: str
    contender: str
    token: int
    age_seconds: float
    lease_seconds: float | None

    @property
    def seconds_left(self) -> float | None:
        return None if self.lease_seconds is None else self.lease_seconds - self.age_seconds


class HudiFilesystemLockProvider(LeaseLock):
    """A lock that the JVM's ``FileSystemBasedLockProvider`` shares; for local and mounted file systems.

    Fencing tokens are times in milliseconds, because the file is deleted after each holding and keeps no
    count.

    :param storage: the table's storage.
    :param path: the folder of the lock's file, absolute; the table's ``.hoodie`` when None. It equals
        ``hoodie.write.lock.filesystem.path``.
    :param expire_seconds: seconds after which a JVM's file belongs to a dead holder; None when it never does.
        It equals ``hoodie.write.lock.filesystem.expire`` of all writers.
    :param lease: the options of every :class:`LeaseLock`.
    :raises InvalidConnectionError: when the lease is longer than the time after which the JVM takes the lock
        away, or the table is on an object store, where Hudi's provider does not work either.
    """

    excludes_hudi = True

    def __init__(
        self,
        storage: Storage,
        *,
        path: str | None = None,
        expire_seconds: float | None = None,
        **lease: Unpack[LeaseOptions],
    ) -> None:
        super().__init__(storage.root, **lease)
        if expire_seconds is not None and expire_seconds < self._lease:
            raise invalid_option(
                "hudi_filesystem",
                "lease_seconds",
                f"lease_seconds={self._lease:g} is longer than expire_seconds={expire_seconds:g}, after "
                "which other Hudi writers take the lock away; raise hoodie.write.lock.filesystem.expire on "
                "all sides, or make the lease shorter",
            )
        self._storage = Storage(path, storage.options) if path else storage
        if not self._storage.moves_atomically:
            raise InvalidConnectionError(
                f"lock provider 'hudi_filesystem' needs a file system; {self._storage.root} is on an object "
                "store: choose 'storage' and Hudi's StorageBasedLockProvider, or 'zookeeper'",
                location=self._storage.root,
            )
        self._path = LOCK_FILE if path else f"{_FOLDER}/{LOCK_FILE}"
        self._expire = expire_seconds

    def _look(self) -> LockHolder | None:
        file = self._file()
        if file is None:
            return None
        seconds_left = file.seconds_left
        return LockHolder(
            file.owner, file.token, file.age_seconds, None if seconds_left is None else max(0.0, seconds_left)
        )

    def _try_acquire(self) -> int | None:
        file = self._file()
        if file is not None:
            if file.seconds_left is None or file.seconds_left >= 0:
                return None
            self._storage.delete(self._path)
        token = time.time_ns() // 1_000_000
        if not self._storage.put_if_absent(self._path, self._content(token)):
            return None
        time.sleep(_TWO_STEPS_SECONDS)
        return token if self._holds(token) else None

    def _renew(self, token: int) -> bool:
        if not self._holds(token):
            return False
        self._storage.put(self._path, self._content(token))
        return True

    def _give_back(self, token: int) -> bool:
        return self._holds(token) and self._storage.delete(self._path)

    def _holds(self, token: int) -> bool:
        try:
            return _parsed(self._storage.read(self._path)).get("contender") == f"{self._contender}-{token}"
        except FileNotFoundError:
            return False

    def _file(self) -> _File | None:
        try:
            fields = _parsed(self._storage.read(self._path))
        except FileNotFoundError:
            return None
        status = self._storage.stat(self._path)
        if status is None:
            return None
        age = max(0.0, self._storage.clock() - status.modified)
        if "contender" in fields:
            ours = str(fields["lockThreadName"]), str(fields["contender"]), int(fields["fencingToken"])
            return _File(*ours, age, float(fields["leaseSeconds"]))
        # If the file is empty, a JVM has just created it.
        thread = fields.get("lockThreadName")
        owner = f"another Hudi writer (thread {thread})" if thread else "another Hudi writer"
        return _File(owner, "", 0, age, self._expire)

    def _content(self, token: int) -> bytes:
        return json.dumps(
            {
                "lockCreateTime": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
                "lockThreadName": self._owner,
                "contender": f"{self._contender}-{token}",
                "leaseSeconds": self._lease,
                "fencingToken": token,
            }
        ).encode()


def _parsed(content: bytes) -> dict[str, Any]:
    """The fields of a lock's file; none when it is incomplete or damaged."""
    try:
        fields = json.loads(content)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}

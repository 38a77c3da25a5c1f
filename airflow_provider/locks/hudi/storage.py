"""The lock object of Hudi's ``StorageBasedLockProvider`` (RFC-91), on a store that writes on a condition.

The object ``.hoodie/.locks/table_lock.json`` is created by ``If-None-Match: *`` and changed only by
``If-Match: <the ETag that was read>`` (Amazon S3 User Guide, "Conditional writes"), so that of any number of
contenders, the JVM's among them, exactly one gets its change in. It stays when the lock is released.

Its fields are those of Hudi's ``StorageLockData``: ``expired``, ``validUntil`` in milliseconds since the
epoch, and ``owner``. Hudi's reader ignores further fields, and a holder of this package adds some. Contenders
of this package compare ``leaseSeconds`` with the object's age by the store's clock: the ``Date`` of an answer
less the object's ``Last-Modified``, in whole seconds. A JVM writes only the end of its lease, by its own
clock, and judges all holders by its own clock. It tolerates half a second of difference
(``CLOCK_DRIFT_BUFFER_MS``), so all clocks have to agree within that time.
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Unpack

from airflow_provider.exceptions import LockUnavailableError
from airflow_provider.locks.hudi.conditional_store import ConditionalStore, StoredObject
from airflow_provider.locks.lease import LeaseLock, LeaseOptions
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.table.storage import Storage

LOCK_PATH = ".hoodie/.locks/table_lock.json"
# Last-Modified and Date are truncated to whole seconds, so the true age may be up to one second less.
_GRAIN_SECONDS = 1.0
_CLOCKS_APART_SECONDS = 0.5


@dataclass(frozen=True)
class _Holding:
    """The content of the lock object.

    :param valid_until: the end of the lease, in seconds since the epoch.
    :param contender: the holder's id; empty when the holder is another Hudi writer.
    :param lease_seconds: the lease of a holder of this package.
    :param fencing_token: the token of a holder of this package.
    """

    owner: str
    valid_until: float
    released: bool
    contender: str = ""
    lease_seconds: float = 0.0
    fencing_token: int = 0

    @classmethod
    def parse(cls, data: bytes) -> _Holding:
        fields = json.loads(data)
        holding = cls(str(fields["owner"]), fields["validUntil"] / 1000, bool(fields["expired"]))
        if "contender" not in fields:
            return holding
        ours = (str(fields["contender"]), float(fields["leaseSeconds"]), int(fields["fencingToken"]))
        return cls(holding.owner, holding.valid_until, holding.released, *ours)

    def to_json(self) -> bytes:
        fields: dict[str, Any] = {
            "expired": self.released,
            "validUntil": int(self.valid_until * 1000),
            "owner": self.owner,
            "contender": self.contender,
            "leaseSeconds": self.lease_seconds,
            "fencingToken": self.fencing_token,
            # Each write has a new revision. Without it a renewal might not change the content and the ETag,
            # and a contender's If-Match could take over a lease that was just renewed.
            "revision": uuid.uuid4().hex,
        }
        return json.dumps(fields).encode()


@dataclass(frozen=True)
class _Seen:
    holding: _Holding
    stored: StoredObject

    @property
    def seconds_left(self) -> float:
        """Seconds until the lease expires, unless the holder renews it; negative when it has expired."""
        if self.holding.contender:
            return self.holding.lease_seconds + _GRAIN_SECONDS - (self.stored.now - self.stored.modified)
        return self.holding.valid_until + _CLOCKS_APART_SECONDS - self.stored.now

    @property
    def is_free(self) -> bool:
        return self.holding.released or self.seconds_left < 0


class StorageLockProvider(LeaseLock):
    """A lock in the table's folder, on an object store with the S3 protocol, that the JVM's Hudi shares.

    Fencing tokens count the holdings. After a holding of another Hudi writer, which keeps no count, the token
    is the time in milliseconds.

    :param storage: the table's storage; the lock uses its credentials and endpoint.
    :param connection_timeout_seconds: seconds to wait for a store that does not answer.
    :param lease: the options of every :class:`LeaseLock`; ``poll_interval_seconds`` is 0.5 by default,
        because each look is a request that the store may charge for.
    :raises InvalidConnectionError: when the table is on another kind of storage, or s3fs is not installed.
    """

    excludes_hudi = True

    def __init__(
        self,
        storage: Storage,
        *,
        connection_timeout_seconds: float = 10.0,
        **lease: Unpack[LeaseOptions],
    ) -> None:
        lease.setdefault("poll_interval_seconds", 0.5)
        super().__init__(storage.root, **lease)
        self._outage = connection_timeout_seconds
        self._store = ConditionalStore(storage, connection_timeout_seconds)
        self.unusable = self._store.unusable
        self._etag = ""

    def _look(self) -> LockHolder | None:
        seen = self._read()
        if seen is None or seen.holding.released:
            return None
        age = max(0.0, seen.stored.now - seen.stored.modified)
        return LockHolder(seen.holding.owner, seen.holding.fencing_token, age, max(0.0, seen.seconds_left))

    def _try_acquire(self) -> int | None:
        self._store.check_conditions()
        seen = self._read()
        # The object may already name this contender, if the answer to an earlier write was lost.
        if seen is not None and not seen.is_free and seen.holding.contender != self._contender:
            return None
        token = _next_token(seen.holding if seen else None)
        return token if self._write(token, if_match=seen.stored.etag if seen else None) else None

    def _renew(self, token: int) -> bool:
        return self._rewrite(token, released=False)

    def _give_back(self, token: int) -> bool:
        return self._rewrite(token, released=True)

    def _holds(self, token: int) -> bool:
        with suppress(LockUnavailableError):
            seen = self._read()
            return seen is not None and self._is_own(seen.holding, token) and not seen.holding.released
        return False

    def _rewrite(self, token: int, *, released: bool) -> bool:
        if self._write(token, released=released, if_match=self._etag):
            return True
        # The write was refused: another contender holds the lock, or the ETag is of this contender's own
        # earlier write, whose answer was lost.
        seen = self._read()
        if seen is None or not self._is_own(seen.holding, token):
            return False
        if seen.holding.released:
            return released
        return self._write(token, released=released, if_match=seen.stored.etag)

    def _is_own(self, holding: _Holding, token: int) -> bool:
        return (holding.fencing_token, holding.contender) == (token, self._contender)

    def _read(self) -> _Seen | None:
        found = self._store.get(LOCK_PATH)
        if found is None:
            return None
        try:
            return _Seen(_Holding.parse(found.data), found)
        except (ValueError, KeyError, TypeError):
            raise self._unavailable(
                f"{LOCK_PATH} is not what Hudi's StorageBasedLockProvider writes; "
                "delete it while no writer uses the table"
            ) from None

    def _write(self, token: int, *, released: bool = False, if_match: str | None) -> bool:
        until = time.time() + self._lease
        holding = _Holding(self._owner, until, released, self._contender, self._lease, token)
        etag = self._store.put(LOCK_PATH, holding.to_json(), if_match=if_match)
        if etag is None:
            return False
        self._etag = etag
        return True

    def _reason(self, error: Exception) -> str:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"object store cannot be used: {reason}; check bucket, endpoint and credentials"

    def _may_pass(self, error: Exception) -> bool:
        return not isinstance(error, PermissionError | FileNotFoundError)


def _next_token(before: _Holding | None) -> int:
    if before is None:
        return 1
    return before.fencing_token + 1 if before.contender else time.time_ns() // 1_000_000

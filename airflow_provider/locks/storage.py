"""A lock object on an object store that can write on a condition, such as S3.

The object ``.hoodie/locks/lock.json`` is created by ``If-None-Match: *`` and changed only by
``If-Match: <the ETag that was read>`` (Amazon S3 User Guide, "Conditional writes"), so that
of any number of contenders exactly one gets its change in. Ages are the store's own: the
``Date`` of an answer less the object's ``Last-Modified``, both by one clock, in whole
seconds. The object stays when the lock is released, because it counts the fencing tokens.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace

from airflow_provider.locks.conditional_store import ConditionalStore
from airflow_provider.locks.lease import LeaseLock
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.table.storage import Storage

LOCK_PATH = ".hoodie/locks/lock.json"
# Last-Modified and Date are cut to whole seconds: an age may be up to one second less than it looks.
_GRAIN_SECONDS = 1.0


@dataclass(frozen=True)
class _Holding:
    """What the lock object says.

    :param revision: new in every write. Without it a renewal would leave the content, and so
        the ETag, as it was, and a contender's ``If-Match`` could take a lease just renewed.
    """

    fencing_token: int
    contender: str
    owner: str
    lease_seconds: float
    released: bool = False
    revision: str = ""


@dataclass(frozen=True)
class _Seen:
    holding: _Holding
    etag: str
    age_seconds: float


class StorageLockProvider(LeaseLock):
    """A lock beside the table, on an object store of the S3 protocol.

    :param storage: the table's storage; its credentials and endpoint are used.
    :param timeout_seconds: how long :meth:`acquire` waits by default.
    :param lease_seconds: a holder that did not renew for so long has lost the lock.
    :param poll_interval_seconds: the longest pause between two looks while waiting; a look is
        a request that the store may charge for.
    :param connection_timeout_seconds: how long a store that is away is waited for.
    :param owner: who contends, for people; host and process by default.
    :raises InvalidConnectionError: when the table is on another kind of storage, or s3fs is not installed.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        timeout_seconds: float = 60.0,
        lease_seconds: float = 30.0,
        poll_interval_seconds: float = 0.5,
        connection_timeout_seconds: float = 10.0,
        owner: str | None = None,
    ) -> None:
        super().__init__(
            storage.root,
            timeout_seconds=timeout_seconds,
            lease_seconds=lease_seconds,
            poll_interval_seconds=poll_interval_seconds,
            outage_seconds=connection_timeout_seconds,
            owner=owner,
        )
        self._store = ConditionalStore(storage, connection_timeout_seconds)
        self.unusable = self._store.unusable
        self._contender = uuid.uuid4().hex
        self._etag = ""

    def _look(self) -> LockHolder | None:
        seen = self._read()
        if seen is None or seen.holding.released:
            return None
        return LockHolder(seen.holding.owner, seen.holding.fencing_token, max(0.0, seen.age_seconds))

    def _try_acquire(self) -> int | None:
        self._store.check_conditions()
        seen = self._read()
        if seen is not None and not seen.holding.released:
            expired = seen.age_seconds > seen.holding.lease_seconds + _GRAIN_SECONDS
            # One's own name there: the answer to an earlier write was lost on its way.
            if not expired and seen.holding.contender != self._contender:
                return None
        holding = _Holding(
            fencing_token=seen.holding.fencing_token + 1 if seen else 1,
            contender=self._contender,
            owner=self._owner,
            lease_seconds=self._lease,
        )
        if not self._write(holding, if_match=seen.etag if seen else None):
            return None
        return holding.fencing_token

    def _renew(self, token: int) -> bool:
        return self._rewrite(token, released=False)

    def _give_back(self, token: int) -> bool:
        return self._rewrite(token, released=True)

    def _holds(self, token: int) -> bool:
        seen = self._read()
        return seen is not None and self._is_own(seen.holding, token)

    def _rewrite(self, token: int, *, released: bool) -> bool:
        holding = _Holding(token, self._contender, self._owner, self._lease, released)
        if self._write(holding, if_match=self._etag):
            return True
        # Refused: somebody else has it, or an earlier answer was lost and the ETag is one's own.
        seen = self._read()
        if seen is None or (seen.holding.fencing_token, seen.holding.contender) != (token, self._contender):
            return False
        if seen.holding.released:
            return released
        return self._write(holding, if_match=seen.etag)

    def _is_own(self, holding: _Holding, token: int) -> bool:
        return (
            holding.fencing_token == token and holding.contender == self._contender and not holding.released
        )

    def _read(self) -> _Seen | None:
        found = self._store.get(LOCK_PATH)
        if found is None:
            return None
        data, etag, age = found
        return _Seen(_Holding(**json.loads(data)), etag, age)

    def _write(self, holding: _Holding, *, if_match: str | None) -> bool:
        content = json.dumps(asdict(replace(holding, revision=uuid.uuid4().hex))).encode()
        etag = self._store.put(LOCK_PATH, content, if_match=if_match)
        if etag is None:
            return False
        self._etag = etag
        return True

    def _reason(self, error: Exception) -> str:
        said = " ".join(str(error).split()) or type(error).__name__
        return f"object store cannot be used: {said}; check bucket, endpoint and credentials"

    def _may_pass(self, error: Exception) -> bool:
        return not isinstance(error, PermissionError | FileNotFoundError)

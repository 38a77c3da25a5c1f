"""A lock among the threads of one process, first come first served."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from airflow_provider.locks.contender import Contender
from airflow_provider.locks.owner import describe_owner
from airflow_provider.locks.protocol import LockHolder


@dataclass
class _Queue:
    changed: threading.Condition = field(default_factory=threading.Condition)
    contenders: deque[InProcessLockProvider] = field(default_factory=deque)
    holdings: int = 0


_queues: dict[str, _Queue] = {}
_queues_guard = threading.Lock()


class InProcessLockProvider(Contender):
    """A lock for tests and for programs that are a table's only process (Hudi's InProcessLockProvider).

    :param key: the key of the lock, usually the table's location.
    :param timeout_seconds: seconds that :meth:`acquire` waits by default.
    :param owner: name of this contender, for people; host, process and thread by default.
    """

    def __init__(self, key: str, *, timeout_seconds: float = 60.0, owner: str | None = None) -> None:
        super().__init__(
            key, timeout_seconds, owner or f"{describe_owner()}/{threading.current_thread().name}"
        )
        with _queues_guard:
            self._queue = _queues.setdefault(key, _Queue())
        self._since = 0.0

    def acquire(self, timeout: float | None = None) -> None:
        """See :meth:`LockProvider.acquire`."""
        limit = self._timeout if timeout is None else timeout
        queue = self._queue
        with queue.changed:
            if self in queue.contenders:
                raise self._timed_out(limit)  # not re-entrant: the contender would wait for itself
            queue.contenders.append(self)
            if not queue.changed.wait_for(lambda: queue.contenders[0] is self, limit):
                queue.contenders.remove(self)
                queue.changed.notify_all()
                raise self._timed_out(limit)
            queue.holdings += 1
            self._token = queue.holdings
            self._since = time.monotonic()

    def release(self) -> None:
        """See :meth:`LockProvider.release`."""
        with self._queue.changed:
            _ = self.fencing_token  # raises when this contender does not hold the lock
            self._token = None
            self._queue.contenders.popleft()
            self._queue.changed.notify_all()

    def is_held(self) -> bool:
        """See :meth:`LockProvider.is_held`."""
        return self._token is not None

    def holder(self) -> LockHolder | None:
        """See :meth:`LockProvider.holder`."""
        with self._queue.changed:
            first = self._queue.contenders[0] if self._queue.contenders else None
            if first is None or first._token is None:
                return None
            return LockHolder(first._owner, first._token, time.monotonic() - first._since)

    def waiters(self) -> list[str]:
        """See :meth:`LockProvider.waiters`."""
        with self._queue.changed:
            return [contender._owner for contender in self._queue.contenders if contender._token is None]

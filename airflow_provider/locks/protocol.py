"""The promises of every lock provider."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable


@dataclass(frozen=True)
class LockHolder:
    """The holder of a lock.

    :param owner: the holder's name, for people: host, process and purpose.
    :param fencing_token: the token of this holding.
    :param age_seconds: seconds since the holder last renewed its lease; 0 where the backend itself
        releases the lock of a holder that is silent.
    :param seconds_left: seconds until the lock is free, unless the holder renews its lease; None where
        this is unknown, because the backend ends the holding or because the holding has no end.
    """

    owner: str
    fencing_token: int
    age_seconds: float
    seconds_left: float | None = None


@runtime_checkable
class LockProvider(Protocol):
    """A table lock: mutual exclusion that makes commits fair and cheap.

    A lock does not make commits safe, because any lease can run out while its holder is paused. The commit
    log makes commits safe. So a provider promises only this: there is one holder at a time as far as leases
    allow, and :meth:`is_held` is false once the lease is lost.

    One object is one contender. It is not re-entrant.
    """

    @property
    def excludes_hudi(self) -> bool:
        """Whether other Hudi writers, such as the JVM's, can hold this very lock.

        If they can, every write acquires it, at its begin and at its commit. Otherwise a commit skips the
        lock when nobody holds it; the commit log alone keeps it safe.
        """

    def acquire(self, timeout: float | None = None) -> None:
        """Wait until this contender holds the lock.

        :param timeout: seconds to wait at most; the provider's own default when None.
        :raises LockTimeoutError: when another contender holds it for the whole time.
        :raises LockUnavailableError: when the backend cannot be reached.
        """

    def release(self) -> None:
        """Give the lock back.

        :raises LockLostError: when this contender has lost it already.
        :raises LockUnavailableError: when the backend cannot be reached; the lease runs out then.
        """

    def is_held(self) -> bool:
        """Ask the backend whether this contender holds the lock at this moment.

        :return: False also when the backend does not answer.
        """

    @property
    def fencing_token(self) -> int:
        """A number that grows with every holding of this lock.

        :raises LockLostError: when the lock is not held.
        """

    def holder(self) -> LockHolder | None:
        """The present holder; None when the lock is free.

        :raises LockUnavailableError: when the backend cannot be reached.
        """

    def waiters(self) -> list[str]:
        """The owners of the waiting contenders, in order of arrival, as far as the backend knows."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

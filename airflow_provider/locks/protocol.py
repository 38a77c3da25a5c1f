"""What every lock provider promises."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable


@dataclass(frozen=True)
class LockHolder:
    """Who holds a lock.

    :param owner: who it is, for people: host, process and purpose.
    :param fencing_token: the token of this holding.
    :param age_seconds: seconds since the holder last renewed its lease; 0 where the backend
        itself ends the holding of who is not heard of.
    :param seconds_left: after how many seconds the lock is free, unless the holder renews its lease; None
        where nobody can say: the backend itself ends the holding, or it never ends by itself.
    """

    owner: str
    fencing_token: int
    age_seconds: float
    seconds_left: float | None = None


@runtime_checkable
class LockProvider(Protocol):
    """A table lock: mutual exclusion that makes commits fair and cheap.

    It does not make them safe: any lease can run out while its holder is paused. Safety is
    the commit log's, so a provider only has to be honest: one holder
    at a time as far as leases allow, and :meth:`is_held` false once the lease is lost.

    One object is one contender. It is not re-entrant.
    """

    @property
    def excludes_hudi(self) -> bool:
        """Whether other Hudi writers, such as the JVM's, can hold this very lock.

        Then a commit always takes it. Of another one it asks for the holder first, and without one does
        without.
        """

    def acquire(self, timeout: float | None = None) -> None:
        """Wait until this contender holds the lock.

        :param timeout: seconds to wait at most; the provider's own default when None.
        :raises LockTimeoutError: when somebody else holds it for the whole time.
        :raises LockUnavailableError: when the backend cannot be reached.
        """

    def release(self) -> None:
        """Give the lock back.

        :raises LockLostError: when it was not this contender's any more.
        :raises LockUnavailableError: when the backend cannot be told; the lease runs out then.
        """

    def is_held(self) -> bool:
        """Whether this contender holds the lock at this moment, by asking the backend.

        :return: False also when the backend cannot say.
        """

    @property
    def fencing_token(self) -> int:
        """A number that grows with every holding of this lock.

        :raises LockLostError: when the lock is not held.
        """

    def holder(self) -> LockHolder | None:
        """Who holds the lock now; None when nobody does.

        :raises LockUnavailableError: when the backend cannot be reached.
        """

    def waiters(self) -> list[str]:
        """Who waits for the lock, first come first, as far as the backend knows."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

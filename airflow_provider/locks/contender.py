"""The common part of all contenders for a table's lock, whatever the backend."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from airflow_provider import metrics
from airflow_provider.exceptions import (
    InvalidConnectionError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
)
from airflow_provider.locks.owner import describe_owner
from airflow_provider.locks.protocol import LockHolder

log = logging.getLogger(__name__)


class Contender(ABC):
    """One contender for one lock; see :class:`~airflow_provider.locks.protocol.LockProvider`.

    :param place: the locked place, for people and for programs: the table's location.
    :param timeout_seconds: seconds that :meth:`acquire` waits by default.
    :param owner: name of this contender, for people; host and process by default.
    """

    excludes_hudi = False

    #: The remedy in the error for a lock that was not acquired in time.
    _remedy = "raise timeout_seconds, or look for a writer that hangs"

    def __init__(self, place: str, timeout_seconds: float, owner: str | None) -> None:
        self._place = place
        self._timeout = timeout_seconds
        self._owner = owner or describe_owner()
        self._token: int | None = None

    @property
    def fencing_token(self) -> int:
        """See :attr:`LockProvider.fencing_token`."""
        if self._token is None:
            raise LockLostError(f"lock of table {self._place} is not held", table=self._place)
        return self._token

    @abstractmethod
    def acquire(self, timeout: float | None = None) -> None:
        """See :meth:`LockProvider.acquire`."""

    @abstractmethod
    def release(self) -> None:
        """See :meth:`LockProvider.release`."""

    @abstractmethod
    def is_held(self) -> bool:
        """See :meth:`LockProvider.is_held`."""

    @abstractmethod
    def holder(self) -> LockHolder | None:
        """See :meth:`LockProvider.holder`."""

    def waiters(self) -> list[str]:
        """See :meth:`LockProvider.waiters`; empty for a backend that does not know of waiting contenders."""
        return []

    def __enter__(self) -> Self:
        with metrics.timed("lock_wait", table=self._place):
            self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The commit log decides whether the work under the lock is valid. So a caller whose work is done does
        # not fail if its lease has run out meanwhile, or the backend does not answer.
        try:
            self.release()
        except (LockLostError, LockUnavailableError) as failure:
            log.warning("%s", failure)

    def _lost(self, token: int) -> LockLostError:
        return LockLostError(
            f"lock of table {self._place}: holding {token} had expired or was taken away",
            table=self._place,
            fencing_token=token,
        )

    def _timed_out(self, limit: float) -> LockTimeoutError:
        holder = self.holder()
        by = f"held by {described(holder)}" if holder else "contended"
        return LockTimeoutError(
            f"lock of table {self._place} not acquired in {limit:g} s: {by}; {self._remedy}",
            table=self._place,
            holder=holder.owner if holder else None,
        )

    def _unavailable(self, reason: str) -> LockUnavailableError:
        return LockUnavailableError(f"lock of table {self._place}: {reason}", table=self._place)


def invalid_option(provider: str, option: str, problem: str) -> InvalidConnectionError:
    """The error of an option that cannot work.

    :param provider: name of the lock provider, as in ``LOCK_PROVIDERS``.
    :param option: name of the option.
    :param problem: the problem of its value, and the values that the option takes.
    """
    return InvalidConnectionError(
        f"lock provider {provider!r}, option {option!r}: {problem}", provider=provider, option=option
    )


def missing_library(provider: str, library: str | None, extra: str) -> InvalidConnectionError:
    """The error of a provider whose library is not installed.

    :param provider: name of the lock provider, as in ``LOCK_PROVIDERS``.
    :param library: name of the module that cannot be imported.
    :param extra: the extra of this package that installs it.
    """
    return InvalidConnectionError(
        f"lock provider {provider!r} needs {library!r}, which is not installed; "
        f"pip install 'airflow-provider-table-services[{extra}]'",
        provider=provider,
        library=library,
    )


def described(holder: LockHolder) -> str:
    """Describe the holder of a lock, its last renewal, and the end of its lease.

    :param holder: the holder, read a moment ago.
    """
    text = f"{holder.owner}, last renewed {holder.age_seconds:.1f} s ago"
    if holder.seconds_left is None:
        return text
    until = datetime.now(UTC) + timedelta(seconds=holder.seconds_left)
    return f"{text}, and free from {until:%H:%M:%S} UTC on unless it is renewed"

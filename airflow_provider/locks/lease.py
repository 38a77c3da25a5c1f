"""Locks that are leases: the holder keeps the lock until it releases it, or stops renewing the lease.

This module has the rules that all such locks share. A subclass knows where the lease is stored.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable
from typing import TypedDict

import tenacity

from airflow_provider.exceptions import LockUnavailableError
from airflow_provider.locks.contender import Contender, described
from airflow_provider.locks.protocol import LockHolder
from airflow_provider.locks.recurring import Recurring

log = logging.getLogger(__name__)

# A contender that has waited for so long logs which holder it waits for.
_SILENT_SECONDS = 10.0


class LeaseOptions(TypedDict, total=False):
    """The options that every :class:`LeaseLock` takes; that class describes them."""

    timeout_seconds: float
    lease_seconds: float
    poll_interval_seconds: float
    owner: str | None


class LeaseLock(Contender):
    """A lock that contenders poll for, and that its holder renews from a thread.

    A subclass implements the abstract methods, each by one look at the backend or one atomic step. Its
    options are the keyword-only parameters of its constructor, and those here.

    :param place: the table's location.
    :param timeout_seconds: seconds that :meth:`acquire` waits by default.
    :param lease_seconds: a holder that has not renewed its lease for so long has lost the lock.
    :param poll_interval_seconds: the longest pause between two looks while waiting.
    :param owner: name of this contender, for people; host and process by default.
    """

    #: The errors that the backend's client raises when the backend cannot be used.
    unusable: tuple[type[Exception], ...] = (OSError,)

    #: Seconds for which a waiting contender tolerates that the backend does not answer.
    _outage = 0.0

    def __init__(
        self,
        place: str,
        *,
        timeout_seconds: float = 60.0,
        lease_seconds: float = 30.0,
        poll_interval_seconds: float = 0.1,
        owner: str | None = None,
    ) -> None:
        super().__init__(place, timeout_seconds, owner)
        self._lease = lease_seconds
        self._poll_interval = poll_interval_seconds
        self._contender = uuid.uuid4().hex
        self._renewal: _Renewal | None = None

    def _prepare(self) -> None:
        """Create the place in which the backend stores the lock, if it is missing. The lease begins later."""

    @abstractmethod
    def _try_acquire(self) -> int | None:
        """Take the lock if it is free or its lease has expired, and return the fencing token; else None."""

    @abstractmethod
    def _look(self) -> LockHolder | None:
        """The present holder, by one look at the backend."""

    @abstractmethod
    def _renew(self, token: int) -> bool:
        """Renew the lease; False when it is lost."""

    @abstractmethod
    def _holds(self, token: int) -> bool:
        """Whether the backend still shows this contender as the holder."""

    @abstractmethod
    def _give_back(self, token: int) -> bool:
        """Release the lock; False when this contender had lost it already."""

    def _waiting_owners(self) -> list[str]:
        """The owners of the contenders that wait, in the order of their turns."""
        return []

    def _leave_the_line(self) -> None:
        """Give up the place among the waiting contenders; called when the wait ends without the lock."""

    def _reason(self, error: Exception) -> str:
        """The reason why the backend cannot be used, for people, without any secret."""
        return f"storage cannot be used: {error}"

    def _pause(self, attempt: int) -> float:
        """Seconds until the next look, after the attempt of this number, which is 1 or more."""
        longest = min(self._poll_interval, 0.002 * 2 ** min(attempt, 30))
        return random.uniform(0, longest)  # noqa: S311 - no secret

    def _sleep(self, seconds: float) -> None:
        """Wait until the next look, at most so many seconds."""
        time.sleep(seconds)

    def _may_pass(self, error: Exception) -> bool:
        """Whether waiting a little can help."""
        return False

    def acquire(self, timeout: float | None = None) -> None:
        """See :meth:`LockProvider.acquire`.

        :raises LockTimeoutError: naming the holder.
        :raises LockUnavailableError: when the backend cannot be used.
        """
        limit = self._timeout if timeout is None else timeout
        attempt = _Attempt(self, limit)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda acquired: not acquired),
            wait=lambda state: min(
                self._pause(state.attempt_number), max(0.0, limit - (state.seconds_since_start or 0.0))
            ),
            sleep=self._sleep,
            stop=tenacity.stop_after_delay(limit),
        )
        try:
            try:
                retrying(attempt)
            except tenacity.RetryError:
                raise (attempt.failure or self._timed_out(limit)) from None
        except LockUnavailableError:
            raise  # the backend keeps the place in the line until it expires, or the next attempt uses it
        except BaseException:
            self._leave_the_line()
            raise

    def release(self) -> None:
        """See :meth:`LockProvider.release`.

        :raises LockLostError: also when the lease has expired and no other contender has taken the lock.
        :raises LockUnavailableError: when the backend cannot be reached; the lease runs out then.
        """
        token = self.fencing_token
        in_time = self._renewal is not None and self._renewal.in_time()
        self._forget()
        try:
            given_back = self._give_back(token)
        except self.unusable as error:
            raise self._translated(error) from None
        if not (in_time and given_back):
            raise self._lost(token)

    def is_held(self) -> bool:
        """See :meth:`LockProvider.is_held`."""
        if self._token is None or self._renewal is None or not self._renewal.in_time():
            return False
        try:
            still_holds = self._holds(self._token)
        except self.unusable:
            return False
        # The lease is checked again, because the backend's answer may have taken long.
        return still_holds and self._renewal.in_time()

    def holder(self) -> LockHolder | None:
        """See :meth:`LockProvider.holder`."""
        try:
            return self._look()
        except self.unusable as error:
            raise self._translated(error) from None

    def waiters(self) -> list[str]:
        """See :meth:`LockProvider.waiters`.

        :raises LockUnavailableError: when the backend cannot be used.
        """
        try:
            return self._waiting_owners()
        except self.unusable as error:
            raise self._translated(error) from None

    def _begin(self, token: int, begun: float) -> None:
        self._token = token
        self._renewal = _Renewal(lambda: self._renew(token), self._lease, begun, self.unusable)

    def _forget(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
        self._token = self._renewal = None

    def _translated(self, error: Exception) -> LockUnavailableError:
        return self._unavailable(self._reason(error))


class _Attempt:
    """Repeated attempts to take a lock. They remember how long the backend has not answered.

    After ten seconds they log the holder and the end of its lease.
    """

    def __init__(self, lock: LeaseLock, limit: float) -> None:
        self._lock = lock
        self._patience = min(lock._outage, limit)
        self._away_since: float | None = None
        self._silent_until: float | None = time.monotonic() + _SILENT_SECONDS
        self.failure: LockUnavailableError | None = None

    def __call__(self) -> bool:
        begun = time.monotonic()
        try:
            self._lock._prepare()
            begun = time.monotonic()
            token = self._lock._try_acquire()
        except self._lock.unusable as error:
            self.failure = self._lock._translated(error)
            self._away_since = self._away_since or begun
            if self._lock._may_pass(error) and time.monotonic() - self._away_since < self._patience:
                return False
            # From None, because a driver's error may repeat its arguments, passwords included.
            raise self.failure from None
        self._away_since = self.failure = None
        if token is None:
            if self._silent_until is not None and time.monotonic() > self._silent_until:
                self._silent_until = None
                self._tell()
            return False
        self._lock._begin(token, begun)
        return True

    def _tell(self) -> None:
        try:
            holder = self._lock._look()
        except self._lock.unusable:
            return  # the next attempt reports it
        if holder is not None:
            log.warning("lock of table %s: waits for %s", self._lock._place, described(holder))


class _Renewal:
    """Renews a lease, three times in its duration, until :meth:`stop` or until the lease is lost.

    :param begun: :func:`time.monotonic` before the request for the lease. The lease cannot have begun
        earlier, whatever the backend's clock shows.
    """

    def __init__(
        self, renew: Callable[[], bool], lease: float, begun: float, unusable: tuple[type[Exception], ...]
    ) -> None:
        self._renew = renew
        self._lease = lease
        self._renewed = begun
        self._unusable = unusable
        self._recurring = Recurring(self._run, lease / 3, "lock-renewal")

    def in_time(self) -> bool:
        """Whether the lease cannot have run out by this process's own clock."""
        return time.monotonic() - self._renewed <= self._lease

    def stop(self) -> None:
        """Stop, and wait until no renewal is in progress."""
        self._recurring.stop()

    def _run(self) -> bool:
        begun = time.monotonic()
        try:
            if not self.in_time() or not self._renew():
                return False
        except self._unusable:
            return True  # the lease runs out by itself
        self._renewed = begun
        return True

"""Group commit: one database transaction for the requests that several threads make at the same moment.

A database transaction costs the same round trips and the same flush to the disk for one request as for ten.
So a thread whose request comes while a transaction runs waits for its end, and all waiting requests go into
the next one. Threads that were answered a moment ago are about to make their next request: the next group
waits for them, for a part of the time that the last group took. A lone request after lone requests does not
wait.

A server's thread does not wait. It leaves its request in the group, and the thread that does the group writes
the answer, because waking the server's thread would cost more than the request itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Connection

from airflow_provider.exceptions import MetastoreUnavailableError, TableServiceError

if TYPE_CHECKING:
    from airflow_provider.metastore.database.sql_database import RunStatement, SqlDatabase

log = logging.getLogger(__name__)

T = TypeVar("T")

Tell = Callable[[Callable[[], T]], None]
"""Receives a function that returns the request's answer or raises its error."""

_LARGEST_GROUP = 64
# A group waits for the threads of the last group: for this part of that group's time, and at most so long.
_PATIENCE, _LONGEST_WAIT_SECONDS = 0.5, 0.003
# The thread that leads groups ends after so long without a group.
_IDLE_SECONDS = 1.0


class GroupedRequest(Generic[T]):
    """A request that a group can contain; ``T`` is the type of its answer."""


@dataclass(frozen=True)
class GroupOperation:
    """The functions that do requests of one kind.

    :param alone: does one request, and raises its errors.
    :param at_once: does several requests by a single statement of PostgreSQL, which needs no BEGIN and no
        COMMIT: one round trip for all. The statement waits for no row but a counter's. It returns answers by
        the positions of the requests. ``alone`` does a request that it leaves out.
    """

    alone: Callable[[Connection, Any], Any]
    at_once: Callable[[RunStatement, Sequence[Any]], Mapping[int, Any]]

    def do(self, sql: SqlDatabase, requests: Sequence[Any]) -> Mapping[int, Any]:
        """Do a group, in one database transaction.

        :return: answers by the positions of the requests. The caller does a request without an answer alone.
        """
        if sql.is_sqlite:
            return sql.write(lambda connection: self._one_by_one(connection, requests))
        return self.at_once(sql.run_statement, requests)

    def _one_by_one(self, connection: Connection, requests: Sequence[Any]) -> Mapping[int, Any]:
        answers: dict[int, Any] = {}
        for at, request in enumerate(requests):
            with suppress(TableServiceError), connection.begin_nested():
                answers[at] = self.alone(connection, request)
        return answers


class _Member:
    """A request and the thread that waits for its answer."""

    def __init__(self, request: GroupedRequest[Any]) -> None:
        self.request = request
        self.answer: tuple[Any] | None = None
        self.error: Exception | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self) -> None:
        """Wait for :meth:`lead` or :meth:`wake`."""
        self._asleep.acquire()

    def lead(self) -> None:
        """Make the thread of this request the leader of the next group."""
        self._asleep.release()

    def wake(self) -> None:
        """Wake the thread of this request, because the request is done."""
        self._asleep.release()


class _Left(_Member):
    """A request that no thread waits for."""

    def __init__(self, request: GroupedRequest[T], tell: Tell[T], group: GroupCommit) -> None:
        super().__init__(request)
        self._tell, self._group = tell, group

    def lead(self) -> None:
        """Hand the next group to the group commit's own thread."""
        self._group.lead_in_thread(self)

    def wake(self) -> None:
        """Deliver the answer."""
        if self.answer is not None or self.error is not None:
            self._deliver()
        else:
            self._do_alone()

    def _do_alone(self) -> None:
        # A request that is done alone may have to wait for others.
        thread = threading.Thread(target=self._deliver, name="metastore-alone", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.error = MetastoreUnavailableError(f"nothing was done: {error}")
            self._deliver()

    def _deliver(self) -> None:
        try:
            self._tell(lambda: self._group.answer_to(self))
        except Exception:
            log.exception("the answer to a grouped request could not be delivered")


class GroupCommit:
    """Groups the requests of one kind of all threads of this process.

    The thread that has waited longest is the leader and does the whole group. The next group has another
    leader.

    :param operation: does the requests.
    :param sql: the database.
    """

    def __init__(self, operation: GroupOperation, sql: SqlDatabase) -> None:
        self._operation = operation
        self._sql = sql
        self._guard = threading.Lock()
        self._waiting: list[_Member] = []
        self._leader: _Member | None = None
        self._all_are_there = threading.Condition(self._guard)
        self._expected = 1
        self._patience = 0.0
        self._to_lead: SimpleQueue[_Left] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def do(self, request: GroupedRequest[T]) -> T:
        """Do a request, in a group or alone.

        :return: the request's answer, after the database has committed.
        """
        member = _Member(request)
        try:
            with self._guard:
                leads = self._enter(member)
            if not leads:
                member.sleep()
            if self._leader is member:
                self._lead(member)
        except BaseException:
            # A signal's handler raised. No other thread may wait for a leader that has gone.
            self._leave(member)
            raise
        return self.answer_to(member)  # type: ignore[no-any-return]

    def leave(self, request: GroupedRequest[T], tell: Tell[T]) -> None:
        """Do a request as :meth:`do`, without waiting for another leader.

        Without a leader this thread does the group.

        :param tell: called once, maybe in the leader's thread, which goes on when it returns.
        """
        member = _Left(request, tell, self)
        with self._guard:
            if self._thread is None:
                # The thread starts now, so that no group waits for its start later.
                thread = threading.Thread(target=self._lead_all, name="metastore-groups", daemon=True)
                thread.start()
                self._thread = thread
            leads = self._enter(member)
        if leads:
            self._lead(member)
            member.wake()

    def lead_in_thread(self, leader: _Left) -> None:
        """Do the next group in the thread of this group commit."""
        self._to_lead.put(leader)

    def answer_to(self, member: _Member) -> Any:
        """The answer to a request of a group. A request that the group left out is done alone now."""
        if member.error is not None:
            raise member.error
        if member.answer is not None:
            return member.answer[0]
        return self._sql.write(lambda connection: self._operation.alone(connection, member.request))

    def _enter(self, member: _Member) -> bool:
        """Join the waiting requests; the caller holds the guard.

        :return: whether this request's thread is the leader.
        """
        self._waiting.append(member)
        if self._leader is None:
            self._leader = member
        elif len(self._waiting) >= self._expected:
            self._all_are_there.notify()
        return self._leader is member

    def _lead_all(self) -> None:
        while True:
            try:
                leader = self._to_lead.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._guard:
                    if not self._waiting and self._to_lead.empty():
                        self._thread = None
                        return
            else:
                self._lead(leader)
                leader.wake()

    def _lead(self, leader: _Member) -> None:
        """Do a group of waiting requests, the leader's own first."""
        with self._guard:
            self._all_are_there.wait_for(lambda: len(self._waiting) >= self._expected, self._patience)
            group, self._waiting = self._waiting[:_LARGEST_GROUP], self._waiting[_LARGEST_GROUP:]
        requests = [member.request for member in group]
        began = time.monotonic()
        answers: Mapping[int, Any] = {}
        lost: MetastoreUnavailableError | None = MetastoreUnavailableError(
            "the thread that did the request was interrupted; it may have been done"
        )
        try:
            answers = self._operation.do(self._sql, requests)
            lost = None
        except MetastoreUnavailableError as error:
            leader.error = lost = error
        except Exception:  # noqa: BLE001 - nothing is done; each request is done alone and gets its own error
            lost = None
        finally:
            self._patience = min(_PATIENCE * (time.monotonic() - began), _LONGEST_WAIT_SECONDS)
            self._expected = min(len(group) + len(self._waiting), _LARGEST_GROUP)
            self._leave(leader)
            for position, member in enumerate(group):
                if position in answers:
                    member.answer = (answers[position],)
                elif lost is not None and member.error is None:
                    member.error = MetastoreUnavailableError(str(lost), **lost.details)
                if member is not leader:
                    member.wake()

    def _leave(self, member: _Member) -> None:
        """Stop waiting, and make the next waiting request the leader."""
        with self._guard:
            if member in self._waiting:
                self._waiting.remove(member)
            if self._leader is member:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.lead()

"""Waiting for writers of higher priority before a write begins.

By the conflict rules, a write of lower priority yields if both touch the same file group. A writer with many
commits, such as a backfill, can also wait between two of them, whatever file groups the others touch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import tenacity

from airflow_provider import metrics
from airflow_provider.concurrency.conflicts.pending_writes import writers_above
from airflow_provider.concurrency.heartbeats import observe
from airflow_provider.exceptions import LockUnavailableError
from airflow_provider.locks import LockProvider
from airflow_provider.table.storage import Storage

log = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 0.5


def writers_ahead(storage: Storage, priority: int, lock: LockProvider) -> list[str]:
    """The writers that go first: live writers of higher priority, and waiters for the table lock.

    A waiter for the lock that has a heartbeat counts by its priority. A waiter without one, such as the JVM's
    Hudi, is in the middle of a commit, and goes first.

    :param storage: the table's storage.
    :param priority: the caller's priority.
    :param lock: the table's lock.
    :return: a description of each writer, for people.
    """
    ahead = [str(writer) for writer in writers_above(storage, priority)]
    try:
        waiting = lock.waiters()
    except LockUnavailableError as error:
        log.warning("who waits for the table lock is not known: %s", error)
        return ahead
    known = {heartbeat.info.owner for heartbeat in observe(storage).values()}
    return ahead + [f"{owner}, who waits for the table lock" for owner in waiting if owner not in known]


def wait_for_higher_priority(
    storage: Storage,
    priority: int,
    lock: LockProvider,
    *,
    patience: float,
    is_stopped: Callable[[], bool] = lambda: False,
    on_wait: Callable[[list[str]], None] = lambda ahead: None,
) -> float:
    """Wait until no writer goes first any more, or the patience has run out.

    :param storage: the table's storage.
    :param priority: the priority of the write that waits.
    :param lock: the table's lock.
    :param patience: seconds to wait at most.
    :param is_stopped: called between two looks; True ends the wait.
    :param on_wait: called with the writers that go first, each time that they change.
    :return: seconds waited.
    """
    started, told = time.monotonic(), list[str]()

    def ahead() -> list[str]:
        nonlocal told
        found = writers_ahead(storage, priority, lock)
        goes_on_waiting = time.monotonic() - started < patience and not is_stopped()
        if found and found != told and goes_on_waiting:
            on_wait(found)
            told = found
        return found

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(bool),
        wait=lambda _: min(_LOOK_EVERY_SECONDS, max(0.0, patience - (time.monotonic() - started))),
        stop=lambda _: time.monotonic() - started >= patience or is_stopped(),
        retry_error_callback=lambda _: [],
    )
    retrying(ahead)
    waited = time.monotonic() - started if told else 0.0
    if waited:
        metrics.took("yield_wait", waited, table=storage.root, priority=priority)
    return waited

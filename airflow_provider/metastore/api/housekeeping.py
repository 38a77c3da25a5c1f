"""The periodic upkeep of a metastore: timed-out transactions and locks, and old events."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from airflow_provider.exceptions import MetastoreError
from airflow_provider.metastore.api.metastore import Metastore
from airflow_provider.metastore.model import LOCK_TIMEOUT_SECONDS
from airflow_provider.metastore.transactions import remove_empty_aborted

log = logging.getLogger(__name__)

EVENT_TTL_SECONDS = 86_400.0
"""Hive's default, ``hive.metastore.event.db.listener.timetolive``."""


class Recover(Protocol):
    """A function that ends a metastore's timed-out transactions as their tables' timelines say."""

    def __call__(self, metastore: Metastore, /, *, timeout_seconds: float) -> object: ...


class Housekeeper:
    """Ends timed-out transactions and locks and removes old events, in a thread.

    Any number of housekeepers may run at once.

    :param metastore: the metastore.
    :param recover: ends the transactions that timed out. None to abort those that wrote nothing, and to leave
        the others alone: only their tables' timelines, which a metastore does not read, say how they ended.
    :param interval: seconds between two rounds; Hive's default is 60.
    :param timeout_seconds: a transaction times out after so long without a heartbeat.
    :param event_ttl: seconds for which the log keeps notification events at least; None for ever.
    """

    def __init__(
        self,
        metastore: Metastore,
        *,
        recover: Recover | None = None,
        interval: float = 60.0,
        timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
        event_ttl: float | None = EVENT_TTL_SECONDS,
    ) -> None:
        self._metastore = metastore
        self._recover = recover or _abort_timed_out
        self._interval = interval
        self._timeout = timeout_seconds
        self._event_ttl = event_ttl
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metastore-housekeeper", daemon=True)

    def start(self) -> None:
        """Start the thread; its first round comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the round that is under way."""
        self._stopping.set()
        self._thread.join()

    def keep_house(self) -> None:
        """Do one round of upkeep."""
        self._recover(self._metastore, timeout_seconds=self._timeout)
        if removed := self._metastore.remove_timed_out_locks():
            log.info("timed out: locks %s", removed)
        removed_txns = self._metastore.sql.write(
            lambda connection: remove_empty_aborted(connection, EVENT_TTL_SECONDS)
        )
        if removed_txns:
            log.info("%d aborted transactions without a write are forgotten", removed_txns)
        if self._event_ttl is not None:
            purged = self._metastore.purge_events(self._event_ttl)
            if purged.removed:
                log.info("%d notification events were older than %g s", purged.removed, self._event_ttl)
            if purged.held_back_by:
                log.warning(
                    "notification events from %d on are older than %g s and kept for %s",
                    purged.oldest_event_id,
                    self._event_ttl,
                    ", ".join(purged.held_back_by),
                )

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            started = time.monotonic()
            try:
                self.keep_house()
            except MetastoreError as error:
                log.warning("housekeeping failed after %.1f s: %s", time.monotonic() - started, error)


def _abort_timed_out(metastore: Metastore, *, timeout_seconds: float) -> None:
    metastore.abort_timed_out(timeout_seconds)

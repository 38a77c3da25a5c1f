"""What has to be done to a metastore from time to time, by somebody."""

from __future__ import annotations

import logging
import threading
import time

from airflow_provider.exceptions import MetastoreError
from airflow_provider.metastore.lock_objects import LOCK_TIMEOUT_SECONDS
from airflow_provider.metastore.metastore import Metastore

log = logging.getLogger(__name__)

EVENT_TTL_SECONDS = 86_400.0
"""Hive's default, ``hive.metastore.event.db.listener.timetolive``."""


class Housekeeper:
    """Ends what timed out and removes what is old, in a thread; any number of them may run.

    A transaction that recorded an instant is left alone: only its table's timeline says how it ended
    (:meth:`~airflow_provider.metastore.metastore.Metastore.recover_timed_out`).

    :param metastore: what is kept.
    :param interval: seconds between two rounds; Hive's is 60.
    :param timeout_seconds: a transaction without a heartbeat for so long is aborted.
    :param event_ttl: seconds that notification events are kept at least; None to keep them for ever.
    """

    def __init__(
        self,
        metastore: Metastore,
        *,
        interval: float = 60.0,
        timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
        event_ttl: float | None = EVENT_TTL_SECONDS,
    ) -> None:
        self._metastore = metastore
        self._interval = interval
        self._timeout = timeout_seconds
        self._event_ttl = event_ttl
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metastore-housekeeper", daemon=True)

    def start(self) -> None:
        """Begin; the first round comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stopping.set()
        self._thread.join()

    def keep_house(self) -> None:
        """One round."""
        aborted = self._metastore.abort_timed_out(self._timeout)
        removed = self._metastore.remove_timed_out_locks()
        if aborted or removed:
            log.info("timed out: transactions %s, locks %s", aborted, removed)
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

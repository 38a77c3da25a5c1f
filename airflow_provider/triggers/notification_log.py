"""Waiting in the triggerer for consumers of the notification log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow_provider.exceptions import (
    ConsumerGoneError,
    EventsExpiredError,
    NoSuchObjectError,
    TransactionAbortedError,
)
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.stats import consumer_lags
from airflow_provider.metastore import AnyMetastore, LogConsumer, TxnState, open_metastore
from airflow_provider.triggers.polling import PollingTrigger, Progress, while_briefly_unavailable

GONE_AFTER_SECONDS = 600.0
"""Seconds without a sign of life after which retention no longer waits for a replica either."""

# A consumer's rate is its rate over this number of its latest moves.
_MOVES = 10


@dataclass
class CatchUp:
    """The event to wait for, and the consumers' moves since the wait began.

    :param until: an event id; None to wait for a transaction.
    :param txn_id: the transaction whose COMMIT_TXN event to wait for; None to wait for an event.
    :param consumers: names of registered consumers; all registered consumers when None, or the log itself if
        there are none.
    :param gone_after: seconds; the wait for a consumer ends if it had something to read and gave no sign of
        life for so long.
    """

    until: int | None
    txn_id: int | None
    consumers: Sequence[str] | None
    gone_after: float
    _moves: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def look(self, metastore: AnyMetastore) -> Progress:
        """Compare the positions of the consumers with the event.

        :param metastore: the metastore that keeps the log.
        :raises NoSuchObjectError: when a named consumer is not registered; the message names the registered
            ones.
        :raises NoSuchTransactionError: when the transaction was never opened.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises ConsumerGoneError: when one of the consumers is gone.
        """
        consumer_lags(metastore)
        awaited = self._awaited(metastore)
        until = self._event(metastore)
        if until is None:
            return Progress((f"transaction {self.txn_id} is open",))
        if not awaited:
            head = metastore.current_event_id()
            blocking = () if head >= until else (f"notification log is at event {head}, not yet at {until}",)
            return Progress(blocking, {"event_id": until, "consumers": {}})
        behind = [consumer for consumer in awaited if consumer.event_id < until]
        for consumer in behind:
            self._check_alive(metastore, consumer, until)
        return Progress(
            tuple(self._describe(consumer, until) for consumer in behind),
            {"event_id": until, "consumers": {consumer.name: consumer.event_id for consumer in awaited}},
        )

    def _awaited(self, metastore: AnyMetastore) -> list[LogConsumer]:
        registered = {consumer.name: consumer for consumer in metastore.consumers()}
        if self.consumers is None:
            return list(registered.values())
        for name in self.consumers:
            if name not in registered:
                raise NoSuchObjectError(
                    f"consumer {name!r} is not registered in the notification log; registered: "
                    f"{', '.join(sorted(registered)) or 'none'}. Register it, or leave 'consumers' out",
                    consumer=name,
                )
        return [registered[name] for name in self.consumers]

    def _event(self, metastore: AnyMetastore) -> int | None:
        if self.until is None and self.txn_id is not None:
            txn = metastore.get_txn(self.txn_id)
            if txn.state == TxnState.ABORTED:
                raise TransactionAbortedError(
                    f"transaction {self.txn_id} was aborted: nobody will ever see what it wrote",
                    txn_id=self.txn_id,
                )
            self.until = txn.event_id
        return self.until

    def _check_alive(self, metastore: AnyMetastore, consumer: LogConsumer, until: int) -> None:
        if consumer.silent_seconds < self.gone_after:
            return
        where = f"consumer {consumer.name!r} is at event {consumer.event_id}, {until} is waited for"
        try:
            unread = metastore.next_events(consumer.event_id, 1)
        except EventsExpiredError as error:
            raise ConsumerGoneError(
                f"{where}, and it cannot come there: {error}", consumer=consumer.name
            ) from error
        # A consumer with nothing to read is silent; its silence counts from the first unread event on.
        if unread and time.time() - unread[0].event_time >= self.gone_after:
            raise ConsumerGoneError(
                f"{where}, and it gave no sign of life for {consumer.silent_seconds:.0f} s (gone_after is "
                f"{self.gone_after:g} s): start it again, or unregister it "
                f"(table-services metastore forget {consumer.name})",
                consumer=consumer.name,
                event_id=consumer.event_id,
            )

    def _describe(self, consumer: LogConsumer, until: int) -> str:
        moves = self._moves.setdefault(consumer.name, deque(maxlen=_MOVES))
        if moves and consumer.event_id < moves[-1][1]:
            moves.clear()  # somebody has restarted the consumer
        if not moves or consumer.event_id > moves[-1][1]:
            moves.append((time.monotonic(), consumer.event_id))
        behind = until - consumer.event_id
        line = f"consumer {consumer.name!r} is at event {consumer.event_id}, {behind} behind {until}"
        (began, first), (ended, last) = moves[0], moves[-1]
        if ended <= began:
            return line
        rate = (last - first) / (ended - began)
        left = timedelta(seconds=round(behind / rate))
        return f"{line}, {rate:.3g} events/s, {left} left at that rate"


class NotificationLogCatchupTrigger(PollingTrigger):
    """Fires when consumers of the notification log have applied everything up to an event.

    :param until: an event id; None to wait for a transaction.
    :param txn_id: a transaction; None to wait for an event.
    :param consumers: names of registered consumers; all when None.
    :param gone_after: see :class:`CatchUp`.
    :param metastore_conn_id: connection of type ``table_metastore``.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(
        self,
        *,
        until: int | None,
        consumers: Sequence[str] | None,
        metastore_conn_id: str,
        poke_interval: float,
        deadline: float,
        txn_id: int | None = None,
        gone_after: float = GONE_AFTER_SECONDS,
    ) -> None:
        super().__init__(poke_interval=poke_interval, deadline=deadline)
        self.catch_up = CatchUp(until, txn_id, consumers, gone_after)
        self.metastore_conn_id = metastore_conn_id
        self._url = ""
        self._metastore: AnyMetastore | None = None

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        names = self.catch_up.consumers
        return {
            "until": self.catch_up.until,
            "txn_id": self.catch_up.txn_id,
            "consumers": None if names is None else list(names),
            "gone_after": self.catch_up.gone_after,
            "metastore_conn_id": self.metastore_conn_id,
        }

    async def connect(self) -> None:
        """See :meth:`PollingTrigger.connect`."""
        self._url = await MetastoreHook(self.metastore_conn_id).aget_url()

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        if self._metastore is None:
            self._metastore = open_metastore(self._url, must_exist=True)
        return self.catch_up.look(self._metastore)

"""Starting DAGs from events of the notification log: Airflow's event-driven scheduling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Never

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome, SharedStreamProducer

from airflow_provider.exceptions import (
    EventsExpiredError,
    InvalidInputError,
    MetastoreError,
    TableServiceError,
)
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.metastore import AnyMetastore, EventType, LogConsumer, NotificationEvent, open_metastore
from airflow_provider.metastore.model import split_table_name
from airflow_provider.triggers.polling import while_briefly_unavailable

log = logging.getLogger(__name__)

_OF_NO_TABLE = frozenset({EventType.OPEN_TXN, EventType.COMMIT_TXN, EventType.ABORT_TXN})
# The trigger logs an error that needs a person this often, not at every look.
_PAUSE_AFTER_ERROR = 30.0
# By this sign of life, sensors that wait for the consumer see that it is alive.
_LONGEST_SILENCE = 30.0


class NotificationLogEventTrigger(BaseEventTrigger):
    """Starts DAGs when something happens in the metastore; for an :class:`~airflow.sdk.AssetWatcher`.

    ::

        arrivals = Asset("flights_arrivals", watchers=[AssetWatcher(
            name="inserts",
            trigger=NotificationLogEventTrigger(
                consumer="flights_report", event_types=["INSERT"], table="lake.flights"
            ),
        )])
        with DAG("flights_report", schedule=[arrivals]): ...

    The trigger's cursor is a consumer of the notification log. The cursor moves when Airflow has stored a
    delivery. So every event arrives at least once, whichever process is killed; after a kill an event may
    arrive again, with the same id. The payload, ``asset_event.extra["payload"]``, is::

        {"consumer": "flights_report", "event_id": 17, "missed": None, "events": [
            {"event_id": 17, "event_type": "INSERT", "event_time": 1385884800,
             "database": "lake", "table": "flights"},
        ]}

    with the events in order; ``event_id`` is the id of the last one. If retention removed events before the
    trigger read them, ``missed`` is ``{"after": 3, "through": 9}``; see ``restart``.

    :param consumer: name of the cursor; each watcher needs a cursor of its own. Retention waits for the
        cursor. Remove a cursor that nobody needs any more: ``table-services metastore forget``.
    :param event_types: names of :class:`~airflow_provider.metastore.EventType`; all when None.
    :param table: only events of this table, ``database.table``.
    :param database: only events of this database.
    :param start_event_id: the event after which a new cursor begins. None for the log's end, 0 for all events
        in the log. A registered cursor continues at its position.
    :param restart: what the trigger does if retention has removed events that the cursor has not read. False:
        it logs this again and again, until somebody restarts the cursor. True: the cursor begins again at the
        log's end; the log and the payload name the missed events.
    :param expiry_seconds: seconds without a triggerer after which retention no longer waits for the cursor;
        None to wait for ever.
    :param max_events: the most events in one delivery.
    :param with_message: deliver the events' messages, too: Airflow stores them in its database.
    :param poll_interval: seconds between two looks. One delivery has all events in between.
    :param metastore_conn_id: connection of type ``table_metastore``.
    :param kwargs: Airflow's own arguments: ``queue``, from 3.4 on.
    :raises InvalidInputError: when a type is not known, or an argument is invalid.
    """

    def __init__(
        self,
        *,
        consumer: str,
        event_types: Sequence[str] | None = None,
        table: str | None = None,
        database: str | None = None,
        start_event_id: int | None = None,
        restart: bool = False,
        expiry_seconds: float | None = None,
        max_events: int = 100,
        with_message: bool = False,
        poll_interval: float = 5.0,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.cursor = Cursor(
            consumer,
            None if event_types is None else tuple(str(each) for each in event_types),
            table,
            database,
            start_event_id,
            restart,
            expiry_seconds,
            max_events,
            with_message,
            poll_interval,
            metastore_conn_id,
        )
        self.cursor.validate()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`airflow.triggers.base.BaseTrigger.serialize`."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.cursor.arguments()

    def shared_stream_key(self) -> Hashable:
        """See :meth:`airflow.triggers.base.BaseEventTrigger.shared_stream_key`.

        Airflow tells only a shared stream when it has stored a delivery.
        """
        return type(self).__qualname__, self.cursor.metastore_conn_id, self.cursor.consumer

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """See :meth:`airflow.triggers.base.BaseEventTrigger.create_shared_stream_producer`."""
        return _Producer(cls(**kwargs).cursor)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """See :meth:`airflow.triggers.base.BaseEventTrigger.filter_shared_stream`.

        :raises InvalidInputError: when another watcher with other arguments uses the same cursor.
        """
        async for delivery in shared_stream:
            if delivery.cursor != self.cursor:
                raise InvalidInputError(
                    f"two watchers use the consumer {self.cursor.consumer!r}: {delivery.cursor} and "
                    f"{self.cursor}; give each a name of its own",
                    consumer=self.cursor.consumer,
                )
            yield TriggerEvent(delivery.payload())  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The events, where Airflow does not confirm that it has stored them: the next call confirms it."""
        producer = _Producer(self.cursor)
        async for delivery, position in producer.open_stream():
            yield TriggerEvent(delivery.payload())  # type: ignore[no-untyped-call]
            await producer.advance([AdvanceItem(position, AdvanceOutcome(acked=1, failed=0))])


@dataclass(frozen=True)
class Cursor:
    """A trigger's arguments; see :class:`NotificationLogEventTrigger`."""

    consumer: str
    event_types: tuple[str, ...] | None
    table: str | None
    database: str | None
    start_event_id: int | None
    restart: bool
    expiry_seconds: float | None
    max_events: int
    with_message: bool
    poll_interval: float
    metastore_conn_id: str

    def arguments(self) -> dict[str, Any]:
        """The arguments as JSON values."""
        types = None if self.event_types is None else list(self.event_types)
        return {**vars(self), "event_types": types}

    def validate(self) -> None:
        """Check everything that can be checked without the metastore.

        :raises InvalidInputError: when an argument is invalid.
        """
        if not self.consumer:
            raise InvalidInputError("the trigger's cursor needs a name: give 'consumer'")
        if self.table is not None:
            split_table_name(self.table)
        if self.table is not None and self.database is not None:
            self._refuse("database", self.database, "a table's name has its database: leave one out")
        known = [str(each) for each in EventType]
        if unknown := sorted(set(self.event_types or ()) - set(known)):
            self._refuse("event_types", unknown, f"known are {', '.join(known)}")
        if self.event_types == ():
            self._refuse("event_types", [], "give one at least, or None for all")
        if self._is_filtered and set(self.event_types or ()) & _OF_NO_TABLE:
            self._refuse(
                "event_types", list(self.event_types or ()), "a transaction's events are of no table"
            )
        if self.max_events < 1 or self.poll_interval <= 0:
            self._refuse(
                "max_events", self.max_events, f"poll interval {self.poll_interval:g} s: give more than 0"
            )
        if self.expiry_seconds is not None and self.expiry_seconds < 4 * self.poll_interval:
            self._refuse("expiry_seconds", self.expiry_seconds, "give at least four poll intervals")

    @property
    def _is_filtered(self) -> bool:
        return self.table is not None or self.database is not None

    def _refuse(self, argument: str, value: Any, reason: str) -> Never:
        raise InvalidInputError(
            f"consumer {self.consumer!r}: {argument} {value!r}: {reason}", consumer=self.consumer
        )

    def look_up(self, metastore: AnyMetastore) -> LogConsumer:
        """The cursor's position, which a person may have moved; registers a new cursor."""
        for consumer in metastore.consumers():
            if consumer.name == self.consumer:
                return consumer
        try:
            registered = self._register(metastore, self.start_event_id)
        except EventsExpiredError as error:
            log.warning("consumer %s begins with what is left: %s", self.consumer, error)
            registered = self._register(metastore, error.details["purged_through"])
        log.info("consumer %s is registered, after event %d", self.consumer, registered.event_id)
        return registered

    def _register(self, metastore: AnyMetastore, event_id: int | None) -> LogConsumer:
        return metastore.register_consumer(
            self.consumer, event_id=event_id, expiry_seconds=self.expiry_seconds, if_not_exists=True
        )

    def unread(self, metastore: AnyMetastore, position: int) -> Delivery:
        """The events after a position.

        :raises EventsExpiredError: when retention has removed some of them, unless ``restart`` is True.
        """
        # Read before the events, so that all events up to this position are in the log when they are read.
        head = metastore.current_event_id()
        database, table = split_table_name(self.table) if self.table else (self.database, None)
        try:
            found = metastore.next_events(
                position, self.max_events, event_types=self.event_types, database=database, table=table
            )
        except EventsExpiredError as error:
            if not self.restart:
                raise
            missed = {"after": position, "through": head}
            log.warning(
                "consumer %s fell out of retention and begins again at %d: %s", self.consumer, head, error
            )
            return Delivery(self, (), head, missed)
        if len(found) == self.max_events:
            return Delivery(self, tuple(found), found[-1].event_id)
        return Delivery(self, tuple(found), max(head, *(event.event_id for event in found), position))


@dataclass(frozen=True)
class Delivery:
    """The events that one look found.

    :param cursor: the trigger's cursor.
    :param events: the events that the cursor asks for, in order.
    :param position: the cursor's position once Airflow has stored the events.
    :param missed: the events that were removed before they were read: ``after`` and ``through``.
    """

    cursor: Cursor
    events: tuple[NotificationEvent, ...]
    position: int
    missed: dict[str, int] | None = None

    def payload(self) -> dict[str, Any]:
        """The delivery as Airflow stores it."""
        return {
            "consumer": self.cursor.consumer,
            "event_id": self.events[-1].event_id if self.events else self.position,
            "missed": self.missed,
            "events": [self._described(event) for event in self.events],
        }

    def _described(self, event: NotificationEvent) -> dict[str, Any]:
        described = {
            "event_id": event.event_id,
            "event_type": event.event_type,
            "event_time": event.event_time,
            "database": event.database,
            "table": event.table,
        }
        return {**described, "message": event.message} if self.cursor.with_message else described


class _Producer(SharedStreamProducer):
    """One delivery at a time: the next look begins when Airflow has stored the last one."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._metastore: AnyMetastore | None = None
        self._stored = asyncio.Event()

    async def open_stream(self) -> AsyncIterator[tuple[Delivery, Delivery]]:
        """See :meth:`airflow.triggers.shared_stream.SharedStreamProducer.open_stream`."""
        while True:
            pause = self._cursor.poll_interval
            delivery = None
            try:
                if self._metastore is None:
                    url = await MetastoreHook(self._cursor.metastore_conn_id).aget_url()
                    self._metastore = await asyncio.to_thread(open_metastore, url)
                delivery = await asyncio.to_thread(self._look, self._metastore)
            except TableServiceError as error:
                # Airflow starts a trigger that raises again at once, again and again.
                pause = max(pause, _PAUSE_AFTER_ERROR)
                log.error(  # noqa: TRY400
                    "consumer %s: %s; looking again in %g s", self._cursor.consumer, error, pause
                )
            if delivery is not None:
                self._stored.clear()
                yield delivery, delivery
                await self._stored.wait()
            await asyncio.sleep(pause)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """See :meth:`airflow.triggers.shared_stream.SharedStreamProducer.advance`.

        :raises MetastoreError: when Airflow did not store a delivery, or the cursor cannot be moved: then the
            trigger starts again, at the cursor's position.
        """
        for delivery, outcome in batch:
            if outcome.failed or not outcome.acked:
                raise MetastoreError(
                    f"consumer {self._cursor.consumer!r}: Airflow has not stored the delivery up to event "
                    f"{delivery.position}; it comes again",
                    event_id=delivery.position,
                )
            await asyncio.to_thread(self._move, delivery)
        self._stored.set()

    async def aclose(self) -> None:
        """See :meth:`airflow.triggers.shared_stream.SharedStreamProducer.aclose`."""
        if self._metastore is not None:
            await asyncio.to_thread(self._metastore.close)

    def _look(self, metastore: AnyMetastore) -> Delivery | None:
        """The next delivery. If no event is to be delivered, the cursor moves to the log's end."""
        at = self._cursor.look_up(metastore)
        delivery = self._cursor.unread(metastore, at.event_id)
        if delivery.events or delivery.missed:
            return delivery
        longest = min(_LONGEST_SILENCE, (at.expiry_seconds or _LONGEST_SILENCE) / 4)
        if delivery.position > at.event_id or at.silent_seconds >= longest:
            self._move(delivery)
        return None

    @while_briefly_unavailable
    def _move(self, delivery: Delivery) -> None:
        if self._metastore is None:
            raise RuntimeError("the stream is not open")
        if delivery.missed:
            self._metastore.restart_consumer(self._cursor.consumer, event_id=delivery.position)
        else:
            self._metastore.advance_consumer(self._cursor.consumer, delivery.position)

"""A server's notification log."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider.exceptions import EventsExpiredError, InvalidInputError
from airflow_provider.metastore.model import (
    EventType,
    LogConsumer,
    NotificationEvent,
    SourceState,
    decode_state,
)
from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.client.thrift_client import ThriftClient
from airflow_provider.metastore.thrift.protocol import hive

_ALL_EVENTS = 1_000
# The beginning of Hive's default message format (GzipJSONMessageEncoder).
_ZIPPED = "gzip("
# Our event types by Hive's names, where these differ.
_OUR_TYPES = {hive.ALLOC_WRITE_ID_EVENT: str(EventType.ALLOC_WRITE_ID)}


class NotificationClient(ThriftClient):
    """See :class:`~airflow_provider.metastore.interface.AnyMetastore`.

    A Hive has no consumers: their methods raise
    :class:`~airflow_provider.exceptions.UnsupportedByServerError` from it.
    """

    def current_event_id(self) -> int:
        """See :meth:`AnyMetastore.current_event_id`; a Hive without a log answers 0."""
        return current_event_id(self._server)

    def next_events(
        self,
        after: int,
        limit: int = _ALL_EVENTS,
        *,
        event_types: Collection[str] | None = None,
        database: str | None = None,
        table: str | None = None,
    ) -> list[NotificationEvent]:
        """See :meth:`AnyMetastore.next_events`."""
        if after < 0 or limit < 1:
            raise InvalidInputError(f"events after {after}, limit {limit}: give after >= 0 and limit >= 1")
        wanted = None if event_types is None else {str(kind) for kind in event_types}
        database, table = database and database.lower(), table and table.lower()
        found: list[NotificationEvent] = []
        while len(found) < limit:
            request = hive.NotificationEventRequest(lastEvent=after, maxEvents=limit - len(found))
            if wanted is not None:
                left_out = [str(kind) for kind in EventType if kind not in wanted]
                if EventType.ALLOC_WRITE_ID not in wanted:
                    left_out.append(hive.ALLOC_WRITE_ID_EVENT)
                request.eventTypeSkipList = left_out
            request.dbName, request.tableNames = database, None if table is None else [table]
            with self._expired_after(after):
                events = [_event(one) for one in self._server.read("get_next_notification", request).events]
            if not events:
                break
            if (wanted, database, table) == (None, None, None):
                _require_no_gap(after, events[0])
            after = events[-1].event_id
            # The client filters again: a Hive of version 2.3 ignores the conditions, and may send types that
            # we do not have.
            found += [
                one
                for one in events
                if (wanted is None or one.event_type in wanted)
                and database in (None, one.database)
                and table in (None, one.table)
            ]
        return found

    def register_consumer(
        self,
        name: str,
        *,
        event_id: int | None = None,
        expiry_seconds: float | None = None,
        if_not_exists: bool = False,
    ) -> LogConsumer:
        """See :meth:`AnyMetastore.register_consumer`."""
        register = self._server.read if if_not_exists else self._server.write
        request = hive.RegisterLogConsumerRequest(
            name=name, eventId=event_id, expirySeconds=expiry_seconds, ifNotExists=if_not_exists
        )
        with self._expired_after(event_id):
            return _consumer(register("register_log_consumer", request))

    def advance_consumer(self, name: str, event_id: int) -> LogConsumer:
        """See :meth:`AnyMetastore.advance_consumer`."""
        request = hive.MoveLogConsumerRequest(name=name, eventId=event_id)
        with self._expired_after(None):
            return _consumer(self._server.read("advance_log_consumer", request))

    def restart_consumer(self, name: str, *, event_id: int | None = None) -> LogConsumer:
        """See :meth:`AnyMetastore.restart_consumer`."""
        request = hive.MoveLogConsumerRequest(name=name, eventId=event_id)
        with self._expired_after(event_id):
            return _consumer(self._server.read("restart_log_consumer", request))

    def consumers(self) -> list[LogConsumer]:
        """See :meth:`AnyMetastore.consumers`."""
        return [_consumer(one) for one in self._server.read("get_log_consumers")]

    def unregister_consumer(self, name: str) -> None:
        """See :meth:`AnyMetastore.unregister_consumer`."""
        self._server.write("unregister_log_consumer", name)

    def replication_state(self, databases: Collection[str], txn_ids: Collection[int] = ()) -> SourceState:
        """See :meth:`AnyMetastore.replication_state`."""
        request = hive.ReplicationStateRequest(dbNames=sorted(databases), txnIds=sorted(txn_ids))
        return decode_state(gzip.decompress(self._server.read("get_replication_state", request)).decode())

    @contextmanager
    def _expired_after(self, after: int | None) -> Iterator[None]:
        """Add its numbers to an EventsExpiredError, of which the protocol carries only the text."""
        try:
            yield
        except EventsExpiredError as error:
            purged = self._server.read("get_purged_event_id")
            raise EventsExpiredError(str(error), after=after, purged_through=purged) from None


def current_event_id(server: ThriftConnections) -> int:
    """See :meth:`AnyMetastore.current_event_id`."""
    return int(server.read("get_current_notificationEventId").eventId)


def _require_no_gap(after: int, first: NotificationEvent) -> None:
    """Raise when events before the first one are missing, as Hive's client does: its server does not tell."""
    if first.event_id != after + 1:
        raise EventsExpiredError(
            f"events {after + 1} to {first.event_id - 1} were removed by retention: read the present state, "
            f"then the events after that position",
            after=after,
            purged_through=first.event_id - 1,
        )


def _event(struct: Any) -> NotificationEvent:
    message = struct.message
    if (struct.messageFormat or "").startswith(_ZIPPED):
        message = gzip.decompress(base64.b64decode(message))
    return NotificationEvent(
        event_id=struct.eventId,
        event_time=struct.eventTime,
        event_type=_OUR_TYPES.get(struct.eventType, struct.eventType),
        database=struct.dbName,
        table=struct.tableName,
        message=json.loads(message),
        message_format=struct.messageFormat,
    )


def _consumer(struct: Any) -> LogConsumer:
    return LogConsumer(
        struct.name,
        struct.eventId,
        struct.updatedAt,
        struct.expirySeconds,
        struct.isLive,
        struct.silentSeconds,
        struct.hits,
        struct.misses,
    )

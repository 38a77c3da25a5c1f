"""The notification log: all events of the metastore, in one total order.

An event takes its id from a counter row, inside the database transaction of the change
that it reports. The row stays locked until that transaction ends. So ids are gapless and in
commit order, and the log has an event exactly when the database has its change (Hive does the
same: DbNotificationListener, NOTIFICATION_SEQUENCE).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, text, update

from airflow_provider.exceptions import (
    AlreadyExistsError,
    EventsExpiredError,
    InvalidInputError,
    NoSuchObjectError,
)
from airflow_provider.metastore.database import (
    Counter,
    GroupedRequest,
    GroupOperation,
    RunStatement,
    SqlDatabase,
    advance,
    consumers,
    counted,
    current_millis,
    insert_if_absent,
    notification_log,
    txns,
    write_notifications,
)
from airflow_provider.metastore.model import (
    MESSAGE_FORMAT,
    EventType,
    LogConsumer,
    NewEvent,
    NotificationEvent,
    Purged,
)

_PURGE_BATCH = 10_000
_APPEND = insert(notification_log)
_IS_LIVE = consumers.c.expiry_millis.is_(None) | (
    consumers.c.updated_at + consumers.c.expiry_millis >= current_millis()
)
_SILENT_MILLIS = (current_millis() - consumers.c.updated_at).label("silent_millis")
_CONSUMERS = select(consumers, _IS_LIVE.label("is_live"), _SILENT_MILLIS)


def append_event(
    connection: Connection,
    event_type: EventType,
    message: Mapping[str, Any],
    *,
    database: str | None = None,
    table: str | None = None,
) -> int:
    """Write an event in the caller's database transaction. The event counter is its last lock.

    :param message: the body, without the fields that all bodies have.
    :return: the event's id.
    """
    return append_events(connection, [NewEvent(event_type, message, database, table)])


def append_events(connection: Connection, events: Sequence[NewEvent]) -> int:
    """Write one or more events, as :func:`append_event`; their ids follow each other.

    :return: the first one's id.
    """
    now = int(time.time())
    first = advance(connection, Counter.EVENT_ID, by=len(events)) - len(events) + 1
    rows = [
        {
            "event_id": event_id,
            "event_time": now,
            "event_type": event.event_type,
            "database_name": event.database,
            "table_name": event.table,
            "message": event.body(now),
            "message_format": MESSAGE_FORMAT,
        }
        for event_id, event in enumerate(events, start=first)
    ]
    connection.execute(_APPEND, rows)
    return first


def current_event_id(connection: Connection) -> int:
    """The id of the last event; 0 for an empty log."""
    return counted(connection, Counter.EVENT_ID)


def last_event_id(sql: SqlDatabase) -> int:
    """The same by one statement, for a caller that wants nothing else of the database."""
    if sql.is_sqlite:
        return sql.read(current_event_id)
    return sql.write_together(_LAST_EVENT, _AskForLastEvent())


class _AskForLastEvent(GroupedRequest[int]):
    """Each thread gets what the database has after it asked: one statement tells all that wait for it."""


def _tell_last_event(run: RunStatement, requests: Sequence[_AskForLastEvent]) -> Mapping[int, int]:
    ((event_id,),) = run(_LAST_EVENT_ID, {"counter": Counter.EVENT_ID.value})
    return dict.fromkeys(range(len(requests)), event_id)


_LAST_EVENT_ID = text("SELECT last_value FROM metastore_counters WHERE name = :counter")
_LAST_EVENT = GroupOperation(lambda connection, _: current_event_id(connection), _tell_last_event)


def next_events(
    connection: Connection,
    after: int,
    limit: int,
    *,
    event_types: Collection[str] | None,
    database: str | None,
    table: str | None,
) -> list[NotificationEvent]:
    """See :meth:`airflow_provider.metastore.api.Metastore.next_events`."""
    if after < 0 or limit < 1:
        raise InvalidInputError(f"events after {after}, limit {limit}: give after >= 0 and limit >= 1")
    _require_kept(connection, after)
    query = select(notification_log).where(notification_log.c.event_id > after)
    if event_types is not None:
        query = query.where(notification_log.c.event_type.in_([str(kind) for kind in event_types]))
    if database is not None:
        query = query.where(notification_log.c.database_name == database.lower())
    if table is not None:
        query = query.where(notification_log.c.table_name == table.lower())
    query = query.order_by(notification_log.c.event_id).limit(limit)
    return [_event(row) for row in connection.execute(query)]


def register_consumer(
    connection: Connection,
    name: str,
    event_id: int | None,
    *,
    expiry_seconds: float | None,
    if_not_exists: bool,
) -> LogConsumer:
    """See :meth:`airflow_provider.metastore.api.Metastore.register_consumer`."""
    if not name:
        raise InvalidInputError("a consumer needs a name that is not empty")
    if expiry_seconds is not None and expiry_seconds <= 0:
        raise InvalidInputError(f"consumer {name!r}: an expiry of {expiry_seconds:g} s; give more than 0")
    # The lock on the counter keeps a purge at the same time from overtaking the registration.
    advance(connection, Counter.PURGED_EVENT_ID, by=0)
    existing = _consumer(connection, name)
    if existing is not None:
        if if_not_exists:
            return existing
        raise AlreadyExistsError(
            f"consumer {name!r} is registered at event {existing.event_id}; unregister it to start anew",
            consumer=name,
        )
    last = current_event_id(connection)
    start = last if event_id is None else event_id
    _require_position(start, last)
    _require_kept(connection, start)
    row = {
        "name": name,
        "event_id": start,
        "updated_at": current_millis(),
        "expiry_millis": None if expiry_seconds is None else int(expiry_seconds * 1000),
    }
    inserted = insert_if_absent(connection, consumers, row)
    registered = _consumer(connection, name)
    if registered is None or not inserted:
        raise AlreadyExistsError(
            f"consumer {name!r} was registered by another process just now", consumer=name
        )
    return registered


def advance_consumer(
    connection: Connection, name: str, event_id: int, reads: tuple[int, int] | None = None
) -> LogConsumer:
    """See :meth:`airflow_provider.metastore.api.Metastore.advance_consumer`."""
    _require_position(event_id, current_event_id(connection))
    known = _consumer(connection, name)
    if known is not None:
        # A consumer behind the purged events must not look as if it had read them.
        _require_kept(connection, known.event_id)
    connection.execute(
        update(consumers)
        .where(consumers.c.name == name, consumers.c.event_id <= event_id)
        .values(
            event_id=event_id,
            updated_at=current_millis(),
            **({} if reads is None else {"hits": reads[0], "misses": reads[1]}),
        )
    )
    found = _consumer(connection, name)
    if found is None:
        raise NoSuchObjectError(f"no consumer {name!r} is registered; register it first", consumer=name)
    return found


def restart_consumer(connection: Connection, name: str, event_id: int | None) -> LogConsumer:
    """See :meth:`airflow_provider.metastore.api.Metastore.restart_consumer`."""
    # The lock keeps a purge from overtaking the restart, as in register_consumer.
    advance(connection, Counter.PURGED_EVENT_ID, by=0)
    last = current_event_id(connection)
    start = last if event_id is None else event_id
    _require_position(start, last)
    _require_kept(connection, start)
    moved = update(consumers).where(consumers.c.name == name)
    connection.execute(moved.values(event_id=start, updated_at=current_millis()))
    restarted = _consumer(connection, name)
    if restarted is None:
        raise NoSuchObjectError(f"no consumer {name!r} is registered; register it first", consumer=name)
    return restarted


def list_consumers(connection: Connection) -> list[LogConsumer]:
    """All registered consumers, by name."""
    return [_described(row) for row in connection.execute(_CONSUMERS.order_by(consumers.c.name))]


def unregister_consumer(connection: Connection, name: str) -> None:
    """See :meth:`airflow_provider.metastore.api.Metastore.unregister_consumer`."""
    if connection.execute(delete(consumers).where(consumers.c.name == name)).rowcount == 0:
        raise NoSuchObjectError(f"no consumer {name!r} is registered", consumer=name)


def purge_batch(connection: Connection, ttl_seconds: float) -> Purged:
    """Remove up to 10,000 events from the old end of the log.

    :param ttl_seconds: events younger than this stay.
    """
    purged = advance(connection, Counter.PURGED_EVENT_ID, by=0)
    last = current_event_id(connection)
    cutoff = time.time() - ttl_seconds
    first_young = connection.execute(
        select(notification_log.c.event_id)
        .where(notification_log.c.event_time > cutoff)
        .order_by(notification_log.c.event_id)
        .limit(1)
    ).scalar()
    expired = last if first_young is None else first_young - 1
    slowest = connection.execute(select(func.min(consumers.c.event_id)).where(_IS_LIVE)).scalar()
    through = min(expired, purged + _PURGE_BATCH, expired if slowest is None else slowest)
    removed = max(0, through - purged)
    if removed:
        connection.execute(delete(notification_log).where(notification_log.c.event_id <= through))
        _purge_write_notifications(connection, through)
        advance(connection, Counter.PURGED_EVENT_ID, by=removed)
        purged = through
    by_name = select(consumers.c.name).order_by(consumers.c.name)
    held_back = connection.execute(
        by_name.where(_IS_LIVE, consumers.c.event_id <= purged, consumers.c.event_id < expired)
    ).scalars()
    left_behind = connection.execute(by_name.where(consumers.c.event_id < purged)).scalars()
    return Purged(removed, purged + 1, tuple(held_back), tuple(left_behind))


def _purge_write_notifications(connection: Connection, through: int) -> None:
    """Remove the write notifications of transactions whose end the log reports no longer."""
    still_needed = select(txns.c.id).where(
        txns.c.id == write_notifications.c.txn_id,
        txns.c.closing_event_id.is_(None) | (txns.c.closing_event_id > through),
    )
    connection.execute(delete(write_notifications).where(~still_needed.exists()))


def _consumer(connection: Connection, name: str) -> LogConsumer | None:
    row = connection.execute(_CONSUMERS.where(consumers.c.name == name)).one_or_none()
    return None if row is None else _described(row)


def _described(row: Row[Any]) -> LogConsumer:
    expiry = None if row.expiry_millis is None else row.expiry_millis / 1000
    silent = max(0.0, float(row.silent_millis) / 1000)
    return LogConsumer(
        name=row.name,
        event_id=row.event_id,
        updated_at=row.updated_at / 1000,
        expiry_seconds=expiry,
        is_live=bool(row.is_live),
        silent_seconds=silent,
        hits=row.hits,
        misses=row.misses,
    )


def _require_kept(connection: Connection, after: int) -> None:
    purged = counted(connection, Counter.PURGED_EVENT_ID)
    if after < purged:
        raise EventsExpiredError(
            f"events {after + 1} to {purged} were removed by retention; the oldest that can be read comes "
            f"after {purged}: register or restart a consumer (restart_consumer) at the log's end, so that "
            "retention waits for it, then read the present state, then the events after that position",
            after=after,
            purged_through=purged,
        )


def _require_position(event_id: int, last: int) -> None:
    if not 0 <= event_id <= last:
        raise InvalidInputError(
            f"event {event_id} is not in the log, whose last event is {last}; a consumer's position is "
            f"between 0 and {last}",
            event_id=event_id,
            last_event_id=last,
        )


def _event(row: Row[Any]) -> NotificationEvent:
    return NotificationEvent(
        event_id=row.event_id,
        event_time=row.event_time,
        event_type=row.event_type,
        database=row.database_name,
        table=row.table_name,
        message=json.loads(row.message),
        message_format=row.message_format,
    )

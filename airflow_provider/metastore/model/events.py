"""Notification events, and the consumers that read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MESSAGE_FORMAT = "json-0.2"
"""Hive's name for plain JSON bodies (JSONMessageEncoder)."""

ZIPPED_FORMAT = "gzip(json-2.0)"
"""Hive's name for its default: the same JSON, zipped, in base64 (GzipJSONMessageEncoder)."""


class EventType(StrEnum):
    """The types of events, by Hive's names (EventMessage.EventType). A rename is ALTER_TABLE."""

    CREATE_DATABASE = "CREATE_DATABASE"
    ALTER_DATABASE = "ALTER_DATABASE"
    DROP_DATABASE = "DROP_DATABASE"
    CREATE_TABLE = "CREATE_TABLE"
    ALTER_TABLE = "ALTER_TABLE"
    DROP_TABLE = "DROP_TABLE"
    ADD_PARTITION = "ADD_PARTITION"
    ALTER_PARTITION = "ALTER_PARTITION"
    DROP_PARTITION = "DROP_PARTITION"
    INSERT = "INSERT"
    CREATE_FUNCTION = "CREATE_FUNCTION"
    DROP_FUNCTION = "DROP_FUNCTION"
    OPEN_TXN = "OPEN_TXN"
    COMMIT_TXN = "COMMIT_TXN"
    ABORT_TXN = "ABORT_TXN"
    ALLOC_WRITE_ID = "ALLOC_WRITE_ID"
    UPDATE_TABLE_COLUMN_STAT = "UPDATE_TBL_COL_STAT_EVENT"
    UPDATE_PARTITION_COLUMN_STAT = "UPDATE_PART_COL_STAT_EVENT"


TXN_EVENTS = frozenset(
    {EventType.OPEN_TXN, EventType.ALLOC_WRITE_ID, EventType.COMMIT_TXN, EventType.ABORT_TXN}
)
"""The types of events that a replication maps to transactions and write ids of its target."""


@dataclass(frozen=True)
class NotificationEvent:
    """One entry of the notification log.

    :param event_id: 1 for the first event; each later event has its predecessor's id + 1.
    :param event_time: seconds since the epoch, by the writer's clock. People and retention use it; the ids
        alone give the order.
    :param event_type: equal to one of :class:`EventType`, or a name that a newer release writes.
    :param database: the database that the event is about; None for OPEN_TXN, COMMIT_TXN, ABORT_TXN.
    :param table: the table that the event is about (after a rename its new name), None as above.
    :param message: the body, with Hive's field names.
    :param message_format: ``json-0.2``.
    """

    event_id: int
    event_time: int
    event_type: str
    database: str | None
    table: str | None
    message: dict[str, Any]
    message_format: str = MESSAGE_FORMAT


@dataclass(frozen=True)
class LogConsumer:
    """A registered reader of the notification log.

    :param name: the consumer's name.
    :param event_id: the last event that it has applied.
    :param updated_at: seconds since the epoch, by the database's clock, of its registration
        or last advance.
    :param expiry_seconds: the consumer counts as gone after so long without an advance; None for never.
    :param is_live: whether the consumer did not count as gone at the time of the look-up.
    :param silent_seconds: seconds from ``updated_at`` to the look-up, by the database's clock.
    :param hits: of a replica: reads that its memory has answered since it was opened, as of its last report.
    :param misses: of a replica: reads that the database has answered instead.
    """

    name: str
    event_id: int
    updated_at: float
    expiry_seconds: float | None = None
    is_live: bool = True
    silent_seconds: float = field(default=0.0, compare=False)
    hits: int | None = field(default=None, compare=False)
    misses: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Purged:
    """The result of a retention run.

    :param removed: number of events removed.
    :param oldest_event_id: the oldest event that is left, or the id that the next event gets.
    :param held_back_by: names of the live consumers that have not read the oldest remaining event although
        it is older than the time to live; empty when no consumer holds events back.
    :param left_behind: names of the consumers that are gone (see :attr:`LogConsumer.expiry_seconds`)
        and have not read the events that are removed by now. Each of them has to be restarted.
    """

    removed: int
    oldest_event_id: int
    held_back_by: tuple[str, ...]
    left_behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewEvent:
    """An event before it is written.

    :param event_type: the event's type.
    :param message: the body, without the fields that all bodies have.
    :param database: the database that the event is about, if any.
    :param table: the table that the event is about, if any.
    """

    event_type: EventType
    message: Mapping[str, Any]
    database: str | None = None
    table: str | None = None

    def body(self, now: int) -> str:
        """The message as it is stored.

        :param now: the time of the event, in seconds since the epoch.
        """
        return json.dumps(
            {"server": "", "servicePrincipal": "", "timestamp": now, **self.message}, ensure_ascii=False
        )

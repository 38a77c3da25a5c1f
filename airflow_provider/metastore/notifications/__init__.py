"""The notification log: what happened, in one order that all readers agree on; and who has read how far."""

from airflow_provider.metastore.notifications.notifications import (
    MESSAGE_FORMAT,
    Consumer,
    EventType,
    NewEvent,
    NotificationEvent,
    Purged,
    append_event,
    append_events,
    current_event_id,
    next_events,
)

__all__ = [
    "MESSAGE_FORMAT",
    "Consumer",
    "EventType",
    "NewEvent",
    "NotificationEvent",
    "Purged",
    "append_event",
    "append_events",
    "current_event_id",
    "next_events",
]

"""The notification log and the consumers that read it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from airflow_provider.metastore.model import LogConsumer, NotificationEvent, SourceState

_ALL_EVENTS = 1_000


class NotificationLog(Protocol):
    """The notification log and the consumers that read it."""

    def current_event_id(self) -> int:
        """The id of the last event; 0 for an empty log."""

    def next_events(
        self,
        after: int,
        limit: int = _ALL_EVENTS,
        *,
        event_types: Collection[str] | None = None,
        database: str | None = None,
        table: str | None = None,
    ) -> list[NotificationEvent]:
        """The events after a position, in order.

        :param after: the id of the last event already read, 0 for none.
        :param limit: the largest number of events.
        :param event_types: only events of these types; None for all.
        :param database: only events about this database.
        :param table: only events about tables of this name.
        :raises EventsExpiredError: when retention has removed some of these events.
        """

    def register_consumer(
        self,
        name: str,
        *,
        event_id: int | None = None,
        expiry_seconds: float | None = None,
        if_not_exists: bool = False,
    ) -> LogConsumer:
        """Register a reader of the log; retention waits for it from now on.

        :param event_id: the last event that it knows; None for the current one.
        :param expiry_seconds: retention no longer waits for the consumer after so long without
            :meth:`advance_consumer`; None to wait for ever.
        :param if_not_exists: return a registered consumer with its present position.
        :raises AlreadyExistsError: when it is registered, unless ``if_not_exists``.
        :raises EventsExpiredError: when events after ``event_id`` are gone.
        :raises InvalidInputError: when ``event_id`` is beyond the log's end.
        """

    def advance_consumer(self, name: str, event_id: int) -> LogConsumer:
        """Record that a consumer has applied all events up to one. Its position never moves back.

        :return: the consumer as it is now.
        :raises NoSuchObjectError: when the consumer is not registered.
        :raises EventsExpiredError: when retention has removed events after its position; the caller calls
            :meth:`restart_consumer`.
        :raises InvalidInputError: when ``event_id`` is beyond the log's end.
        """

    def restart_consumer(self, name: str, *, event_id: int | None = None) -> LogConsumer:
        """Restart a consumer that fell out of retention or lost its own state.

        Call this first, then read the present state (the catalog, the tables), then follow the events after
        the returned position. The consumer sees a change in between twice, and never misses it.

        :param event_id: the last event that the consumer knows; None for the log's end.
        :return: the consumer at its new position.
        :raises NoSuchObjectError: when it is not registered.
        :raises EventsExpiredError: when events after ``event_id`` are gone.
        :raises InvalidInputError: when ``event_id`` is beyond the log's end.
        """

    def consumers(self) -> list[LogConsumer]:
        """All registered consumers, by name."""

    def unregister_consumer(self, name: str) -> None:
        """Forget a consumer; retention no longer waits for it.

        :raises NoSuchObjectError: when it is not registered.
        """

    def replication_state(self, databases: Collection[str], txn_ids: Collection[int] = ()) -> SourceState:
        """The state of whole databases right after one event, from which a replication follows the log.

        It is of one moment, and never from a cache. A server sends it in one answer.

        :param databases: the names of the databases; those that do not exist are left out.
        :param txn_ids: transactions whose states the answer has, if they exist.
        :raises UnsupportedByServerError: when the server is a Hive, which has no such request.
        """

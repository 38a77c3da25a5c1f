"""The notification log's part of :class:`Metastore`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from airflow_provider.metastore import notifications
from airflow_provider.metastore.database import SqlDatabase
from airflow_provider.metastore.model import LogConsumer, NotificationEvent, Purged, SourceState
from airflow_provider.metastore.replication import read_source

_ALL_EVENTS = 1_000


class NotificationApi:
    """The notification log and its consumers.

    :param sql: the database.
    """

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

    def current_event_id(self) -> int:
        """See :meth:`AnyMetastore.current_event_id`."""
        return self._sql.read(notifications.current_event_id)

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
        return self._sql.read(
            lambda connection: notifications.next_events(
                connection, after, limit, event_types=event_types, database=database, table=table
            )
        )

    def register_consumer(
        self,
        name: str,
        *,
        event_id: int | None = None,
        expiry_seconds: float | None = None,
        if_not_exists: bool = False,
    ) -> LogConsumer:
        """See :meth:`AnyMetastore.register_consumer`."""
        return self._sql.write(
            lambda connection: notifications.register_consumer(
                connection, name, event_id, expiry_seconds=expiry_seconds, if_not_exists=if_not_exists
            )
        )

    def advance_consumer(
        self, name: str, event_id: int, *, reads: tuple[int, int] | None = None
    ) -> LogConsumer:
        """See :meth:`AnyMetastore.advance_consumer`.

        :param reads: a replica's hits and misses.
        """
        return self._sql.write(
            lambda connection: notifications.advance_consumer(connection, name, event_id, reads)
        )

    def restart_consumer(self, name: str, *, event_id: int | None = None) -> LogConsumer:
        """See :meth:`AnyMetastore.restart_consumer`."""
        return self._sql.write(lambda connection: notifications.restart_consumer(connection, name, event_id))

    def consumers(self) -> list[LogConsumer]:
        """See :meth:`AnyMetastore.consumers`."""
        return self._sql.read(notifications.list_consumers)

    def unregister_consumer(self, name: str) -> None:
        """See :meth:`AnyMetastore.unregister_consumer`."""
        self._sql.write(lambda connection: notifications.unregister_consumer(connection, name))

    def replication_state(self, databases: Collection[str], txn_ids: Collection[int] = ()) -> SourceState:
        """See :meth:`AnyMetastore.replication_state`."""
        return self._sql.read(lambda connection: read_source(connection, databases, txn_ids))

    def purge_events(self, ttl_seconds: float) -> Purged:
        """Remove events that are older than the time to live and that every live consumer has read.

        :param ttl_seconds: the time to live, in seconds; Hive's default is a day.
        :return: the number of removed events, and the consumers that hold back the others.
        """
        removed = 0
        while True:
            batch = self._sql.write(lambda connection: notifications.purge_batch(connection, ttl_seconds))
            removed += batch.removed
            if not batch.removed:
                return replace(batch, removed=removed)

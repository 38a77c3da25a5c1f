"""Consumers of the notification log, which Hive's protocol does not have."""

from __future__ import annotations

from typing import Any

from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.database import Counter, counted
from airflow_provider.metastore.model import LogConsumer
from airflow_provider.metastore.thrift.protocol import hive


class ConsumerHandler:
    """Methods of this package in ``ThriftHiveMetastore``.

    :param metastore: what is asked.
    """

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    def get_log_consumers(self) -> list[Any]:
        return [_struct(one) for one in self._metastore.consumers()]

    def register_log_consumer(self, request: Any) -> Any:
        return _struct(
            self._metastore.register_consumer(
                request.name,
                event_id=request.eventId,
                expiry_seconds=request.expirySeconds,
                if_not_exists=bool(request.ifNotExists),
            )
        )

    def advance_log_consumer(self, request: Any) -> Any:
        return _struct(self._metastore.advance_consumer(request.name, request.eventId))

    def restart_log_consumer(self, request: Any) -> Any:
        return _struct(self._metastore.restart_consumer(request.name, event_id=request.eventId))

    def unregister_log_consumer(self, name: str) -> None:
        self._metastore.unregister_consumer(name)

    def get_purged_event_id(self) -> int:
        return self._metastore.engine.read(lambda connection: counted(connection, Counter.PURGED_EVENT_ID))


def _struct(consumer: LogConsumer) -> Any:
    return hive.LogConsumer(
        name=consumer.name,
        eventId=consumer.event_id,
        updatedAt=consumer.updated_at,
        expirySeconds=consumer.expiry_seconds,
        isLive=consumer.is_live,
        silentSeconds=consumer.silent_seconds,
    )

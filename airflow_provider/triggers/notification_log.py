"""Waiting in the triggerer for consumers of the notification log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import NoSuchObjectError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.metastore import AnyMetastore, open_metastore
from airflow_provider.triggers.polling import PollingTrigger, Progress, while_briefly_unavailable


def catch_up(metastore: AnyMetastore, until: int, consumers: Sequence[str] | None) -> Progress:
    """Whether consumers of the notification log have applied everything up to an event.

    :param metastore: the metastore that keeps the log.
    :param until: an event id.
    :param consumers: names of registered consumers; all that are registered when None, and
        the log itself when none is.
    :raises NoSuchObjectError: when a named consumer is not registered; names those that are.
    """
    positions = {consumer.name: consumer.event_id for consumer in metastore.consumers()}
    for name in consumers or ():
        if name not in positions:
            raise NoSuchObjectError(
                f"consumer {name!r} is not registered in the notification log; registered: "
                f"{', '.join(sorted(positions)) or 'none'}. Register it, or leave 'consumers' out",
                consumer=name,
            )
    if not positions:
        head = metastore.current_event_id()
        blocking = () if head >= until else (f"notification log is at event {head}, not yet at {until}",)
        return Progress(blocking, {"event_id": until, "consumers": {}})
    awaited = sorted(positions) if consumers is None else consumers
    return Progress(
        tuple(
            f"consumer {name!r} is at event {positions[name]}, {until - positions[name]} behind {until}"
            for name in awaited
            if positions[name] < until
        ),
        {"event_id": until, "consumers": {name: positions[name] for name in awaited}},
    )


class NotificationLogCatchupTrigger(PollingTrigger):
    """Fires when consumers of the notification log have applied everything up to an event.

    :param until: an event id.
    :param consumers: names of registered consumers; all when None.
    :param metastore_conn_id: connection of type ``table_metastore``.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(
        self,
        *,
        until: int,
        consumers: Sequence[str] | None,
        metastore_conn_id: str,
        poke_interval: float,
        deadline: float,
    ) -> None:
        super().__init__(poke_interval=poke_interval, deadline=deadline)
        self.until = until
        self.consumers = consumers
        self.metastore_conn_id = metastore_conn_id
        self._url = ""
        self._metastore: AnyMetastore | None = None

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        return {
            "until": self.until,
            "consumers": None if self.consumers is None else list(self.consumers),
            "metastore_conn_id": self.metastore_conn_id,
        }

    async def connect(self) -> None:
        """See :meth:`PollingTrigger.connect`."""
        self._url = await MetastoreHook(self.metastore_conn_id).aget_url()

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        if self._metastore is None:
            self._metastore = open_metastore(self._url)
        return catch_up(self._metastore, self.until, self.consumers)

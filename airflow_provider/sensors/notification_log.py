"""Waiting until consumers of the notification log have caught up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.sensors.deferrable import PollingSensor
from airflow_provider.triggers.notification_log import NotificationLogCatchupTrigger, catch_up
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable


class NotificationLogCatchupSensor(PollingSensor):
    """Waits until consumers of the notification log have applied everything up to an event.

    ::

        NotificationLogCatchupSensor(
            task_id="caught_up", until="{{ ti.xcom_pull('ingest')['event_id'] }}", deferrable=True
        )

    :param until: an event id, such as ``event_id`` of an ingestion's result (templated).
    :param consumers: names of registered consumers; all that are registered when None, and
        the log itself when none is (templated).
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param deferrable: wait in the triggerer and free the worker's slot.
    """

    template_fields: Sequence[str] = ("until", "consumers", "metastore_conn_id")

    def __init__(
        self,
        *,
        until: int | str,
        consumers: Sequence[str] | None = None,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.until = until
        self.consumers = consumers
        self.metastore_conn_id = metastore_conn_id

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingSensor.look`.

        :raises InvalidInputError: when ``until`` is no event id.
        :raises NoSuchObjectError: when a named consumer is not registered.
        :raises MetastoreUnavailableError: when the metastore stays unreachable.
        """
        return catch_up(
            MetastoreHook(self.metastore_conn_id).get_metastore(), self._event_id(), self.consumers
        )

    def trigger(self, deadline: float) -> NotificationLogCatchupTrigger:
        """See :meth:`PollingSensor.trigger`."""
        return NotificationLogCatchupTrigger(
            until=self._event_id(),
            consumers=self.consumers,
            metastore_conn_id=self.metastore_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def _event_id(self) -> int:
        text = str(self.until).strip()
        if not text.isdecimal():
            raise InvalidInputError(
                f"until is {self.until!r}, which is no event id; give the 'event_id' of a task's result "
                "(a table that is not in the metastore has none)",
                until=text,
            )
        return int(text)

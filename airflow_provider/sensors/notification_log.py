"""Waiting until consumers of the notification log have caught up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.metastore import AnyMetastore
from airflow_provider.sensors.deferrable import PollingSensor
from airflow_provider.triggers.notification_log import (
    GONE_AFTER_SECONDS,
    CatchUp,
    NotificationLogCatchupTrigger,
)
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable


class NotificationLogCatchupSensor(PollingSensor):
    """Waits until consumers of the notification log have applied everything up to an event.

    ::

        NotificationLogCatchupSensor(
            task_id="caught_up", until="{{ ti.xcom_pull('ingest')['event_id'] }}", deferrable=True
        )

    For each consumer that is behind, the log has its position, and its rate once it has moved. In mode
    reschedule each look is a process of its own, and the log has no rate.

    :param until: an event id, or the result of an ingestion, which contains one (templated).
    :param txn_id: instead of ``until``, a transaction, or the result of an ingestion, which contains one. The
        sensor waits for the transaction's COMMIT_TXN event (templated).
    :param consumers: names of registered consumers. When None, the sensor waits for all registered consumers,
        or for the log itself if there are none (templated).
    :param gone_after: seconds, or a timedelta. If a consumer has had something to read, and given no sign of
        life for so long, the sensor fails.
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param deferrable: wait in the triggerer and free the worker's slot.
    """

    template_fields: Sequence[str] = ("until", "txn_id", "consumers", "metastore_conn_id")

    def __init__(
        self,
        *,
        until: int | str | Mapping[str, Any] | None = None,
        txn_id: int | str | Mapping[str, Any] | None = None,
        consumers: Sequence[str] | None = None,
        gone_after: float | timedelta = GONE_AFTER_SECONDS,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (until is None) == (txn_id is None):
            raise InvalidInputError(
                f"task {self.task_id!r} waits for {'two things' if until is not None else 'nothing'}: give "
                "either 'until', an event id, or 'txn_id'"
            )
        self.until = until
        self.txn_id = txn_id
        self.consumers = consumers
        self.gone_after = gone_after
        self.metastore_conn_id = metastore_conn_id
        self._catch_up: CatchUp | None = None
        self._metastore: AnyMetastore | None = None

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingSensor.look`.

        :raises InvalidInputError: when ``until`` is no event id, or ``txn_id`` no transaction id.
        :raises NoSuchObjectError: when a named consumer is not registered.
        :raises NoSuchTransactionError: when the transaction was never opened.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises ConsumerGoneError: when a consumer gave no sign of life for ``gone_after``.
        :raises MetastoreUnavailableError: when the metastore stays unreachable.
        """
        if self._catch_up is None:
            self._catch_up = CatchUp(**self._awaited())
        if self._metastore is None:
            self._metastore = MetastoreHook(self.metastore_conn_id).get_metastore(must_exist=True)
        return self._catch_up.look(self._metastore)

    def trigger(self, deadline: float) -> NotificationLogCatchupTrigger:
        """See :meth:`PollingSensor.trigger`."""
        return NotificationLogCatchupTrigger(
            **self._awaited(),
            metastore_conn_id=self.metastore_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def _awaited(self) -> dict[str, Any]:
        gone_after = self.gone_after
        return {
            "until": None if self.until is None else _number(self.until, "until", "event_id"),
            "txn_id": None if self.txn_id is None else _number(self.txn_id, "txn_id", "txn_id"),
            "consumers": self.consumers,
            "gone_after": gone_after.total_seconds() if isinstance(gone_after, timedelta) else gone_after,
        }


def _number(given: int | str | Mapping[str, Any], argument: str, key: str) -> int:
    """The id that the DAG gives, itself or in a task's result."""
    text = str(given.get(key) if isinstance(given, Mapping) else given).strip()
    if not text.isdecimal():
        raise InvalidInputError(
            f"{argument} is {text!r}, which is no {key.replace('_', ' ')}; give the {key!r} of a task's "
            "result (a table that is not in the metastore has none)",
            **{argument: text},
        )
    return int(text)

"""Waiting until the target of a replication is close enough to its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.sensors.deferrable import PollingSensor
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable
from airflow_provider.triggers.replication import ReplicationLagTrigger, lag_is_small


class ReplicationLagSensor(PollingSensor):
    """Waits until the target of a replication is as close to its source as the arguments ask.

    ::

        ReplicationLagSensor(
            task_id="arrived",
            policy="dr",
            txn_id="{{ ti.xcom_pull('ingest')['txn_id'] }}",
            source_metastore_conn_id="here",
            target_metastore_conn_id="there",
            deferrable=True,
        )

    Its result is the lag, with the fields of ``table-services replication status``.

    :param policy: the replication (templated).
    :param max_events: the most events that may be left to apply (templated).
    :param max_seconds: seconds, or a timedelta: the greatest age of the oldest event that is left.
    :param txn_id: a transaction of the source that must have arrived, or the result of an ingestion, which
        contains one (templated).
    :param source_metastore_conn_id: connection of the source's metastore (templated).
    :param target_metastore_conn_id: connection of the target's metastore (templated).
    :param deferrable: wait in the triggerer and free the worker's slot.
    :raises InvalidInputError: when ``max_events``, ``max_seconds`` and ``txn_id`` are all missing.
    """

    template_fields: Sequence[str] = (
        "policy",
        "max_events",
        "txn_id",
        "source_metastore_conn_id",
        "target_metastore_conn_id",
    )

    def __init__(
        self,
        *,
        policy: str,
        source_metastore_conn_id: str,
        target_metastore_conn_id: str,
        max_events: int | str | None = None,
        max_seconds: float | timedelta | None = None,
        txn_id: int | str | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_events is None and max_seconds is None and txn_id is None:
            raise InvalidInputError(
                f"task {self.task_id!r} waits for nothing: give 'max_events', 'max_seconds' or 'txn_id'"
            )
        self.policy = policy
        self.source_metastore_conn_id = source_metastore_conn_id
        self.target_metastore_conn_id = target_metastore_conn_id
        self.max_events = max_events
        self.max_seconds = max_seconds
        self.txn_id = txn_id

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingSensor.look`.

        :raises InvalidInputError: when ``max_events`` or ``txn_id`` is no number.
        :raises NoSuchObjectError: when there is no such replication.
        :raises NoSuchTransactionError: when the transaction was never opened.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises MetastoreUnavailableError: when a metastore stays unreachable.
        """
        source, target = (
            MetastoreHook(conn_id).get_metastore()
            for conn_id in (self.source_metastore_conn_id, self.target_metastore_conn_id)
        )
        return lag_is_small(self.policy, source, target, **self._wanted())

    def trigger(self, deadline: float) -> ReplicationLagTrigger:
        """See :meth:`PollingSensor.trigger`."""
        return ReplicationLagTrigger(
            policy=self.policy,
            **self._wanted(),
            source_metastore_conn_id=self.source_metastore_conn_id,
            target_metastore_conn_id=self.target_metastore_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def _wanted(self) -> dict[str, Any]:
        seconds, txn_id = self.max_seconds, self.txn_id
        return {
            "max_events": _number(self.max_events, "max_events"),
            "max_seconds": seconds.total_seconds() if isinstance(seconds, timedelta) else seconds,
            "txn_id": _number(txn_id.get("txn_id") if isinstance(txn_id, Mapping) else txn_id, "txn_id"),
        }


def _number(given: Any, argument: str) -> int | None:
    if given is None:
        return None
    if not str(given).strip().isdecimal():
        raise InvalidInputError(f"{argument} is {given!r}, which is no whole number", **{argument: given})
    return int(given)

"""Waiting in the triggerer for a replication to catch up, or for new events to replicate."""

from __future__ import annotations

import time
from typing import Any

from airflow_provider.exceptions import TransactionAbortedError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.metastore import AnyMetastore, TxnState, open_metastore
from airflow_provider.replication import replication_lag
from airflow_provider.triggers.polling import PollingTrigger, Progress, while_briefly_unavailable


def lag_is_small(
    policy: str,
    source: AnyMetastore,
    target: AnyMetastore,
    *,
    max_events: int | None,
    max_seconds: float | None,
    txn_id: int | None,
) -> Progress:
    """Whether a target is as close to its source as the arguments ask.

    :param policy: the replication.
    :param source: the source's metastore.
    :param target: the target's metastore.
    :param max_events: the most events that may be left to apply; None for any number.
    :param max_seconds: the greatest age of the oldest event that is left; None for any age.
    :param txn_id: a transaction of the source that must have arrived; None for none.
    :raises TransactionAbortedError: when that transaction was aborted.
    :raises NoSuchTransactionError: when that transaction was never opened.
    """
    lag = replication_lag(policy, source, target)
    blocking = []
    if lag.event_id is None or lag.phase == "bootstrap":
        blocking.append(f"{policy} has not done its bootstrap")
    if max_events is not None and (lag.events or 0) > max_events:
        blocking.append(f"{policy} is {lag.events} events behind, {max_events} are allowed")
    if max_seconds is not None and (lag.seconds is None or lag.seconds > max_seconds):
        behind = "too far" if lag.seconds is None else f"{lag.seconds:.0f} s"
        blocking.append(f"{policy} is {behind} behind, {max_seconds:g} s are allowed")
    if txn_id is not None:
        txn = source.get_txn(txn_id)
        if txn.state is TxnState.ABORTED:
            raise TransactionAbortedError(
                f"transaction {txn_id} was aborted at the source: it never arrives", txn_id=txn_id
            )
        if txn.state is TxnState.OPEN:
            blocking.append(f"transaction {txn_id} is open at the source")
        elif txn.event_id is None or txn.event_id > (lag.event_id or 0):
            blocking.append(f"transaction {txn_id} is event {txn.event_id}, {policy} is at {lag.event_id}")
    if blocking and lag.last_error:
        blocking.append(f"the last pass failed: {lag.last_error}")
    return Progress(tuple(blocking), lag.to_dict())


class _PairTrigger(PollingTrigger):
    """A trigger that looks at two metastores."""

    def __init__(
        self,
        *,
        source_metastore_conn_id: str,
        target_metastore_conn_id: str,
        poke_interval: float,
        deadline: float,
    ) -> None:
        super().__init__(poke_interval=poke_interval, deadline=deadline)
        self.source_metastore_conn_id = source_metastore_conn_id
        self.target_metastore_conn_id = target_metastore_conn_id
        self._urls: list[str] = []
        self._opened: list[AnyMetastore] = []

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        return {
            "source_metastore_conn_id": self.source_metastore_conn_id,
            "target_metastore_conn_id": self.target_metastore_conn_id,
        }

    async def connect(self) -> None:
        """See :meth:`PollingTrigger.connect`."""
        for conn_id in (self.source_metastore_conn_id, self.target_metastore_conn_id):
            self._urls.append(await MetastoreHook(conn_id).aget_url())

    def _metastores(self) -> tuple[AnyMetastore, AnyMetastore]:
        if not self._opened:
            self._opened = [open_metastore(url) for url in self._urls]
        return self._opened[0], self._opened[1]


class ReplicationLagTrigger(_PairTrigger):
    """Fires when a target is as close to its source as the arguments ask.

    :param policy: the replication.
    :param max_events: see :func:`lag_is_small`.
    :param max_seconds: see :func:`lag_is_small`.
    :param txn_id: see :func:`lag_is_small`.
    :param source_metastore_conn_id: connection of the source's metastore.
    :param target_metastore_conn_id: connection of the target's metastore.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(
        self,
        *,
        policy: str,
        max_events: int | None,
        max_seconds: float | None,
        txn_id: int | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy
        self.max_events = max_events
        self.max_seconds = max_seconds
        self.txn_id = txn_id

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        wanted = {"max_events": self.max_events, "max_seconds": self.max_seconds, "txn_id": self.txn_id}
        return {"policy": self.policy, **wanted, **super().arguments()}

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        return lag_is_small(
            self.policy,
            *self._metastores(),
            max_events=self.max_events,
            max_seconds=self.max_seconds,
            txn_id=self.txn_id,
        )


class NewEventsTrigger(_PairTrigger):
    """Fires when the source's log has new events, or the time is over. Its result is ``carries``.

    :param after: the last event that the task knows.
    :param until: seconds since the epoch; then the trigger fires in any case.
    :param carries: facts that the task needs when it continues; JSON-able.
    :param source_metastore_conn_id: connection of the source's metastore.
    :param target_metastore_conn_id: connection of the target's metastore.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(self, *, after: int, until: float, carries: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.after = after
        self.until = until
        self.carries = carries

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        own = {"after": self.after, "until": self.until, "carries": self.carries}
        return {**own, **super().arguments()}

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        newest = self._metastores()[0].current_event_id()
        is_due = newest > self.after or time.time() >= self.until
        return Progress(() if is_due else (f"no event after {self.after}",), self.carries)

"""The requests of a replicator to its target, and of a failover to both sides, on a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from airflow_provider.metastore.catalog import as_replicator
from airflow_provider.metastore.database import SqlDatabase
from airflow_provider.metastore.model import (
    FROZEN_BY,
    TARGET_FOR,
    TXN_EVENTS,
    NotificationEvent,
    Phase,
    Replication,
    Scope,
    SourceState,
    TxnState,
)
from airflow_provider.metastore.replication.events import apply_catalog_event
from airflow_provider.metastore.replication.policies import (
    add_bytes,
    begin_policy,
    find_policy,
    forget_policy,
    keep_lease,
    move_position,
    note_error,
    policies,
    release_lease,
    set_parameters,
    set_phase,
    target_databases,
)
from airflow_provider.metastore.replication.state import bring_over
from airflow_provider.metastore.replication.transactions import end_txn, mapped_txns, txn_event
from airflow_provider.metastore.transactions import last_write_id, transactions

T = TypeVar("T")


class TargetInDatabase:
    """See :class:`~airflow_provider.metastore.interface.ReplicationTarget`.

    :param sql: the target's database.
    """

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

    def replications(self) -> list[Replication]:
        """See :meth:`ReplicationTarget.replications`."""
        return self._sql.read(policies)

    def replication(self, policy: str) -> Replication:
        """See :meth:`ReplicationTarget.replication`."""
        return self._sql.read(lambda connection: find_policy(connection, policy))

    def begin(
        self, policy: str, source: str, databases: Mapping[str, str], *, is_same: bool = False
    ) -> Replication:
        """See :meth:`ReplicationTarget.begin`."""
        return self._write(
            lambda connection: begin_policy(connection, policy, source, databases, is_same=is_same)
        )

    def restart(self, policy: str) -> None:
        """See :meth:`ReplicationTarget.restart`."""
        self._write(lambda connection: set_phase(connection, policy, Phase.BOOTSTRAP))

    def keep_lease(self, policy: str, owner: str, seconds: float) -> None:
        """See :meth:`ReplicationTarget.keep_lease`."""
        self._write(lambda connection: keep_lease(connection, policy, owner, seconds))

    def release_lease(self, policy: str, owner: str) -> None:
        """See :meth:`ReplicationTarget.release_lease`."""
        self._write(lambda connection: release_lease(connection, policy, owner))

    def note_error(self, policy: str, error: str | None) -> None:
        """See :meth:`ReplicationTarget.note_error`."""
        self._write(lambda connection: note_error(connection, policy, error))

    def add_bytes(self, policy: str, copied: int) -> None:
        """See :meth:`ReplicationTarget.add_bytes`."""
        self._write(lambda connection: add_bytes(connection, policy, copied))

    def mapped_txns(self, policy: str) -> dict[int, int]:
        """See :meth:`ReplicationTarget.mapped_txns`."""
        return self._sql.read(lambda connection: mapped_txns(connection, policy))

    def apply_events(self, scope: Scope, events: Sequence[NotificationEvent]) -> None:
        """See :meth:`ReplicationTarget.apply_events`."""

        def apply(connection: Connection) -> None:
            for event in move_position(connection, scope.policy, events):
                if event.event_type in TXN_EVENTS:
                    txn_event(connection, scope.policy, event, scope)
                else:
                    apply_catalog_event(connection, event, scope)

        self._write(apply)

    def bring_over(self, scope: Scope, state: SourceState) -> None:
        """See :meth:`ReplicationTarget.bring_over`."""
        self._write(lambda connection: bring_over(connection, state, scope))

    def last_write_id(self, database: str, table: str) -> int:
        """See :meth:`ReplicationTarget.last_write_id`."""
        return self._sql.read(lambda connection: last_write_id(connection, database, table))

    def freeze(self, policy: str, databases: Collection[str]) -> None:
        """See :meth:`ReplicationTarget.freeze`."""
        self._write(lambda connection: set_parameters(connection, databases, {FROZEN_BY: policy}))

    def thaw(self, databases: Collection[str]) -> None:
        """See :meth:`ReplicationTarget.thaw`."""
        self._write(lambda connection: set_parameters(connection, databases, {FROZEN_BY: None}))

    def open_writers(self, databases: Collection[str]) -> list[int]:
        """See :meth:`ReplicationTarget.open_writers`."""

        def look(connection: Connection) -> list[int]:
            seen = transactions.valid_txn_list(connection, None)
            return [
                txn_id
                for txn_id in seen.exceptions
                if not seen.is_aborted(txn_id)
                and any(each.database in databases for each in transactions.writes_of(connection, txn_id))
            ]

        return self._sql.read(look)

    def take_over(self, policy: str, databases: Collection[str]) -> None:
        """See :meth:`ReplicationTarget.take_over`."""

        def switch(connection: Connection) -> None:
            for source_txn in mapped_txns(connection, policy):
                end_txn(connection, policy, source_txn, TxnState.ABORTED)
            set_parameters(connection, databases, {TARGET_FOR: None})
            set_phase(connection, policy, Phase.FAILED_OVER)

        self._write(switch)

    def forget(self, policy: str) -> None:
        """See :meth:`ReplicationTarget.forget`."""

        def forget(connection: Connection) -> None:
            for source_txn in mapped_txns(connection, policy):
                end_txn(connection, policy, source_txn, TxnState.ABORTED)
            set_parameters(connection, target_databases(connection, policy), {TARGET_FOR: None})
            forget_policy(connection, policy)

        self._write(forget)

    def follow_back(self, policy: str, source: str, databases: Mapping[str, str]) -> None:
        """See :meth:`ReplicationTarget.follow_back`."""

        def begin(connection: Connection) -> None:
            if begin_policy(connection, policy, source, databases).phase is Phase.FAILED_OVER:
                set_phase(connection, policy, Phase.BOOTSTRAP)
            set_parameters(connection, databases.values(), {FROZEN_BY: None, TARGET_FOR: policy})

        self._write(begin)

    def _write(self, operation: Callable[[Connection], T]) -> T:
        with as_replicator():
            return self._sql.write(operation)

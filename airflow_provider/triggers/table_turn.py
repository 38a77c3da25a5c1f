"""Waiting in the triggerer for a write's turn on its table, before any part of the write runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from airflow_provider.concurrency import pending_instants, settle_operation, writers_ahead
from airflow_provider.exceptions import LockUnavailableError
from airflow_provider.hooks.lock_provider import LockProviderHook
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable
from airflow_provider.triggers.table import TableTrigger


def before_turn(
    table: HudiTable, lock: LockProvider, *, priority: int | None, operation_key: str | None
) -> Progress:
    """The writers, lock holders and jobs for which a write has to wait before it begins.

    A write waits for live writers of higher priority, on any file groups; for the holder of the table lock,
    and waiters for the lock without a heartbeat; and for a job that an earlier try of the same operation left
    running.

    :param table: the table.
    :param lock: the table's lock; the function does not acquire it.
    :param priority: the write's priority; None for a write that waits for no other writer.
    :param operation_key: the key of an operation whose earlier try may still run; None without one.
    """
    blocking = [] if priority is None else writers_ahead(table.storage, priority, lock)
    holder = lock.holder()
    if holder is not None:
        blocking.append(f"{holder.owner}, who holds the table lock")
    if operation_key is not None:
        blocking += [
            f"instant {each.instant}, which the job of an earlier try still writes ({each.owner})"
            for each in pending_instants(table)
            if each.operation_key == operation_key and each.alive
        ]
    return Progress(tuple(blocking))


class TableTurnTrigger(TableTrigger):
    """Fires when a write may begin; see :func:`before_turn`.

    No part of this try runs yet. When a person ends the task, the trigger rolls back the write of an earlier
    try that still runs.

    :param location: absolute path or URL of the table.
    :param priority: the write's priority; None for a write that waits for no other writer.
    :param operation_key: the key of an operation whose earlier try may still run.
    :param hudi_options: the operator's argument.
    :param lock_conn_id: connection of type ``table_lock``.
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook`.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(
        self,
        *,
        priority: int | None,
        operation_key: str | None,
        hudi_options: Mapping[str, Any] | None,
        lock_conn_id: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.priority = priority
        self.operation_key = operation_key
        self.hudi_options = hudi_options
        self.lock_conn_id = lock_conn_id
        self._lock_hook = LockProviderHook(lock_conn_id)
        self._lock: LockProvider | None = None

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        return {
            "priority": self.priority,
            "operation_key": self.operation_key,
            "hudi_options": self.hudi_options,
            "lock_conn_id": self.lock_conn_id,
            **super().arguments(),
        }

    async def connect(self) -> None:
        """See :meth:`PollingTrigger.connect`."""
        await super().connect()
        await self._lock_hook.aread()

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        table = self.table()
        lock = self._lock = self._lock or self._open_lock(table)
        try:
            return before_turn(table, lock, priority=self.priority, operation_key=self.operation_key)
        except LockUnavailableError:
            self._lock = None
            raise

    async def on_kill(self) -> None:
        """Roll back the write of an earlier try's job, because a person has ended or cleared the task.

        The triggerer cannot reach the job itself. The job finds the rollback at its next heartbeat or at its
        commit, and ends without a commit. Airflow does not call this when the triggerer ends, nor after a
        timeout.
        """
        if self.operation_key is None:
            return
        await self.connect()
        await asyncio.to_thread(self._roll_back, self.operation_key)

    def _roll_back(self, operation_key: str) -> None:
        table = self.table()
        pending = [each.instant for each in pending_instants(table) if each.operation_key == operation_key]
        if pending:
            self.log.info("rolling back what the job of an earlier try writes: %s", ", ".join(pending))
            settle_operation(table, operation_key, reason="a person has ended its task")

    def _open_lock(self, table: HudiTable) -> LockProvider:
        options = EffectiveOptions(HudiOptions.parse(self.hudi_options), table.hudi_options)
        return open_lock(self._lock_hook.lock_config(options.options.lock), table.storage)

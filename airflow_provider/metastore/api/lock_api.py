"""The locks' part of :class:`Metastore`."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider.metastore.database import SqlDatabase
from airflow_provider.metastore.locks import LOCKS, Lock, Unlock, locks
from airflow_provider.metastore.model import (
    LOCK_TIMEOUT_SECONDS,
    LockComponent,
    LockInfo,
    LockResponse,
    LockState,
)


class LockApi:
    """Hive's locks on databases, tables and partitions.

    :param sql: the database.
    """

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

    def lock(
        self,
        components: Sequence[LockComponent],
        user: str,
        host: str,
        *,
        agent: str | None = None,
        txn_id: int | None = None,
        timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
        wait: bool = True,
    ) -> LockResponse:
        """See :meth:`AnyMetastore.lock`.

        :param timeout_seconds: the lock ends after so long without a heartbeat. A transaction's lock
            has the transaction's heartbeat and timeout.
        """
        request = Lock(tuple(components), user, host, agent, txn_id, timeout_seconds, wait)
        return self._sql.write_together(LOCKS, request)

    def check_lock(self, lock_id: int) -> LockState:
        """See :meth:`AnyMetastore.check_lock`."""
        return self._sql.write(lambda connection: locks.check_lock(connection, lock_id))

    def heartbeat_lock(self, lock_id: int) -> None:
        """See :meth:`AnyMetastore.heartbeat_lock`."""
        self._sql.write(lambda connection: locks.heartbeat_lock(connection, lock_id))

    def unlock(self, lock_id: int) -> None:
        """See :meth:`AnyMetastore.unlock`."""
        self._sql.write_together(LOCKS, Unlock(lock_id))

    def show_locks(
        self,
        database: str | None = None,
        table: str | None = None,
        partition: str | None = None,
        *,
        txn_id: int | None = None,
    ) -> list[LockInfo]:
        """See :meth:`AnyMetastore.show_locks`."""
        return self._sql.read(
            lambda connection: locks.show_locks(
                connection, database=database, table=table, partition=partition, txn_id=txn_id
            )
        )

    def remove_timed_out_locks(self) -> list[int]:
        """Remove the locks without a heartbeat for their timeout.

        A new lock removes the timed-out locks that it would wait for; this call removes the others.

        :return: the ids of the removed locks, ascending.
        """
        return self._sql.write(locks.remove_timed_out_locks)

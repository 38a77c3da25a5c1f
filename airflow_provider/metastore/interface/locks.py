"""Hive's locks on databases, tables and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from airflow_provider.metastore.model import (
    LockComponent,
    LockInfo,
    LockResponse,
    LockState,
)


class Locks(Protocol):
    """Hive's locks on databases, tables and partitions."""

    def lock(
        self,
        components: Sequence[LockComponent],
        user: str,
        host: str,
        *,
        agent: str | None = None,
        txn_id: int | None = None,
        wait: bool = True,
    ) -> LockResponse:
        """Ask for a lock, and return at once.

        A lock that is WAITING has its place in the line. The caller asks again by :meth:`check_lock`, or
        gives the lock up by :meth:`unlock`.

        :param components: the places to lock, all of them or none.
        :param user: the user who asks.
        :param host: the host that asks.
        :param agent: the program that asks, such as a task instance.
        :param txn_id: an open transaction: its locks never exclude each other, and end with it.
        :param wait: False for NOT_ACQUIRED instead of a place in the line.
        :raises InvalidInputError: when there is no component.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises NoSuchTransactionError: when it is not open.
        """

    def check_lock(self, lock_id: int) -> LockState:
        """Look whether a lock is held by now; the call counts as a heartbeat.

        :return: ACQUIRED, or WAITING.
        :raises NoSuchLockError: when the lock was unlocked, has timed out, or its transaction has ended.
        """

    def heartbeat_lock(self, lock_id: int) -> None:
        """Renew the heartbeat of a lock, and of its transaction if it has one.

        :raises NoSuchLockError: see :meth:`check_lock`.
        """

    def unlock(self, lock_id: int) -> None:
        """Release a held lock, or give up a waiting one. A missing lock is no error, as in Hive.

        :raises TransactionOpenError: when the lock is held and belongs to a transaction.
        """

    def show_locks(
        self,
        database: str | None = None,
        table: str | None = None,
        partition: str | None = None,
        *,
        txn_id: int | None = None,
    ) -> list[LockInfo]:
        """The locks that are held, and those that wait.

        :param database: only components on this database, and on its tables and partitions.
        :param table: only components on tables of this name, and on their partitions.
        :param partition: only components on partitions of this name.
        :param txn_id: only locks of this transaction.
        :return: one entry a component, in the order of the lock requests.
        """

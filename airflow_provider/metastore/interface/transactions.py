"""Transactions, write ids and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from airflow_provider.metastore.model import (
    Insertion,
    PartitionSpec,
    ReadSnapshot,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
)
from airflow_provider.metastore.timeouts import TimeoutApi


class Transactions(TimeoutApi, Protocol):
    """Transactions, write ids and snapshots."""

    def open_txn(
        self,
        user: str,
        host: str,
        *,
        agent: str | None = None,
        commit_on_recovery: bool = True,
        txn_type: TxnType = TxnType.DEFAULT,
        timeout_seconds: float | None = None,
    ) -> int:
        """Open a transaction.

        :param user: the user who opens it.
        :param host: the host that opens it.
        :param agent: the program that opens it, such as a task instance.
        :param commit_on_recovery: False for a transaction that recovery must not commit before
            :meth:`request_commit`, such as one around several ingestions; see :meth:`recover_timed_out`.
        :param txn_type: READ_ONLY for a transaction that gets no write ids, leaves no events, and hides
            nothing from any reader's snapshot.
        :param timeout_seconds: the transaction times out after so long without a heartbeat; None for the
            timeout that recovery uses.
        :raises InvalidInputError: when the timeout is not above zero.
        :return: the transaction's id, its predecessor's + 1.
        """

    def heartbeat_txn(self, txn_id: int) -> None:
        """Renew the heartbeat of a transaction.

        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it is committed or was never opened.
        """

    def request_commit(self, txn_id: int) -> None:
        """Record that all work of a transaction is done and only its commit is missing.

        From then on recovery may commit the transaction, as with ``commit_on_recovery``.

        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it was never opened.
        """

    def commit_txn(
        self,
        txn_id: int,
        *,
        new_partitions: Mapping[tuple[str, str], Sequence[PartitionSpec]] | None = None,
        insertions: Mapping[tuple[str, str], Sequence[Insertion]] | None = None,
    ) -> int:
        """Commit a transaction. A second call changes nothing.

        :param new_partitions: partitions by (database, table). The commit registers them in the same database
            transaction, so that no reader sees it without them; existing partitions stay.
        :param insertions: insertions by (database, table). The commit writes their INSERT events before the
            COMMIT_TXN event, in the same database transaction: a consumer of the log gets both at once.
        :return: the id of its COMMIT_TXN event; for a transaction that only reads, of the last event.
        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it was never opened.
        :raises NoSuchObjectError: when a table, or a partition of ``insertions``, does not exist.
        """

    def abort_txn(self, txn_id: int) -> int:
        """Abort a transaction. A second call changes nothing.

        The transaction's catalog changes stay, as in Hive. A reader with a snapshot never sees the data under
        its write ids.

        :return: the id of its ABORT_TXN event.
        :raises NoSuchTransactionError: when it is committed or was never opened.
        """

    def allocate_table_write_id(self, txn_id: int, database: str, table: str) -> int:
        """Allocate the write id of a transaction on a table. Every further call returns the same one.

        :return: the write id: the table's last one + 1 when the transaction had none.
        :raises NoSuchObjectError: when the table does not exist.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises NoSuchTransactionError: when it is not open.
        :raises InvalidInputError: when the transaction only reads.
        """

    def seed_write_id(self, database: str, table: str, last_write_id: int) -> int:
        """Start a table's write ids above those that were used before its registration in this metastore.

        The data of a table that was registered elsewhere carries write ids in its commit metadata, and the
        next ones must not repeat them. Ids never move back. A table that is dropped and registered again by
        the same name needs no seed.

        :param last_write_id: the highest id in use.
        :return: the highest id in use after the call; the next id is this + 1.
        :raises NoSuchObjectError: when the table does not exist.
        """

    def record_write(self, txn_id: int, database: str, table: str, instant: str) -> None:
        """Record that a transaction writes a table as a Hudi instant. A second call changes nothing.

        :param instant: the instant's requested time.
        :raises NoSuchObjectError: when the table does not exist.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises NoSuchTransactionError: when it is not open.
        """

    def valid_txn_list(self, txn_id: int | None = None) -> ValidTxnList:
        """The snapshot of a reader that begins now: the transactions that it sees.

        :param txn_id: the reader's own transaction. The reader sees its own writes, and nothing later.
        :raises NoSuchTransactionError: when ``txn_id`` was never opened.
        """

    def read_snapshot(
        self,
        tables: Iterable[tuple[str, str]],
        txn_id: int | None = None,
        *,
        valid_txns: ValidTxnList | None = None,
    ) -> ReadSnapshot:
        """The present state of several tables, with which a reader reads them through any replica's cache.

        It is Hive's ``getValidWriteIdsAndTblIds``: all tables are of one moment, and never from a cache.
        :func:`airflow_provider.table.snapshot` reads the tables' rows at that moment.

        :param tables: (database, table) pairs.
        :param txn_id: the reader's own transaction; its writes count as committed.
        :param valid_txns: the transactions that the reader sees, from an earlier :meth:`valid_txn_list`; then
            ``txn_id`` has no effect. None for a list of this moment.
        :raises NoSuchObjectError: when a table does not exist.
        :raises NoSuchTransactionError: when ``txn_id`` was never opened.
        """

    def valid_write_id_list(
        self, database: str, table: str, valid_txns: ValidTxnList | None = None
    ) -> ValidWriteIdList:
        """The write ids of a table that a reader sees.

        :param valid_txns: the transactions that the reader sees; None for a list of this moment.
        :raises NoSuchObjectError: when the table does not exist.
        """

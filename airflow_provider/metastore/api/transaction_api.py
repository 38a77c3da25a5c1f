"""The transactions' part of the metastore's face."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from airflow_provider.metastore.catalog import catalog, partitions
from airflow_provider.metastore.database import Counter, MetastoreEngine, counted
from airflow_provider.metastore.model import (
    Insertion,
    PartitionSpec,
    ReadSnapshot,
    TableSnapshot,
    TableWriteInfo,
    TxnInfo,
    TxnState,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
)
from airflow_provider.metastore.timeouts import TimeoutApi
from airflow_provider.metastore.transactions import (
    TRANSACTIONS,
    WRITE_IDS,
    AllocateWriteId,
    CommitTxn,
    OpenTxn,
    TableChange,
    table_write_ids,
    transactions,
)


class TransactionApi(TimeoutApi):
    """Transactions, write ids and snapshots.

    :param engine: the database.
    """

    def __init__(self, engine: MetastoreEngine) -> None:
        self._engine = engine

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

        :param user: who opens it.
        :param host: from where.
        :param agent: what opens it, such as a task instance.
        :param commit_on_recovery: False for a transaction that recovery must not commit before
            :meth:`request_commit`, such as one around several ingestions; see :meth:`recover_timed_out`.
        :param txn_type: READ_ONLY for one that gets no write ids, leaves no events, and hides nothing
            from anybody's snapshot.
        :param timeout_seconds: how long it may be without a heartbeat; None to leave that to whoever
            looks for timed-out transactions.
        :raises InvalidInputError: when the timeout is not above zero.
        :return: its id, the last one's + 1.
        """
        request = OpenTxn(user, host, agent, commit_on_recovery, txn_type, timeout_seconds)
        return self._engine.write_together(TRANSACTIONS, request)

    def get_txn(self, txn_id: int) -> TxnInfo:
        """Look a transaction up, whatever its state.

        :raises NoSuchTransactionError: when it was never opened.
        """
        return self._engine.read(lambda connection: transactions.get_txn(connection, txn_id))

    def heartbeat_txn(self, txn_id: int) -> None:
        """Say that a transaction's owner lives.

        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it is committed or was never opened.
        """
        self._engine.write(lambda connection: transactions.heartbeat_txn(connection, txn_id))

    def request_commit(self, txn_id: int) -> None:
        """Say that all work of a transaction is done and only its commit is missing.

        From then on recovery may commit it, as if it had been opened with ``commit_on_recovery``.

        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it was never opened.
        """
        self._engine.write(lambda connection: transactions.request_commit(connection, txn_id))

    def commit_txn(
        self,
        txn_id: int,
        *,
        new_partitions: Mapping[tuple[str, str], Sequence[PartitionSpec]] | None = None,
        insertions: Mapping[tuple[str, str], Sequence[Insertion]] | None = None,
    ) -> int:
        """Commit a transaction. Doing it again changes nothing.

        :param new_partitions: by (database, table), partitions to register in the same database
            transaction, so that no reader sees the commit without them; existing ones stay.
        :param insertions: by (database, table), what is told by INSERT events before the COMMIT_TXN event, in
            the same database transaction: who follows the log learns of both at once.
        :return: the id of its COMMIT_TXN event; for a transaction that only reads, of the last event.
        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it was never opened.
        :raises NoSuchObjectError: when a table, or a partition of ``insertions``, does not exist.
        """

        def commit(connection: Connection) -> int:
            state = transactions.lock_not_aborted(connection, txn_id)
            # What comes after the commit cannot belong to it any more, and was told with it.
            told = insertions if insertions and state == TxnState.OPEN else {}
            change = TableChange(connection, txn_id if state == TxnState.OPEN else None)
            for database, table in sorted({*(new_partitions or {}), *told}):
                # All before the first event: the order in which everybody locks.
                catalog.get_table(connection, database, table, lock=True)
            for (database, table), specs in sorted((new_partitions or {}).items()):
                partitions.add_partitions(
                    connection, database, table, specs, if_not_exists=True, write_id=change.write_id
                )
            for (database, table), inserted in sorted(told.items()):
                partitions.append_insert_events(
                    connection, database, table, inserted, write_id=change.write_id
                )
            change.end()
            return transactions.commit_txn(connection, txn_id)

        if new_partitions or insertions:
            return self._engine.write(commit)
        return self._engine.write_together(TRANSACTIONS, CommitTxn(txn_id))

    def abort_txn(self, txn_id: int) -> int:
        """Abort a transaction. Doing it again changes nothing.

        Catalog changes made meanwhile stay, as in Hive; what was written under its write ids is
        never seen by a reader with a snapshot.

        :return: the id of its ABORT_TXN event.
        :raises NoSuchTransactionError: when it is committed or was never opened.
        """
        return self._engine.write(lambda connection: transactions.abort_txn(connection, txn_id))

    def allocate_table_write_id(self, txn_id: int, database: str, table: str) -> int:
        """The write id of a transaction on a table, the same one however often it is asked for.

        :return: the table's last write id + 1 when the transaction had none.
        :raises NoSuchObjectError: when the table does not exist.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises NoSuchTransactionError: when it is not open.
        :raises InvalidInputError: when it was opened to read only.
        """

        return self._engine.write_together(WRITE_IDS, AllocateWriteId(txn_id, database, table))

    def seed_write_id(self, database: str, table: str, last_write_id: int) -> int:
        """Let a table's write ids go on above those that were used before it was registered here.

        The data of a table that was registered elsewhere carries write ids in its commit metadata; the
        next ones must not repeat them. Ids never move back. A table that is dropped and registered
        again by the same name goes on by itself.

        :param last_write_id: the highest id in use.
        :return: the highest id in use by now; the next one is this + 1.
        :raises NoSuchObjectError: when the table does not exist.
        """

        def seed(connection: Connection) -> int:
            catalog.get_table(connection, database, table, lock=True)
            return table_write_ids.seed_write_id(connection, database, table, last_write_id)

        return self._engine.write(seed)

    def record_write(self, txn_id: int, database: str, table: str, instant: str) -> None:
        """Record that a transaction writes a table as a Hudi instant; doing it again changes nothing.

        :param instant: the instant's requested time.
        :raises NoSuchObjectError: when the table does not exist.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises NoSuchTransactionError: when it is not open.
        """
        self._engine.write(
            lambda connection: transactions.record_write(connection, txn_id, database, table, instant)
        )

    def writes_of(self, txn_id: int) -> list[TableWriteInfo]:
        """What a transaction wrote: its recorded instants, and its write ids without one.

        :return: by table and instant; tables dropped since are not among them.
        """
        return self._engine.read(lambda connection: transactions.writes_of(connection, txn_id))

    def valid_txn_list(self, txn_id: int | None = None) -> ValidTxnList:
        """A snapshot: the transactions that a reader that begins now sees.

        :param txn_id: the reader's own transaction: it sees its own writes, and nothing later.
        :raises NoSuchTransactionError: when ``txn_id`` was never opened.
        """
        return self._engine.read(lambda connection: transactions.valid_txn_list(connection, txn_id))

    def read_snapshot(
        self,
        tables: Iterable[tuple[str, str]],
        txn_id: int | None = None,
        *,
        valid_txns: ValidTxnList | None = None,
    ) -> ReadSnapshot:
        """What a reader needs to read several tables as they are now, through any replica's cache.

        Hive's ``getValidWriteIdsAndTblIds``: all of one moment, and never from a cache. The tables' rows
        at that moment: :func:`airflow_provider.table.snapshot`.

        :param tables: (database, table) pairs.
        :param txn_id: the reader's own transaction; its writes count as committed.
        :param valid_txns: which transactions are seen, from an earlier :meth:`valid_txn_list`; then
            ``txn_id`` says nothing. Those of now when None.
        :raises NoSuchObjectError: when a table does not exist.
        :raises NoSuchTransactionError: when ``txn_id`` was never opened.
        """

        def look(connection: Connection) -> ReadSnapshot:
            seen = transactions.valid_txn_list(connection, txn_id) if valid_txns is None else valid_txns
            found = [catalog.get_table(connection, database, table) for database, table in tables]
            return ReadSnapshot(
                valid_txns=seen,
                tables={
                    one.full_name: TableSnapshot(
                        one.id,
                        table_write_ids.valid_write_id_list(connection, one.database, one.name, seen),
                    )
                    for one in found
                },
                catalog_event_id=counted(connection, Counter.CATALOG_EVENT_ID),
            )

        return self._engine.read(look)

    def valid_write_id_list(
        self, database: str, table: str, valid_txns: ValidTxnList | None = None
    ) -> ValidWriteIdList:
        """The write ids of a table that a reader sees.

        :param valid_txns: the reader's snapshot; None for one of now.
        :raises NoSuchObjectError: when the table does not exist.
        """

        def look(connection: Connection) -> ValidWriteIdList:
            catalog.get_table(connection, database, table)
            snapshot = transactions.valid_txn_list(connection, None) if valid_txns is None else valid_txns
            return table_write_ids.valid_write_id_list(connection, database, table, snapshot)

        return self._engine.read(look)

    def timed_out(self, timeout_seconds: float) -> list[int]:
        """See :meth:`TimeoutApi.timed_out`."""
        return self._engine.read(lambda connection: transactions.timed_out(connection, timeout_seconds))

    def end_timed_out(self, txn_id: int, timeout_seconds: float, *, commit: bool) -> int | None:
        """See :meth:`TimeoutApi.end_timed_out`."""

        def end(connection: Connection) -> int | None:
            if not transactions.still_timed_out(connection, txn_id, timeout_seconds):
                return None
            end_txn = transactions.commit_txn if commit else transactions.abort_txn
            return end_txn(connection, txn_id)

        return self._engine.write(end)

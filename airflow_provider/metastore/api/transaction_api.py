"""The transactions' part of :class:`Metastore`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from airflow_provider.metastore.catalog import catalog, ending_transaction, partitions
from airflow_provider.metastore.database import Counter, SqlDatabase, counted
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
    DdlTransaction,
    OpenTxn,
    table_write_ids,
    transactions,
)


class TransactionApi(TimeoutApi):
    """Transactions, write ids and snapshots.

    :param sql: the database.
    """

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

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
        """See :meth:`AnyMetastore.open_txn`."""
        request = OpenTxn(user, host, agent, commit_on_recovery, txn_type, timeout_seconds)
        return self._sql.write_together(TRANSACTIONS, request)

    def get_txn(self, txn_id: int) -> TxnInfo:
        """See :meth:`AnyMetastore.get_txn`."""
        return self._sql.read(lambda connection: transactions.get_txn(connection, txn_id))

    def heartbeat_txn(self, txn_id: int) -> None:
        """See :meth:`AnyMetastore.heartbeat_txn`."""
        self._sql.write(lambda connection: transactions.heartbeat_txn(connection, txn_id))

    def request_commit(self, txn_id: int) -> None:
        """See :meth:`AnyMetastore.request_commit`."""
        self._sql.write(lambda connection: transactions.request_commit(connection, txn_id))

    def commit_txn(
        self,
        txn_id: int,
        *,
        new_partitions: Mapping[tuple[str, str], Sequence[PartitionSpec]] | None = None,
        insertions: Mapping[tuple[str, str], Sequence[Insertion]] | None = None,
    ) -> int:
        """See :meth:`AnyMetastore.commit_txn`."""

        def commit(connection: Connection) -> int:
            state = transactions.lock_not_aborted(connection, txn_id)
            # An insertion after the commit cannot belong to it; its event was written with the commit.
            new_insertions = insertions if insertions and state == TxnState.OPEN else {}
            change = DdlTransaction(connection, txn_id if state == TxnState.OPEN else None)
            for database, table in sorted({*(new_partitions or {}), *new_insertions}):
                # All tables before the first event: every database transaction locks in this order.
                catalog.get_table(connection, database, table, lock=True)
            for (database, table), specs in sorted((new_partitions or {}).items()):
                partitions.add_partitions(
                    connection, database, table, specs, if_not_exists=True, write_id=change.write_id
                )
            for (database, table), inserted in sorted(new_insertions.items()):
                partitions.append_insert_events(
                    connection, database, table, inserted, write_id=change.write_id
                )
            change.end()
            return transactions.commit_txn(connection, txn_id)

        if new_partitions or insertions:
            with ending_transaction():
                return self._sql.write(commit)
        return self._sql.write_together(TRANSACTIONS, CommitTxn(txn_id))

    def abort_txn(self, txn_id: int) -> int:
        """See :meth:`AnyMetastore.abort_txn`."""
        return self._sql.write(lambda connection: transactions.abort_txn(connection, txn_id))

    def allocate_table_write_id(self, txn_id: int, database: str, table: str) -> int:
        """See :meth:`AnyMetastore.allocate_table_write_id`."""

        return self._sql.write_together(WRITE_IDS, AllocateWriteId(txn_id, database, table))

    def seed_write_id(self, database: str, table: str, last_write_id: int) -> int:
        """See :meth:`AnyMetastore.seed_write_id`."""

        def seed(connection: Connection) -> int:
            catalog.get_table(connection, database, table, lock=True)
            return table_write_ids.seed_write_id(connection, database, table, last_write_id)

        return self._sql.write(seed)

    def record_write(self, txn_id: int, database: str, table: str, instant: str) -> None:
        """See :meth:`AnyMetastore.record_write`."""
        self._sql.write(
            lambda connection: transactions.record_write(connection, txn_id, database, table, instant)
        )

    def writes_of(self, txn_id: int) -> list[TableWriteInfo]:
        """See :meth:`AnyMetastore.writes_of`."""
        return self._sql.read(lambda connection: transactions.writes_of(connection, txn_id))

    def valid_txn_list(self, txn_id: int | None = None) -> ValidTxnList:
        """See :meth:`AnyMetastore.valid_txn_list`."""
        return self._sql.read(lambda connection: transactions.valid_txn_list(connection, txn_id))

    def read_snapshot(
        self,
        tables: Iterable[tuple[str, str]],
        txn_id: int | None = None,
        *,
        valid_txns: ValidTxnList | None = None,
    ) -> ReadSnapshot:
        """See :meth:`AnyMetastore.read_snapshot`."""

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

        return self._sql.read(look)

    def valid_write_id_list(
        self, database: str, table: str, valid_txns: ValidTxnList | None = None
    ) -> ValidWriteIdList:
        """See :meth:`AnyMetastore.valid_write_id_list`."""

        def look(connection: Connection) -> ValidWriteIdList:
            catalog.get_table(connection, database, table)
            snapshot = transactions.valid_txn_list(connection, None) if valid_txns is None else valid_txns
            return table_write_ids.valid_write_id_list(connection, database, table, snapshot)

        return self._sql.read(look)

    def timed_out(self, timeout_seconds: float) -> list[int]:
        """See :meth:`TimeoutApi.timed_out`."""
        return self._sql.read(lambda connection: transactions.timed_out(connection, timeout_seconds))

    def end_timed_out(self, txn_id: int, timeout_seconds: float, *, commit: bool) -> int | None:
        """See :meth:`TimeoutApi.end_timed_out`."""

        def end(connection: Connection) -> int | None:
            if not transactions.still_timed_out(connection, txn_id, timeout_seconds):
                return None
            end_txn = transactions.commit_txn if commit else transactions.abort_txn
            return end_txn(connection, txn_id)

        return self._sql.write(end)

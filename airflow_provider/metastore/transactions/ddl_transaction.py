"""The transaction to which a change of a table's metadata belongs.

Every change of a managed table has a write id of its transaction (Hive's client
advances the write id for every DDL: ``AcidUtils.advanceWriteId``). So a reader's list of valid write
ids shows whether a cached copy of the table is fresh. A change outside a transaction, which old
clients make, gets a transaction of its own.
"""

from __future__ import annotations

import socket

from sqlalchemy import Connection

from airflow_provider.metastore.model import NO_WRITE_ID, TableInfo
from airflow_provider.metastore.transactions import table_write_ids, transactions

_USER = "metastore"


class DdlTransaction:
    """Allocates the write ids of one change, inside one database transaction.

    :param connection: the database transaction that makes the change.
    :param txn_id: the open transaction that the change belongs to; None for a transaction of its own.
    :raises NoSuchTransactionError: when the transaction is not open.
    :raises TransactionAbortedError: when it was aborted.
    """

    def __init__(self, connection: Connection, txn_id: int | None) -> None:
        self._connection = connection
        self._txn_id = txn_id
        self._own: dict[tuple[str, str], tuple[int, int]] = {}
        if txn_id is not None:
            transactions.lock_open(connection, txn_id)

    def write_id(self, table: TableInfo) -> int:
        """The write id of the change of a table. The caller asks for it only when the table does change.

        :param table: the table, locked by the caller.
        :return: the write id; :data:`NO_WRITE_ID` for an external table on which the transaction has none.
        """
        place = (table.database, table.name)
        if self._txn_id is not None:
            known = table_write_ids.write_id_of(self._connection, self._txn_id, *place)
            if known is not None:
                return known
        if place in self._own:
            return self._own[place][1]
        if table.is_external:
            return NO_WRITE_ID
        if self._txn_id is not None:
            return table_write_ids.allocate_table_write_id(
                self._connection, self._txn_id, *place, table_id=table.id
            )
        # The sequence comes before the counters: every database transaction locks them in this order.
        allocated = table_write_ids.next_write_id(self._connection, *place)
        txn_id = transactions.open_txn(
            self._connection, _USER, socket.gethostname(), agent=None, commit_on_recovery=True
        )
        table_write_ids.map_write_id(self._connection, txn_id, *place, allocated, table_id=table.id)
        self._own[place] = (txn_id, allocated.write_id)
        return allocated.write_id

    def end(self) -> None:
        """Commit the change's own transaction, if it has one; the caller calls it after the change."""
        for txn_id, _ in self._own.values():
            transactions.commit_txn(self._connection, txn_id)

"""The transaction to which a change of a table's metadata belongs.

Every change of a managed table is made under a write id of its own transaction (Hive's client
advances the write id for every DDL: ``AcidUtils.advanceWriteId``). So a reader's list of valid write
ids tells whether a cached copy of the table is fresh. A change outside a transaction, as old
clients make it, gets a transaction of its own.
"""

from __future__ import annotations

import socket

from sqlalchemy import Connection

from airflow_provider.metastore.model import NO_WRITE_ID, TableInfo
from airflow_provider.metastore.transactions import table_write_ids, transactions

_USER = "metastore"


class DdlTransaction:
    """Gives out the write ids of one change; in one database transaction.

    :param connection: the database transaction in which the change is made.
    :param txn_id: the open transaction to which it belongs; None for one of its own.
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
        """The write id under which a table is changed; taken only when something does change.

        :param table: the table, locked by the caller.
        :return: :data:`NO_WRITE_ID` for an external table on which the transaction has none.
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
        # The sequence before the counters: the order in which all lock them.
        allocated = table_write_ids.next_write_id(self._connection, *place)
        txn_id = transactions.open_txn(
            self._connection, _USER, socket.gethostname(), agent=None, commit_on_recovery=True
        )
        table_write_ids.map_write_id(self._connection, txn_id, *place, allocated, table_id=table.id)
        self._own[place] = (txn_id, allocated.write_id)
        return allocated.write_id

    def end(self) -> None:
        """Commit the transaction that was opened here; call it when the change is made."""
        for txn_id, _ in self._own.values():
            transactions.commit_txn(self._connection, txn_id)

"""Transactions of the source on the target: their mapping, their write ids, and their ends.

The rules are those of Hive's OpenTxnsFunction, AllocateTableWriteIdsFunction, CommitTxnFunction and
AbortTxnsFunction for requests with a ``replPolicy``: a request that was done before changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from airflow_provider.metastore.database import (
    databases,
    repl_txn_map,
    tables,
    txn_write_ids,
    write_id_sequences,
)
from airflow_provider.metastore.model import EventType, NotificationEvent, Scope, TxnState, TxnType
from airflow_provider.metastore.transactions import table_write_ids, transactions

_USER = "replication"


def map_txn(connection: Connection, policy: str, source_txn_id: int) -> int:
    """The target's transaction for a transaction of the source; opens one when there is none."""
    known = target_txn_of(connection, policy, source_txn_id)
    if known is not None:
        return known
    opened = transactions.open_txn(
        connection,
        _USER,
        socket.gethostname(),
        agent=policy,
        commit_on_recovery=False,
        txn_type=TxnType.REPL_CREATED,
    )
    values = {"policy": policy, "source_txn_id": source_txn_id, "target_txn_id": opened}
    connection.execute(insert(repl_txn_map).values(**values))
    return opened


def target_txn_of(connection: Connection, policy: str, source_txn_id: int) -> int | None:
    """The target's transaction for a transaction of the source; None when it has ended or never existed."""
    query = select(repl_txn_map.c.target_txn_id).where(
        repl_txn_map.c.policy == policy, repl_txn_map.c.source_txn_id == source_txn_id
    )
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else int(found)


def mapped_txns(connection: Connection, policy: str) -> dict[int, int]:
    """The target's open transactions by the source's transactions."""
    query = select(repl_txn_map.c.source_txn_id, repl_txn_map.c.target_txn_id)
    rows = connection.execute(query.where(repl_txn_map.c.policy == policy))
    return {row.source_txn_id: row.target_txn_id for row in rows}


def force_write_id(
    connection: Connection, target_txn_id: int, database: str, table: str, write_id: int
) -> None:
    """Give a transaction of the target the write id of the source's transaction on a table.

    If another transaction of the target has this id, its claim is stale. So are higher ids of the table's
    name: nobody but replicators writes there.

    :param database: the target's database.
    :param table: the table, which need not exist.
    """
    database, table = database.lower(), table.lower()
    if table_write_ids.write_id_of(connection, target_txn_id, database, table) == write_id:
        return
    table_write_ids.seed_write_id(connection, database, table, write_id)
    place = (
        write_id_sequences.c.database_name == database,
        write_id_sequences.c.table_name == table,
    )
    sequence = connection.execute(select(write_id_sequences.c.id).where(*place)).scalar_one()
    stale = (txn_write_ids.c.write_id == write_id) | (txn_write_ids.c.txn_id == target_txn_id)
    connection.execute(delete(txn_write_ids).where(txn_write_ids.c.sequence_id == sequence, stale))
    named = select(tables.c.id).join(databases).where(databases.c.name == database, tables.c.name == table)
    table_id = connection.execute(named).scalar_one_or_none()
    table_write_ids.map_write_id(
        connection,
        target_txn_id,
        database,
        table,
        table_write_ids.AllocatedWriteId(sequence, write_id),
        table_id=table_id,
    )


def forget_write_ids(
    connection: Connection, database: str, table: str, *, last: int, stale: Collection[int]
) -> None:
    """Remove write ids that the source has not allocated, or has allocated to another transaction.

    A table of an old source may have such ids.

    :param last: the highest write id that the source has allocated.
    :param stale: ids up to ``last`` that belong to another transaction at the source.
    """
    place = (
        write_id_sequences.c.database_name == database.lower(),
        write_id_sequences.c.table_name == table.lower(),
    )
    sequence = connection.execute(select(write_id_sequences.c.id).where(*place)).scalar_one_or_none()
    gone = (txn_write_ids.c.write_id > last) | txn_write_ids.c.write_id.in_(stale)
    connection.execute(delete(txn_write_ids).where(txn_write_ids.c.sequence_id == sequence, gone))
    connection.execute(
        update(write_id_sequences)
        .where(*place, write_id_sequences.c.last_write_id > last)
        .values(last_write_id=last)
    )


def bring_write_ids(
    connection: Connection,
    database: str,
    table: str,
    policy: str,
    *,
    last: int,
    aborted: Collection[int],
    committed: int,
) -> None:
    """Make a table's ValidWriteIdList mean the same as at the source, except for open transactions.

    As in Hive's ReplTableWriteIdStateFunction, each aborted id has an aborted transaction. Here the highest
    committed id also has a transaction, which gives the list its high watermark.

    :param database: the target's database.
    :param last: the highest write id that the source has allocated.
    :param aborted: the write ids of aborted transactions of the source.
    :param committed: the highest write id of a committed transaction of the source; 0 when there is none.
    """
    table_write_ids.seed_write_id(connection, database, table, last)
    here, highest = table_write_ids.ended_write_ids(connection, database, table)
    stale = {one for one in here if one not in aborted}
    forget_write_ids(connection, database, table, last=last, stale=stale)
    closed = [(one, TxnState.ABORTED) for one in sorted({*aborted} - here)]
    if committed and committed != highest:
        closed.append((committed, TxnState.COMMITTED))
    for write_id, state in closed:
        txn = transactions.open_txn(connection, _USER, "", agent=policy, commit_on_recovery=False)
        force_write_id(connection, txn, database, table, write_id)
        end = transactions.abort_txn if state is TxnState.ABORTED else transactions.commit_txn
        end(connection, txn)


def end_txn(connection: Connection, policy: str, source_txn_id: int, state: TxnState) -> int | None:
    """End the target's transaction for a transaction of the source, in the same state.

    :return: the target's event; None when the target's transaction has ended already.
    """
    target = target_txn_of(connection, policy, source_txn_id)
    if target is None:
        return None
    end = transactions.commit_txn if state is TxnState.COMMITTED else transactions.abort_txn
    event_id = end(connection, target)
    connection.execute(
        delete(repl_txn_map).where(
            repl_txn_map.c.policy == policy, repl_txn_map.c.source_txn_id == source_txn_id
        )
    )
    return event_id


def txn_event(connection: Connection, policy: str, event: NotificationEvent, scope: Scope) -> None:
    """Apply an event about transactions. Before a COMMIT_TXN, the caller has copied the data."""
    message: Mapping[str, Any] = event.message
    match event.event_type:
        case EventType.OPEN_TXN:
            for source_txn in message["txnIds"]:
                map_txn(connection, policy, int(source_txn))
        case EventType.ALLOC_WRITE_ID:
            database = scope.database(str(message["dbName"]))
            if database is None:
                return
            for source_txn, write_id in zip(message["txnIdList"], message["writeIdList"], strict=True):
                target = target_txn_of(connection, policy, int(source_txn))
                if target is None:
                    continue  # the transaction has ended, so an earlier try has allocated this
                force_write_id(connection, target, database, str(message["tableName"]), int(write_id))
        case EventType.COMMIT_TXN:
            end_txn(connection, policy, int(message["txnid"]), TxnState.COMMITTED)
        case EventType.ABORT_TXN:
            end_txn(connection, policy, int(message["txnid"]), TxnState.ABORTED)

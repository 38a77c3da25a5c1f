"""Global transactions: functions of one connection.

A transaction is open, committed or aborted. It has at most one write id on a table; a reader
sees a write id exactly when it sees the transaction. The rules, states and error texts are
Hive's (its functions OpenTxns, CommitTxn, AbortTxn, AllocateTableWriteIds, GetValidWriteIds
in ``metastore/txn/jdbc/functions``), with two differences. Transaction ids come from a
locked counter and so have no gaps, but where :func:`seed_txn_id` makes one. The metastore
records the Hudi instants of a transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, func, insert, select, update

from airflow_provider.exceptions import (
    InvalidInputError,
    MetastoreError,
    NoSuchTransactionError,
    ReplicationTargetError,
    TransactionAbortedError,
)
from airflow_provider.metastore.catalog import get_table, is_replicator
from airflow_provider.metastore.database import (
    Counter,
    advance,
    counted,
    current_millis,
    databases,
    insert_if_absent,
    locks,
    tables,
    txn_write_ids,
    txn_writes,
    txns,
    write_id_sequences,
)
from airflow_provider.metastore.model import (
    NO_OPEN,
    EventType,
    NewEvent,
    TableWriteInfo,
    TxnInfo,
    TxnState,
    TxnType,
    ValidTxnList,
)
from airflow_provider.metastore.notifications import append_events, current_event_id

_OPEN = insert(txns).values(opened_at=current_millis(), heartbeat_at=current_millis())
_LOCK = select(txns).where(txns.c.id == bindparam("txn")).with_for_update()
_HEARTBEAT = (
    update(txns)
    .where(txns.c.id == bindparam("txn"), txns.c.state == TxnState.OPEN)
    .values(heartbeat_at=current_millis())
)
_CLOSE = (
    update(txns)
    .where(txns.c.id == bindparam("txn"))
    .values(state=bindparam("to"), closing_event_id=bindparam("event"), closed_at=current_millis())
)
# A transaction that only reads hides nothing, so it is no exception (Hive: OpenTxnList).
_HIDING = (txns.c.state != TxnState.COMMITTED, txns.c.txn_type != TxnType.READ_ONLY)
# A transaction's locks end with it.
_END_LOCKS = delete(locks).where(locks.c.txn_id == bindparam("txn"))


def open_txn(
    connection: Connection,
    user: str,
    host: str,
    *,
    agent: str | None,
    commit_on_recovery: bool,
    txn_type: TxnType = TxnType.DEFAULT,
    timeout_millis: int | None = None,
) -> int:
    """See :meth:`AnyMetastore.open_txn`."""
    [txn_id] = open_txns(
        connection,
        1,
        user,
        host,
        agent=agent,
        commit_on_recovery=commit_on_recovery,
        txn_type=txn_type,
        timeout_millis=timeout_millis,
    )
    return txn_id


def open_txns(
    connection: Connection,
    count: int,
    user: str,
    host: str,
    *,
    agent: str | None,
    commit_on_recovery: bool,
    txn_type: TxnType = TxnType.DEFAULT,
    timeout_millis: int | None = None,
) -> list[int]:
    """Open several transactions with consecutive ids. One event reports all of them, as in Hive."""
    last = advance(connection, Counter.TXN_ID, count)
    txn_ids = list(range(last - count + 1, last + 1))
    row = {
        "state": TxnState.OPEN,
        "user_name": user,
        "host": host,
        "agent": agent,
        "commit_on_recovery": commit_on_recovery,
        "txn_type": txn_type,
        "timeout_ms": timeout_millis,
    }
    connection.execute(_OPEN, [{"id": one, **row} for one in txn_ids])
    # Hive writes no event of transactions that only read (DbNotificationListener): no consumer needs it.
    if txn_type != TxnType.READ_ONLY:
        message = {"txnIds": txn_ids, "fromTxnId": txn_ids[0], "toTxnId": txn_ids[-1]}
        append_events(connection, [NewEvent(EventType.OPEN_TXN, message)])
    return txn_ids


def seed_txn_id(connection: Connection, next_txn_id: int) -> None:
    """Let the next transaction have a given id; as in Hive (TxnHandler.seedTxnId), ids never move back.

    A metastore that takes over another one's tables goes on above the ids that these have seen.

    :param next_txn_id: the id.
    :raises InvalidInputError: when a transaction has this id or a higher one already.
    """
    highest = advance(connection, Counter.TXN_ID, by=0)
    if next_txn_id <= highest:
        raise InvalidInputError(
            f"Invalid txnId seed {next_txn_id}, the highWaterMark is {highest}: give a higher one",
            seed=next_txn_id,
            high_watermark=highest,
        )
    advance(connection, Counter.TXN_ID, by=next_txn_id - 1 - highest)


def open_event(txn_id: int | str) -> NewEvent:
    """The event of an opened transaction."""
    return NewEvent(EventType.OPEN_TXN, {"txnIds": [txn_id], "fromTxnId": txn_id, "toTxnId": txn_id})


def commit_event(txn_id: int | str) -> NewEvent:
    """The event of a committed transaction."""
    # Hive fills these fields only when it dumps the log; its readers join with ALLOC_WRITE_ID.
    unfilled = ("writeIds", "databases", "tables", "partitions", "tableObjs", "partitionObjs", "files")
    return NewEvent(EventType.COMMIT_TXN, {"txnid": txn_id, **dict.fromkeys(unfilled)})


def get_txn(connection: Connection, txn_id: int) -> TxnInfo:
    """See :meth:`AnyMetastore.get_txn`."""
    row = connection.execute(select(txns).where(txns.c.id == txn_id)).one_or_none()
    if row is None:
        raise _unexpected_state(txn_id, None)
    return _info(row)


def not_committed(connection: Connection) -> list[TxnInfo]:
    """The open and the aborted transactions, without those that only read, ascending."""
    query = select(txns).where(*_HIDING).order_by(txns.c.id)
    return [_info(row) for row in connection.execute(query)]


def _info(row: Row[Any]) -> TxnInfo:
    return TxnInfo(
        id=row.id,
        state=TxnState(row.state),
        user=row.user_name,
        host=row.host,
        agent=row.agent,
        commit_on_recovery=row.commit_on_recovery,
        opened_at=row.opened_at / 1000,
        heartbeat_at=row.heartbeat_at / 1000,
        event_id=row.closing_event_id,
        txn_type=TxnType(row.txn_type),
    )


def heartbeat_txn(connection: Connection, txn_id: int) -> None:
    """See :meth:`AnyMetastore.heartbeat_txn`."""
    beaten = connection.execute(_HEARTBEAT, {"txn": txn_id})
    if beaten.rowcount == 0:
        row = connection.execute(select(txns.c.state).where(txns.c.id == txn_id)).one_or_none()
        raise _unexpected_state(txn_id, None if row is None else row.state)


def commit_txn(connection: Connection, txn_id: int) -> int:
    """See :meth:`AnyMetastore.commit_txn`."""
    row = _locked(connection, txn_id)
    if row is not None and row.state == TxnState.COMMITTED:
        return int(row.closing_event_id)
    found = _require_open(txn_id, row)
    return _end(connection, found, TxnState.COMMITTED, commit_event(txn_id))


def request_commit(connection: Connection, txn_id: int) -> None:
    """See :meth:`AnyMetastore.request_commit`."""
    if lock_not_aborted(connection, txn_id) == TxnState.OPEN:
        connection.execute(update(txns).where(txns.c.id == txn_id).values(commit_on_recovery=True))


def abort_txn(connection: Connection, txn_id: int) -> int:
    """See :meth:`AnyMetastore.abort_txn`."""
    row = _locked(connection, txn_id)
    if row is not None and row.state == TxnState.ABORTED:
        return int(row.closing_event_id)
    found = _require_open(txn_id, row)
    updated = sorted({write.database for write in writes_of(connection, txn_id)})
    event = NewEvent(EventType.ABORT_TXN, {"txnid": txn_id, "dbsUpdated": updated})
    return _end(connection, found, TxnState.ABORTED, event)


def remove_empty_aborted(connection: Connection, older_than_seconds: float) -> int:
    """Forget aborted transactions without a write id and without a write, which left data in no table.

    Without this, every list of transactions would name them for ever. Hive's ``AcidTxnCleanerService`` does
    the same.

    :param older_than_seconds: the least age of the abort, in seconds. A caller that asks for the transaction
        later gets the error for an unknown one.
    :return: the number of transactions that were forgotten.
    """
    wrote = (
        select(txn_write_ids.c.txn_id).where(txn_write_ids.c.txn_id == txns.c.id),
        select(txn_writes.c.txn_id).where(txn_writes.c.txn_id == txns.c.id),
    )
    return connection.execute(
        delete(txns).where(
            txns.c.state == TxnState.ABORTED,
            # The replicator keeps its transactions, because it maps them to those of the source.
            txns.c.txn_type != TxnType.REPL_CREATED,
            txns.c.closed_at <= current_millis() - int(older_than_seconds * 1000),
            *(~one.exists() for one in wrote),
        )
    ).rowcount


def lock_open(connection: Connection, txn_id: int) -> TxnType:
    """Lock an open transaction, so that it stays open until this database transaction ends.

    :return: the transaction's type.
    :raises NoSuchTransactionError: when it is unknown or committed.
    :raises TransactionAbortedError: when it was aborted.
    """
    return TxnType(_require_open(txn_id, _locked(connection, txn_id)).txn_type)


def lock_not_aborted(connection: Connection, txn_id: int) -> TxnState:
    """Lock an open or committed transaction, so that nobody aborts it until this database transaction ends.

    :return: its state, open or committed.
    :raises NoSuchTransactionError: when it is unknown.
    :raises TransactionAbortedError: when it was aborted.
    """
    row = _locked(connection, txn_id)
    if row is None or row.state == TxnState.ABORTED:
        raise _unexpected_state(txn_id, None if row is None else row.state)
    return TxnState(row.state)


def _require_open(txn_id: int, row: Row[Any] | None) -> Row[Any]:
    """Raise the errors of :func:`lock_open` unless the row is that of an open transaction."""
    if row is None or row.state != TxnState.OPEN:
        raise _unexpected_state(txn_id, None if row is None else row.state)
    return row


def timed_out(connection: Connection, timeout_seconds: float) -> list[int]:
    """The open transactions whose last heartbeat is as old as their timeout, or older, ascending.

    :param timeout_seconds: the timeout of transactions without one of their own.
    """
    query = (
        select(txns.c.id)
        .where(
            txns.c.state == TxnState.OPEN,
            # A replicated transaction ends by the source's log, when its transaction of the source has ended.
            txns.c.txn_type != TxnType.REPL_CREATED,
            txns.c.heartbeat_at
            <= current_millis() - func.coalesce(txns.c.timeout_ms, int(timeout_seconds * 1000)),
        )
        .order_by(txns.c.id)
    )
    return list(connection.execute(query).scalars())


def still_timed_out(connection: Connection, txn_id: int, timeout_seconds: float) -> bool:
    """Whether a transaction is open and timed out. If it is, this locks it in that state."""
    row = _locked(connection, txn_id)
    return row is not None and row.state == TxnState.OPEN and txn_id in timed_out(connection, timeout_seconds)


def record_write(connection: Connection, txn_id: int, database: str, table: str, instant: str) -> None:
    """See :meth:`AnyMetastore.record_write`."""
    if not instant:
        raise InvalidInputError(f"transaction {txn_id}: a write is recorded by its instant, none was given")
    lock_open(connection, txn_id)
    written = get_table(connection, database, table)
    insert_if_absent(connection, txn_writes, {"txn_id": txn_id, "table_id": written.id, "instant": instant})


def writes_of(connection: Connection, txn_id: int) -> list[TableWriteInfo]:
    """See :meth:`AnyMetastore.writes_of`."""
    named = (databases.c.name.label("database"), tables.c.name.label("table"), tables.c.location)
    recorded = connection.execute(
        select(*named, txn_writes.c.instant)
        .select_from(txn_writes)
        .join(tables)
        .join(databases)
        .where(txn_writes.c.txn_id == txn_id)
    ).all()
    allocated = connection.execute(
        select(*named, txn_write_ids.c.write_id)
        .select_from(txn_write_ids)
        .join(write_id_sequences)
        .join(databases, databases.c.name == write_id_sequences.c.database_name)
        .join(tables, is_table_of_sequence())
        .where(txn_write_ids.c.txn_id == txn_id)
    ).all()
    write_ids = {(row.database, row.table): row.write_id for row in allocated}
    writes = [
        TableWriteInfo(
            txn_id,
            row.database,
            row.table,
            row.location,
            write_ids.get((row.database, row.table)),
            row.instant,
        )
        for row in recorded
    ]
    with_instant = {(write.database, write.table) for write in writes}
    writes += [
        TableWriteInfo(txn_id, row.database, row.table, row.location, row.write_id, None)
        for row in allocated
        if (row.database, row.table) not in with_instant
    ]
    return sorted(writes, key=lambda write: (write.database, write.table, write.instant or ""))


def valid_txn_list(connection: Connection, txn_id: int | None) -> ValidTxnList:
    """See :meth:`AnyMetastore.valid_txn_list`."""
    watermark = counted(connection, Counter.TXN_ID)
    query = select(txns.c.id, txns.c.state).where(*_HIDING).order_by(txns.c.id)
    if txn_id is not None:
        if not 0 < txn_id <= watermark:
            raise _unexpected_state(txn_id, None)
        # TxnCommonUtils.createValidReadTxnList: the reader sees its own writes and nothing later.
        watermark = txn_id
        query = query.where(txns.c.id < txn_id)
    states = {row.id: row.state for row in connection.execute(query)}
    aborted = frozenset(one for one, state in states.items() if state == TxnState.ABORTED)
    min_open = next((one for one in states if one not in aborted), NO_OPEN)
    return ValidTxnList(watermark, tuple(states), aborted, min_open)


def _locked(connection: Connection, txn_id: int) -> Row[Any] | None:
    return connection.execute(_LOCK, {"txn": txn_id}).one_or_none()


def is_table_of_sequence() -> ColumnElement[bool]:
    """The condition that joins tables, with their databases, to the write-id sequences of their names."""
    return (tables.c.database_id == databases.c.id) & (tables.c.name == write_id_sequences.c.table_name)


def _end(connection: Connection, row: Row[Any], state: TxnState, event: NewEvent) -> int:
    if row.txn_type == TxnType.REPL_CREATED and not is_replicator():
        raise ReplicationTargetError(
            f"transaction {row.id} was opened by replication {row.agent!r} for one of its source: it ends "
            "when that one has ended there",
            txn_id=row.id,
        )
    connection.execute(_END_LOCKS, {"txn": row.id})
    if row.txn_type == TxnType.READ_ONLY:
        event_id = current_event_id(connection)
    else:
        event_id = append_events(connection, [event])
    connection.execute(_CLOSE, {"txn": row.id, "to": state, "event": event_id})
    return event_id


def _unexpected_state(txn_id: int, state: str | None) -> MetastoreError:
    """The error for a transaction that should be open; Hive's texts (TxnUtils.raiseTxnUnexpectedState)."""
    if state == TxnState.ABORTED:
        return TransactionAbortedError(f"Transaction txnid:{txn_id} already aborted", txn_id=txn_id)
    if state == TxnState.COMMITTED:
        return NoSuchTransactionError(f"Transaction txnid:{txn_id} is already committed.", txn_id=txn_id)
    return NoSuchTransactionError(f"No such transaction txnid:{txn_id}", txn_id=txn_id)

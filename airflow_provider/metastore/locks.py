"""Hive's locks on databases, tables and partitions: functions of one connection.

A lock has one or more components and is acquired with all of them or waits with all of them.
First come, first served: it waits for every earlier lock that it cannot be held together with,
also for one that itself still waits (Hive: EnqueueLockFunction, CheckLockFunction). Ids come
from a counter whose row stays locked until the new lock is in the database; so whoever checks a
lock sees all locks with lower ids, and two checks at once cannot both acquire.

A lock ends when it is unlocked, with its transaction, or when there was no heartbeat for its
timeout; from that moment on nobody can renew it, and it is removed when it is in the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    String,
    and_,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)

from airflow_provider.exceptions import InvalidInputError, NoSuchLockError, TransactionOpenError
from airflow_provider.metastore import transactions
from airflow_provider.metastore.lock_objects import (
    LockComponent,
    LockInfo,
    LockResponse,
    LockState,
    LockType,
    waits_for,
)
from airflow_provider.metastore.schema import Counter, advance, current_millis, lock_components, locks

# A waiting lock is checked many times a second; a heartbeat each time would be a write each time.
_CHECKS_BEAT_AFTER = 0.1


# Built once: making a statement costs more than running it.
_AGE = current_millis() - locks.c.heartbeat_at
_TIMED_OUT = locks.c.timeout_millis < _AGE
_ENTER = {
    LockState.WAITING: insert(locks).values(heartbeat_at=current_millis()),
    LockState.ACQUIRED: insert(locks).values(heartbeat_at=current_millis(), acquired_at=current_millis()),
}
_ENTER_COMPONENT = insert(lock_components)
_LOCK = (
    select(locks, _AGE.label("age"), lock_components)
    .join(lock_components)
    .where(locks.c.id == bindparam("lock"))
    .order_by(lock_components.c.number)
)
_ALIVE = and_(locks.c.id == bindparam("lock"), or_(locks.c.timeout_millis.is_(None), ~_TIMED_OUT))
_BEAT = (
    update(locks)
    .where(_ALIVE, locks.c.txn_id.is_(None))
    .values(heartbeat_at=current_millis())
    .returning(locks.c.id)
)
_TXN = select(locks.c.txn_id).where(locks.c.id == bindparam("lock"))
_ACQUIRE = (
    update(locks)
    .where(_ALIVE)
    .values(state=LockState.ACQUIRED, heartbeat_at=current_millis(), acquired_at=current_millis())
    .returning(locks.c.id)
)
_REMOVE_TIMED_OUT = delete(locks).where(_TIMED_OUT).returning(locks.c.id)
_REMOVE_IF_TIMED_OUT = _REMOVE_TIMED_OUT.where(locks.c.id == bindparam("lock"))
_UNLOCK = delete(locks).where(
    locks.c.id == bindparam("lock"), or_(locks.c.txn_id.is_(None), locks.c.state == LockState.WAITING)
)


def _same(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """The whole, on either side, overlaps with each of its parts."""
    asked = bindparam(name, type_=String)
    return or_(column.is_(None), asked.is_(None), column == asked)


_IN_THE_WAY = (
    select(locks.c.id)
    .join(lock_components)
    .where(
        lock_components.c.lock_id < bindparam("lock"),
        lock_components.c.database_name == bindparam("database"),
        _same(lock_components.c.table_name, "table"),
        _same(lock_components.c.partition_name, "partition"),
        or_(
            and_(
                lock_components.c.table_name.is_(None),
                lock_components.c.lock_type.in_(bindparam("on_databases", expanding=True)),
            ),
            and_(
                lock_components.c.table_name.is_not(None),
                lock_components.c.lock_type.in_(bindparam("within", expanding=True)),
            ),
        ),
        or_(locks.c.txn_id.is_(None), locks.c.txn_id != bindparam("txn", type_=BigInteger)),
    )
    .order_by(lock_components.c.lock_id)
    .limit(1)
)


def lock(
    connection: Connection,
    components: Sequence[LockComponent],
    user: str,
    host: str,
    *,
    agent: str | None,
    txn_id: int | None,
    timeout_seconds: float,
    wait: bool,
) -> LockResponse:
    """See :meth:`airflow_provider.metastore.metastore.Metastore.lock`."""
    if not components:
        raise InvalidInputError("a lock without any component locks nothing")
    if txn_id is not None:
        transactions.lock_open(connection, txn_id)
    lock_id = advance(connection, Counter.LOCK_ID)
    blocked = any(_must_wait(connection, lock_id, txn_id, component) for component in components)
    if blocked and not wait:
        return LockResponse(lock_id, LockState.NOT_ACQUIRED)
    state = LockState.WAITING if blocked else LockState.ACQUIRED
    row = {
        "id": lock_id,
        "state": state,
        "txn_id": txn_id,
        "user_name": user,
        "host": host,
        "agent": agent,
        "timeout_millis": None if txn_id is not None else max(1, round(timeout_seconds * 1000)),
    }
    connection.execute(_ENTER[state], row)
    connection.execute(
        _ENTER_COMPONENT,
        [
            {
                "lock_id": lock_id,
                "number": number,
                "lock_type": component.type,
                "database_name": component.database,
                "table_name": component.table,
                "partition_name": component.partition,
            }
            for number, component in enumerate(components, start=1)
        ],
    )
    return LockResponse(lock_id, state)


def check_lock(connection: Connection, lock_id: int) -> LockState:
    """See :meth:`airflow_provider.metastore.metastore.Metastore.check_lock`."""
    rows = connection.execute(_LOCK, {"lock": lock_id}).all()
    if not rows:
        raise _no_such_lock(lock_id)
    found = rows[0]
    if found.txn_id is not None:
        transactions.heartbeat_txn(connection, found.txn_id)
    elif found.age > found.timeout_millis * _CHECKS_BEAT_AFTER:
        heartbeat_lock(connection, lock_id)
    if found.state == LockState.ACQUIRED:
        return LockState.ACQUIRED
    if any(_must_wait(connection, lock_id, found.txn_id, _component(row)) for row in rows):
        return LockState.WAITING
    if connection.execute(_ACQUIRE, {"lock": lock_id}).first() is None:
        raise _no_such_lock(lock_id)
    return LockState.ACQUIRED


def heartbeat_lock(connection: Connection, lock_id: int) -> None:
    """See :meth:`airflow_provider.metastore.metastore.Metastore.heartbeat_lock`."""
    if connection.execute(_BEAT, {"lock": lock_id}).first() is not None:
        return
    txn_id = connection.execute(_TXN, {"lock": lock_id}).scalar_one_or_none()
    if txn_id is None:
        raise _no_such_lock(lock_id)
    transactions.heartbeat_txn(connection, txn_id)


def unlock(connection: Connection, lock_id: int) -> None:
    """See :meth:`airflow_provider.metastore.metastore.Metastore.unlock`."""
    if connection.execute(_UNLOCK, {"lock": lock_id}).rowcount:
        return
    txn_id = connection.execute(_TXN, {"lock": lock_id}).scalar_one_or_none()
    if txn_id is not None:
        raise TransactionOpenError(
            f"lock {lock_id} belongs to transaction {txn_id}, which is open, and ends with it: "
            "commit or abort that",
            lock_id=lock_id,
            txn_id=txn_id,
        )


def show_locks(
    connection: Connection,
    *,
    database: str | None,
    table: str | None,
    partition: str | None,
    txn_id: int | None,
) -> list[LockInfo]:
    """See :meth:`airflow_provider.metastore.metastore.Metastore.show_locks`."""
    query = (
        select(locks, lock_components)
        .join(lock_components)
        .where(or_(locks.c.timeout_millis.is_(None), ~_TIMED_OUT))
        .order_by(locks.c.id, lock_components.c.number)
    )
    wanted = {
        lock_components.c.database_name: database and database.lower(),
        lock_components.c.table_name: table and table.lower(),
        lock_components.c.partition_name: partition,
        locks.c.txn_id: txn_id,
    }
    query = query.where(*(column == value for column, value in wanted.items() if value is not None))
    return [
        LockInfo(
            lock_id=row.id,
            state=LockState(row.state),
            component=_component(row),
            user=row.user_name,
            host=row.host,
            agent=row.agent,
            txn_id=row.txn_id,
            heartbeat_at=row.heartbeat_at / 1000,
            acquired_at=None if row.acquired_at is None else row.acquired_at / 1000,
        )
        for row in connection.execute(query)
    ]


def remove_timed_out_locks(connection: Connection) -> list[int]:
    """See :meth:`airflow_provider.metastore.metastore.Metastore.remove_timed_out_locks`."""
    return sorted(connection.execute(_REMOVE_TIMED_OUT).scalars())


def _must_wait(connection: Connection, lock_id: int, txn_id: int | None, component: LockComponent) -> bool:
    on_database = component.table is None
    asked = {
        "lock": lock_id,
        "txn": -1 if txn_id is None else txn_id,
        "database": component.database,
        "table": component.table,
        "partition": component.partition,
        "on_databases": sorted(waits_for(component.type, on_database=on_database, held_on_database=True)),
        "within": sorted(waits_for(component.type, on_database=on_database, held_on_database=False)),
    }
    while (earlier := connection.execute(_IN_THE_WAY, asked).scalar_one_or_none()) is not None:
        # Deleted, not ignored: a heartbeat that comes at this very moment either keeps it or fails.
        if connection.execute(_REMOVE_IF_TIMED_OUT, {"lock": earlier}).first() is None:
            return True
    return False


def _component(row: Row[Any]) -> LockComponent:
    return LockComponent(LockType(row.lock_type), row.database_name, row.table_name, row.partition_name)


def _no_such_lock(lock_id: int) -> NoSuchLockError:
    return NoSuchLockError(
        f"lock {lock_id} does not exist: it was unlocked, had no heartbeat for its timeout, or its "
        "transaction has ended",
        lock_id=lock_id,
    )

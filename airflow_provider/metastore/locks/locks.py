"""Hive's locks on databases, tables and partitions: functions of one connection.

A lock has one or more components. It is acquired with all of them, or waits with all of them.
The first lock to come is served first: a lock waits for every earlier lock that excludes it,
also for one that itself still waits (Hive: EnqueueLockFunction, CheckLockFunction). Ids come
from a counter whose row stays locked until the new lock is in the database. So a check of a
lock sees all locks with lower ids, and of two checks at once only one acquires.

A lock ends by its unlock, with its transaction, or when it had no heartbeat for its
timeout. From that moment on no heartbeat renews it, and the next lock that would wait for it removes it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    String,
    and_,
    bindparam,
    delete,
    literal_column,
    or_,
    select,
    update,
)

from airflow_provider.exceptions import NoSuchLockError, TransactionOpenError
from airflow_provider.metastore.database import current_millis, lock_components, locks, txns
from airflow_provider.metastore.model import LockComponent, LockInfo, LockState, LockType, TxnState, waits_for
from airflow_provider.metastore.transactions import transactions

# A check renews the heartbeat only after this part of the timeout: a client checks its waiting lock many
# times a second, and each heartbeat is a write.
_CHECKS_BEAT_AFTER = 0.1
_COMPONENTS_AT_ONCE = 16


# Built once: making a statement costs more than running it.
_AGE = current_millis() - locks.c.heartbeat_at
_TIMED_OUT = locks.c.timeout_millis < _AGE
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
# A lock that was requested at the moment of its transaction's end may outlive it; see transaction_group.
_OF_ENDED_TXN = select(txns.c.id).where(txns.c.id == locks.c.txn_id, txns.c.state != TxnState.OPEN).exists()
_REMOVE_TIMED_OUT = delete(locks).where(or_(_TIMED_OUT, _OF_ENDED_TXN)).returning(locks.c.id)
_REMOVE_IF_TIMED_OUT = _REMOVE_TIMED_OUT.where(locks.c.id.in_(bindparam("locks", expanding=True)))
_CAN_BE_UNLOCKED = or_(locks.c.txn_id.is_(None), locks.c.state == LockState.WAITING)
_UNLOCK = delete(locks).where(locks.c.id == bindparam("lock"), _CAN_BE_UNLOCKED)


def _same(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether two places overlap in one part of their names. A null, the whole, overlaps with each part."""
    asked = bindparam(name, type_=String)
    return or_(column.is_(None), asked.is_(None), column == asked)


@functools.lru_cache(maxsize=256)
def _first_in_the_way(kinds: tuple[tuple[LockType, bool], ...]) -> Select[Any]:
    """A query of one row that has, for each component in a column of its own, the first lock it waits for.

    :param kinds: each component's type, and whether it is on a whole database.
    """
    return select(*(_in_the_way(number, *kind).label(f"lock{number}") for number, kind in enumerate(kinds)))


def _in_the_way(number: int, type_: LockType, on_database: bool) -> ScalarSelect[Any]:
    def is_waited_for(*, held_on_database: bool) -> ColumnElement[bool]:
        types = waits_for(type_, on_database=on_database, held_on_database=held_on_database)
        # Literals, because a changing number of bound parameters costs more than the rest of the query.
        return lock_components.c.lock_type.in_([literal_column(f"'{one.value}'") for one in sorted(types)])

    return (
        select(locks.c.id)
        .join(lock_components)
        .where(
            lock_components.c.lock_id < bindparam("before"),
            lock_components.c.database_name == bindparam(f"database{number}"),
            _same(lock_components.c.table_name, f"table{number}"),
            _same(lock_components.c.partition_name, f"partition{number}"),
            or_(
                and_(lock_components.c.table_name.is_(None), is_waited_for(held_on_database=True)),
                and_(lock_components.c.table_name.is_not(None), is_waited_for(held_on_database=False)),
            ),
            or_(locks.c.txn_id.is_(None), locks.c.txn_id != bindparam(f"txn{number}", type_=BigInteger)),
        )
        .order_by(lock_components.c.lock_id)
        .limit(1)
        .scalar_subquery()
    )


def check_lock(connection: Connection, lock_id: int) -> LockState:
    """See :meth:`AnyMetastore.check_lock`."""
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
    if any(wait_for_earlier(connection, lock_id, [(found.txn_id, _component(row)) for row in rows])):
        return LockState.WAITING
    if connection.execute(_ACQUIRE, {"lock": lock_id}).first() is None:
        raise _no_such_lock(lock_id)
    return LockState.ACQUIRED


def heartbeat_lock(connection: Connection, lock_id: int) -> None:
    """See :meth:`AnyMetastore.heartbeat_lock`."""
    if connection.execute(_BEAT, {"lock": lock_id}).first() is not None:
        return
    txn_id = connection.execute(_TXN, {"lock": lock_id}).scalar_one_or_none()
    if txn_id is None:
        raise _no_such_lock(lock_id)
    transactions.heartbeat_txn(connection, txn_id)


def unlock(connection: Connection, lock_id: int) -> None:
    """See :meth:`AnyMetastore.unlock`."""
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
    """See :meth:`AnyMetastore.show_locks`."""
    query = (
        select(locks, lock_components)
        .join(lock_components)
        .where(or_(locks.c.timeout_millis.is_(None), ~_TIMED_OUT), ~_OF_ENDED_TXN)
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
    """See :meth:`airflow_provider.metastore.api.Metastore.remove_timed_out_locks`."""
    return sorted(connection.execute(_REMOVE_TIMED_OUT).scalars())


def wait_for_earlier(
    connection: Connection, before: int, components: Sequence[tuple[int | None, LockComponent]]
) -> list[bool]:
    """Whether each component waits for an earlier lock.

    :param before: the id of the components' lock, or of the first of several.
    :param components: each component, with its transaction or None.
    """
    waits: list[bool] = []
    for start in range(0, len(components), _COMPONENTS_AT_ONCE):
        part = components[start : start + _COMPONENTS_AT_ONCE]
        asked: dict[str, Any] = {"before": before}
        for number, (txn_id, component) in enumerate(part):
            asked[f"txn{number}"] = -1 if txn_id is None else txn_id
            asked[f"database{number}"] = component.database
            asked[f"table{number}"] = component.table
            asked[f"partition{number}"] = component.partition
        kinds = tuple((component.type, component.table is None) for _, component in part)
        while True:
            found = connection.execute(_first_in_the_way(kinds), asked).one()
            earlier = sorted({one for one in found if one is not None})
            # A timed-out lock is deleted, not ignored: a heartbeat at this moment either keeps it or fails.
            if not earlier or not connection.execute(_REMOVE_IF_TIMED_OUT, {"locks": earlier}).all():
                break
        waits += [one is not None for one in found]
    return waits


def _component(row: Row[Any]) -> LockComponent:
    return LockComponent(LockType(row.lock_type), row.database_name, row.table_name, row.partition_name)


def _no_such_lock(lock_id: int) -> NoSuchLockError:
    return NoSuchLockError(
        f"lock {lock_id} does not exist: it was unlocked, had no heartbeat for its timeout, or its "
        "transaction has ended",
        lock_id=lock_id,
    )

"""Locks and unlocks of several threads in one database transaction.

See :mod:`airflow_provider.metastore.database.group_commit`. On PostgreSQL one statement enters the locks that
need not wait. A lock that has to wait or is refused is entered alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Connection, bindparam, case, insert, text

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.database import (
    Counter,
    GroupedRequest,
    GroupOperation,
    RunStatement,
    advance,
    current_millis,
    lock_components,
    locks,
)
from airflow_provider.metastore.locks.locks import unlock, wait_for_earlier
from airflow_provider.metastore.model import LockComponent, LockResponse, LockState, must_wait, waits_for
from airflow_provider.metastore.transactions import transactions


@dataclass(frozen=True)
class Lock(GroupedRequest[LockResponse]):
    """See :meth:`AnyMetastore.lock`."""

    components: tuple[LockComponent, ...]
    user: str
    host: str
    agent: str | None
    txn_id: int | None
    timeout_seconds: float
    wait: bool

    def __post_init__(self) -> None:
        if not self.components:
            raise InvalidInputError("a lock without any component locks nothing")

    @property
    def timeout_millis(self) -> int | None:
        """The timeout in the database's unit, milliseconds; None for a transaction's lock."""
        return None if self.txn_id is not None else max(1, round(self.timeout_seconds * 1000))


@dataclass(frozen=True)
class Unlock(GroupedRequest[None]):
    """See :meth:`AnyMetastore.unlock`."""

    lock_id: int


_ENTER = insert(locks).values(
    heartbeat_at=current_millis(),
    acquired_at=case((bindparam("is_acquired", type_=Boolean), current_millis())),
)
_ENTER_COMPONENT = insert(lock_components)
# After losing to so many processes in a row, each lock is entered alone, and waits for its turn.
_TRIES = 3


def _parted(requests: Sequence[Lock | Unlock]) -> tuple[dict[int, int], dict[int, Lock]]:
    """The locks to release, and the locks to enter, by the positions of the requests."""
    return (
        {at: one.lock_id for at, one in enumerate(requests) if isinstance(one, Unlock)},
        {at: one for at, one in enumerate(requests) if isinstance(one, Lock)},
    )


def _row(lock: Lock) -> dict[str, Any]:
    return {
        "txn_id": lock.txn_id,
        "user_name": lock.user,
        "host": lock.host,
        "agent": lock.agent,
        "timeout_millis": lock.timeout_millis,
    }


def _parts(lock: Lock) -> list[dict[str, Any]]:
    return [
        {
            "number": number,
            "lock_type": component.type.value,
            "database_name": component.database,
            "table_name": component.table,
            "partition_name": component.partition,
        }
        for number, component in enumerate(lock.components, start=1)
    ]


def _waits(one: Lock, earlier: Lock) -> bool:
    if one.txn_id is not None and one.txn_id == earlier.txn_id:
        return False
    return any(must_wait(mine, theirs) for mine in one.components for theirs in earlier.components)


# One round trip. The statement sees the database as it was when the statement began. A process that has
# entered a lock since then has moved the counter, and a process that is entering one holds the counter: this
# statement waits for that process, finds the counter moved, and does nothing. A lock that has to wait leaves
# its id unused. Each component carries the types of held locks that it waits for: on a database, on a table
# or partition.
_ALL = text("""
WITH asked AS (
    SELECT * FROM jsonb_to_recordset(CAST(:locks AS jsonb)) AS one (
        place bigint, txn_id bigint, user_name text, host text, agent text, timeout_millis bigint
    )
), part AS (
    SELECT * FROM jsonb_to_recordset(CAST(:components AS jsonb)) AS one (
        place bigint, number integer, lock_type text, database_name text, table_name text,
        partition_name text, waits_for_database text, waits_for_others text
    )
), turn AS (
    UPDATE metastore_counters SET last_value = last_value + CAST(:asked AS bigint)
    WHERE name = 'lock_id' AND last_value = (SELECT last_value FROM metastore_counters WHERE name = 'lock_id')
    RETURNING last_value - CAST(:asked AS bigint) AS before
), of_txns AS (
    SELECT id FROM metastore_txns
    WHERE id = ANY (CAST(:txns AS bigint[])) AND state = 'o' AND EXISTS (SELECT FROM turn)
    ORDER BY id FOR UPDATE SKIP LOCKED
), unlocked AS (
    DELETE FROM metastore_locks WHERE id IN (
        SELECT id FROM metastore_locks
        WHERE id = ANY (CAST(:unlocks AS bigint[])) AND (txn_id IS NULL OR state = 'w')
            AND EXISTS (SELECT FROM turn)
        FOR UPDATE SKIP LOCKED
    ) RETURNING id
), free AS (
    SELECT *, row_number() OVER (ORDER BY place) AS number FROM asked
    WHERE (txn_id IS NULL OR txn_id IN (SELECT id FROM of_txns)) AND NOT EXISTS (
        SELECT FROM part
            JOIN metastore_lock_components AS held ON held.database_name = part.database_name
            JOIN metastore_locks AS lock ON lock.id = held.lock_id
        WHERE part.place = asked.place
            AND (held.table_name = part.table_name OR held.table_name IS NULL OR part.table_name IS NULL)
            AND (held.partition_name = part.partition_name
                OR held.partition_name IS NULL OR part.partition_name IS NULL)
            AND strpos(
                CASE WHEN held.table_name IS NULL THEN waits_for_database ELSE waits_for_others END,
                held.lock_type
            ) > 0
            AND (lock.txn_id IS NULL OR asked.txn_id IS NULL OR lock.txn_id <> asked.txn_id)
            AND lock.id NOT IN (SELECT id FROM unlocked)
    )
), entered AS (
    INSERT INTO metastore_locks (id, state, txn_id, user_name, host, agent, timeout_millis, heartbeat_at,
        acquired_at)
    SELECT before + number, 'a', txn_id, user_name, host, agent, timeout_millis, millis, millis
    FROM free, turn, (SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS bigint) AS millis) AS clock
), entered_parts AS (
    INSERT INTO metastore_lock_components (lock_id, number, lock_type, database_name, table_name,
        partition_name)
    SELECT before + free.number, part.number, lock_type, database_name, table_name, partition_name
    FROM free JOIN part USING (place), turn
)
SELECT EXISTS (SELECT FROM turn), ARRAY(SELECT id FROM unlocked),
    ARRAY(SELECT place FROM free, turn ORDER BY number),
    ARRAY(SELECT before + number FROM free, turn ORDER BY number)
""")
# PostgreSQL takes longer to start the statement above than to do this one.
_UNLOCKS = text("""
DELETE FROM metastore_locks WHERE id IN (
    SELECT id FROM metastore_locks
    WHERE id = ANY (CAST(:unlocks AS bigint[])) AND (txn_id IS NULL OR state = 'w')
    FOR UPDATE SKIP LOCKED
) RETURNING id
""")


def lock_and_unlock(run: RunStatement, requests: Sequence[Lock | Unlock]) -> dict[int, LockResponse | None]:
    """Release some locks, then enter others in the requests' order.

    :return: the answers by the positions of the requests. It leaves out locks that would have to wait; locks
        of transactions that are not open or that another process has locked; and unlocks of a lock that does
        not exist, cannot be unlocked, or that another process has locked at this moment.
    """
    unlocks, locks_asked = _parted(requests)
    if not locks_asked:
        return _told(unlocks, {lock_id for (lock_id,) in run(_UNLOCKS, {"unlocks": [*unlocks.values()]})})
    asked: dict[int, Lock] = {}
    for at, one in locks_asked.items():
        if not any(_waits(one, other) for other in asked.values()):
            asked[at] = one
    given = {
        "locks": json.dumps([{"place": at, **_row(one)} for at, one in asked.items()]),
        "components": json.dumps(
            [{"place": at, **part} for at, one in asked.items() for part in _stopped_parts(one)]
        ),
        "txns": [one.txn_id for one in asked.values() if one.txn_id is not None],
        "asked": len(asked),
        "unlocks": [*unlocks.values()],
    }
    for _ in range(_TRIES):
        is_turn, unlocked, places, lock_ids = run(_ALL, given)[0]
        if is_turn:
            break
    answers = _told(unlocks, set(unlocked))
    for at, lock_id in zip(places, lock_ids, strict=True):
        answers[at] = LockResponse(lock_id, LockState.ACQUIRED)
    return answers


def _told(unlocks: dict[int, int], ended: set[int]) -> dict[int, LockResponse | None]:
    """The answers to the unlocks of locks that have ended."""
    return {at: None for at, lock_id in unlocks.items() if lock_id in ended}


def _stopped_parts(lock: Lock) -> list[dict[str, Any]]:
    """The components of a lock, each with the types of locks that it waits for."""
    stopped = []
    for component, part in zip(lock.components, _parts(lock), strict=True):
        on_database = component.table is None
        stopped.append(
            {
                **part,
                "waits_for_database": "".join(
                    waits_for(component.type, on_database=on_database, held_on_database=True)
                ),
                "waits_for_others": "".join(
                    waits_for(component.type, on_database=on_database, held_on_database=False)
                ),
            }
        )
    return stopped


def _lock(connection: Connection, request: Lock) -> LockResponse:
    if request.txn_id is not None:
        transactions.lock_open(connection, request.txn_id)
    lock_id = advance(connection, Counter.LOCK_ID)
    components = [(request.txn_id, component) for component in request.components]
    waits = any(wait_for_earlier(connection, lock_id, components))
    if waits and not request.wait:
        return LockResponse(lock_id, LockState.NOT_ACQUIRED)
    state = LockState.WAITING if waits else LockState.ACQUIRED
    connection.execute(_ENTER, {"id": lock_id, "state": state, "is_acquired": not waits, **_row(request)})
    connection.execute(_ENTER_COMPONENT, [{"lock_id": lock_id, **part} for part in _parts(request)])
    return LockResponse(lock_id, state)


def _alone(connection: Connection, request: Lock | Unlock) -> LockResponse | None:
    if isinstance(request, Unlock):
        unlock(connection, request.lock_id)
        return None
    return _lock(connection, request)


LOCKS = GroupOperation(_alone, lock_and_unlock)

"""Locks and unlocks of several threads in one database transaction.

See :mod:`airflow_provider.metastore.database.group_commit`.
On PostgreSQL one statement gives those locks that nothing
stands in the way of; what has to wait, and what is refused, is left to the functions that do one at a time:
:mod:`airflow_provider.metastore.locks.locks`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Connection, bindparam, case, delete, insert, select, text

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.database import (
    Counter,
    GroupOperation,
    Request,
    RunStatement,
    advance,
    current_millis,
    lock_components,
    locks,
)
from airflow_provider.metastore.locks.locks import CAN_BE_UNLOCKED, unlock, wait_for_earlier
from airflow_provider.metastore.model import LockComponent, LockResponse, LockState, must_wait, waits_for
from airflow_provider.metastore.transactions import transactions


@dataclass(frozen=True)
class Lock(Request[LockResponse]):
    """See :meth:`airflow_provider.metastore.api.Metastore.lock`."""

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
        """The timeout as it is stored; None for a transaction's."""
        return None if self.txn_id is not None else max(1, round(self.timeout_seconds * 1000))


@dataclass(frozen=True)
class Unlock(Request[None]):
    """See :meth:`airflow_provider.metastore.api.Metastore.unlock`."""

    lock_id: int


_ENTER = insert(locks).values(
    heartbeat_at=current_millis(),
    acquired_at=case((bindparam("is_acquired", type_=Boolean), current_millis())),
)
_ENTER_COMPONENT = insert(lock_components)
# Those of several that nobody works on.
_UNLOCK_FREE = (
    delete(locks)
    .where(
        locks.c.id.in_(
            select(locks.c.id)
            .where(locks.c.id.in_(bindparam("locks", expanding=True)), CAN_BE_UNLOCKED)
            .with_for_update(skip_locked=True)
        )
    )
    .returning(locks.c.id)
)


def lock_and_unlock(
    connection: Connection, requests: Sequence[Lock | Unlock]
) -> dict[int, LockResponse | None]:
    """Give some locks back, and enter others in the order in which they are asked for.

    :return: by the positions of the requests, the answers. Left out are locks of transactions that are not
        open, or that another process has locked; and unlocks of what is not there, cannot be unlocked, or is
        locked by another process at this moment.
    """
    unlocks, asked = _parted(requests)
    of_txns = {one.txn_id for one in asked.values() if one.txn_id is not None}
    if of_txns:
        usable = transactions.lock_those_open(connection, of_txns)
        asked = {at: one for at, one in asked.items() if one.txn_id is None or one.txn_id in usable}
    first_id = advance(connection, Counter.LOCK_ID, by=len(asked)) - len(asked) + 1 if asked else 0
    answers: dict[int, LockResponse | None] = {}
    if unlocks:
        ended = set(connection.execute(_UNLOCK_FREE, {"locks": sorted({*unlocks.values()})}).scalars())
        answers.update((at, None) for at, lock_id in unlocks.items() if lock_id in ended)
    entered = _enter(connection, first_id, list(asked.values()))
    answers.update(zip(asked, entered, strict=True))
    return answers


def _parted(requests: Sequence[Lock | Unlock]) -> tuple[dict[int, int], dict[int, Lock]]:
    """The locks to be given back, and those to be entered, by the positions of the requests."""
    return (
        {at: one.lock_id for at, one in enumerate(requests) if isinstance(one, Unlock)},
        {at: one for at, one in enumerate(requests) if isinstance(one, Lock)},
    )


def _enter(connection: Connection, first_id: int, requests: Sequence[Lock]) -> list[LockResponse]:
    """New locks, whose ids are the next ones."""
    components = [(one.txn_id, component) for one in requests for component in one.components]
    blocked = iter(wait_for_earlier(connection, first_id, components))
    answers: list[LockResponse] = []
    entered: list[Lock] = []
    rows: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for lock_id, one in enumerate(requests, start=first_id):
        in_the_way = [next(blocked) for _ in one.components]
        waits = any(in_the_way) or any(_waits(one, other) for other in entered)
        if waits and not one.wait:
            answers.append(LockResponse(lock_id, LockState.NOT_ACQUIRED))
            continue
        state = LockState.WAITING if waits else LockState.ACQUIRED
        answers.append(LockResponse(lock_id, state))
        entered.append(one)
        rows.append({"id": lock_id, "state": state, "is_acquired": not waits, **_row(one)})
        parts += [{"lock_id": lock_id, **part} for part in _parts(one)]
    if rows:
        connection.execute(_ENTER, rows)
        connection.execute(_ENTER_COMPONENT, parts)
    return answers


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


# One round trip, which waits for nobody. It sees the database as it was at its beginning: whoever entered a
# lock since then has moved the counter, and whoever is entering one holds it; then nothing is done. What is
# given back here is in nobody's way. Each component says which held types it waits for: on a database, on a
# table or partition.
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
    SELECT last_value FROM metastore_counters
    WHERE name = 'lock_id' AND :asked > 0
        AND last_value = (SELECT last_value FROM metastore_counters WHERE name = 'lock_id')
    FOR UPDATE SKIP LOCKED
), of_txns AS (
    SELECT id FROM metastore_txns
    WHERE id = ANY (CAST(:txns AS bigint[])) AND state = 'o' AND EXISTS (SELECT FROM turn)
    ORDER BY id FOR UPDATE SKIP LOCKED
), unlocked AS (
    DELETE FROM metastore_locks WHERE id IN (
        SELECT id FROM metastore_locks
        WHERE id = ANY (CAST(:unlocks AS bigint[])) AND (txn_id IS NULL OR state = 'w')
            AND (:asked = 0 OR EXISTS (SELECT FROM turn))
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
), moved AS (
    UPDATE metastore_counters AS counter SET last_value = counter.last_value + entering
    FROM turn, (SELECT count(*) AS entering FROM free) AS counted
    WHERE name = 'lock_id' AND entering > 0 RETURNING counter.last_value - entering AS before
), entered AS (
    INSERT INTO metastore_locks (id, state, txn_id, user_name, host, agent, timeout_millis, heartbeat_at,
        acquired_at)
    SELECT before + number, 'a', txn_id, user_name, host, agent, timeout_millis, millis, millis
    FROM free, moved, (SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS bigint) AS millis) AS clock
), entered_parts AS (
    INSERT INTO metastore_lock_components (lock_id, number, lock_type, database_name, table_name,
        partition_name)
    SELECT before + free.number, part.number, lock_type, database_name, table_name, partition_name
    FROM free JOIN part USING (place), moved
)
SELECT EXISTS (SELECT FROM turn), ARRAY(SELECT id FROM unlocked),
    ARRAY(SELECT place FROM free, moved ORDER BY number),
    ARRAY(SELECT before + number FROM free, moved ORDER BY number)
""")


def _in_one_statement(
    run: RunStatement, requests: Sequence[Lock | Unlock]
) -> dict[int, LockResponse | None] | None:
    """As :func:`lock_and_unlock`; left out is also what would have to wait.

    :return: None when another process is entering locks: then nothing was done.
    """
    unlocks, locks_asked = _parted(requests)
    asked: dict[int, Lock] = {}
    for at, one in locks_asked.items():
        if not any(_waits(one, other) for other in asked.values()):
            asked[at] = one
    found = run(
        _ALL,
        {
            "locks": json.dumps([{"place": at, **_row(one)} for at, one in asked.items()]),
            "components": json.dumps(
                [{"place": at, **part} for at, one in asked.items() for part in _stopped_parts(one)]
            ),
            "txns": [one.txn_id for one in asked.values() if one.txn_id is not None],
            "asked": len(asked),
            "unlocks": [*unlocks.values()],
        },
    )
    is_turn, unlocked, places, lock_ids = found[0]
    if asked and not is_turn:
        return None
    ended = set(unlocked)
    answers: dict[int, LockResponse | None] = {
        at: None for at, lock_id in unlocks.items() if lock_id in ended
    }
    for at, lock_id in zip(places, lock_ids, strict=True):
        answers[at] = LockResponse(lock_id, LockState.ACQUIRED)
    return answers


def _stopped_parts(lock: Lock) -> list[dict[str, Any]]:
    """The components, each with the types of lock that it waits for."""
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


def _alone(connection: Connection, request: Lock | Unlock) -> LockResponse | None:
    if isinstance(request, Unlock):
        unlock(connection, request.lock_id)
        return None
    if request.txn_id is not None:
        transactions.lock_open(connection, request.txn_id)
    return lock_and_unlock(connection, [request])[0]


LOCKS = GroupOperation(together=lock_and_unlock, alone=_alone, at_once=_in_one_statement)

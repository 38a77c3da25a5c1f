"""Random groups of requests, whose results must equal those of the same requests one by one."""

from __future__ import annotations

import json
import random
from typing import Any

from sqlalchemy import select

from airflow_provider.exceptions import TableServiceError
from airflow_provider.metastore import Column, EventType, LockComponent, LockType, Metastore
from airflow_provider.metastore.database.group_commit import GroupedRequest, GroupOperation
from airflow_provider.metastore.database.schema import (
    Counter,
    advance,
    counted,
    counters,
    lock_components,
    locks,
    notification_log,
    txn_write_ids,
    txns,
    write_id_sequences,
)
from airflow_provider.metastore.locks.lock_group import LOCKS, Lock, Unlock
from airflow_provider.metastore.model.transaction_objects import TxnType
from airflow_provider.metastore.transactions.transaction_group import TRANSACTIONS, CommitTxn, OpenTxn
from airflow_provider.metastore.transactions.write_id_group import WRITE_IDS, AllocateWriteId

_PLACES = [("lake", None), ("lake", "t1"), ("lake", "t2"), ("other", "t1")]
_OF_GROUPS = {EventType.OPEN_TXN, EventType.COMMIT_TXN, EventType.ALLOC_WRITE_ID}
_CLOCKS = {"opened_at", "heartbeat_at", "closed_at", "acquired_at", "event_time"}


def transaction_requests(chance: random.Random, opened: int) -> list[GroupedRequest[Any]]:
    """Requests to open, and to commit transactions that may be open, ended, named twice or unknown."""
    requests: list[GroupedRequest[Any]] = []
    for number in range(chance.randint(1, 6)):
        if chance.random() < 0.5:
            txn_type = chance.choice(
                [TxnType.DEFAULT, TxnType.DEFAULT, TxnType.COMPACTION, TxnType.READ_ONLY]
            )
            timeout = chance.choice([None, 7.5])
            agent = chance.choice([None, "a 'task' with \"$\" and Ü"])
            requests.append(OpenTxn(f"u{number}", "h", agent, chance.random() < 0.5, txn_type, timeout))
        else:
            requests.append(CommitTxn(chance.randint(max(1, opened - 6), opened + 1)))
    return requests


def lock_requests(chance: random.Random, opened: int, locked: int) -> list[GroupedRequest[Any]]:
    """Requests for locks that exclude each other, of transactions in any state, and unlocks of any id."""
    requests: list[GroupedRequest[Any]] = []
    for _ in range(chance.randint(1, 6)):
        if chance.random() < 0.6:
            components = tuple(
                LockComponent(chance.choice(list(LockType)), *chance.choice(_PLACES))
                for _ in range(chance.choice([1, 1, 2, 20]))
            )
            txn_id = chance.choice([None, None, chance.randint(max(1, opened - 3), opened + 1)])
            requests.append(Lock(components, "u", "h", None, txn_id, 300.0, chance.random() < 0.8))
        else:
            requests.append(Unlock(chance.randint(max(1, locked - 8), locked + 1)))
    return requests


def write_id_requests(chance: random.Random, opened: int) -> list[GroupedRequest[Any]]:
    """Requests for write ids of transactions in any state, on tables that may not exist, some twice."""
    return [
        AllocateWriteId(
            chance.randint(max(1, opened - 8), opened + 1),
            chance.choice(["shop", "Shop"]),
            chance.choice(["t1", "T1", "t2", "t3" if chance.random() < 0.8 else "none"]),
        )
        for _ in range(chance.randint(1, 6))
    ]


def alone(metastore: Metastore, operation: GroupOperation, request: GroupedRequest[Any]) -> Any:
    """The answer to a request in a group of its own; an error by its text."""
    try:
        return metastore.sql.write(lambda connection: operation.alone(connection, request))
    except TableServiceError as error:
        return f"{type(error).__name__}: {error}"


def done_together(
    metastore: Metastore, operation: GroupOperation, group: list[GroupedRequest[Any]]
) -> dict[int, Any]:
    """The answers to a group; none if the whole group is refused."""
    try:
        return dict(operation.do(metastore.sql, group))
    except TableServiceError:
        return {}


def contents(metastore: Metastore) -> dict[str, list[dict[str, Any]]]:
    """All rows that these requests write, without times."""
    tables = (
        *(counters, txns, locks, lock_components),
        *(write_id_sequences, txn_write_ids, notification_log),
    )

    def read(connection: Any) -> dict[str, list[dict[str, Any]]]:
        return {
            table.name: [
                {name: value for name, value in row.items() if name not in _CLOCKS}
                for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in tables
        }

    found = metastore.sql.read(read)
    # PostgreSQL leaves gaps in the sequences' ids.
    sequences = found[write_id_sequences.name]
    names = {one.pop("id"): (one["database_name"], one["table_name"]) for one in sequences}
    sequences.sort(key=lambda one: (one["database_name"], one["table_name"]))
    mapped = found[txn_write_ids.name]
    for one in mapped:
        one["sequence_id"] = names[one["sequence_id"]]
    mapped.sort(key=lambda one: (one["sequence_id"], one["write_id"]))
    for event in found[notification_log.name]:
        told = event["event_type"] in _OF_GROUPS
        event["message"] = json.loads(event["message"]) | {"timestamp": None} if told else None
    return found


def _leave_the_same_ids_unused(grouped: Metastore, single: Metastore) -> None:
    """A statement of PostgreSQL leaves ids of locks unused, those that it has not entered."""
    used, given = (
        one.sql.read(lambda connection: counted(connection, Counter.LOCK_ID)) for one in (single, grouped)
    )
    assert given - used in range(10)
    if given > used:
        single.sql.write(lambda connection: advance(connection, Counter.LOCK_ID, by=given - used))


def check_groups(grouped: Metastore, single: Metastore, chance: random.Random, groups: int) -> None:
    """Do the same requests in groups and one by one, in two equal metastores, and compare them."""
    for metastore in (grouped, single):
        metastore.create_database("shop")
        for table in ("t1", "t2", "t3"):
            metastore.create_table("shop", table, location=f"/{table}", schema=[Column("id", "int")])
    together = 0
    for _ in range(groups):
        opened, locked = (
            single.sql.read(lambda connection, one=one: counted(connection, one))  # type: ignore[misc]
            for one in (Counter.TXN_ID, Counter.LOCK_ID)
        )
        operation, group = chance.choice(
            [
                (TRANSACTIONS, transaction_requests(chance, opened)),
                (LOCKS, lock_requests(chance, opened, locked)),
                (WRITE_IDS, write_id_requests(chance, opened)),
            ]
        )
        answers = done_together(grouped, operation, group)
        # SQLite does a group in order. A statement of PostgreSQL first opens transactions and releases locks,
        # then enters locks in order, then commits by ids. The other requests come after that.
        in_order = grouped.sql.is_sqlite
        order = sorted(
            range(len(group)),
            key=lambda at: (
                at not in answers,
                not in_order and not isinstance(group[at], OpenTxn | Unlock),
                getattr(group[at], "txn_id", 0)
                if operation is TRANSACTIONS and at in answers and not in_order
                else 0,
            ),
        )
        together += len(answers)
        for at in order:
            if at not in answers:
                if operation is LOCKS:
                    _leave_the_same_ids_unused(grouped, single)
                answers[at] = alone(grouped, operation, group[at])
            assert answers[at] == alone(single, operation, group[at]), group
        if operation is LOCKS:
            _leave_the_same_ids_unused(grouped, single)
        assert contents(grouped) == contents(single), group
    assert together > groups // 2

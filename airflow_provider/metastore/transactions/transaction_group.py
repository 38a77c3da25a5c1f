"""Opens and commits of several threads in one database transaction.

See :mod:`airflow_provider.metastore.database.group_commit`.
Done here is what nothing stands in the way of; what is
different (a commit of what is not open, a transaction that only reads) is left to the functions that do one
at a time: :mod:`airflow_provider.metastore.transactions.transactions`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, text

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.database import (
    Counter,
    GroupOperation,
    Request,
    RunStatement,
    advance,
    current_millis,
    txns,
)
from airflow_provider.metastore.model import MESSAGE_FORMAT, TxnState, TxnType
from airflow_provider.metastore.notifications import append_events
from airflow_provider.metastore.transactions import transactions
from airflow_provider.metastore.transactions.transactions import commit_event, open_event


@dataclass(frozen=True)
class OpenTxn(Request[int]):
    """See :meth:`airflow_provider.metastore.api.Metastore.open_txn`."""

    user: str
    host: str
    agent: str | None
    commit_on_recovery: bool
    txn_type: TxnType
    timeout_seconds: float | None

    def __post_init__(self) -> None:
        if self.timeout_seconds is not None and self.timeout_seconds <= 0:
            raise InvalidInputError(
                f"a transaction's timeout must be above 0 seconds, not {self.timeout_seconds!r}"
            )

    @property
    def timeout_millis(self) -> int | None:
        """The timeout as it is stored."""
        return None if self.timeout_seconds is None else int(self.timeout_seconds * 1000)


@dataclass(frozen=True)
class CommitTxn(Request[int]):
    """See :meth:`airflow_provider.metastore.api.Metastore.commit_txn`; nothing but the commit."""

    txn_id: int


def _parted(requests: Sequence[OpenTxn | CommitTxn]) -> tuple[dict[int, OpenTxn], dict[int, int]]:
    """What is opened, and what is committed, by the positions of the requests."""
    return (
        {
            at: one
            for at, one in enumerate(requests)
            if isinstance(one, OpenTxn) and one.txn_type != TxnType.READ_ONLY
        },
        {at: one.txn_id for at, one in enumerate(requests) if isinstance(one, CommitTxn)},
    )


def _answers(
    opens: Mapping[int, OpenTxn], commits: Mapping[int, int], first_txn: int, closed: Mapping[int, int]
) -> dict[int, int]:
    """By the positions of the requests, the new transaction, or the event of the commit."""
    answers = {at: txn_id for txn_id, at in enumerate(opens, first_txn)}
    answers.update((at, closed[txn_id]) for at, txn_id in commits.items() if txn_id in closed)
    return answers


def _row(request: OpenTxn) -> dict[str, Any]:
    return {
        "user_name": request.user,
        "host": request.host,
        "agent": request.agent,
        "commit_on_recovery": request.commit_on_recovery,
        "txn_type": request.txn_type,
        "timeout_ms": request.timeout_millis,
    }


_OPEN = insert(txns).values(opened_at=current_millis(), heartbeat_at=current_millis())


def open_and_commit(connection: Connection, requests: Sequence[OpenTxn | CommitTxn]) -> dict[int, int]:
    """Open some transactions and commit others, with one event each, first those of the new ones.

    :return: by the positions of the requests, the new transaction, or the event of the commit. Left out are
        commits of transactions that are not open or that another database transaction has locked, and all
        that is about a transaction that only reads.
    """
    opens, commits = _parted(requests)
    if not opens and not commits:
        return {}
    found = transactions.lock_those_open(connection, {*commits.values()})
    closing = [txn_id for txn_id, txn_type in found.items() if txn_type != TxnType.READ_ONLY]
    first_txn = advance(connection, Counter.TXN_ID, by=len(opens)) - len(opens) + 1
    opened = range(first_txn, first_txn + len(opens))
    if opens:
        rows = [
            {"id": txn_id, "state": TxnState.OPEN, **_row(one)}
            for txn_id, one in zip(opened, opens.values(), strict=True)
        ]
        connection.execute(_OPEN, rows)
    if closing:
        transactions.end_locks(connection, closing)
    events = [*map(open_event, opened), *map(commit_event, closing)]
    first_event = append_events(connection, events) if events else 0
    closed = {txn_id: event_id for event_id, txn_id in enumerate(closing, first_event + len(opens))}
    if closed:
        transactions.close_txns(connection, TxnState.COMMITTED, closed)
    return _answers(opens, commits, first_txn, closed)


# The same in one round trip. All of it sees the database as it was before: a lock that was taken for a
# transaction since then stays, and counts no more, for its transaction has ended. The event counter is taken
# FROM the other one: the order in which all lock them. The new transactions are one JSON document, which
# costs the driver far less than an array for each column.
_ALL = text("""
WITH opening AS (
    SELECT * FROM ROWS FROM (jsonb_to_recordset(CAST(:opens AS jsonb)) AS (
        user_name text, host text, agent text, commit_on_recovery boolean, txn_type integer, timeout_ms bigint
    )) WITH ORDINALITY AS one (user_name, host, agent, commit_on_recovery, txn_type, timeout_ms, number)
), free AS (
    SELECT id FROM metastore_txns
    WHERE id = ANY (CAST(:commits AS bigint[])) AND state = 'o' AND txn_type <> :read_only
    ORDER BY id FOR UPDATE SKIP LOCKED
), closing AS (
    SELECT id, :opened + row_number() OVER (ORDER BY id) AS number FROM free
), clock AS (
    SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS bigint) AS millis
), txn_counter AS (
    UPDATE metastore_counters SET last_value = last_value + :opened
    WHERE name = 'txn_id' RETURNING last_value - :opened AS before
), event_counter AS (
    UPDATE metastore_counters SET last_value = last_value + :opened + events.closing
    FROM txn_counter, (SELECT count(*) AS closing FROM closing) AS events
    WHERE name = 'event_id' RETURNING last_value - :opened - events.closing AS before
), opened AS (
    INSERT INTO metastore_txns (id, state, user_name, host, agent, commit_on_recovery, txn_type, timeout_ms,
        opened_at, heartbeat_at)
    SELECT before + number, 'o', user_name, host, agent, commit_on_recovery, txn_type, timeout_ms,
        millis, millis
    FROM opening, txn_counter, clock
), unlocked AS (
    DELETE FROM metastore_locks WHERE txn_id IN (SELECT id FROM closing)
), closed AS (
    UPDATE metastore_txns AS txn
    SET state = 'c', closing_event_id = before + number, closed_at = millis
    FROM closing, event_counter, clock WHERE txn.id = closing.id
), told AS (
    INSERT INTO metastore_notification_log (event_id, event_time, event_type, message, message_format)
    SELECT event_counter.before + number, :now, 'OPEN_TXN',
        replace(:open_message, '"$"', CAST(txn_counter.before + number AS text)), :message_format
    FROM opening, txn_counter, event_counter
    UNION ALL
    SELECT before + number, :now, 'COMMIT_TXN',
        replace(:commit_message, '"$"', CAST(id AS text)), :message_format
    FROM closing, event_counter
)
SELECT txn_counter.before + 1, ARRAY(SELECT id FROM closing ORDER BY id),
    ARRAY(SELECT event_counter.before + number FROM closing ORDER BY id)
FROM txn_counter, event_counter
""")


def _in_one_statement(run: RunStatement, requests: Sequence[OpenTxn | CommitTxn]) -> dict[int, int]:
    """See :func:`open_and_commit`."""
    opens, commits = _parted(requests)
    if not opens and not commits:
        return {}
    now = int(time.time())
    asked = {
        "opens": json.dumps([_row(one) for one in opens.values()]),
        "opened": len(opens),
        "open_message": open_event("$").body(now),
        "commits": [*commits.values()],
        "commit_message": commit_event("$").body(now),
        "read_only": int(TxnType.READ_ONLY),
        "now": now,
        "message_format": MESSAGE_FORMAT,
    }
    first_txn, closed, events = run(_ALL, asked)[0]
    return _answers(opens, commits, first_txn, dict(zip(closed, events, strict=True)))


def _alone(connection: Connection, request: OpenTxn | CommitTxn) -> int:
    if isinstance(request, CommitTxn):
        return transactions.commit_txn(connection, request.txn_id)
    return transactions.open_txn(
        connection,
        request.user,
        request.host,
        agent=request.agent,
        commit_on_recovery=request.commit_on_recovery,
        txn_type=request.txn_type,
        timeout_millis=request.timeout_millis,
    )


TRANSACTIONS = GroupOperation(together=open_and_commit, alone=_alone, at_once=_in_one_statement)

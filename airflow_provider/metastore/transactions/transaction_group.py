"""Opens and commits of several threads in one database transaction.

See :mod:`airflow_provider.metastore.database.group_commit`. On PostgreSQL one statement opens and commits.
:mod:`airflow_provider.metastore.transactions.transactions` does alone a commit of a transaction that is not
open, and each request about a transaction that only reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.database import GroupedRequest, GroupOperation, RunStatement
from airflow_provider.metastore.model import MESSAGE_FORMAT, TxnType
from airflow_provider.metastore.transactions import transactions
from airflow_provider.metastore.transactions.transactions import commit_event, open_event


@dataclass(frozen=True)
class OpenTxn(GroupedRequest[int]):
    """See :meth:`AnyMetastore.open_txn`."""

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
        """The timeout in the database's unit, milliseconds."""
        return None if self.timeout_seconds is None else int(self.timeout_seconds * 1000)


@dataclass(frozen=True)
class CommitTxn(GroupedRequest[int]):
    """See :meth:`AnyMetastore.commit_txn`; without partitions and insertions."""

    txn_id: int


def _parted(requests: Sequence[OpenTxn | CommitTxn]) -> tuple[dict[int, OpenTxn], dict[int, int]]:
    """The requests that open a transaction, and the transactions to commit, by the requests' positions."""
    return (
        {
            at: one
            for at, one in enumerate(requests)
            if isinstance(one, OpenTxn) and one.txn_type != TxnType.READ_ONLY
        },
        {at: one.txn_id for at, one in enumerate(requests) if isinstance(one, CommitTxn)},
    )


def _row(request: OpenTxn) -> dict[str, Any]:
    return {
        "user_name": request.user,
        "host": request.host,
        "agent": request.agent,
        "commit_on_recovery": request.commit_on_recovery,
        "txn_type": request.txn_type,
        "timeout_ms": request.timeout_millis,
    }


# One round trip. The whole statement sees the database as it was when the statement began. So a lock that
# another process takes meanwhile for a transaction that ends here stays; it has no effect, because its
# transaction has ended. The statement takes the event counter FROM the other counter, because every database
# transaction locks them in this order. The new transactions are one JSON document, which costs the driver far
# less than an array for each column.
_ALL = text("""
WITH opening AS (
    SELECT * FROM ROWS FROM (jsonb_to_recordset(CAST(:opens AS jsonb)) AS (
        user_name text, host text, agent text, commit_on_recovery boolean, txn_type integer, timeout_ms bigint
    )) WITH ORDINALITY AS one (user_name, host, agent, commit_on_recovery, txn_type, timeout_ms, number)
), free AS (
    SELECT id FROM metastore_txns
    WHERE id = ANY (CAST(:commits AS bigint[])) AND state = 'o' AND NOT txn_type = ANY (CAST(:alone AS
    bigint[])) ORDER BY id FOR UPDATE SKIP LOCKED
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


def open_and_commit(run: RunStatement, requests: Sequence[OpenTxn | CommitTxn]) -> dict[int, int]:
    """Open some transactions and commit others, with one event each; the events of the new ones come first.

    :return: by the requests' positions, the new transaction or the event of the commit. It leaves out
        commits of transactions that are not open or that another database transaction has locked, and each
        request about a transaction that only reads.
    """
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
        "alone": [int(TxnType.READ_ONLY), int(TxnType.REPL_CREATED)],
        "now": now,
        "message_format": MESSAGE_FORMAT,
    }
    first_txn, closed, events = run(_ALL, asked)[0]
    answers = {at: txn_id for txn_id, at in enumerate(opens, first_txn)}
    event_ids = dict(zip(closed, events, strict=True))
    answers.update((at, event_ids[txn_id]) for at, txn_id in commits.items() if txn_id in event_ids)
    return answers


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


TRANSACTIONS = GroupOperation(_alone, open_and_commit)

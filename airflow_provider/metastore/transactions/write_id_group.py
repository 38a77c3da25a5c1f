"""Write ids for several threads in one database transaction.

See :mod:`airflow_provider.metastore.database.group_commit`. On PostgreSQL one statement allocates.
:mod:`airflow_provider.metastore.transactions.table_write_ids` does alone the first write id of a table, one
that is allocated already, and one that is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from airflow_provider.metastore.catalog import catalog
from airflow_provider.metastore.database import GroupedRequest, GroupOperation, RunStatement
from airflow_provider.metastore.model import FROZEN_BY, MESSAGE_FORMAT, TARGET_FOR, TxnType
from airflow_provider.metastore.transactions import table_write_ids, transactions


@dataclass(frozen=True)
class AllocateWriteId(GroupedRequest[int]):
    """See :meth:`AnyMetastore.allocate_table_write_id`."""

    txn_id: int
    database: str
    table: str


# One round trip. The statement waits for the rows of the sequences, by their ids, then for the event counter,
# and for no other row.
_ALL = text("""
WITH asked AS (
    SELECT * FROM ROWS FROM (jsonb_to_recordset(CAST(:asked AS jsonb)) AS (
        txn_id bigint, database_name text, table_name text, message text
    )) WITH ORDINALITY AS one (txn_id, database_name, table_name, message, place)
), free AS (
    SELECT id FROM metastore_txns
    WHERE id IN (SELECT txn_id FROM asked) AND state = 'o' AND txn_type <> :read_only
    ORDER BY id FOR UPDATE SKIP LOCKED
), kept AS (
    SELECT metastore_tables.id AS table_id, metastore_databases.name AS database_name,
        metastore_tables.name AS table_name
    FROM metastore_tables JOIN metastore_databases ON metastore_databases.id = database_id
    WHERE (metastore_databases.name, metastore_tables.name) IN (SELECT database_name, table_name FROM asked)
        AND NOT jsonb_exists_any(metastore_databases.parameters, CAST(:closed_by AS text[]))
    ORDER BY metastore_tables.id FOR UPDATE OF metastore_tables SKIP LOCKED
), sequences AS (
    SELECT id AS sequence_id, table_id, database_name, table_name
    FROM metastore_write_id_sequences AS sequence JOIN kept USING (database_name, table_name)
    ORDER BY id FOR UPDATE OF sequence
), allocating AS (
    SELECT *, row_number() OVER (PARTITION BY sequence_id ORDER BY place) AS step,
        row_number() OVER (ORDER BY place) AS number
    FROM asked JOIN free ON id = txn_id JOIN sequences USING (database_name, table_name)
    WHERE NOT EXISTS (
        SELECT FROM metastore_txn_write_ids AS known
        WHERE known.txn_id = asked.txn_id AND known.sequence_id = sequences.sequence_id
    )
), moved AS (
    UPDATE metastore_write_id_sequences SET last_write_id = last_write_id + steps
    FROM (SELECT sequence_id, count(*) AS steps FROM allocating GROUP BY sequence_id) AS taken
    WHERE id = sequence_id RETURNING sequence_id, last_write_id - steps AS before
), allocated AS (
    SELECT allocating.*, before + step AS write_id FROM allocating JOIN moved USING (sequence_id)
), event_counter AS (
    UPDATE metastore_counters SET last_value = last_value + events
    FROM (SELECT count(*) AS events FROM allocated) AS counted
    WHERE name = 'event_id' AND events > 0 RETURNING last_value - events AS before
), mapped AS (
    INSERT INTO metastore_txn_write_ids (sequence_id, write_id, txn_id)
    SELECT sequence_id, write_id, txn_id FROM allocated
), told AS (
    INSERT INTO metastore_notification_log
        (event_id, event_time, event_type, database_name, table_name, message, message_format)
    SELECT before + number, :now, 'ALLOC_WRITE_ID', database_name, table_name,
        replace(
            replace(message, '"$write_id"', CAST(write_id AS text)), '"$table_id"', CAST(table_id AS text)
        ),
        :message_format
    FROM allocated, event_counter
)
SELECT place - 1, write_id FROM allocated
""")


def allocate_write_ids(run: RunStatement, requests: Sequence[AllocateWriteId]) -> dict[int, int]:
    """Allocate write ids of several transactions and tables in the requests' order, with one event each.

    :return: the write ids by the positions of the requests. It leaves out a request whose transaction has a
        write id on the table, is not open, or only reads; one whose table never had a write id, does not
        exist, or is a replicator's; and one whose transaction or table another database transaction has
        locked.
    """
    wanted = {(one.txn_id, one.database.lower(), one.table.lower()): at for at, one in enumerate(requests)}
    now = int(time.time())
    asked = [
        {
            "txn_id": txn_id,
            "database_name": database,
            "table_name": table,
            "message": table_write_ids.allocation_event(
                txn_id, database, table, "$write_id", table_id="$table_id"
            ).body(now),
        }
        for txn_id, database, table in wanted
    ]
    found = run(
        _ALL,
        {
            "asked": json.dumps(asked),
            "read_only": int(TxnType.READ_ONLY),
            "closed_by": [TARGET_FOR, FROZEN_BY],
            "now": now,
            "message_format": MESSAGE_FORMAT,
        },
    )
    positions = list(wanted.values())
    return {positions[place]: write_id for place, write_id in found}


def _alone(connection: Connection, request: AllocateWriteId) -> int:
    transactions.lock_open(connection, request.txn_id)
    # The lock keeps others from dropping the table meanwhile, so that the id does not outlive it.
    locked = catalog.get_table(connection, request.database, request.table, lock=True)
    return table_write_ids.allocate_table_write_id(
        connection, request.txn_id, request.database, request.table, table_id=locked.id
    )


WRITE_IDS = GroupOperation(_alone, allocate_write_ids)

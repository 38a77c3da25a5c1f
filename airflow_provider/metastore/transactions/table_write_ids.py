"""The write ids that transactions take on tables: functions of one connection.

A transaction has at most one write id on a table. A reader sees a write id exactly when it sees the
transaction. The rules are those of Hive's functions AllocateTableWriteIds and GetValidWriteIds.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select, update

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.database import (
    databases,
    insert_if_absent,
    tables,
    txn_write_ids,
    txns,
    write_id_sequences,
)
from airflow_provider.metastore.model import (
    NO_OPEN,
    EventType,
    NewEvent,
    TxnState,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
)
from airflow_provider.metastore.notifications import append_events
from airflow_provider.metastore.transactions.transactions import is_table_of_sequence, lock_open


@dataclass(frozen=True)
class AllocatedWriteId:
    """A write id that this database transaction has taken from its table's sequence."""

    sequence_id: int
    write_id: int


def allocate_table_write_id(
    connection: Connection, txn_id: int, database: str, table: str, *, table_id: int | None = None
) -> int:
    """See :meth:`AnyMetastore.allocate_table_write_id`.

    Unlike there the table need not exist yet, as in Hive.

    :param table_id: the table's id; None when the table does not exist yet.
    """
    if lock_open(connection, txn_id) == TxnType.READ_ONLY:
        raise InvalidInputError(
            f"Write ID allocation failed on {database}.{table} as not all input txns in open state or "
            f"read-only: transaction {txn_id} was opened to read only",
            txn_id=txn_id,
        )
    known = write_id_of(connection, txn_id, database, table)
    if known is not None:
        return known
    allocated = next_write_id(connection, database, table)
    map_write_id(connection, txn_id, database, table, allocated, table_id=table_id)
    return allocated.write_id


def next_write_id(connection: Connection, database: str, table: str) -> AllocatedWriteId:
    """Take the next write id of a table; the caller maps it to a transaction by :func:`map_write_id`."""
    database, table = database.lower(), table.lower()
    sequence = {"database_name": database, "table_name": table, "last_write_id": 0}
    insert_if_absent(connection, write_id_sequences, sequence)
    moved = connection.execute(
        update(write_id_sequences)
        .where(
            write_id_sequences.c.database_name == database,
            write_id_sequences.c.table_name == table,
        )
        .values(last_write_id=write_id_sequences.c.last_write_id + 1)
        .returning(write_id_sequences.c.id, write_id_sequences.c.last_write_id)
    ).one()
    return AllocatedWriteId(int(moved.id), int(moved.last_write_id))


def map_write_id(
    connection: Connection,
    txn_id: int,
    database: str,
    table: str,
    allocated: AllocatedWriteId,
    *,
    table_id: int | None,
) -> None:
    """Record the transaction that has a write id, and append its event.

    :param table_id: as in :func:`allocate_table_write_id`. The event carries it beside Hive's fields, so
        that a consumer of the log need not know the table's name at that moment.
    """
    connection.execute(
        insert(txn_write_ids).values(
            sequence_id=allocated.sequence_id, write_id=allocated.write_id, txn_id=txn_id
        )
    )
    append_events(
        connection, [allocation_event(txn_id, database, table, allocated.write_id, table_id=table_id)]
    )


def allocation_event(
    txn_id: int, database: str, table: str, write_id: int | str, *, table_id: int | str | None
) -> NewEvent:
    """The event of a transaction's new write id; the last parameter is that of :func:`map_write_id`."""
    database, table = database.lower(), table.lower()
    message = {
        "dbName": database,
        "tableName": table,
        "txnIdList": [txn_id],
        "writeIdList": [write_id],
        "tableId": table_id,
    }
    return NewEvent(EventType.ALLOC_WRITE_ID, message, database, table)


def seed_write_id(connection: Connection, database: str, table: str, last_write_id: int) -> int:
    """See :meth:`AnyMetastore.seed_write_id`."""
    if last_write_id < 0:
        raise InvalidInputError(f"table {database}.{table}: write ids cannot go on after {last_write_id}")
    place = {"database_name": database.lower(), "table_name": table.lower()}
    insert_if_absent(connection, write_id_sequences, {**place, "last_write_id": last_write_id})
    sequence = (
        write_id_sequences.c.database_name == place["database_name"],
        write_id_sequences.c.table_name == place["table_name"],
    )
    connection.execute(
        update(write_id_sequences)
        .where(*sequence, write_id_sequences.c.last_write_id < last_write_id)
        .values(last_write_id=last_write_id)
    )
    return int(connection.execute(select(write_id_sequences.c.last_write_id).where(*sequence)).scalar_one())


def last_write_id(connection: Connection, database: str, table: str) -> int:
    """The highest write id ever allocated on a table of this name; 0 when there is none."""
    query = select(write_id_sequences.c.last_write_id).where(
        write_id_sequences.c.database_name == database.lower(),
        write_id_sequences.c.table_name == table.lower(),
    )
    return int(connection.execute(query).scalar_one_or_none() or 0)


def ended_write_ids(connection: Connection, database: str, table: str) -> tuple[set[int], int]:
    """The write ids of a table whose transactions have ended, as far as readers need them.

    A :class:`ValidWriteIdList` may hold fewer: before the first commit it names the lowest id only.

    :return: the ids of aborted transactions, and the highest id of a committed one; 0 when there is none.
    """
    query = (
        select(txn_write_ids.c.write_id, txns.c.state)
        .join(write_id_sequences)
        .join(txns, txns.c.id == txn_write_ids.c.txn_id)
        .where(
            write_id_sequences.c.database_name == database.lower(),
            write_id_sequences.c.table_name == table.lower(),
            txns.c.state != TxnState.OPEN,
        )
    )
    ended = connection.execute(query).all()
    committed = (row.write_id for row in ended if row.state == TxnState.COMMITTED)
    return {row.write_id for row in ended if row.state == TxnState.ABORTED}, max(committed, default=0)


def table_write_ids_of(connection: Connection, txn_id: int) -> list[tuple[int, int]]:
    """The (table id, write id) pairs of a transaction, without those of dropped tables."""
    query = (
        select(tables.c.id, txn_write_ids.c.write_id)
        .select_from(txn_write_ids)
        .join(write_id_sequences)
        .join(databases, databases.c.name == write_id_sequences.c.database_name)
        .join(tables, is_table_of_sequence())
        .where(txn_write_ids.c.txn_id == txn_id)
    )
    return [(row.id, row.write_id) for row in connection.execute(query)]


def open_table_write_ids(connection: Connection) -> list[tuple[int, int]]:
    """The (table id, write id) pairs of all open transactions, without those of dropped tables."""
    opened = connection.execute(select(txns.c.id).where(txns.c.state == TxnState.OPEN)).scalars()
    return [pair for txn_id in opened for pair in table_write_ids_of(connection, txn_id)]


def write_id_of(connection: Connection, txn_id: int, database: str, table: str) -> int | None:
    """The write id of a transaction on a table; None when it has none."""
    query = (
        select(txn_write_ids.c.write_id)
        .join(write_id_sequences)
        .where(
            txn_write_ids.c.txn_id == txn_id,
            write_id_sequences.c.database_name == database.lower(),
            write_id_sequences.c.table_name == table.lower(),
        )
    )
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else int(found)


def txn_of_write_id(connection: Connection, database: str, table: str, write_id: int) -> int:
    """The transaction that has a write id on a table.

    :raises InvalidInputError: when no transaction has it.
    """
    query = (
        select(txn_write_ids.c.txn_id)
        .join(write_id_sequences)
        .where(
            txn_write_ids.c.write_id == write_id,
            write_id_sequences.c.database_name == database.lower(),
            write_id_sequences.c.table_name == table.lower(),
        )
    )
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise InvalidInputError(
            f"table {database}.{table}: no transaction has write id {write_id}; allocate one first",
            write_id=write_id,
        )
    return int(found)


def valid_write_id_list(
    connection: Connection, database: str, table: str, valid_txns: ValidTxnList
) -> ValidWriteIdList:
    """See :meth:`AnyMetastore.valid_write_id_list`.

    It follows GetValidWriteIdsForTableFunction and its special cases.
    """
    database, table = database.lower(), table.lower()
    name = f"{database}.{table}"
    sequence = connection.execute(
        select(write_id_sequences.c.id, write_id_sequences.c.last_write_id).where(
            write_id_sequences.c.database_name == database,
            write_id_sequences.c.table_name == table,
        )
    ).one_or_none()
    if sequence is None:
        return ValidWriteIdList(name, 0)
    mapped = txn_write_ids.c.sequence_id == sequence.id
    seen = connection.execute(
        select(txn_write_ids.c.write_id)
        .where(mapped, txn_write_ids.c.txn_id <= valid_txns.high_watermark)
        .order_by(txn_write_ids.c.write_id.desc())
        .limit(1)
    ).scalar_one_or_none()
    watermark = int(sequence.last_write_id if seen is None else seen)
    # All transactions below the first invalid one are valid, so the query looks at the others only.
    first_invalid = min([*valid_txns.exceptions[:1], valid_txns.high_watermark + 1])
    below = (mapped, txn_write_ids.c.write_id <= watermark)
    candidates = connection.execute(
        select(txn_write_ids.c.write_id, txn_write_ids.c.txn_id)
        .where(*below, txn_write_ids.c.txn_id >= first_invalid)
        .order_by(txn_write_ids.c.write_id)
    ).all()
    invalid = [row for row in candidates if not valid_txns.is_valid(row.txn_id)]
    aborted = frozenset(row.write_id for row in invalid if valid_txns.is_aborted(row.txn_id))
    exceptions = tuple(row.write_id for row in invalid)
    min_open = next((one for one in exceptions if one not in aborted), NO_OPEN)
    any_valid = (
        len(invalid) < len(candidates)
        or connection.execute(
            select(func.count() > 0).where(*below, txn_write_ids.c.txn_id < first_invalid)
        ).scalar_one()
    )
    if invalid and not any_valid:
        # The database has no valid id any more: the reader sees nothing from the lowest invalid id on.
        exceptions = exceptions[:1]
        aborted &= set(exceptions)
        watermark = exceptions[0]
    return ValidWriteIdList(name, watermark, exceptions, aborted, min_open)


def last_txn_in_conflict(connection: Connection, txn_id: int) -> int:
    """The last transaction that committed after this one opened, on a table where both have a write id.

    Hive looks for updates and deletions of the same partitions, which this metastore does not keep. So Hive
    may find fewer conflicts.

    :return: its id; 0 when there is none.
    """
    mine, others = txn_write_ids.alias(), txn_write_ids.alias()
    opened = select(txns.c.opened_at).where(txns.c.id == txn_id).scalar_subquery()
    query = (
        select(func.max(others.c.txn_id))
        .join(mine, mine.c.sequence_id == others.c.sequence_id)
        .join(txns, txns.c.id == others.c.txn_id)
        .where(mine.c.txn_id == txn_id, others.c.txn_id != txn_id)
        .where(txns.c.state == TxnState.COMMITTED, txns.c.closed_at >= opened)
    )
    return int(connection.execute(query).scalar() or 0)

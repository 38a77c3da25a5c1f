"""Clients' notifications about the files that transactions write: functions of one database connection.

A Hive sends them before the transaction's commit. Its replication asks for them at the COMMIT_TXN event,
whose message names only the transaction. The rules are those of Hive's TXN_WRITE_NOTIFICATION_LOG
(DbNotificationListener.onAcidWrite, ObjectStore.getAllWriteEventInfo), but the transaction must be open.
The notification log gets no event. Retention removes the notifications with the event that ended their
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from airflow_provider.metastore.catalog import get_table, get_table_and_chosen, no_such_partition
from airflow_provider.metastore.database import write_notifications
from airflow_provider.metastore.model import (
    PartitionChoice,
    PartitionInfo,
    PartitionValues,
    TableInfo,
    encode_partition,
    encode_table,
    partition_key,
    partition_values,
)
from airflow_provider.metastore.transactions.transactions import lock_open

_WHOLE_TABLE = "[]"


@dataclass(frozen=True)
class WriteNotification:
    """Files that a transaction has written into a table, or into one of its partitions.

    :param txn_id: the transaction.
    :param write_id: the write id under which it has written them.
    :param values: the partition's values; a table without partition keys ignores them, as in Hive.
    :param files: the files, in the form in which readers get them.
    """

    txn_id: int
    write_id: int
    values: PartitionValues
    files: Sequence[str]


@dataclass(frozen=True)
class WriteEventInfo:
    """All files that a transaction has written into a table, or into one of its partitions.

    :param write_id: the write id of the first notification.
    :param values: the partition's values; empty for a table without partition keys.
    :param table_object: the table as it was at the last notification, as in the log's messages.
    :param partition_object: the partition, likewise; None for a table without partition keys.
    :param files: the files, those of the last notification first, as in Hive.
    """

    write_id: int
    database: str
    table: str
    values: PartitionValues
    table_object: str
    partition_object: str | None
    files: Sequence[str]


def add_write_notifications(
    connection: Connection,
    database: str,
    table: str,
    notifications: Sequence[WriteNotification],
    *,
    skip_missing: bool = False,
) -> None:
    """Keep notifications about one table. Files that are known already change nothing.

    The lock on the transaction keeps two notifications at the same time from losing each other's files.

    :param skip_missing: leave out notifications about partitions that do not exist.
    :raises NoSuchTransactionError: when a transaction is unknown or committed.
    :raises TransactionAbortedError: when a transaction was aborted.
    :raises NoSuchObjectError: when the table does not exist, or a partition, unless ``skip_missing``.
    :raises InvalidInputError: when values do not fit the table's partition keys.
    """
    txn_ids = sorted({one.txn_id for one in notifications})
    for txn_id in txn_ids:
        lock_open(connection, txn_id)
    owner = get_table(connection, database, table)
    partitions = _partitions(connection, owner, {one.values for one in notifications})
    known = _files(connection, owner, txn_ids)
    rows = {}
    for one in notifications:
        key = partition_key(owner, one.values) if owner.partition_keys else _WHOLE_TABLE
        if owner.partition_keys and key not in partitions:
            if skip_missing:
                continue
            raise no_such_partition(owner, key)
        place = (one.txn_id, key)
        before = dict.fromkeys(known.get(place, ()))
        files = [*(file for file in dict.fromkeys(one.files) if file not in before), *before]
        known[place] = files
        rows[place] = _row(owner, partitions.get(key), one, key, files)
    if rows:
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        added = dialect.insert(write_notifications)
        newer = {name: added.excluded[name] for name in ("table_object", "partition_object", "files")}
        key_columns = list(write_notifications.primary_key)
        connection.execute(
            added.on_conflict_do_update(index_elements=key_columns, set_=newer), [*rows.values()]
        )


def write_events_of(
    connection: Connection, txn_id: int, database: str | None = None, table: str | None = None
) -> list[WriteEventInfo]:
    """The writes of a transaction that clients have told, by database, table and partition.

    :param database: only writes into this database; None for all.
    :param table: only writes into tables of this name; None for all.
    """
    query = select(write_notifications).where(write_notifications.c.txn_id == txn_id)
    if database is not None:
        query = query.where(write_notifications.c.database_name == database.lower())
    if table is not None:
        query = query.where(write_notifications.c.table_name == table.lower())
    order = (
        write_notifications.c.database_name,
        write_notifications.c.table_name,
        write_notifications.c.partition_values,
    )
    return [
        WriteEventInfo(
            row.write_id,
            row.database_name,
            row.table_name,
            partition_values(json.loads(row.partition_values)),
            row.table_object,
            row.partition_object,
            row.files,
        )
        for row in connection.execute(query.order_by(*order))
    ]


def _partitions(
    connection: Connection, table: TableInfo, named: Set[PartitionValues]
) -> dict[str, PartitionInfo]:
    """The named partitions that exist, by key; none of a table without partition keys."""
    if not table.partition_keys:
        return {}
    choice = PartitionChoice(keep=named.__contains__, exact=named)
    _, found = get_table_and_chosen(connection, table.database, table.name, lambda _: choice)
    return {partition_key(table, one.values): one for one in found}


def _files(
    connection: Connection, table: TableInfo, txn_ids: Sequence[int]
) -> dict[tuple[int, str], list[str]]:
    """The known files of transactions in a table, by transaction and partition."""
    query = select(write_notifications).where(
        write_notifications.c.txn_id.in_(txn_ids),
        write_notifications.c.database_name == table.database,
        write_notifications.c.table_name == table.name,
    )
    return {(row.txn_id, row.partition_values): row.files for row in connection.execute(query)}


def _row(
    table: TableInfo, partition: PartitionInfo | None, told: WriteNotification, key: str, files: Sequence[str]
) -> Mapping[str, object]:
    return {
        "txn_id": told.txn_id,
        "database_name": table.database,
        "table_name": table.name,
        "partition_values": key,
        "write_id": told.write_id,
        "table_object": encode_table(table),
        "partition_object": None if partition is None else encode_partition(table, partition),
        "files": files,
    }

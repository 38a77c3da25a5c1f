"""Statistics of tables' and partitions' columns: functions of one connection, as :mod:`.catalog`.

They are what a query engine found out, kept for it and its like, and estimates from the next write on. So
they belong to no transaction and tell no event; nor does a replica have them: the database is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore.catalog import get_table
from airflow_provider.metastore.objects import PartitionValues, TableInfo
from airflow_provider.metastore.partitions import partition_id, partition_key
from airflow_provider.metastore.schema import column_statistics, current_millis


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known of a column.

    :param column: its name.
    :param type: its type.
    :param data: Hive's ``ColumnStatisticsData`` in Thrift's binary protocol.
    :param analyzed_at: when it was found out, in seconds since the epoch.
    """

    column: str
    type: str
    data: bytes
    analyzed_at: int


def update_column_statistics(
    connection: Connection,
    database: str,
    table: str,
    statistics: Mapping[str, bytes],
    *,
    partition: PartitionValues | None,
    engine: str,
) -> None:
    """Replace what is known of some columns.

    :param statistics: see :attr:`ColumnStatistics.data`, by column.
    :param partition: of which partition; None for the table.
    :param engine: whose statistics they are; those of others stay.
    :raises NoSuchObjectError: when the table or the partition does not exist.
    :raises InvalidInputError: when the table has no such column.
    """
    owner = get_table(connection, database, table, lock=True)
    types = {column.name.lower(): column.type for column in owner.schema}
    known = {name.lower(): data for name, data in statistics.items()}
    if unknown := sorted(set(known) - set(types)):
        raise InvalidInputError(
            f"table {owner.full_name} has no column {unknown[0]!r}; statistics are of {sorted(types)}",
            table=owner.full_name,
        )
    of_partition = None if partition is None else partition_id(connection, owner, partition)
    place = _of(owner, of_partition, engine)
    connection.execute(delete(column_statistics).where(place, column_statistics.c.column_name.in_(known)))
    rows = [{"column_name": name, "column_type": types[name], "data": data} for name, data in known.items()]
    if rows:
        fixed = {"table_id": owner.id, "partition_id": of_partition, "engine": engine}
        connection.execute(
            insert(column_statistics).values(analyzed_at=current_millis()), [fixed | row for row in rows]
        )


def get_column_statistics(
    connection: Connection,
    database: str,
    table: str,
    columns: Sequence[str],
    *,
    partition: PartitionValues | None,
    engine: str,
) -> list[ColumnStatistics]:
    """What is known of columns, in the order in which they are asked for.

    Of a column that has been dropped since, or has another type now, nothing is known; nor is of a partition
    that does not exist.

    :param partition: see :func:`update_column_statistics`; so ``engine``.
    :raises NoSuchObjectError: when the table does not exist.
    """
    owner = get_table(connection, database, table)
    types = {column.name.lower(): column.type for column in owner.schema}
    try:
        of_partition = None if partition is None else partition_id(connection, owner, partition)
    except NoSuchObjectError:
        return []
    rows = connection.execute(select(column_statistics).where(_of(owner, of_partition, engine)))
    found = {row.column_name: row for row in rows if types.get(row.column_name) == row.column_type}
    return [
        ColumnStatistics(row.column_name, row.column_type, row.data, row.analyzed_at // 1000)
        for row in (found.get(name.lower()) for name in columns)
        if row is not None
    ]


def delete_column_statistics(
    connection: Connection,
    database: str,
    table: str,
    column: str | None,
    *,
    partition: PartitionValues | None,
    engine: str,
) -> None:
    """Forget what is known of a column, or of all when None; parameters as :func:`update_column_statistics`.

    :raises NoSuchObjectError: when there is nothing to forget.
    """
    owner = get_table(connection, database, table, lock=True)
    of_partition = None if partition is None else partition_id(connection, owner, partition)
    which = _of(owner, of_partition, engine)
    if column is not None:
        which = and_(which, column_statistics.c.column_name == column.lower())
    if not connection.execute(delete(column_statistics).where(which)).rowcount:
        raise NoSuchObjectError(
            f"table {owner.full_name} has no statistics of {column or 'any column'}"
            + (f" in partition {partition_key(owner, partition)}" if partition else ""),
            table=owner.full_name,
        )


def _of(table: TableInfo, of_partition: int | None, engine: str) -> ColumnElement[bool]:
    return and_(
        column_statistics.c.table_id == table.id,
        column_statistics.c.partition_id == of_partition,
        column_statistics.c.engine == engine,
    )

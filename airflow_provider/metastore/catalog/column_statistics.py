"""Statistics of tables' and partitions' columns: functions of one connection, as :mod:`.catalog`.

A query engine computes them and stores them for other query engines. From the next write on they are
estimates. So they belong to no transaction, and no replica has a copy: the database answers each read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore.catalog.catalog import get_table
from airflow_provider.metastore.catalog.partitions import MOST_VARIABLES, no_such_partition, partition_ids
from airflow_provider.metastore.database import column_statistics, current_millis
from airflow_provider.metastore.model import (
    NO_WRITE_ID,
    EventType,
    PartitionValues,
    TableInfo,
    encode_table,
    partition_key,
    partition_texts,
)
from airflow_provider.metastore.notifications import append_event


@dataclass(frozen=True)
class ColumnStatistics:
    """The statistics of one column.

    :param column: the column's name.
    :param type: the column's type.
    :param data: Hive's ``ColumnStatisticsData`` in Thrift's binary protocol.
    :param analyzed_at: the time of the analysis, in seconds since the epoch.
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
    struct: str,
    write_id: int = NO_WRITE_ID,
) -> None:
    """Replace the statistics of some columns.

    :param statistics: see :attr:`ColumnStatistics.data`, by column.
    :param struct: Hive's ``ColumnStatistics`` of all these columns in Thrift's JSON, for the event.
    :param write_id: the write id whose rows the statistics describe, for the event.
    :param partition: the partition that the statistics describe; None for the table.
    :param engine: the engine that computed the statistics; those of other engines stay.
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
    of_partition = _place(connection, owner, partition)
    place = _of(owner, [of_partition], engine)
    connection.execute(delete(column_statistics).where(place, column_statistics.c.column_name.in_(known)))
    rows = [{"column_name": name, "column_type": types[name], "data": data} for name, data in known.items()]
    if rows:
        fixed = {"table_id": owner.id, "partition_id": of_partition, "engine": engine}
        connection.execute(
            insert(column_statistics).values(analyzed_at=current_millis()), [fixed | row for row in rows]
        )
        _append_update(connection, owner, partition, struct, write_id)


def _append_update(
    connection: Connection, table: TableInfo, partition: PartitionValues | None, struct: str, write_id: int
) -> None:
    message: dict[str, Any] = {
        "writeId": write_id,
        "database": table.database,
        "colStatsJson": struct,
        "parameters": table.parameters,
        "tableObjJson": encode_table(table, write_id),
    }
    kind = EventType.UPDATE_TABLE_COLUMN_STAT
    if partition is not None:
        kind = EventType.UPDATE_PARTITION_COLUMN_STAT
        message |= {"partVals": partition_texts(partition), "parameters": {}}
    append_event(connection, kind, message, database=table.database, table=table.name)


def get_column_statistics(
    connection: Connection,
    database: str,
    table: str,
    columns: Sequence[str],
    *,
    partitions: Sequence[PartitionValues] | None,
    engine: str,
) -> dict[PartitionValues | None, list[ColumnStatistics]]:
    """The statistics of columns, in the order of ``columns``.

    Statistics of a column that has been dropped since, or has another type now, are left out.

    :param partitions: the partitions to look up; None for the table.
    :param engine: see :func:`update_column_statistics`.
    :return: the statistics by partition, or by None for the table; without partitions that have none.
    :raises NoSuchObjectError: when the table does not exist.
    """
    owner = get_table(connection, database, table)
    types = {column.name.lower(): column.type for column in owner.schema}
    names = list(dict.fromkeys(name.lower() for name in columns))
    places: dict[int | None, PartitionValues | None] = {None: None}
    if partitions is not None:
        places = {found: values for values, found in partition_ids(connection, owner, partitions).items()}
    known: dict[PartitionValues | None, dict[str, ColumnStatistics]] = {}
    for row in _rows(connection, owner, list(places), engine):
        if types.get(row.column_name) == row.column_type:
            found = ColumnStatistics(row.column_name, row.column_type, row.data, row.analyzed_at // 1000)
            known.setdefault(places[row.partition_id], {})[row.column_name] = found
    answers = {place: [of[name] for name in names if name in of] for place, of in known.items()}
    return {place: answer for place, answer in answers.items() if answer}


def delete_column_statistics(
    connection: Connection,
    database: str,
    table: str,
    column: str | None,
    *,
    partition: PartitionValues | None,
    engine: str,
) -> None:
    """Delete the statistics of a column, or of all columns when it is None.

    The other parameters are those of :func:`update_column_statistics`.

    :raises NoSuchObjectError: when there are no such statistics.
    """
    owner = get_table(connection, database, table, lock=True)
    which = _of(owner, [_place(connection, owner, partition)], engine)
    if column is not None:
        which = and_(which, column_statistics.c.column_name == column.lower())
    if not connection.execute(delete(column_statistics).where(which)).rowcount:
        raise NoSuchObjectError(
            f"table {owner.full_name} has no statistics of {column or 'any column'}"
            + (f" in partition {partition_key(owner, partition)}" if partition else ""),
            table=owner.full_name,
        )


def _place(connection: Connection, table: TableInfo, partition: PartitionValues | None) -> int | None:
    if partition is None:
        return None
    found = partition_ids(connection, table, [partition])
    if not found:
        raise no_such_partition(table, partition_key(table, partition))
    return found[partition]


def _rows(
    connection: Connection, table: TableInfo, places: Sequence[int | None], engine: str
) -> Iterator[Row[Any]]:
    for start in range(0, len(places), MOST_VARIABLES):
        which = _of(table, places[start : start + MOST_VARIABLES], engine)
        yield from connection.execute(select(column_statistics).where(which))


def _of(table: TableInfo, places: Sequence[int | None], engine: str) -> ColumnElement[bool]:
    column = column_statistics.c.partition_id
    return and_(
        column_statistics.c.table_id == table.id,
        column.is_(None) if places == [None] else column.in_(places),
        column_statistics.c.engine == engine,
    )

"""Constraints of tables: functions of one connection, as :mod:`.catalog`.

A client declares constraints on a table's rows for query engines, and the metastore does not check them.
They belong to no transaction and have no event, and no replica has a copy: the database answers each read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from airflow_provider.exceptions import AlreadyExistsError, InvalidInputError, NoSuchObjectError
from airflow_provider.metastore.catalog.catalog import get_table
from airflow_provider.metastore.database import constraints as constraint_rows
from airflow_provider.metastore.database import databases, tables
from airflow_provider.metastore.model import TableInfo

PRIMARY_KEY, FOREIGN_KEY = "primary_key", "foreign_key"


@dataclass(frozen=True)
class Constraint:
    """A constraint of a table.

    :param kind: :data:`PRIMARY_KEY`, :data:`FOREIGN_KEY`, or another one of Hive's.
    :param columns: the constraint's columns, each with the fields of Hive's struct other than tables and
        names.
    :param name: the constraint's name, unique in its table; None to generate one.
    :param parent: database and name of the table that a foreign key refers to.
    """

    kind: str
    columns: Sequence[tuple[str, Mapping[str, Any]]]
    name: str | None = None
    parent: tuple[str, str] | None = field(default=None)


def add_constraints(connection: Connection, table: TableInfo, added: Iterable[Constraint]) -> None:
    """Declare constraints.

    :param table: the table, locked by the caller, or created in the same database transaction.
    :raises NoSuchObjectError: when the table that a foreign key refers to does not exist.
    :raises InvalidInputError: when the table has no such column, or has a primary key already.
    :raises AlreadyExistsError: when the table has a constraint of that name.
    """
    known = {one.name: one for one in constraints_of(connection, table)}
    columns = {one.name.lower() for one in (*table.schema, *table.partition_keys)}
    for one in added:
        name = (one.name or f"{one.kind}_{secrets.token_hex(4)}").lower()
        if missing := [column for column, _ in one.columns if column.lower() not in columns]:
            raise InvalidInputError(
                f"table {table.full_name}: constraint {name!r} is of column {missing[0]!r}, which it does "
                f"not have; its columns are {sorted(columns)}",
                table=table.full_name,
            )
        if name in known:
            raise AlreadyExistsError(f"table {table.full_name} has a constraint {name!r} already")
        if one.kind == PRIMARY_KEY and any(each.kind == PRIMARY_KEY for each in known.values()):
            raise InvalidInputError(
                f"table {table.full_name} has a primary key already; drop it first", table=table.full_name
            )
        parent = None if one.parent is None else get_table(connection, *one.parent).id
        connection.execute(
            insert(constraint_rows).values(
                table_id=table.id,
                parent_id=parent,
                kind=one.kind,
                name=name,
                columns=[[column.lower(), dict(said)] for column, said in one.columns],
            )
        )
        known[name] = one


def constraints_of(connection: Connection, table: TableInfo) -> list[Constraint]:
    """A table's constraints, in the order of their declaration."""
    return [one for _, one in _found(connection, constraint_rows.c.table_id == table.id)]


def foreign_keys_to(connection: Connection, parent: TableInfo) -> list[tuple[tuple[str, str], Constraint]]:
    """The foreign keys that refer to a table, each with the database and name of the table that has it."""
    return _found(connection, constraint_rows.c.parent_id == parent.id)


def drop_constraint(connection: Connection, table: TableInfo, name: str) -> None:
    """Drop a constraint.

    :raises NoSuchObjectError: when the table has no constraint of that name.
    """
    which = (constraint_rows.c.table_id == table.id, constraint_rows.c.name == name.lower())
    if not connection.execute(delete(constraint_rows).where(*which)).rowcount:
        raise NoSuchObjectError(f"table {table.full_name} has no constraint {name!r}", table=table.full_name)


def _found(connection: Connection, which: Any) -> list[tuple[tuple[str, str], Constraint]]:
    parents, homes = tables.alias(), databases.alias()
    query = (
        select(
            constraint_rows,
            databases.c.name.label("database"),
            tables.c.name.label("table"),
            homes.c.name.label("parent_database"),
            parents.c.name.label("parent_table"),
        )
        .join(tables, tables.c.id == constraint_rows.c.table_id)
        .join(databases, databases.c.id == tables.c.database_id)
        .outerjoin(parents, parents.c.id == constraint_rows.c.parent_id)
        .outerjoin(homes, homes.c.id == parents.c.database_id)
        .where(which)
        .order_by(constraint_rows.c.id)
    )
    found = []
    for row in connection.execute(query):
        parent = None if row.parent_id is None else (row.parent_database, row.parent_table)
        columns = [(column, said) for column, said in row.columns]
        found.append(((row.database, row.table), Constraint(row.kind, columns, row.name, parent)))
    return found

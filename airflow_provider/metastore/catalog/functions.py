"""User-defined functions of the catalog: functions of one connection, as :mod:`.catalog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from airflow_provider.exceptions import AlreadyExistsError, NoSuchObjectError
from airflow_provider.metastore.catalog.catalog import (
    append_catalog_event,
    get_database,
    get_writable_database,
    object_name,
)
from airflow_provider.metastore.database import current_millis, databases, insert_if_absent
from airflow_provider.metastore.database import functions as function_rows
from airflow_provider.metastore.model import EventType, FunctionInfo, encode_function

_FUNCTIONS = select(function_rows, databases.c.name.label("database_name")).join(databases)


def create_function(
    connection: Connection,
    database: str,
    name: str,
    class_name: str,
    *,
    owner: str | None,
    resources: Sequence[str],
) -> FunctionInfo:
    """See :meth:`AnyMetastore.create_function`."""
    name = object_name("function", name)
    home = get_writable_database(connection, database)
    values = {
        "database_id": home.id,
        "name": name,
        "class_name": class_name,
        "owner": owner,
        "resources": list(resources),
        "created_at": current_millis(),
    }
    if not insert_if_absent(connection, function_rows, values):
        raise AlreadyExistsError(
            f"function {home.name}.{name} exists already", function=f"{home.name}.{name}"
        )
    created = get_function(connection, home.name, name)
    message = {"db": home.name, "functionObjJson": encode_function(created)}
    append_catalog_event(connection, EventType.CREATE_FUNCTION, message, home.name)
    return created


def alter_function(
    connection: Connection,
    database: str,
    name: str,
    *,
    new_name: str,
    class_name: str,
    owner: str | None,
    resources: Sequence[str],
) -> FunctionInfo:
    """Change a function. Hive has no event for it, so the log has a drop and a creation of the same moment.

    :param new_name: the function's new name.
    :param class_name: see :class:`FunctionInfo`, also for the parameters after it.
    :raises NoSuchObjectError: when it does not exist.
    :raises AlreadyExistsError: when another function has the new name.
    """
    drop_function(connection, database, name)
    return create_function(connection, database, new_name, class_name, owner=owner, resources=resources)


def get_function(connection: Connection, database: str, name: str) -> FunctionInfo:
    """See :meth:`AnyMetastore.get_function`."""
    query = _FUNCTIONS.where(databases.c.name == database.lower(), function_rows.c.name == name.lower())
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NoSuchObjectError(
            f"function {database}.{name} does not exist; create it first", function=f"{database}.{name}"
        )
    return _function(row)


def list_functions(connection: Connection, database: str) -> list[str]:
    """See :meth:`AnyMetastore.list_functions`."""
    home = get_database(connection, database)
    query = select(function_rows.c.name).where(function_rows.c.database_id == home.id)
    return list(connection.execute(query.order_by(function_rows.c.name)).scalars())


def all_functions(connection: Connection) -> list[FunctionInfo]:
    """The functions of all databases."""
    query = _FUNCTIONS.order_by(databases.c.name, function_rows.c.name)
    return [_function(row) for row in connection.execute(query)]


def drop_function(connection: Connection, database: str, name: str) -> None:
    """See :meth:`AnyMetastore.drop_function`."""
    dropped = get_function(connection, database, name)
    home = get_writable_database(connection, database)
    connection.execute(
        delete(function_rows).where(
            function_rows.c.database_id == home.id, function_rows.c.name == dropped.name
        )
    )
    message = {"db": dropped.database, "functionName": dropped.name}
    append_catalog_event(connection, EventType.DROP_FUNCTION, message, dropped.database)


def _function(row: Row[Any]) -> FunctionInfo:
    return FunctionInfo(row.database_name, row.name, row.class_name, row.owner, tuple(row.resources))

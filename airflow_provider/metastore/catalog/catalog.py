"""Databases and tables: functions of one connection, each in its caller's database transaction.

The catalog keeps names in lower case, as in Hive. These functions change metadata only, and
never make or delete data files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, select, update
from sqlalchemy.exc import IntegrityError

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    MetastoreError,
    NoSuchObjectError,
)
from airflow_provider.metastore.catalog.replication_target import check_writable
from airflow_provider.metastore.database import (
    Counter,
    counters,
    current_millis,
    databases,
    insert_if_absent,
    lock_components,
    properties,
    tables,
    write_id_sequences,
)
from airflow_provider.metastore.model import (
    NO_WRITE_ID,
    USER,
    Column,
    DatabaseInfo,
    EventType,
    TableInfo,
    encode_database,
    encode_table,
)
from airflow_provider.metastore.notifications import append_event

# Hive's rule for names (MetaStoreUtils.validateName); `:`, `.` and `$` would break snapshot strings.
_NAME = re.compile(r"[A-Za-z0-9_]{1,128}")
# The key in metastore_properties, by Hive's name.
_UUID = "guid"


def object_name(kind: str, name: str) -> str:
    """Check a name and bring it to lower case.

    :param kind: the kind of object that it names, for the error's text.
    :raises InvalidInputError: when it has other characters than letters, digits and ``_``.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot name a {kind}: use 1 to 128 letters, digits and underscores", name=name
        )
    return name.lower()


def create_database(
    connection: Connection,
    name: str,
    *,
    location: str | None,
    comment: str | None,
    parameters: Mapping[str, str],
    if_not_exists: bool,
    owner: str | None = None,
    owner_type: int = USER,
) -> DatabaseInfo:
    """See :meth:`AnyMetastore.create_database`.

    :param owner: see :class:`DatabaseInfo`, also for ``owner_type``.
    """
    name = object_name("database", name)
    values = {
        "name": name,
        "location": location,
        "comment": comment,
        "parameters": _parameters(parameters),
        "owner": owner,
        "owner_type": owner_type,
        "created_at": current_millis(),
    }
    if not insert_if_absent(connection, databases, values):
        if if_not_exists:
            return get_database(connection, name)
        raise AlreadyExistsError(f"database {name!r} exists already", database=name)
    created = get_database(connection, name)
    message = {"db": name, "dbJson": encode_database(created)}
    append_catalog_event(connection, EventType.CREATE_DATABASE, message, name)
    return created


def get_database(connection: Connection, name: str) -> DatabaseInfo:
    """See :meth:`AnyMetastore.get_database`."""
    row = _database_row(connection, name.lower())
    if row is None:
        raise NoSuchObjectError(f"database {name!r} does not exist; create it first", database=name)
    return _database(row)


def get_writable_database(connection: Connection, name: str) -> DatabaseInfo:
    """Look up a database that the caller is about to change; errors as :func:`get_database`.

    :raises ReplicationTargetError: see :func:`check_writable`.
    """
    found = get_database(connection, name)
    check_writable(found.name, found.parameters)
    return found


def list_databases(connection: Connection) -> list[str]:
    """The names of all databases, in order."""
    return list(connection.execute(select(databases.c.name).order_by(databases.c.name)).scalars())


def alter_database(connection: Connection, name: str, *, changes: Mapping[str, Any]) -> DatabaseInfo:
    """See :meth:`AnyMetastore.alter_database`.

    :param changes: values by the names of :class:`DatabaseInfo`'s fields.
    """
    row = _database_row(connection, name.lower(), lock=True)
    if row is None:
        raise NoSuchObjectError(f"database {name!r} does not exist; create it first", database=name)
    before = _database(row)
    check_writable(before.name, before.parameters)
    values = dict(changes)
    if "parameters" in values:
        values["parameters"] = _parameters(values["parameters"])
    if values:
        connection.execute(update(databases).where(databases.c.id == before.id).values(**values))
    after = get_database(connection, before.name)
    message = {
        "db": before.name,
        "dbObjBeforeJson": encode_database(before),
        "dbObjAfterJson": encode_database(after),
    }
    append_catalog_event(connection, EventType.ALTER_DATABASE, message, before.name)
    return after


def metastore_uuid(connection: Connection) -> str:
    """The id that distinguishes this metastore from all others, as long as its database exists."""
    insert_if_absent(connection, properties, {"name": _UUID, "value": str(uuid.uuid4())})
    return str(connection.execute(select(properties.c.value).where(properties.c.name == _UUID)).scalar_one())


def all_databases(connection: Connection) -> list[DatabaseInfo]:
    """All databases, by name."""
    return [_database(row) for row in connection.execute(select(databases).order_by(databases.c.name))]


def append_catalog_event(
    connection: Connection, event_type: EventType, message: Mapping[str, Any], database: str
) -> int:
    """Append the event of a change of a database or a function, and record it as the last of its kind.

    See ``Counter.CATALOG_EVENT_ID``.
    """
    event_id = append_event(connection, event_type, message, database=database)
    connection.execute(
        update(counters).where(counters.c.name == Counter.CATALOG_EVENT_ID).values(last_value=event_id)
    )
    return event_id


def drop_database(connection: Connection, name: str, *, cascade: bool) -> None:
    """See :meth:`AnyMetastore.drop_database`."""
    found = get_writable_database(connection, name)
    inside = list_tables(connection, found.name)
    if inside and not cascade:
        raise MetastoreError(
            f"database {found.name!r} is not empty: it has {len(inside)} tables, the first is {inside[0]!r}; "
            "drop them first, or drop with cascade",
            database=found.name,
        )
    for table in inside:
        # All tables before the first event: every database transaction locks in this order.
        get_table(connection, found.name, table, lock=True)
    for table in inside:
        drop_table(connection, found.name, table)
    with _taken(f"a table in database {found.name!r}"):
        connection.execute(delete(databases).where(databases.c.id == found.id))
    message = {"db": found.name, "dbJson": encode_database(found)}
    append_catalog_event(connection, EventType.DROP_DATABASE, message, found.name)


def create_table(
    connection: Connection,
    database: str,
    name: str,
    *,
    location: str,
    schema: Sequence[Column],
    partition_keys: Sequence[Column],
    table_type: str,
    parameters: Mapping[str, str],
    owner: str | None,
    hive_fields: Mapping[str, Any],
    if_not_exists: bool,
) -> TableInfo:
    """See :meth:`AnyMetastore.create_table`."""
    name = object_name("table", name)
    _check_columns(f"{database}.{name}", schema, partition_keys)
    home = get_writable_database(connection, database)
    values = {
        "database_id": home.id,
        "name": name,
        "table_type": table_type,
        "location": location,
        "owner": owner,
        "columns": [asdict(column) for column in schema],
        "partition_keys": [asdict(column) for column in partition_keys],
        "parameters": _parameters(parameters),
        "hive_fields": dict(hive_fields),
        "created_at": current_millis(),
    }
    if not insert_if_absent(connection, tables, values):
        if if_not_exists:
            return get_table(connection, home.name, name)
        raise AlreadyExistsError(f"table {home.name}.{name} exists already", table=f"{home.name}.{name}")
    created = get_table(connection, home.name, name)
    append_event(
        connection,
        EventType.CREATE_TABLE,
        {**table_fields(created), "files": []},
        database=home.name,
        table=name,
    )
    return created


def get_table(connection: Connection, database: str, name: str, *, lock: bool = False) -> TableInfo:
    """See :meth:`AnyMetastore.get_table`.

    :param lock: True for a caller that changes the table: nobody else changes it until this database
        transaction ends.
    :raises ReplicationTargetError: with ``lock``, when only a replicator may change the table.
    """
    row = _table_row(connection, database.lower(), name.lower(), lock=lock)
    if row is None:
        get_database(connection, database)
        raise NoSuchObjectError(
            f"table {database}.{name} does not exist in the metastore; create it first",
            table=f"{database}.{name}",
        )
    if lock:
        check_writable(row.database_name, row.database_parameters)
    return _table(row)


def list_tables(connection: Connection, database: str) -> list[str]:
    """See :meth:`AnyMetastore.list_tables`."""
    home = get_database(connection, database)
    query = select(tables.c.name).where(tables.c.database_id == home.id).order_by(tables.c.name)
    return list(connection.execute(query).scalars())


def drop_table(connection: Connection, database: str, name: str) -> None:
    """See :meth:`AnyMetastore.drop_table`."""
    dropped = get_table(connection, database, name, lock=True)
    # The table's write ids stay taken: its data carries them, and may be registered again.
    connection.execute(delete(tables).where(tables.c.id == dropped.id))
    append_event(
        connection,
        EventType.DROP_TABLE,
        table_fields(dropped),
        database=dropped.database,
        table=dropped.name,
    )


def alter_table(
    connection: Connection,
    database: str,
    name: str,
    *,
    changes: Mapping[str, Any],
    write_id: Callable[[TableInfo], int],
    truncates: bool = False,
) -> TableInfo:
    """See :meth:`AnyMetastore.alter_table`.

    :param changes: values by the names of :class:`TableInfo`'s fields.
    :param write_id: returns the write id of the change.
    :param truncates: whether the change deletes the table's rows; the event says so.
    """
    before = get_table(connection, database, name, lock=True)
    values = dict(changes)
    if "schema" in values:
        _check_columns(before.full_name, values["schema"], before.partition_keys)
        values["columns"] = [asdict(column) for column in values.pop("schema")]
    if "parameters" in values:
        values["parameters"] = _parameters(values["parameters"])
    if values:
        connection.execute(update(tables).where(tables.c.id == before.id).values(**values))
    after = get_table(connection, before.database, before.name)
    _append_alter(connection, before, after, write_id(before), truncates=truncates)
    return after


def rename_table(
    connection: Connection, database: str, name: str, new_database: str, new_name: str
) -> TableInfo:
    """See :meth:`AnyMetastore.rename_table`."""
    before = get_table(connection, database, name, lock=True)
    home = get_writable_database(connection, new_database)
    new_name = object_name("table", new_name)
    target = f"table {home.name}.{new_name}"
    if _table_row(connection, home.name, new_name) is not None:
        raise AlreadyExistsError(f"{target} exists already", table=f"{home.name}.{new_name}")
    with _taken(target):
        connection.execute(
            update(tables).where(tables.c.id == before.id).values(database_id=home.id, name=new_name)
        )
    # Write ids and locks belong to the table, whatever its name (Hive: OnRenameFunction).
    with _taken(f"write ids of {target}"):
        # The write ids of a dropped table of that name, which is another table.
        connection.execute(
            delete(write_id_sequences).where(
                write_id_sequences.c.database_name == home.name,
                write_id_sequences.c.table_name == new_name,
            )
        )
        connection.execute(
            update(write_id_sequences)
            .where(
                write_id_sequences.c.database_name == before.database,
                write_id_sequences.c.table_name == before.name,
            )
            .values(database_name=home.name, table_name=new_name)
        )
    connection.execute(
        update(lock_components)
        .where(
            lock_components.c.database_name == before.database, lock_components.c.table_name == before.name
        )
        .values(database_name=home.name, table_name=new_name)
    )
    after = get_table(connection, home.name, new_name)
    _append_alter(connection, before, after, NO_WRITE_ID)
    return after


def table_fields(table: TableInfo, write_id: int = NO_WRITE_ID) -> dict[str, Any]:
    """The fields that the messages of all table and partition events share.

    :param write_id: the write id of the change.
    """
    return {
        "db": table.database,
        "table": table.name,
        "tableType": table.table_type,
        "tableObjJson": encode_table(table, write_id),
    }


def _append_alter(
    connection: Connection, before: TableInfo, after: TableInfo, write_id: int, *, truncates: bool = False
) -> None:
    # As in Hive, the message carries the old name, and the event itself the new one
    # (JSONAlterTableMessage, DbNotificationListener.onAlterTable).
    message = {
        "db": before.database,
        "table": before.name,
        "tableType": before.table_type,
        "tableObjBeforeJson": encode_table(before),
        "tableObjAfterJson": encode_table(after, write_id),
        "isTruncateOp": str(truncates).lower(),
        "writeId": write_id,
    }
    append_event(connection, EventType.ALTER_TABLE, message, database=after.database, table=after.name)


@contextmanager
def _taken(what: str) -> Iterator[None]:
    """Raise AlreadyExistsError when another process has taken the same key just now."""
    try:
        yield
    except IntegrityError as error:
        raise AlreadyExistsError(f"{what} exists already; another process made it just now") from error


def _database_row(connection: Connection, name: str, *, lock: bool = False) -> Row[Any] | None:
    query = select(databases).where(databases.c.name == name)
    return connection.execute(query.with_for_update() if lock else query).one_or_none()


def _table_row(connection: Connection, database: str, name: str, *, lock: bool = False) -> Row[Any] | None:
    query: Select[Any] = (
        select(
            tables,
            databases.c.name.label("database_name"),
            databases.c.parameters.label("database_parameters"),
        )
        .join(databases)
        .where(databases.c.name == database, tables.c.name == name)
    )
    if lock:
        query = query.with_for_update(of=tables)
    return connection.execute(query).one_or_none()


def _database(row: Row[Any]) -> DatabaseInfo:
    return DatabaseInfo(
        row.id, row.name, row.location, row.comment, row.parameters, row.owner, row.owner_type
    )


def _table(row: Row[Any]) -> TableInfo:
    return TableInfo(
        id=row.id,
        database=row.database_name,
        name=row.name,
        location=row.location,
        schema=tuple(Column(**column) for column in row.columns),
        partition_keys=tuple(Column(**column) for column in row.partition_keys),
        table_type=row.table_type,
        parameters=row.parameters,
        owner=row.owner,
        hive_fields=row.hive_fields,
    )


def _parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    return {str(key): str(value) for key, value in parameters.items()}


def _check_columns(table: str, schema: Iterable[Column], partition_keys: Iterable[Column]) -> None:
    seen: set[str] = set()
    for column in [*schema, *partition_keys]:
        if not column.name or column.name.lower() in seen:
            raise InvalidInputError(
                f"table {table}: column {column.name!r} is empty or there twice (case does not count); "
                "partition keys are not repeated among the columns",
                table=table,
                column=column.name,
            )
        seen.add(column.name.lower())

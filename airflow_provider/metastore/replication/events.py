"""Applies the events of the source's catalog: databases, tables, partitions, functions, insertions.

The replicator applies an event as it stands in the log, whatever the source's present state. It leaves an
object that already is as the event says, and an object that is dropped already is no error. So it can apply
an event twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore.catalog import catalog, functions, partitions
from airflow_provider.metastore.model import (
    DatabaseInfo,
    EventType,
    FunctionInfo,
    Insertion,
    NotificationEvent,
    PartitionInfo,
    PartitionSpec,
    PartitionValues,
    Scope,
    TableInfo,
    decode_database,
    decode_function,
    decode_partition,
    decode_table,
    decode_write_id,
    partition_values,
)


def apply_catalog_event(connection: Connection, event: NotificationEvent, scope: Scope) -> None:
    """Apply an event about the catalog, as the replicator.

    :param event: the source's event.
    :param scope: the replication's databases and locations. Events about other databases are skipped.
    """
    apply = _APPLY.get(event.event_type)
    if apply is not None:
        apply(connection, event.message, scope)


def _create_database(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    put_database(connection, decode_database(message["dbJson"]), scope)


def _alter_database(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    put_database(connection, decode_database(message["dbObjAfterJson"]), scope)


def put_database(connection: Connection, source: DatabaseInfo, scope: Scope) -> None:
    """Create a database of the target, or make it equal to the source's."""
    target = scope.database(source.name)
    if target is None:
        return
    location = None if source.location is None else scope.location(source.location)
    parameters = scope.parameters(source.parameters)
    known = catalog.create_database(
        connection,
        target,
        location=location,
        comment=source.comment,
        parameters=parameters,
        if_not_exists=True,
        owner=source.owner,
        owner_type=source.owner_type,
    )
    changes = {
        "location": location,
        "comment": source.comment,
        "parameters": parameters,
        "owner": source.owner,
        "owner_type": source.owner_type,
    }
    if changes != {name: getattr(known, name) for name in changes}:
        catalog.alter_database(connection, target, changes=changes)


def _drop_database(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (target := scope.database(message["db"])) is not None:
        with suppress(NoSuchObjectError):
            catalog.drop_database(connection, target, cascade=True)


def _create_table(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (table := scope.table(decode_table(message["tableObjJson"]))) is not None:
        put_table(connection, table)


def put_table(connection: Connection, table: TableInfo, *, write_id: int = -1) -> None:
    """Create a table of the target, or make it equal to the source's; its partitions stay.

    :param table: the target's version of the table.
    :param write_id: the write id of the change.
    """
    wanted: dict[str, Any] = {
        "location": table.location,
        "schema": table.schema,
        "table_type": table.table_type,
        "parameters": table.parameters,
        "owner": table.owner,
        "hive_fields": table.hive_fields,
    }
    known = catalog.create_table(
        connection,
        table.database,
        table.name,
        partition_keys=table.partition_keys,
        if_not_exists=True,
        **wanted,
    )
    changes = {name: value for name, value in wanted.items() if getattr(known, name) != value}
    if changes:
        catalog.alter_table(
            connection, table.database, table.name, changes=changes, write_id=lambda _: write_id
        )


def _alter_table(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    before, after = decode_table(message["tableObjBeforeJson"]), decode_table(message["tableObjAfterJson"])
    old, new = scope.database(before.database), scope.table(after)
    if old is not None and new is None:  # the table has left the replicated databases
        with suppress(NoSuchObjectError):
            catalog.drop_table(connection, old, before.name)
    if new is None:
        return
    if old is not None and (old, before.name) != (new.database, new.name):
        with suppress(NoSuchObjectError):
            catalog.rename_table(connection, old, before.name, new.database, new.name)
    put_table(connection, new, write_id=decode_write_id(message["tableObjAfterJson"]))


def _drop_table(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (database := scope.database(message["db"])) is not None:
        with suppress(NoSuchObjectError):
            catalog.drop_table(connection, database, message["table"])


def _place(message: Mapping[str, Any], scope: Scope) -> tuple[str, str] | None:
    database = scope.database(message["db"])
    return None if database is None else (database, str(message["table"]))


def specs_of(found: Sequence[PartitionInfo], scope: Scope) -> list[PartitionSpec]:
    """The target's versions of partitions."""
    return [
        PartitionSpec(each.values, scope.location(each.location), each.parameters, each.storage_descriptor)
        for each in found
    ]


def _add_partition(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (place := _place(message, scope)) is None:
        return
    found = [decode_partition(text) for text in message["partitionListJson"]]
    write_id = decode_write_id(message["tableObjJson"])
    partitions.add_partitions(
        connection, *place, specs_of(found, scope), if_not_exists=True, write_id=lambda _: write_id
    )


def _alter_partition(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (place := _place(message, scope)) is None:
        return
    before = decode_partition(message["partitionObjBeforeJson"])
    [after] = specs_of([decode_partition(message["partitionObjAfterJson"])], scope)
    changes: dict[str, Any] = {
        "location": after.location,
        "parameters": dict(after.parameters),
        "storage_descriptor": after.storage_descriptor,
    }
    if before.values != after.values:
        changes["values"] = after.values
    write_id = decode_write_id(message["tableObjJson"])
    with suppress(NoSuchObjectError):  # an earlier try has renamed it
        partitions.alter_partition(
            connection, *place, before.values, changes=changes, write_id=lambda _: write_id
        )


def _drop_partition(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (place := _place(message, scope)) is None:
        return
    keys = [key.name for key in decode_table(message["tableObjJson"]).partition_keys]
    dropped: list[PartitionValues] = [
        partition_values(each[key] for key in keys) for each in message["partitions"]
    ]
    write_id = decode_write_id(message["tableObjJson"])
    partitions.drop_partitions(connection, *place, dropped, if_exists=True, write_id=lambda _: write_id)


def _insert(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (place := _place(message, scope)) is None:
        return
    described = message.get("ptnObjJson")
    insertion = Insertion(
        [_file(file, scope) for file in message["files"]],
        None if described is None else decode_partition(described).values,
        message["replace"] == "true",
    )
    write_id = decode_write_id(message["tableObjJson"])
    partitions.append_insert_events(connection, *place, [insertion], write_id=lambda _: write_id)


def _file(file: str, scope: Scope) -> str:
    try:
        return scope.location(file)
    except InvalidInputError:
        return file  # a client may have sent any text


def _create_function(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    put_function(connection, decode_function(message["functionObjJson"]), scope)


def put_function(connection: Connection, function: FunctionInfo, scope: Scope) -> None:
    """Create a function of the target, or make it equal to the source's. Its jars stay where they are."""
    database = scope.database(function.database)
    if database is None:
        return
    with suppress(NoSuchObjectError):
        known = functions.get_function(connection, database, function.name)
        if (known.class_name, known.resources) == (function.class_name, function.resources):
            return
        functions.drop_function(connection, database, function.name)
    functions.create_function(
        connection,
        database,
        function.name,
        function.class_name,
        owner=function.owner,
        resources=function.resources,
    )


def _drop_function(connection: Connection, message: Mapping[str, Any], scope: Scope) -> None:
    if (database := scope.database(message["db"])) is not None:
        with suppress(NoSuchObjectError):
            functions.drop_function(connection, database, message["functionName"])


_APPLY: Mapping[str, Callable[[Connection, Mapping[str, Any], Scope], None]] = {
    EventType.CREATE_DATABASE: _create_database,
    EventType.ALTER_DATABASE: _alter_database,
    EventType.DROP_DATABASE: _drop_database,
    EventType.CREATE_TABLE: _create_table,
    EventType.ALTER_TABLE: _alter_table,
    EventType.DROP_TABLE: _drop_table,
    EventType.ADD_PARTITION: _add_partition,
    EventType.ALTER_PARTITION: _alter_partition,
    EventType.DROP_PARTITION: _drop_partition,
    EventType.INSERT: _insert,
    EventType.CREATE_FUNCTION: _create_function,
    EventType.DROP_FUNCTION: _drop_function,
}

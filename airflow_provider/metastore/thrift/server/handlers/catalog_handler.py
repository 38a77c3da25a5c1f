"""The methods about databases, tables and functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from airflow_provider.exceptions import InvalidInputError, MetastoreError, NoSuchObjectError
from airflow_provider.metastore.catalog import catalog, functions, replace_columns
from airflow_provider.metastore.model import CATALOG, NO_ID, USER, Column, DatabaseInfo, TableInfo
from airflow_provider.metastore.partition_filter import table_filter
from airflow_provider.metastore.patterns import name_pattern
from airflow_provider.metastore.thrift.protocol import (
    TableStructs,
    database_struct,
    function_struct,
    hive,
    read_database,
    read_table,
)
from airflow_provider.metastore.thrift.server.handlers.hive_tables import (
    check_types,
    is_of_hive,
    projected,
    with_ddl_time,
)
from airflow_provider.metastore.thrift.server.reads import CatalogReads, event_seen
from airflow_provider.metastore.thrift.server.warehouse import Warehouse
from airflow_provider.metastore.transactions import DdlTransaction, txn_of_write_id

# StatsSetupConst.CASCADE, a key that Hive's clients send in the request's context.
_CASCADE = "CASCADE"
_VIEW = "VIRTUAL_VIEW"
# TableType.
_TYPES_OF_TABLES = ("MANAGED_TABLE", "EXTERNAL_TABLE", _VIEW, "MATERIALIZED_VIEW")


class CatalogHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param reads: answers the reads.
    :param structs: makes the structs of tables.
    :param warehouse: chooses locations where clients give none.
    """

    def __init__(self, reads: CatalogReads, structs: TableStructs, warehouse: Warehouse) -> None:
        self._reads = reads
        self._metastore = reads.metastore
        self._warehouse = warehouse
        self._structs = structs

    def get_catalogs(self) -> Any:
        return hive.GetCatalogsResponse(names=[CATALOG])

    def get_catalog(self, request: Any) -> Any:
        if request.name != CATALOG:
            raise NoSuchObjectError(f"catalog {request.name!r} does not exist; there is one, {CATALOG!r}")
        place = self._warehouse.default_location("default") or ""
        described = "Default catalog for Hive"
        return hive.GetCatalogResponse(
            catalog=hive.Catalog(name=CATALOG, description=described, locationUri=place)
        )

    def get_metastore_db_uuid(self) -> str:
        return self._metastore.sql.write(catalog.metastore_uuid)

    def get_databases(self, pattern: str) -> list[str]:
        # Hive's Java client sends no pattern as "@hive#".
        wanted = None if pattern == f"@{CATALOG}#" else plain_name(pattern)
        return list(_matching(wanted, self._reads.databases()))

    def get_all_databases(self) -> list[str]:
        return self._reads.databases()

    def get_database(self, name: str) -> Any:
        found = self._reads.database(plain_name(name))
        return database_struct(found, self._warehouse.database_location(found))

    def get_database_req(self, request: Any) -> Any:
        return self.get_database(request.name)

    def create_database(self, database: Any) -> None:
        self._create_database(read_database(database))

    def create_database_req(self, request: Any) -> None:
        self._create_database(
            DatabaseInfo(
                NO_ID,
                request.databaseName,
                request.locationUri,
                request.description,
                dict(request.parameters or {}),
                request.ownerName,
                request.ownerType or USER,
            )
        )

    def _create_database(self, wanted: DatabaseInfo) -> None:
        place = wanted.location or self._warehouse.default_location(wanted.name.lower())
        with self._warehouse.made(place):
            self._metastore.sql.write(
                lambda connection: catalog.create_database(
                    connection,
                    wanted.name,
                    location=wanted.location,
                    comment=wanted.comment,
                    parameters=wanted.parameters,
                    owner=wanted.owner,
                    owner_type=wanted.owner_type,
                    if_not_exists=False,
                )
            )

    def drop_database(self, name: str, delete_data: bool, cascade: bool) -> None:
        name = plain_name(name)
        home = self._metastore.get_database(name)
        inside = self._tables(name, self._metastore.list_tables(name)) if cascade and delete_data else []
        self._metastore.drop_database(name, cascade=cascade)
        if not delete_data:
            return
        for table in filter(self._warehouse.owns_folder, inside):
            self._warehouse.remove(table.location, f"table {table.full_name}")
        self._warehouse.remove_empty(self._warehouse.database_location(home))

    def drop_database_req(self, request: Any) -> None:
        try:
            self.drop_database(request.name, request.deleteData, request.cascade)
        except NoSuchObjectError:
            if not request.ignoreUnknownDb:
                raise

    def alter_database(self, name: str, database: Any) -> None:
        given = {
            "location": database.locationUri,
            "comment": database.description,
            "parameters": database.parameters,
            "owner": database.ownerName,
            "owner_type": database.ownerType,
        }
        changes = {field: value for field, value in given.items() if value is not None}
        self._metastore.sql.write(
            lambda connection: catalog.alter_database(connection, plain_name(name), changes=changes)
        )

    def alter_database_req(self, request: Any) -> None:
        self.alter_database(request.oldDbName, request.newDb)

    def create_table(self, struct: Any, then: Callable[[Connection, TableInfo], None] | None = None) -> None:
        """Create a table.

        :param then: called with the table in the same database transaction, before others see it.
        """
        table = self._new_table(struct)

        def create(connection: Connection) -> None:
            created = catalog.create_table(
                connection,
                table.database,
                table.name,
                location=table.location,
                schema=table.schema,
                partition_keys=table.partition_keys,
                table_type=table.table_type,
                parameters=table.parameters,
                owner=table.owner,
                hive_fields=table.hive_fields,
                if_not_exists=False,
            )
            if then is not None:
                then(connection, created)

        with self._warehouse.made(None if table.table_type == _VIEW else table.location):
            self._metastore.sql.write(create)

    def _new_table(self, struct: Any) -> TableInfo:
        """The table to register, from a client's struct."""
        struct.createTime = struct.createTime or int(time.time())
        table = read_table(struct)
        home = self._metastore.get_database(plain_name(table.database))
        location = table.location
        if not location and table.table_type != _VIEW:
            location = self._warehouse.table_location(home, table.name.lower())
        table = replace(table, database=home.name, location=location)
        check_types(table, (*table.schema, *table.partition_keys))
        return replace(table, parameters=with_ddl_time(table.parameters)) if is_of_hive(table) else table

    def translate_table_dryrun(self, request: Any) -> Any:
        return self._structs.of(self._new_table(request.table))

    def create_table_with_environment_context(self, struct: Any, context: Any) -> None:
        self.create_table(struct)

    def drop_table(self, database: str, name: str, delete_data: bool) -> None:
        dropped = self._metastore.get_table(plain_name(database), name)
        self._metastore.drop_table(dropped.database, dropped.name)
        if delete_data and self._warehouse.owns_folder(dropped):
            self._warehouse.remove(dropped.location, f"table {dropped.full_name}")

    def drop_table_with_environment_context(
        self, database: str, name: str, delete_data: bool, context: Any
    ) -> None:
        self.drop_table(database, name, delete_data)

    def drop_table_req(self, request: Any) -> None:
        self.drop_table(request.dbName, request.tableName, bool(request.deleteData))

    def get_tables(self, database: str, pattern: str) -> list[str]:
        return list(_matching(pattern, self.get_all_tables(database)))

    def get_all_tables(self, database: str) -> list[str]:
        try:
            return self._metastore.list_tables(plain_name(database))
        except NoSuchObjectError:
            return []  # as in Hive

    def get_tables_by_type(self, database: str, pattern: str, table_type: str) -> list[str]:
        if table_type not in _TYPES_OF_TABLES:
            raise InvalidInputError(
                f"{table_type!r} is no type of a table; give one of {', '.join(_TYPES_OF_TABLES)}"
            )
        names = self.get_tables(database, pattern)
        return [one.name for one in self._tables(plain_name(database), names) if one.table_type == table_type]

    def get_table_meta(
        self, database_patterns: str, table_patterns: str, types: list[str] | None
    ) -> list[Any]:
        return [
            hive.TableMeta(
                dbName=one.database,
                tableName=one.name,
                tableType=one.table_type,
                comments=one.parameters.get("comment"),
                ownerName=one.owner,
                catName=CATALOG,
            )
            for database in self.get_databases(plain_name(database_patterns))
            for one in self._tables(database, self.get_tables(database, table_patterns))
            if not types or one.table_type in types
        ]

    def get_tables_ext(self, request: Any) -> list[Any]:
        names = self.get_tables(request.database, request.tableNamePattern)
        if request.limit is not None and request.limit >= 0:
            names = names[: request.limit]
        return [hive.ExtendedTableInfo(tblName=name) for name in names]

    def get_table_names_by_filter(self, database: str, text: str, limit: int) -> list[str]:
        names = self._all_tables(database)
        keep = table_filter(text)
        found = [one.name for one in self._tables(plain_name(database), names) if keep(one)]
        return found if limit is None or limit < 0 else found[:limit]

    def _all_tables(self, database: str) -> list[str]:
        try:
            return self._metastore.list_tables(plain_name(database))
        except NoSuchObjectError as error:
            raise hive.UnknownDBException(message=str(error)) from None

    def get_table(self, database: str, name: str) -> Any:
        return self._structs.encoded(self._reads.table(plain_name(database), name))

    def get_table_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id, request.seenEventId)
        found = self._reads.table(plain_name(request.dbName), request.tblName, reader)
        return hive.GetTableResult(table=self._structs.encoded(found), eventId=event_seen(reader))

    def get_table_objects_by_name(self, database: str, names: list[str]) -> list[Any]:
        return [self._structs.of(one) for one in self._tables(plain_name(database), names)]

    def get_table_objects_by_name_req(self, request: Any) -> Any:
        names, pattern = request.tblNames, request.tablesPattern
        if names is None and pattern is None:
            raise InvalidInputError(
                f"no names of tables of {request.dbName!r}; give tblNames or tablesPattern"
            )
        matching = self._all_tables(request.dbName) if names is None else names
        names = matching if pattern is None else list(_matching(pattern, matching))
        found = self.get_table_objects_by_name(request.dbName, names)
        if not found:
            self._all_tables(request.dbName)  # tells that the database does not exist
        if (wanted := request.projectionSpec) is not None:
            patterns = (wanted.includeParamKeyPattern, wanted.excludeParamKeyPattern)
            found = [projected(one, wanted.fieldList or (), *patterns) for one in found]
        return hive.GetTablesResult(tables=found)

    def get_fields(self, database: str, table: str) -> list[Any]:
        return list(self._structs.of(self._reads.table(plain_name(database), table)).sd.cols)

    def get_schema(self, database: str, table: str) -> list[Any]:
        found = self._structs.of(self._reads.table(plain_name(database), table))
        return [*found.sd.cols, *(found.partitionKeys or [])]

    def get_fields_with_environment_context(self, database: str, table: str, context: Any) -> list[Any]:
        return self.get_fields(database, table)

    def get_schema_with_environment_context(self, database: str, table: str, context: Any) -> list[Any]:
        return self.get_schema(database, table)

    def get_fields_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        found = self._structs.of(self._reads.table(plain_name(request.dbName), request.tblName, reader))
        return hive.GetFieldsResponse(fields=found.sd.cols)

    def get_schema_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        found = self._structs.of(self._reads.table(plain_name(request.dbName), request.tblName, reader))
        return hive.GetSchemaResponse(fields=[*found.sd.cols, *(found.partitionKeys or [])])

    def alter_table(self, database: str, name: str, struct: Any) -> None:
        self._alter(database, name, struct, {})

    def alter_table_with_environment_context(
        self, database: str, name: str, struct: Any, context: Any
    ) -> None:
        self._alter(database, name, struct, context.properties if context else None)

    def alter_table_with_cascade(self, database: str, name: str, struct: Any, cascade: bool) -> None:
        self._alter(database, name, struct, {_CASCADE: str(cascade).lower()})

    def alter_table_req(self, request: Any) -> Any:
        properties = dict((request.environmentContext and request.environmentContext.properties) or {})
        if request.expectedParameterKey:
            properties["expected_parameter_key"] = request.expectedParameterKey
            properties["expected_parameter_value"] = request.expectedParameterValue
        self._alter(request.dbName, request.tableName, request.table, properties, request.writeId)
        return hive.AlterTableResponse()

    def _alter(
        self,
        database: str,
        name: str,
        struct: Any,
        context: dict[str, str] | None,
        write_id: int | None = None,
    ) -> None:
        """Alter and rename a table, both at once.

        With Iceberg's ``expected_parameter_key`` in the context it is a compare-and-set.
        """
        wanted = read_table(struct)
        database, name = plain_name(database).lower(), name.lower()
        target = (plain_name(wanted.database).lower() or database, wanted.name.lower() or name)
        before = self._metastore.get_table(database, name)
        if wanted.table_type != _VIEW and _types(wanted.partition_keys) != _types(before.partition_keys):
            raise MetastoreError(
                f"table {before.full_name}: partition keys cannot be changed, from "
                f"{_types(before.partition_keys)} to {_types(wanted.partition_keys)}; create another table",
                table=before.full_name,
            )
        check_types(wanted, wanted.schema)
        location = wanted.location or before.location
        home = self._metastore.get_database(database)
        moves = (
            target != (database, name)
            and location == before.location
            and self._warehouse.moves_with_name(before, home)
        )
        if moves:
            location = self._warehouse.table_location(self._metastore.get_database(target[0]), target[1])
        changes = {
            "schema": wanted.schema,
            "location": location,
            "parameters": with_ddl_time(wanted.parameters) if is_of_hive(wanted) else wanted.parameters,
            "owner": wanted.owner,
            "table_type": wanted.table_type,
            "hive_fields": wanted.hive_fields,
        }
        change = _alteration((database, name), target, changes, context or {}, write_id)
        with self._warehouse.moved(before.location, location) if moves else nullcontext():
            self._metastore.sql.write(change)

    def _tables(self, database: str, names: Iterable[str]) -> list[TableInfo]:
        """The tables of these names, without those that do not exist."""
        found = []
        for name in dict.fromkeys(one.lower() for one in names):
            try:
                found.append(self._reads.table(database, name))
            except NoSuchObjectError:
                continue
        return found

    def get_functions(self, database: str, pattern: str) -> list[str]:
        try:
            return list(_matching(pattern, self._reads.functions(plain_name(database))))
        except NoSuchObjectError:
            return []

    def get_function(self, database: str, name: str) -> Any:
        return function_struct(self._reads.function(plain_name(database), name))

    def get_all_functions(self) -> Any:
        return hive.GetAllFunctionsResponse(functions=list(map(function_struct, self._reads.all_functions())))

    def create_function(self, function: Any) -> None:
        self._metastore.create_function(
            plain_name(function.dbName),
            function.functionName,
            function.className,
            owner=function.ownerName,
            resources=[one.uri for one in function.resourceUris or []],
        )

    def alter_function(self, database: str, name: str, function: Any) -> None:
        self._metastore.sql.write(
            lambda connection: functions.alter_function(
                connection,
                plain_name(database),
                name,
                new_name=function.functionName or name,
                class_name=function.className,
                owner=function.ownerName,
                resources=[one.uri for one in function.resourceUris or []],
            )
        )

    def drop_function(self, database: str, name: str) -> None:
        self._metastore.drop_function(plain_name(database), name)


def _alteration(
    old: tuple[str, str],
    new: tuple[str, str],
    changes: dict[str, Any],
    context: dict[str, str],
    write_id: int | None,
) -> Callable[[Connection], None]:
    def alter(connection: Connection) -> None:
        before = catalog.get_table(connection, *old, lock=True)
        key = context.get("expected_parameter_key")
        if key is not None and before.parameters.get(key) != context.get("expected_parameter_value"):
            # Iceberg's clients look for this text.
            raise hive.MetaException(
                message="The table has been modified. The parameter value for key "
                f"'{key}' is '{before.parameters.get(key)}'. The expected was value was "
                f"'{context.get('expected_parameter_value')}'"
            )
        if changes != {name: getattr(before, name) for name in changes}:
            change = DdlTransaction(connection, _txn(connection, old, write_id))
            catalog.alter_table(connection, *old, changes=changes, write_id=change.write_id)
            if "schema" in changes and context.get(_CASCADE, "").lower() == "true":
                replace_columns(connection, catalog.get_table(connection, *old), write_id=change.write_id)
            change.end()
        if new != old:
            catalog.rename_table(connection, *old, *new)

    return alter


def _txn(connection: Connection, table: tuple[str, str], write_id: int | None) -> int | None:
    """The transaction of the write id in a request; None without one, for a transaction of its own."""
    if write_id is None or write_id <= 0:
        return None
    return txn_of_write_id(connection, *table, write_id)


def _types(columns: Iterable[Column]) -> dict[str, str]:
    return {one.name.lower(): one.type.lower() for one in columns}


def plain_name(database: str) -> str:
    """A database's name without the catalog's, which Hive 3 sends as in ``@hive#lake``."""
    if not database.startswith("@"):
        return database
    return database.partition("#")[2].removesuffix("!")


def _matching(pattern: str | None, names: Iterable[str]) -> Iterable[str]:
    """The names that match a pattern; all names without one."""
    return names if pattern is None else filter(name_pattern(pattern), names)

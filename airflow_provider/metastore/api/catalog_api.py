"""The catalog's part of :class:`Metastore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from airflow_provider.exceptions import NoSuchObjectError
from airflow_provider.metastore.catalog import catalog, functions, partitions
from airflow_provider.metastore.database import SqlDatabase
from airflow_provider.metastore.model import (
    Column,
    DatabaseInfo,
    FunctionInfo,
    Insertion,
    PartitionInfo,
    PartitionSpec,
    TableInfo,
)
from airflow_provider.metastore.transactions import DdlTransaction

T = TypeVar("T")


class CatalogApi:
    """Databases, tables and partitions.

    :param sql: the database.
    """

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

    def create_database(
        self,
        name: str,
        location: str | None = None,
        comment: str | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> DatabaseInfo:
        """See :meth:`AnyMetastore.create_database`."""
        return self._sql.write(
            lambda connection: catalog.create_database(
                connection,
                name,
                location=location,
                comment=comment,
                parameters=parameters or {},
                if_not_exists=if_not_exists,
            )
        )

    def get_database(self, name: str) -> DatabaseInfo:
        """See :meth:`AnyMetastore.get_database`."""
        return self._sql.read(lambda connection: catalog.get_database(connection, name))

    def alter_database(
        self,
        name: str,
        *,
        location: str | None = None,
        comment: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> DatabaseInfo:
        """See :meth:`AnyMetastore.alter_database`."""
        given: dict[str, Any] = {"location": location, "comment": comment, "parameters": parameters}
        changes = {field: value for field, value in given.items() if value is not None}
        return self._sql.write(lambda connection: catalog.alter_database(connection, name, changes=changes))

    def list_databases(self) -> list[str]:
        """See :meth:`AnyMetastore.list_databases`."""
        return self._sql.read(catalog.list_databases)

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """See :meth:`AnyMetastore.drop_database`."""
        self._sql.write(lambda connection: catalog.drop_database(connection, name, cascade=cascade))

    def create_table(
        self,
        database: str,
        name: str,
        *,
        location: str,
        schema: Sequence[Column],
        partition_keys: Sequence[Column] = (),
        table_type: str = "MANAGED_TABLE",
        parameters: Mapping[str, str] | None = None,
        owner: str | None = None,
        hive_fields: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> TableInfo:
        """See :meth:`AnyMetastore.create_table`."""
        return self._sql.write(
            lambda connection: catalog.create_table(
                connection,
                database,
                name,
                location=location,
                schema=schema,
                partition_keys=partition_keys,
                table_type=table_type,
                parameters=parameters or {},
                owner=owner,
                hive_fields=hive_fields or {},
                if_not_exists=if_not_exists,
            )
        )

    def get_table(self, database: str, name: str) -> TableInfo:
        """See :meth:`AnyMetastore.get_table`."""
        return self._sql.read(lambda connection: catalog.get_table(connection, database, name))

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`AnyMetastore.list_tables`."""
        return self._sql.read(lambda connection: catalog.list_tables(connection, database))

    def alter_table(
        self,
        database: str,
        name: str,
        *,
        schema: Sequence[Column] | None = None,
        location: str | None = None,
        parameters: Mapping[str, str] | None = None,
        owner: str | None = None,
        table_type: str | None = None,
        hive_fields: Mapping[str, Any] | None = None,
        txn_id: int | None = None,
    ) -> TableInfo:
        """See :meth:`AnyMetastore.alter_table`."""
        given = {
            "schema": schema,
            "location": location,
            "parameters": parameters,
            "owner": owner,
            "table_type": table_type,
            "hive_fields": hive_fields,
        }
        changes = {field: value for field, value in given.items() if value is not None}

        return self._change(
            txn_id,
            lambda connection, write_id: catalog.alter_table(
                connection, database, name, changes=changes, write_id=write_id
            ),
        )

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> TableInfo:
        """See :meth:`AnyMetastore.rename_table`."""
        return self._sql.write(
            lambda connection: catalog.rename_table(connection, database, name, new_database, new_name)
        )

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> bool:
        """See :meth:`AnyMetastore.drop_table`."""

        def drop(connection: Connection) -> bool:
            try:
                catalog.drop_table(connection, database, name)
            except NoSuchObjectError:
                if not if_exists:
                    raise
                return False
            return True

        return self._sql.write(drop)

    def add_partitions(
        self,
        database: str,
        table: str,
        partitions_to_add: Sequence[PartitionSpec],
        *,
        if_not_exists: bool = True,
        txn_id: int | None = None,
    ) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.add_partitions`."""

        return self._change(
            txn_id,
            lambda connection, write_id: partitions.add_partitions(
                connection,
                database,
                table,
                partitions_to_add,
                if_not_exists=if_not_exists,
                write_id=write_id,
            ),
        )

    def get_partitions(self, database: str, table: str) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.get_partitions`."""
        return self._sql.read(lambda connection: partitions.get_partitions(connection, database, table))

    def get_partitions_by_filter(self, database: str, table: str, filter_text: str) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.get_partitions_by_filter`."""

        # Only a filter pays for this import: its parser costs more than opening a metastore.
        from airflow_provider.metastore.partition_filter import partition_choice

        return self._sql.read(
            lambda connection: partitions.get_table_and_chosen(
                connection, database, table, lambda owner: partition_choice(filter_text, owner.partition_keys)
            )
        )[1]

    def get_partition(self, database: str, table: str, values: Sequence[str | None]) -> PartitionInfo:
        """See :meth:`AnyMetastore.get_partition`."""
        return self._sql.read(
            lambda connection: partitions.get_table_and_partition(connection, database, table, values)
        )[1]

    def alter_partition(
        self,
        database: str,
        table: str,
        values: Sequence[str | None],
        *,
        location: str | None = None,
        parameters: Mapping[str, str] | None = None,
        txn_id: int | None = None,
    ) -> PartitionInfo:
        """See :meth:`AnyMetastore.alter_partition`."""
        given: dict[str, Any] = {"location": location, "parameters": parameters}
        changes = {field: value for field, value in given.items() if value is not None}

        return self._change(
            txn_id,
            lambda connection, write_id: partitions.alter_partition(
                connection, database, table, values, changes=changes, write_id=write_id
            ),
        )

    def rename_partition(
        self,
        database: str,
        table: str,
        values: Sequence[str | None],
        new_values: Sequence[str | None],
        *,
        txn_id: int | None = None,
    ) -> PartitionInfo:
        """See :meth:`AnyMetastore.rename_partition`."""
        return self._change(
            txn_id,
            lambda connection, write_id: partitions.alter_partition(
                connection, database, table, values, changes={"values": new_values}, write_id=write_id
            ),
        )

    def drop_partitions(
        self,
        database: str,
        table: str,
        partitions_to_drop: Sequence[Sequence[str | None]],
        *,
        if_exists: bool = True,
        txn_id: int | None = None,
    ) -> list[PartitionInfo]:
        """See :meth:`AnyMetastore.drop_partitions`."""
        return self._change(
            txn_id,
            lambda connection, write_id: partitions.drop_partitions(
                connection, database, table, partitions_to_drop, if_exists=if_exists, write_id=write_id
            ),
        )

    def fire_insert_event(
        self,
        database: str,
        table: str,
        files: Sequence[str],
        *,
        values: Sequence[str | None] | None = None,
        replace: bool = False,
        txn_id: int | None = None,
    ) -> int:
        """See :meth:`AnyMetastore.fire_insert_event`."""
        inserted = Insertion(files, values if values is None else tuple(values), replace)
        [event_id] = self._change(
            txn_id,
            lambda connection, write_id: partitions.append_insert_events(
                connection, database, table, [inserted], write_id=write_id
            ),
        )
        return event_id

    def create_function(
        self,
        database: str,
        name: str,
        class_name: str,
        *,
        owner: str | None = None,
        resources: Sequence[str] = (),
    ) -> FunctionInfo:
        """See :meth:`AnyMetastore.create_function`."""
        return self._sql.write(
            lambda connection: functions.create_function(
                connection, database, name, class_name, owner=owner, resources=resources
            )
        )

    def get_function(self, database: str, name: str) -> FunctionInfo:
        """See :meth:`AnyMetastore.get_function`."""
        return self._sql.read(lambda connection: functions.get_function(connection, database, name))

    def list_functions(self, database: str) -> list[str]:
        """See :meth:`AnyMetastore.list_functions`."""
        return self._sql.read(lambda connection: functions.list_functions(connection, database))

    def drop_function(self, database: str, name: str) -> None:
        """See :meth:`AnyMetastore.drop_function`."""
        self._sql.write(lambda connection: functions.drop_function(connection, database, name))

    def _change(self, txn_id: int | None, change: Callable[[Connection, Callable[[TableInfo], int]], T]) -> T:
        """Change a table within the given transaction, or within one of the change's own."""

        def run(connection: Connection) -> T:
            transaction = DdlTransaction(connection, txn_id)
            result = change(connection, transaction.write_id)
            transaction.end()
            return result

        return self._sql.write(run)

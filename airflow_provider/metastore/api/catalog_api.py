"""The catalog's part of the metastore's face."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from airflow_provider.exceptions import NoSuchObjectError
from airflow_provider.metastore.catalog import catalog, functions, partitions
from airflow_provider.metastore.database import MetastoreEngine
from airflow_provider.metastore.model import (
    Column,
    DatabaseInfo,
    FunctionInfo,
    Insertion,
    PartitionInfo,
    PartitionSpec,
    TableInfo,
)
from airflow_provider.metastore.transactions import TableChange

T = TypeVar("T")


class CatalogApi:
    """Databases, tables and partitions.

    :param engine: the database.
    """

    def __init__(self, engine: MetastoreEngine) -> None:
        self._engine = engine

    def create_database(
        self,
        name: str,
        location: str | None = None,
        comment: str | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> DatabaseInfo:
        """Create a database.

        :param location: where its tables go by default.
        :raises AlreadyExistsError: when it exists, unless ``if_not_exists``: then it stays as it is.
        """
        return self._engine.write(
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
        """Look a database up.

        :raises NoSuchObjectError: when it does not exist.
        """
        return self._engine.read(lambda connection: catalog.get_database(connection, name))

    def alter_database(
        self,
        name: str,
        *,
        location: str | None = None,
        comment: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> DatabaseInfo:
        """Replace those properties of a database that are given.

        :param location: where tables go by default from now on; those that exist stay.
        :param parameters: all of the database's parameters from now on.
        :raises NoSuchObjectError: when it does not exist.
        """
        given: dict[str, Any] = {"location": location, "comment": comment, "parameters": parameters}
        changes = {field: value for field, value in given.items() if value is not None}
        return self._engine.write(
            lambda connection: catalog.alter_database(connection, name, changes=changes)
        )

    def list_databases(self) -> list[str]:
        """The names of all databases, in order; ``default`` is always there."""
        return self._engine.read(catalog.list_databases)

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database; data files stay.

        :param cascade: drop its tables too.
        :raises NoSuchObjectError: when it does not exist.
        :raises MetastoreError: when it has tables and ``cascade`` is not set.
        """
        self._engine.write(lambda connection: catalog.drop_database(connection, name, cascade=cascade))

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
        """Register a table; nothing is written at its location.

        :param location: the table's folder or URL.
        :param schema: its columns, without the partition keys.
        :param partition_keys: its partition keys, in order.
        :param table_type: ``MANAGED_TABLE`` or ``EXTERNAL_TABLE``.
        :param hive_fields: see :class:`~airflow_provider.metastore.model.TableInfo`.
        :raises NoSuchObjectError: when the database does not exist.
        :raises AlreadyExistsError: when the table exists, unless ``if_not_exists``: then it stays as it is.
        :raises InvalidInputError: when the name or the columns cannot be used.
        """
        return self._engine.write(
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
        """Look a table up.

        :raises NoSuchObjectError: when it, or its database, does not exist.
        """
        return self._engine.read(lambda connection: catalog.get_table(connection, database, name))

    def list_tables(self, database: str) -> list[str]:
        """The names of a database's tables, in order.

        :raises NoSuchObjectError: when the database does not exist.
        """
        return self._engine.read(lambda connection: catalog.list_tables(connection, database))

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
        """Replace those properties of a table that are given.

        :param parameters: all of the table's parameters from now on.
        :param txn_id: the open transaction to which the change belongs; its write id, taken if it has none,
            goes into the event. None for a transaction around this change alone.
        :raises NoSuchObjectError: when the table does not exist.
        :raises NoSuchTransactionError: when the transaction is not open.
        :raises TransactionAbortedError: when it was aborted.
        """
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
        """Give a table another name or database; id, partitions and write ids go with it.

        :raises NoSuchObjectError: when the table or the new database does not exist.
        :raises AlreadyExistsError: when there is a table of the new name.
        """
        return self._engine.write(
            lambda connection: catalog.rename_table(connection, database, name, new_database, new_name)
        )

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> bool:
        """Drop a table and its partitions; data files stay.

        Its write ids stay taken: a table of the same name goes on above them.

        :return: True when this call dropped it.
        :raises NoSuchObjectError: when it does not exist, unless ``if_exists``.
        """

        def drop(connection: Connection) -> bool:
            try:
                catalog.drop_table(connection, database, name)
            except NoSuchObjectError:
                if not if_exists:
                    raise
                return False
            return True

        return self._engine.write(drop)

    def add_partitions(
        self,
        database: str,
        table: str,
        partitions_to_add: Sequence[PartitionSpec],
        *,
        if_not_exists: bool = True,
        txn_id: int | None = None,
    ) -> list[PartitionInfo]:
        """Register partitions, with one event for all that are new and none when none is.

        :param if_not_exists: leave those that exist as they are; else one that exists is an error.
        :param txn_id: as in :meth:`alter_table`.
        :return: those that were added.
        :raises NoSuchObjectError: when the table does not exist.
        :raises AlreadyExistsError: see ``if_not_exists``.
        :raises InvalidInputError: when a partition's values do not fit the table's partition keys.
        :raises NoSuchTransactionError: when the transaction is not open.
        :raises TransactionAbortedError: when it was aborted.
        """

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
        """All partitions of a table, in the order of their values.

        :raises NoSuchObjectError: when the table does not exist.
        """
        return self._engine.read(lambda connection: partitions.get_partitions(connection, database, table))

    def get_partitions_by_filter(self, database: str, table: str, filter_text: str) -> list[PartitionInfo]:
        """The partitions that a filter keeps, in the order of their values.

        :param filter_text: Hive's partition filter language; see :mod:`.partition_filter`.
        :raises NoSuchObjectError: when the table does not exist.
        :raises InvalidInputError: when the filter cannot be used on this table.
        """

        # Imported here: its parser costs more than opening a metastore.
        from airflow_provider.metastore.partition_filter import partition_filter

        def look(connection: Connection) -> list[PartitionInfo]:
            owner, found = partitions.get_table_and_partitions(connection, database, table)
            return list(filter(partition_filter(filter_text, owner.partition_keys), found))

        return self._engine.read(look)

    def get_partition(self, database: str, table: str, values: Sequence[str | None]) -> PartitionInfo:
        """Look one partition up by its values.

        :raises NoSuchObjectError: when the table or the partition does not exist.
        :raises InvalidInputError: when the values do not fit the table's partition keys.
        """
        return self._engine.read(
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
        """Replace those properties of a partition that are given; errors as :meth:`get_partition`.

        :param parameters: all of the partition's parameters from now on.
        :param txn_id: as in :meth:`alter_table`.
        """
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
        """Give a partition other values; its folder stays where it is. Errors as :meth:`get_partition`.

        :param txn_id: as in :meth:`alter_table`.
        :raises AlreadyExistsError: when there is a partition of the new values.
        """
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
        """Drop partitions by their values, with one event for all; data files stay.

        :param if_exists: pass over those that do not exist; else one missing is an error.
        :param txn_id: as in :meth:`alter_table`.
        :return: those that were dropped.
        :raises NoSuchObjectError: when the table does not exist; see ``if_exists``.
        """
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
        """Tell that data was inserted (Hive: ``fire_listener_event`` with InsertEventRequestData).

        :param files: URLs of the files that were added.
        :param values: the partition into which; None for a table without partitions.
        :param replace: whether what was there before is replaced.
        :param txn_id: as in :meth:`alter_table`.
        :return: the id of the INSERT event.
        :raises NoSuchObjectError: when the table or the partition does not exist.
        """
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
        """Register a user-defined function.

        :param class_name: the Java class that implements it.
        :param resources: URLs of the jars, files and archives that it needs.
        :raises NoSuchObjectError: when the database does not exist.
        :raises AlreadyExistsError: when there is a function of that name.
        """
        return self._engine.write(
            lambda connection: functions.create_function(
                connection, database, name, class_name, owner=owner, resources=resources
            )
        )

    def get_function(self, database: str, name: str) -> FunctionInfo:
        """Look a function up.

        :raises NoSuchObjectError: when it does not exist.
        """
        return self._engine.read(lambda connection: functions.get_function(connection, database, name))

    def list_functions(self, database: str) -> list[str]:
        """The names of a database's functions, in order.

        :raises NoSuchObjectError: when the database does not exist.
        """
        return self._engine.read(lambda connection: functions.list_functions(connection, database))

    def drop_function(self, database: str, name: str) -> None:
        """Drop a function.

        :raises NoSuchObjectError: when it does not exist.
        """
        self._engine.write(lambda connection: functions.drop_function(connection, database, name))

    def _change(self, txn_id: int | None, change: Callable[[Connection, Callable[[TableInfo], int]], T]) -> T:
        """Make a change of a table within its transaction, or within one of its own."""

        def run(connection: Connection) -> T:
            transaction = TableChange(connection, txn_id)
            result = change(connection, transaction.write_id)
            transaction.end()
            return result

        return self._engine.write(run)

"""Databases, tables, partitions and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from airflow_provider.metastore.model import (
    Column,
    DatabaseInfo,
    FunctionInfo,
    PartitionInfo,
    PartitionSpec,
    TableInfo,
)


class Catalog(Protocol):
    """Databases, tables, partitions and functions."""

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

        :param location: the default folder or URL of its tables.
        :raises AlreadyExistsError: when it exists, unless ``if_not_exists``: then it stays as it is.
        """

    def get_database(self, name: str) -> DatabaseInfo:
        """Look a database up.

        :raises NoSuchObjectError: when it does not exist.
        """

    def alter_database(
        self,
        name: str,
        *,
        location: str | None = None,
        comment: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> DatabaseInfo:
        """Replace those properties of a database that are given.

        :param location: the default folder or URL of new tables; existing tables stay where they are.
        :param parameters: all of the database's parameters from now on.
        :raises NoSuchObjectError: when it does not exist.
        """

    def list_databases(self) -> list[str]:
        """The names of all databases, in order; ``default`` is always there."""

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database; data files stay.

        :param cascade: drop its tables too.
        :raises NoSuchObjectError: when it does not exist.
        :raises MetastoreError: when it has tables and ``cascade`` is not set.
        """

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

    def get_table(self, database: str, name: str) -> TableInfo:
        """Look a table up.

        :raises NoSuchObjectError: when it, or its database, does not exist.
        """

    def list_tables(self, database: str) -> list[str]:
        """The names of a database's tables, in order.

        :raises NoSuchObjectError: when the database does not exist.
        """

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
        :param txn_id: the open transaction that the change belongs to. Its write id, allocated if it has
            none, goes into the event. None for a transaction around this change alone.
        :raises NoSuchObjectError: when the table does not exist.
        :raises NoSuchTransactionError: when the transaction is not open.
        :raises TransactionAbortedError: when it was aborted.
        """

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> TableInfo:
        """Give a table another name or database. Its id, partitions and write ids stay with it.

        :raises NoSuchObjectError: when the table or the new database does not exist.
        :raises AlreadyExistsError: when there is a table of the new name.
        """

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> bool:
        """Drop a table and its partitions; data files stay.

        Its write ids stay taken: a table of the same name goes on above them.

        :return: True when this call dropped it.
        :raises NoSuchObjectError: when it does not exist, unless ``if_exists``.
        """

    def add_partitions(
        self,
        database: str,
        table: str,
        partitions_to_add: Sequence[PartitionSpec],
        *,
        if_not_exists: bool = True,
        txn_id: int | None = None,
    ) -> list[PartitionInfo]:
        """Register partitions, with one event for all new partitions, and without an event if none is new.

        :param if_not_exists: leave existing partitions as they are; else an existing partition is an error.
        :param txn_id: as in :meth:`alter_table`.
        :return: the partitions that were added.
        :raises NoSuchObjectError: when the table does not exist.
        :raises AlreadyExistsError: see ``if_not_exists``.
        :raises InvalidInputError: when a partition's values do not fit the table's partition keys.
        :raises NoSuchTransactionError: when the transaction is not open.
        :raises TransactionAbortedError: when it was aborted.
        """

    def get_partitions(self, database: str, table: str) -> list[PartitionInfo]:
        """All partitions of a table, in the order of their names.

        :raises NoSuchObjectError: when the table does not exist.
        """

    def get_partitions_by_filter(self, database: str, table: str, filter_text: str) -> list[PartitionInfo]:
        """The partitions that a filter keeps, in the order of their names.

        :param filter_text: Hive's partition filter language; see :mod:`.partition_filter`.
        :raises NoSuchObjectError: when the table does not exist.
        :raises InvalidInputError: when the filter cannot be used on this table.
        """

    def get_partition(self, database: str, table: str, values: Sequence[str | None]) -> PartitionInfo:
        """Look one partition up by its values.

        :raises NoSuchObjectError: when the table or the partition does not exist.
        :raises InvalidInputError: when the values do not fit the table's partition keys.
        """

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
        :raises AlreadyExistsError: when a partition has the new values.
        """

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

        :param if_exists: skip partitions that do not exist; else a missing partition is an error.
        :param txn_id: as in :meth:`alter_table`.
        :return: the partitions that were dropped.
        :raises NoSuchObjectError: when the table does not exist; see ``if_exists``.
        """

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
        """Append an INSERT event (Hive: ``fire_listener_event`` with InsertEventRequestData).

        :param files: URLs of the files that were added.
        :param values: the partition that has the files; None for a table without partitions.
        :param replace: whether the files replace those that were there before.
        :param txn_id: as in :meth:`alter_table`.
        :return: the id of the INSERT event.
        :raises NoSuchObjectError: when the table or the partition does not exist.
        """

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

    def get_function(self, database: str, name: str) -> FunctionInfo:
        """Look a function up.

        :raises NoSuchObjectError: when it does not exist.
        """

    def list_functions(self, database: str) -> list[str]:
        """The names of a database's functions, in order.

        :raises NoSuchObjectError: when the database does not exist.
        """

    def drop_function(self, database: str, name: str) -> None:
        """Drop a function.

        :raises NoSuchObjectError: when it does not exist.
        """

"""A server's databases, tables and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from airflow_provider.exceptions import AlreadyExistsError, NoSuchObjectError
from airflow_provider.metastore.model import (
    EXTERNAL_TABLE,
    MANAGED_TABLE,
    NO_ID,
    Column,
    DatabaseInfo,
    FunctionInfo,
    Reader,
    TableInfo,
)
from airflow_provider.metastore.thrift.client.table_reader import EXTERNAL_PROPERTY, as_of_now
from airflow_provider.metastore.thrift.client.thrift_client import ThriftClient
from airflow_provider.metastore.thrift.client.write_ids import write_id_of_change
from airflow_provider.metastore.thrift.protocol import (
    database_struct,
    function_struct,
    hive,
    read_database,
    read_function,
    table_struct,
)

_ALL = "*"


class CatalogClient(ThriftClient):
    """See :class:`~airflow_provider.metastore.interface.AnyMetastore`."""

    def create_database(
        self,
        name: str,
        location: str | None = None,
        comment: str | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> DatabaseInfo:
        """See :meth:`AnyMetastore.create_database`; a server may choose a location when none is given."""
        wanted = DatabaseInfo(NO_ID, name, location, comment, dict(parameters or {}))
        create = self._server.read if if_not_exists else self._server.write
        try:
            create("create_database", database_struct(wanted, location))
        except AlreadyExistsError:
            if not if_not_exists:
                raise
        return self.get_database(name)

    def get_database(self, name: str) -> DatabaseInfo:
        """See :meth:`AnyMetastore.get_database`; the protocol has no field for the database's id."""
        return read_database(self._server.read("get_database", name))

    def alter_database(
        self,
        name: str,
        *,
        location: str | None = None,
        comment: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> DatabaseInfo:
        """See :meth:`AnyMetastore.alter_database`; the client sends the present values of the other fields.

        A Hive of version 2 changes nothing but the parameters.
        """
        struct = self._server.read("get_database", name)
        given = {"locationUri": location, "description": comment, "parameters": parameters}
        for field, value in given.items():
            if value is not None:
                setattr(struct, field, value)
        self._server.write("alter_database", name, struct)
        return self.get_database(name)

    def list_databases(self) -> list[str]:
        """See :meth:`AnyMetastore.list_databases`."""
        return sorted(self._server.read("get_all_databases"))

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """See :meth:`AnyMetastore.drop_database`."""
        self._server.write("drop_database", name, False, cascade)

    def create_table(
        self,
        database: str,
        name: str,
        *,
        location: str,
        schema: Sequence[Column],
        partition_keys: Sequence[Column] = (),
        table_type: str = MANAGED_TABLE,
        parameters: Mapping[str, str] | None = None,
        owner: str | None = None,
        hive_fields: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> TableInfo:
        """See :meth:`AnyMetastore.create_table`; a Hive creates the folder of a managed table."""
        wanted = TableInfo(
            NO_ID,
            database,
            name,
            location,
            tuple(schema),
            tuple(partition_keys),
            table_type,
            dict(parameters or {}),
            owner,
            dict(hive_fields or {}),
        )
        create = self._server.read if if_not_exists else self._server.write
        try:
            create("create_table", _sent(wanted))
        except AlreadyExistsError:
            if not if_not_exists:
                raise
        return self.get_table(database, name, **as_of_now())

    def get_table(self, database: str, name: str, **reader: Unpack[Reader]) -> TableInfo:
        """See :meth:`AnyMetastore.get_table`; a Hive of version 2 does not send the table's id.

        :param reader: see :class:`~airflow_provider.metastore.model.Reader`, for servers with replicas. The
            default is this client's own session.
        """
        return self._tables.get(database, name, **reader)

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`AnyMetastore.list_tables`."""
        found = sorted(self._server.read("get_all_tables", database))
        if not found:
            self.get_database(database)  # Hive also returns an empty list for a missing database
        return found

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
        """See :meth:`AnyMetastore.alter_table`; the client sends the present values of the other fields.

        :raises UnsupportedByServerError: with ``txn_id``, from a Hive of version 2, which has no write ids.
        """
        before = self.get_table(database, name, **as_of_now())
        given: dict[str, Any] = {
            "schema": None if schema is None else tuple(schema),
            "location": location,
            "parameters": None if parameters is None else dict(parameters),
            "owner": owner,
            "table_type": table_type,
            "hive_fields": None if hive_fields is None else dict(hive_fields),
        }
        changes = {field: value for field, value in given.items() if value is not None}
        after = _sent(replace(before, **changes))
        if txn_id is None:
            self._server.write("alter_table", database, name, after)
        else:
            request = hive.AlterTableRequest(dbName=database, tableName=name, table=after)
            request.writeId = write_id_of_change(self._server, txn_id, before)
            self._server.write("alter_table_req", request)
        return self.get_table(database, name, **as_of_now())

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> TableInfo:
        """See :meth:`AnyMetastore.rename_table`; a Hive also moves the folder of a managed table."""
        before = self.get_table(database, name, **as_of_now())
        after = replace(before, database=new_database, name=new_name)
        self._server.write("alter_table", database, name, _sent(after))
        return self.get_table(new_database, new_name, **as_of_now())

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> bool:
        """See :meth:`AnyMetastore.drop_table`."""
        try:
            self._server.write("drop_table", database, name, False)
        except NoSuchObjectError:
            if not if_exists:
                raise
            return False
        return True

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
        wanted = FunctionInfo(database, name, class_name, owner, tuple(resources))
        self._server.write("create_function", function_struct(wanted))
        return self.get_function(database, name)

    def get_function(self, database: str, name: str) -> FunctionInfo:
        """See :meth:`AnyMetastore.get_function`."""
        return read_function(self._server.read("get_function", database, name))

    def list_functions(self, database: str) -> list[str]:
        """See :meth:`AnyMetastore.list_functions`."""
        found = sorted(self._server.read("get_functions", database, _ALL))
        if not found:
            self.get_database(database)  # as in list_tables
        return found

    def drop_function(self, database: str, name: str) -> None:
        """See :meth:`AnyMetastore.drop_function`."""
        self._server.write("drop_function", database, name)


def _sent(table: TableInfo) -> Any:
    if table.table_type == EXTERNAL_TABLE:
        table = replace(table, parameters={**table.parameters, EXTERNAL_PROPERTY: "TRUE"})
    return table_struct(table)

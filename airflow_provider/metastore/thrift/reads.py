"""Reads of the catalog for a server: out of a replica's memory if it has one, else out of the database."""

from __future__ import annotations

from functools import lru_cache

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore import functions, partitions
from airflow_provider.metastore.cached_store import CachedStore, Reader
from airflow_provider.metastore.metastore import Metastore
from airflow_provider.metastore.objects import DatabaseInfo, FunctionInfo, PartitionInfo, TableInfo
from airflow_provider.metastore.schema import Counter, counted
from airflow_provider.metastore.write_ids import ValidWriteIdList

_parsed = lru_cache(maxsize=1_024)(ValidWriteIdList.parse)


class CatalogReads:
    """The same reads of a metastore and of a replica.

    From a replica's memory comes what a request names the write ids for. Iceberg's clients read a table
    that they hold a lock on by a request without: to them an answer that is a moment late is a lost commit.

    :param store: what is read.
    :param require_write_ids: refuse a request for a managed table that has a place for a write id list and
        comes without; False to ask the database. The old requests, which have no such place, are always
        answered.
    :param eventual: answer requests for external tables, databases and functions from memory without asking
        the database how new that has to be: a moment late. Not where Iceberg tables are written.
    """

    def __init__(
        self, store: Metastore | CachedStore, *, require_write_ids: bool = False, eventual: bool = False
    ) -> None:
        self._replica = store if isinstance(store, CachedStore) else None
        self.metastore = store.metastore if isinstance(store, CachedStore) else store
        self._required = require_write_ids
        self._eventual = eventual

    def reader(self, write_ids: str | None, table_id: int | None) -> Reader:
        """What a request says of its reader.

        :param write_ids: its ``validWriteIdList``.
        :param table_id: its ``id``; -1 is none, as in Hive.
        """
        return Reader(
            valid_write_ids=None if write_ids is None else _parsed(write_ids),
            table_id=None if table_id == -1 else table_id,
            require_write_ids=self._required,
        )

    def table(self, database: str, name: str, reader: Reader | None = None) -> TableInfo:
        """Look a table up; without ``reader`` as the old requests do."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_table(database, name, **_of(reader))
        return _checked(self.metastore.get_table(database, name), reader)

    def table_and_partitions(
        self, database: str, table: str, reader: Reader | None = None
    ) -> tuple[TableInfo, list[PartitionInfo]]:
        """A table and all its partitions, in order, as of one moment."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_table_and_partitions(database, table, **_of(reader))
        owner, found = self.metastore.engine.read(
            lambda connection: partitions.get_table_and_partitions(connection, database, table)
        )
        return _checked(owner, reader), found

    def table_and_partition(
        self, database: str, table: str, values: list[str], reader: Reader | None = None
    ) -> tuple[TableInfo, PartitionInfo]:
        """A table and one of its partitions, as of one moment."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_table_and_partition(database, table, values, **_of(reader))
        owner, found = self.metastore.engine.read(
            lambda connection: partitions.get_table_and_partition(connection, database, table, values)
        )
        return _checked(owner, reader), found

    def database(self, name: str) -> DatabaseInfo:
        """Look a database up."""
        if self._replica is None:
            return self.metastore.get_database(name)
        return self._replica.get_database(name, catalog_event_id=self._catalog_event_id())

    def databases(self) -> list[str]:
        """The names of all databases."""
        if self._replica is None:
            return self.metastore.list_databases()
        return self._replica.list_databases(catalog_event_id=self._catalog_event_id())

    def function(self, database: str, name: str) -> FunctionInfo:
        """Look a function up."""
        if self._replica is None:
            return self.metastore.get_function(database, name)
        return self._replica.get_function(database, name, catalog_event_id=self._catalog_event_id())

    def functions(self, database: str) -> list[str]:
        """The names of a database's functions."""
        if self._replica is None:
            return self.metastore.list_functions(database)
        return self._replica.list_functions(database, catalog_event_id=self._catalog_event_id())

    def all_functions(self) -> list[FunctionInfo]:
        """The functions of all databases."""
        if self._replica is None:
            return self.metastore.engine.read(functions.all_functions)
        return self._replica.all_functions(catalog_event_id=self._catalog_event_id())

    def _catalog_event_id(self) -> int | None:
        """How new databases and functions have to be: as of now, which is one number in the database.

        Hive's requests for them cannot say it themselves.
        """
        if self._eventual:
            return None
        return self.metastore.engine.read(
            lambda connection: counted(connection, Counter.CATALOG_EVENT_ID), is_one_statement=True
        )

    def _memory(self, reader: Reader | None) -> CachedStore | None:
        """The replica, where its memory may answer."""
        return self._replica if self._eventual or _of(reader).get("valid_write_ids") is not None else None


def _checked(table: TableInfo, reader: Reader | None) -> TableInfo:
    given = _of(reader)
    if given["require_write_ids"] and given.get("valid_write_ids") is None and not table.is_external:
        raise InvalidInputError(
            f"table {table.full_name} is managed: the request has to have a validWriteIdList and the "
            "table's id; or start the metastore without --require-write-ids",
            table=table.full_name,
        )
    return table


def _of(reader: Reader | None) -> Reader:
    return Reader(require_write_ids=False) if reader is None else reader

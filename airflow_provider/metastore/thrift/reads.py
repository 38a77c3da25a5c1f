"""Reads of the catalog for a server: out of a replica's memory if it has one, else out of the database."""

from __future__ import annotations

from functools import lru_cache

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.cached_store import CachedStore, Reader
from airflow_provider.metastore.metastore import Metastore
from airflow_provider.metastore.objects import DatabaseInfo, PartitionInfo, TableInfo
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
    :param eventual: answer requests for external tables and databases from memory too, although they come
        without write ids: a moment late. Not where Iceberg tables are written.
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

    def partitions(self, database: str, table: str, reader: Reader | None = None) -> list[PartitionInfo]:
        """All partitions of a table, in order."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_partitions(database, table, **_of(reader))
        return self.metastore.get_partitions(database, table)

    def partitions_by_filter(self, database: str, table: str, filter_text: str) -> list[PartitionInfo]:
        """The partitions that a filter keeps; no such request has a place for a write id list."""
        if (replica := self._memory(None)) is not None:
            return replica.get_partitions_by_filter(database, table, filter_text, **_of(None))
        return self.metastore.get_partitions_by_filter(database, table, filter_text)

    def partition(
        self, database: str, table: str, values: list[str], reader: Reader | None = None
    ) -> PartitionInfo:
        """Look one partition up."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_partition(database, table, values, **_of(reader))
        return self.metastore.get_partition(database, table, values)

    def database(self, name: str) -> DatabaseInfo:
        """Look a database up."""
        return (self._memory(None) or self.metastore).get_database(name)

    def databases(self) -> list[str]:
        """The names of all databases."""
        return (self._memory(None) or self.metastore).list_databases()

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

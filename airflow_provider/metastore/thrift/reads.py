"""Reads of the catalog for a server: out of a replica's memory if it has one, else out of the database."""

from __future__ import annotations

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.cached_store import CachedStore, Reader
from airflow_provider.metastore.metastore import Metastore
from airflow_provider.metastore.objects import DatabaseInfo, PartitionInfo, TableInfo
from airflow_provider.metastore.write_ids import ValidWriteIdList


class CatalogReads:
    """The same reads of a metastore and of a replica.

    :param store: what is read.
    :param require_write_ids: refuse a request for a managed table that has a place for a write id list and
        comes without; False to ask the database. The old requests, which have no such place, are always
        answered.
    """

    def __init__(self, store: Metastore | CachedStore, *, require_write_ids: bool = False) -> None:
        self._replica = store if isinstance(store, CachedStore) else None
        self.metastore = store.metastore if isinstance(store, CachedStore) else store
        self._required = require_write_ids

    def reader(self, write_ids: str | None, table_id: int | None) -> Reader:
        """What a request says of its reader.

        :param write_ids: its ``validWriteIdList``.
        :param table_id: its ``id``; -1 is none, as in Hive.
        """
        return Reader(
            valid_write_ids=None if write_ids is None else ValidWriteIdList.parse(write_ids),
            table_id=None if table_id == -1 else table_id,
            require_write_ids=self._required,
        )

    def table(self, database: str, name: str, reader: Reader | None = None) -> TableInfo:
        """Look a table up; without ``reader`` as the old requests do."""
        if self._replica is not None:
            return self._replica.get_table(database, name, **_of(reader))
        return self._checked(self.metastore.get_table(database, name), reader)

    def partitions(self, database: str, table: str, reader: Reader | None = None) -> list[PartitionInfo]:
        """All partitions of a table, in order."""
        if self._replica is not None:
            return self._replica.get_partitions(database, table, **_of(reader))
        return self.metastore.get_partitions(database, table)

    def partitions_by_filter(self, database: str, table: str, filter_text: str) -> list[PartitionInfo]:
        """The partitions that a filter keeps."""
        if self._replica is not None:
            return self._replica.get_partitions_by_filter(database, table, filter_text)
        return self.metastore.get_partitions_by_filter(database, table, filter_text)

    def partition(
        self, database: str, table: str, values: list[str], reader: Reader | None = None
    ) -> PartitionInfo:
        """Look one partition up."""
        if self._replica is not None:
            return self._replica.get_partition(database, table, values, **_of(reader))
        return self.metastore.get_partition(database, table, values)

    def database(self, name: str) -> DatabaseInfo:
        """Look a database up."""
        return (self._replica or self.metastore).get_database(name)

    def databases(self) -> list[str]:
        """The names of all databases."""
        return (self._replica or self.metastore).list_databases()

    def _checked(self, table: TableInfo, reader: Reader | None) -> TableInfo:
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

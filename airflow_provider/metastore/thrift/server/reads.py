"""Reads of the catalog for a server: from a replica's memory if it has one, else from the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from sqlalchemy import Connection

from airflow_provider.exceptions import WriteIdsRequiredError
from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.cache import CachedStore, OrderedPartitions, asked
from airflow_provider.metastore.catalog import Choose, catalog, functions, partitions
from airflow_provider.metastore.database import Counter, counted
from airflow_provider.metastore.model import (
    MOST_IDS,
    DatabaseInfo,
    FunctionInfo,
    PartitionInfo,
    PartitionValues,
    Reader,
    ReaderSession,
    TableInfo,
    ValidWriteIdList,
)

T = TypeVar("T")

# Only lists of write ids below this length are cached: long ones are rare, and each takes memory.
_SHORT = 2_000
_parsed_short = lru_cache(maxsize=1_024)(ValidWriteIdList.parse)
_parsed_long = lru_cache(maxsize=4)(ValidWriteIdList.parse)


def _parsed(text: str, most_ids: int) -> ValidWriteIdList:
    is_long = len(text) > _SHORT or "-" in text
    return _parsed_long(text, most_ids) if is_long else _parsed_short(text, most_ids)


class CatalogReads:
    """The same reads of a metastore and of a replica.

    The replica's memory answers a request that names the reader's write ids. Iceberg's clients lock a table
    and read it by a request without write ids: an answer that is a moment late would lose them a commit. So
    memory answers such a request only when it holds the database's last event.

    :param store: the metastore or the replica.
    :param require_write_ids: refuse a request for a managed table that has a field for a write id list and
        leaves it empty; False to ask the database. The server always answers the old requests, which have no
        such field.
    :param eventual: answer requests for external tables without write ids from memory, a moment late. It must
        be off where clients write Iceberg tables.
    :param eventual_databases: answer requests for databases and functions from memory, a moment late, without
        asking the database for the last change. The replica has to be opened with it, too.
    :param most_write_ids: see :class:`~airflow_provider.metastore.thrift.server.limits.ServerLimits`.
    """

    def __init__(
        self,
        store: Metastore | CachedStore,
        *,
        require_write_ids: bool = False,
        eventual: bool = False,
        eventual_databases: bool = False,
        most_write_ids: int = MOST_IDS,
    ) -> None:
        self._most_write_ids = most_write_ids
        self._replica = store if isinstance(store, CachedStore) else None
        self.metastore = store.metastore if isinstance(store, CachedStore) else store
        self._required = require_write_ids
        self._eventual = eventual
        self._eventual_databases = eventual_databases

    def reader(self, write_ids: str | None, table_id: int | None, seen_event_id: int | None = None) -> Reader:
        """The reader's arguments in a request.

        :param write_ids: the request's ``validWriteIdList``.
        :param table_id: the request's ``id``; -1 is none, as in Hive.
        :param seen_event_id: the request's ``seenEventId``, which only our own client sends; see
            :func:`event_seen`.
        """
        return Reader(
            valid_write_ids=None if write_ids is None else _parsed(write_ids, self._most_write_ids),
            table_id=None if table_id == -1 else table_id,
            session=None if seen_event_id is None else ReaderSession(seen_event_id),
            require_write_ids=self._required,
        )

    def table(self, database: str, name: str, reader: Reader | None = None) -> TableInfo:
        """Look a table up. Without ``reader`` it answers an old request."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_table(database, name, **_of(reader))
        if (latest := self._latest(database, name, reader)) is not None:
            return latest[0]
        return self._from_database(reader, lambda asks: (catalog.get_table(asks, database, name), None))[0]

    def table_and_partitions(
        self, database: str, table: str, reader: Reader | None = None
    ) -> tuple[TableInfo, list[PartitionInfo]]:
        """A table and all its partitions, in order, as of one moment."""
        if (held := self._held(database, table, reader)) is not None:
            return held[0], list(held[1].all)
        return self._from_database(
            reader, lambda asks: partitions.get_table_and_partitions(asks, database, table)
        )

    def table_and_chosen(
        self,
        database: str,
        table: str,
        choose: Choose,
        limit: int | None = None,
        reader: Reader | None = None,
    ) -> tuple[TableInfo, list[PartitionInfo]]:
        """A table and its chosen partitions, in order, as of one moment.

        :param choose: returns the choice for the table.
        :param limit: the largest number of partitions; None for all.
        """
        if (held := self._held(database, table, reader)) is not None:
            owner, found = held
            return owner, found.chosen(choose(owner))[:limit]
        return self._from_database(
            reader, lambda asks: partitions.get_table_and_chosen(asks, database, table, choose, limit)
        )

    def table_and_chosen_values(
        self, database: str, table: str, choose: Choose, reader: Reader | None = None
    ) -> tuple[TableInfo, Sequence[PartitionValues]]:
        """A table and the values of its chosen partitions; otherwise as :meth:`table_and_chosen`."""
        if (held := self._held(database, table, reader)) is not None:
            owner, found = held
            choice = choose(owner)
            if choice.keep is None:
                return owner, found.values
            return owner, [one.values for one in found.chosen(choice)]
        return self._from_database(
            reader, lambda asks: partitions.get_table_and_chosen_values(asks, database, table, choose)
        )

    def table_and_partition(
        self, database: str, table: str, values: list[str], reader: Reader | None = None
    ) -> tuple[TableInfo, PartitionInfo]:
        """A table and one of its partitions, as of one moment."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_table_and_partition(database, table, values, **_of(reader))
        return self._from_database(
            reader, lambda asks: partitions.get_table_and_partition(asks, database, table, values)
        )

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
            return self.metastore.sql.read(functions.all_functions)
        return self._replica.all_functions(catalog_event_id=self._catalog_event_id())

    def _catalog_event_id(self) -> int | None:
        """The last event about databases and functions, which an answer about them may not be older than.

        Hive's requests for them have no field for it, so this reads the number from the database.
        """
        if self._eventual_databases:
            return None
        return self.metastore.sql.read(
            lambda connection: counted(connection, Counter.CATALOG_EVENT_ID), is_one_statement=True
        )

    def _held(
        self, database: str, table: str, reader: Reader | None
    ) -> tuple[TableInfo, OrderedPartitions] | None:
        """A table and its partitions by a replica; None when the database has to answer."""
        if (replica := self._memory(reader)) is not None:
            return replica.get_table_and_ordered_partitions(database, table, **_of(reader))
        return self._latest(database, table, reader, with_partitions=True)

    def _latest(
        self, database: str, table: str, reader: Reader | None, *, with_partitions: bool = False
    ) -> tuple[TableInfo, OrderedPartitions] | None:
        """A table from memory, for a reader without write ids, when memory has what the database has now."""
        given = _of(reader)
        names_a_moment = given.get("valid_write_ids") is not None or given.get("session") is not None
        if self._replica is None or names_a_moment or given["require_write_ids"]:
            return None
        return self._replica.latest.table(database, table, with_partitions=with_partitions)

    def _memory(self, reader: Reader | None) -> CachedStore | None:
        """The replica, when its memory may answer; None when the database has to."""
        return self._replica if self._eventual or _of(reader).get("valid_write_ids") is not None else None

    def _from_database(
        self, reader: Reader | None, ask: Callable[[Connection], tuple[TableInfo, T]]
    ) -> tuple[TableInfo, T]:
        given = _of(reader)
        table, found = self.metastore.sql.read(
            lambda connection: asked(connection, given.get("session"), ask)
        )
        if given["require_write_ids"] and given.get("valid_write_ids") is None and not table.is_external:
            raise WriteIdsRequiredError(
                f"table {table.full_name} is managed: the request has to have a validWriteIdList and the "
                "table's id; or start the metastore without --require-write-ids",
                table=table.full_name,
            )
        return table, found


def event_seen(reader: Reader) -> int | None:
    """The newest event that a reader has seen, which our own client sends with its next request."""
    session = reader.get("session")
    return None if session is None else session.event_id


def _of(reader: Reader | None) -> Reader:
    return Reader(require_write_ids=False) if reader is None else reader

"""The copies of a replica, and how a copy from the database joins them.

The replica's lock guards everything here but the two functions that read the database.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import Connection

from airflow_provider.metastore.cache.cached_tables import CachedTable, CachedTables, memory_of
from airflow_provider.metastore.catalog import catalog, functions, partitions
from airflow_provider.metastore.model import NO_OPEN, DatabaseInfo, FunctionInfo, ValidTxnList, partition_key
from airflow_provider.metastore.notifications import current_event_id
from airflow_provider.metastore.transactions import table_write_ids, transactions


@dataclass(frozen=True)
class CachedCatalog:
    """All databases and functions, as of an event.

    :param functions: the functions by (database, name).
    """

    event_id: int
    databases: dict[str, DatabaseInfo]
    functions: dict[tuple[str, str], FunctionInfo]


@dataclass(frozen=True)
class TxnSnapshot:
    """The transactions that are valid as of an event."""

    event_id: int
    valid_txns: ValidTxnList


class CacheState:
    """The copies of a replica and its position in the notification log.

    :param max_bytes: memory for the copies of tables, databases and functions. Tables are evicted first.
    """

    def __init__(self, max_bytes: int) -> None:
        self.tables = CachedTables(max_bytes)
        self.catalog: CachedCatalog | None = None
        self.event_id = 0
        self._follows = False
        # By table id: the write ids of open transactions that have changed the table.
        self._writing: defaultdict[int, set[int]] = defaultdict(set)

    def begin(self, event_id: int, open_write_ids: list[tuple[int, int]]) -> None:
        """Forget all copies, and follow the log from a position.

        :param event_id: the last event that counts as applied.
        :param open_write_ids: the (table id, write id) pairs of the transactions that are open at that event.
            The replica cannot know which of them wrote before it, so all of them count as writing.
        """
        self.end()
        self.event_id = event_id
        self._follows = True
        for table_id, write_id in open_write_ids:
            self._writing[table_id].add(write_id)

    def end(self) -> None:
        """Forget all copies, and keep none until :meth:`begin`: the replica does not follow the log now."""
        self.tables.clear()
        self.forget_catalog()
        self._writing.clear()
        self._follows = False

    def keep(self, copy: CachedTable) -> bool:
        """Keep a copy from the database.

        :return: False when the replica has applied events since the copy was read, because they would be
            missing in it; and when the replica does not follow the log.
        """
        if copy.tagged_at < self.event_id or not self._follows:
            return False
        ended = {one for one in self._writing[copy.table.id] if _has_ended(copy, one)}
        self.ended(copy.table.id, ended)
        return self.tables.put(copy)

    def keep_catalog(self, copy: CachedCatalog) -> None:
        """Keep a copy of the databases and functions, under the conditions of :meth:`keep`."""
        if copy.event_id >= self.event_id and self._follows:
            size = memory_of(copy.databases) + memory_of(copy.functions)
            self.catalog = copy if self.tables.reserve(size) else None

    def forget_catalog(self) -> None:
        """Forget the copy of the databases and functions."""
        self.catalog = None
        self.tables.reserve(0)

    def is_being_written(self, table_id: int) -> bool:
        """Whether an open transaction has changed the table."""
        return table_id in self._writing

    def may_be_half_made(self, copy: CachedTable) -> bool:
        """Whether a copy may hold changes of an open transaction whose event is not applied yet.

        The copy comes from the database, which is ahead of this replica's position.
        """
        read_in_peace = copy.tagged_at == copy.event_id and copy.write_ids.min_open == NO_OPEN
        return self.event_id < copy.event_id and not read_in_peace

    def written(self, table_id: int, write_id: int) -> None:
        """Record that an open transaction has changed a table under a write id."""
        if write_id > 0:
            self._writing[table_id].add(write_id)

    def ended(self, table_id: int, write_ids: set[int]) -> None:
        """Record that the transactions of some write ids have ended."""
        self._writing[table_id] -= write_ids
        if not self._writing[table_id]:
            del self._writing[table_id]

    def dropped(self, table_id: int) -> None:
        """Forget a dropped table."""
        self.tables.remove(table_id)
        self._writing.pop(table_id, None)


def read_table(
    connection: Connection,
    database: str,
    name: str,
    *,
    with_partitions: bool,
    snapshot: TxnSnapshot | None = None,
    most_partitions: int | None = None,
) -> CachedTable:
    """Read the copy of a table as of one moment.

    :param snapshot: an older list of valid transactions, which saves the query for a new one. Later commits
        are in the copy, but not in its list: until their events come, the copy counts as staler than it is.
    :param most_partitions: of a table with more of them the copy has none; None for no limit.
    :raises NoSuchObjectError: when the table does not exist.
    """
    event_id = current_event_id(connection)
    if snapshot is None:
        snapshot = TxnSnapshot(event_id, transactions.valid_txn_list(connection, None))
    table = catalog.get_table(connection, database, name)
    write_ids = table_write_ids.valid_write_id_list(
        connection, table.database, table.name, snapshot.valid_txns
    )
    if most_partitions is not None and with_partitions:
        with_partitions = partitions.count_partitions(connection, table) <= most_partitions
    found = partitions.get_partitions(connection, database, name) if with_partitions else None
    return CachedTable(
        table,
        write_ids,
        event_id,
        tagged_at=snapshot.event_id,
        partitions=None if found is None else {partition_key(table, one.values): one for one in found},
    )


def read_catalog(connection: Connection) -> CachedCatalog:
    """Read all databases and functions as of one moment."""
    return CachedCatalog(
        current_event_id(connection),
        {one.name: one for one in catalog.all_databases(connection)},
        {(one.database, one.name): one for one in functions.all_functions(connection)},
    )


def read_txns(connection: Connection) -> TxnSnapshot:
    """Read the transactions that are valid now."""
    return TxnSnapshot(current_event_id(connection), transactions.valid_txn_list(connection, None))


def _has_ended(copy: CachedTable, write_id: int) -> bool:
    return copy.write_ids.is_valid(write_id) or copy.write_ids.is_aborted(write_id)

"""Reads from a replica's memory for readers that name no write ids, such as Spark, Trino and pyiceberg.

Such a reader wants what the database has now, changes of open transactions included. Iceberg's clients lock
a table before they read it, so an answer that is a moment late would lose them a commit. Event ids have no
gaps, and are in the order of the database's commits. So a copy that holds the last event is what the database
has, and the replica asks the database only for the id of that event.
"""

from __future__ import annotations

import threading

from cachetools import LRUCache

from airflow_provider.metastore.cache.cache_state import CacheState, read_table
from airflow_provider.metastore.cache.cached_tables import CachedTable
from airflow_provider.metastore.cache.ordered_partitions import OrderedPartitions
from airflow_provider.metastore.database import SqlDatabase
from airflow_provider.metastore.model import TableInfo
from airflow_provider.metastore.notifications import last_event_id

# A table is copied into memory when so many requests have not found it there. For few requests the database
# costs less: the names of all partitions are shorter than the partitions. Each copy that is not kept, or is
# evicted, doubles the number for the next one.
_WORTH_A_COPY = 3
_MOST_MISSED = 1_000
_MOST_PARTITIONS = 20_000
_MOST_COUNTED = 10_000


class LatestReads:
    """The tables in a replica's memory that have the database's present state.

    :ivar hits: reads that memory answered.
    :param sql: the database.
    :param state: the replica's copies.
    :param lock: guards the copies.
    """

    def __init__(self, sql: SqlDatabase, state: CacheState, lock: threading.RLock) -> None:
        self.hits = 0
        self._sql = sql
        self._state = state
        self._lock = lock
        # By table, and by whether its partitions are wanted: the requests that found no copy, and how many of
        # them are worth one.
        self._missed: LRUCache[tuple[str, str, bool], tuple[int, int]] = LRUCache(_MOST_COUNTED)

    def table(
        self, database: str, name: str, *, with_partitions: bool = False
    ) -> tuple[TableInfo, OrderedPartitions] | None:
        """A table and its partitions.

        :param with_partitions: whether the partitions are wanted; otherwise there may be none in the answer.
        :return: None when the database has to answer.
        :raises NoSuchObjectError: when the table does not exist.
        """
        key = (database.lower(), name.lower(), with_partitions)
        with self._lock:
            is_missing = self._copy(*key) is None
            is_worth_it = is_missing and self._is_worth_a_copy(key)
        if is_missing and not (is_worth_it and self._make_copy(*key)):
            return None
        event_id = last_event_id(self._sql)
        with self._lock:
            copy = self._copy(*key)
            if copy is None or max(self._state.event_id, copy.event_id) < event_id:
                return None
            self.hits += 1
            return copy.table, copy.ordered_partitions()

    def _copy(self, database: str, name: str, with_partitions: bool) -> CachedTable | None:
        copy = self._state.tables.by_name(database, name)
        return None if copy is None or (with_partitions and copy.partitions is None) else copy

    def _is_worth_a_copy(self, key: tuple[str, str, bool]) -> bool:
        missed, needed = self._missed.get(key, (0, _WORTH_A_COPY))
        is_worth_it = missed + 1 >= needed
        self._missed[key] = (0, min(2 * needed, _MOST_MISSED)) if is_worth_it else (missed + 1, needed)
        return bool(is_worth_it)

    def _make_copy(self, database: str, name: str, with_partitions: bool) -> bool:
        """Read a table into memory.

        :return: False when the table has too many partitions, or when memory does not keep it.
        """
        fresh = self._sql.read(
            lambda connection: read_table(
                connection, database, name, with_partitions=with_partitions, most_partitions=_MOST_PARTITIONS
            )
        )
        if with_partitions and fresh.partitions is None:
            return False
        with self._lock:
            return self._state.keep(fresh)

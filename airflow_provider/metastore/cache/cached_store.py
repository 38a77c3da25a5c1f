"""A replica: answers reads of the metastore from memory, as fresh as the reader needs them.

The design is that of the document "Synchronized Metastore Cache" (HIVE-21637). Any number of replicas work
over one database, which stays the truth. A reader takes a
:class:`~airflow_provider.metastore.model.ReadSnapshot` from the database, and sends with every read the
table's id and the write ids that it sees. A replica answers from memory when its copy holds all of them, and
from the database otherwise. So no answer is older than the reader's snapshot, whichever replica it asks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar, Unpack

from sqlalchemy import Connection

from airflow_provider.exceptions import InvalidInputError, WriteIdsRequiredError
from airflow_provider.metastore.api import Metastore, open_embedded_metastore
from airflow_provider.metastore.cache.cache_state import CachedCatalog, CacheState, read_catalog, read_table
from airflow_provider.metastore.cache.cache_updater import CacheUpdater
from airflow_provider.metastore.cache.cached_tables import CachedTable
from airflow_provider.metastore.cache.latest_reads import LatestReads
from airflow_provider.metastore.cache.ordered_partitions import OrderedPartitions
from airflow_provider.metastore.catalog import catalog, functions, partitions
from airflow_provider.metastore.model import (
    DatabaseInfo,
    FunctionInfo,
    PartitionInfo,
    Reader,
    ReaderSession,
    TableInfo,
    ValidWriteIdList,
    partition_key,
)
from airflow_provider.metastore.notifications import current_event_id
from airflow_provider.metastore.partition_filter import partition_choice

T = TypeVar("T")

# A copy that stays stale is read again from the database after so many reads.
_STALE_READS = 20


class MissReason(StrEnum):
    """The reason why the database answered a read."""

    NOT_CACHED = "not cached"
    STALE = "a write id that the reader sees is not in the copy"
    NEWER = "the copy is newer than what the reader sees"
    IN_TRANSACTION = "a transaction that wrote the table has not ended"
    OTHER_TABLE = "the copy is of another table, or has another name"
    NO_WRITE_IDS = "a managed table was asked for without a write id list"
    NO_TABLE_ID = "a write id list came without a table id"
    BEHIND_SESSION = "the reader has seen later events than this replica"
    BEHIND_CATALOG = "databases or functions changed after what this replica knows"
    NO_CATALOG_EVENT = "a database or function was asked for without an event id"


@dataclass(frozen=True)
class CacheStatistics:
    """The counters of a replica since it was opened.

    :param hits: reads that memory answered; of the database only the last event was asked, or nothing.
    :param misses: reads that the database answered, by reason.
    :param tables: tables that are in memory now.
    :param bytes: roughly, the memory that tables, databases and functions take.
    :param evicted: tables that gave way to others.
    :param event_id: the last notification event that the replica has applied.
    """

    hits: int
    misses: dict[MissReason, int]
    tables: int
    bytes: int
    evicted: int
    event_id: int


@dataclass(frozen=True)
class _Request:
    """A read of a table, with the reader's arguments."""

    database: str
    name: str
    write_ids: ValidWriteIdList | None
    table_id: int | None
    session: ReaderSession | None
    require_write_ids: bool
    with_partitions: bool = False


@dataclass(frozen=True)
class _Miss:
    """The reason why memory cannot answer a read, and the copy that is not fit, if there is one."""

    reason: MissReason
    copy: CachedTable | None


def open_cached_store(
    url: str,
    replica: str,
    *,
    max_megabytes: float = 256.0,
    timeout_seconds: float = 30.0,
    serve_newer: bool = True,
    require_write_ids: bool = False,
    eventual_databases: bool = False,
    poll_interval: float = 0.1,
    snapshot_lifetime: float = 120.0,
    expiry_seconds: float = 600.0,
) -> CachedStore:
    """Open a replica, fill its memory, and follow the notification log in a thread.

    :param url: see :func:`~airflow_provider.metastore.api.open_embedded_metastore`.
    :param replica: the replica's name as a consumer of the notification log, unique among live replicas.
    :param max_megabytes: roughly, the memory that tables, partitions, databases and functions may take.
    :param timeout_seconds: seconds that a call may wait for other processes.
    :param serve_newer: False to answer from memory only with exactly the reader's snapshot, and not with a
        newer copy. The database's answer may be newer, too, so both settings are correct.
    :param require_write_ids: refuse a read of a managed table without a write id list, instead of
        asking the database; each read may override it.
    :param eventual_databases: answer reads of databases and functions without an event id from memory,
        perhaps a moment late, instead of asking the database.
    :param poll_interval: seconds between two looks at the log.
    :param snapshot_lifetime: seconds for which one list of valid transactions serves while the memory is
        filled.
    :param expiry_seconds: retention no longer waits for the replica after so long without a report from it.
    :raises InvalidInputError: when the URL or an option cannot be used.
    :raises MetastoreUnavailableError: when the database cannot be reached.
    """
    if max_megabytes <= 0:
        raise InvalidInputError(f"replica {replica!r}: a cache of {max_megabytes:g} MB; give more than 0")
    metastore = open_embedded_metastore(url, timeout_seconds=timeout_seconds)
    store = CachedStore(
        metastore,
        replica,
        max_bytes=int(max_megabytes * 1_000_000),
        serve_newer=serve_newer,
        require_write_ids=require_write_ids,
        eventual_databases=eventual_databases,
        poll_interval=poll_interval,
        snapshot_lifetime=snapshot_lifetime,
        expiry_seconds=expiry_seconds,
    )
    store.updater.start()
    return store


class CachedStore:
    """Answers the reads of :class:`~airflow_provider.metastore.api.Metastore` from memory.

    All methods may be called from any thread. Writes go to :attr:`metastore`. Readers share the
    answers, so nobody may change their dictionaries. Until ``updater.start()`` or
    ``updater.begin()``, and after :meth:`close`, the store reads everything from the database.

    :ivar latest: answers readers that name no write ids.
    :param metastore: the database; the store closes it.
    :param max_bytes: as ``max_megabytes`` of :func:`open_cached_store`, which explains the others, too.
    """

    def __init__(
        self,
        metastore: Metastore,
        replica: str,
        *,
        max_bytes: int = 256_000_000,
        serve_newer: bool = True,
        require_write_ids: bool = False,
        eventual_databases: bool = False,
        poll_interval: float = 0.1,
        snapshot_lifetime: float = 120.0,
        expiry_seconds: float = 600.0,
    ) -> None:
        self.metastore = metastore
        self.replica = replica
        self._sql = metastore.sql
        self._serve_newer = serve_newer
        self._require_write_ids = require_write_ids
        self._eventual_databases = eventual_databases
        self._lock = threading.RLock()
        self._state = CacheState(max_bytes)
        self._hits = 0
        self._misses: Counter[MissReason] = Counter()
        self.latest = LatestReads(self._sql, self._state, self._lock)
        self.updater = CacheUpdater(
            metastore,
            replica,
            self._state,
            self._lock,
            poll_interval=poll_interval,
            snapshot_lifetime=snapshot_lifetime,
            expiry_seconds=expiry_seconds,
            reads=self._reads,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metastore.url!r}, {self.replica!r})"

    def get_table(self, database: str, name: str, **reader: Unpack[Reader]) -> TableInfo:
        """Look a table up.

        :param reader: see :class:`Reader`.
        :raises NoSuchObjectError: when the table, or its database, does not exist.
        :raises WriteIdsRequiredError: when the table is managed, and a required write id list is missing.
        """
        return self._read(
            self._request(database, name, reader),
            lambda copy: copy.table,
            lambda connection: catalog.get_table(connection, database, name),
        )

    def get_partitions(self, database: str, table: str, **reader: Unpack[Reader]) -> list[PartitionInfo]:
        """All partitions of a table, in the order of their names; parameters as :meth:`get_table`."""
        return self.get_table_and_partitions(database, table, **reader)[1]

    def get_table_and_partitions(
        self, database: str, table: str, **reader: Unpack[Reader]
    ) -> tuple[TableInfo, list[PartitionInfo]]:
        """A table and all its partitions as of one moment; otherwise as :meth:`get_partitions`."""
        owner, found = self.get_table_and_ordered_partitions(database, table, **reader)
        return owner, list(found.all)

    def get_table_and_ordered_partitions(
        self, database: str, table: str, **reader: Unpack[Reader]
    ) -> tuple[TableInfo, OrderedPartitions]:
        """The same, with partitions that are found by their values."""

        def ask(connection: Connection) -> tuple[TableInfo, OrderedPartitions]:
            owner, found = partitions.get_table_and_partitions(connection, database, table)
            return owner, OrderedPartitions(found)

        return self._read(
            self._request(database, table, reader, with_partitions=True),
            lambda copy: (copy.table, copy.ordered_partitions()),
            ask,
        )

    def get_partitions_by_filter(
        self, database: str, table: str, filter_text: str, **reader: Unpack[Reader]
    ) -> list[PartitionInfo]:
        """The partitions that a filter keeps; the cache's design calls it ``get_partitions_by_expr``.

        Other parameters as :meth:`get_table`.

        :param filter_text: Hive's partition filter language; see :mod:`.partition_filter`.
        :raises InvalidInputError: also when the filter cannot be used on this table.
        """
        owner, found = self.get_table_and_ordered_partitions(database, table, **reader)
        return found.chosen(partition_choice(filter_text, owner.partition_keys))

    def get_partition(
        self, database: str, table: str, values: Sequence[str | None], **reader: Unpack[Reader]
    ) -> PartitionInfo:
        """Look one partition up by its values; other parameters as :meth:`get_table`.

        :raises NoSuchObjectError: also when the partition does not exist.
        :raises InvalidInputError: also when the values do not fit the table's partition keys.
        """
        return self.get_table_and_partition(database, table, values, **reader)[1]

    def get_table_and_partition(
        self, database: str, table: str, values: Sequence[str | None], **reader: Unpack[Reader]
    ) -> tuple[TableInfo, PartitionInfo]:
        """A table and one of its partitions as of one moment; otherwise as :meth:`get_partition`."""

        def look(copy: CachedTable) -> tuple[TableInfo, PartitionInfo]:
            key = partition_key(copy.table, values)
            found = (copy.partitions or {}).get(key)
            if found is None:
                raise partitions.no_such_partition(copy.table, key)
            return copy.table, found

        return self._read(
            self._request(database, table, reader, with_partitions=True),
            look,
            lambda connection: partitions.get_table_and_partition(connection, database, table, values),
        )

    def list_tables(self, database: str) -> list[str]:
        """The names of a database's tables, in order; always from the database.

        Hive's requests for them have no field for the reader's session.

        :raises NoSuchObjectError: when the database does not exist.
        """
        return self.metastore.list_tables(database)

    def get_database(self, name: str, *, catalog_event_id: int | None = None) -> DatabaseInfo:
        """Look a database up.

        :param catalog_event_id: the last event that changed a database or a function, out of the reader's
            :class:`~airflow_provider.metastore.model.ReadSnapshot`.
        :raises NoSuchObjectError: when it does not exist.
        """
        known = self._known_catalog(catalog_event_id)
        if known is None or name.lower() not in known.databases:
            return self.metastore.get_database(name)
        return known.databases[name.lower()]

    def list_databases(self, *, catalog_event_id: int | None = None) -> list[str]:
        """The names of all databases, in order; the parameter as in :meth:`get_database`."""
        known = self._known_catalog(catalog_event_id)
        return self.metastore.list_databases() if known is None else sorted(known.databases)

    def get_function(self, database: str, name: str, *, catalog_event_id: int | None = None) -> FunctionInfo:
        """Look a function up; the parameter as in :meth:`get_database`.

        :raises NoSuchObjectError: when it does not exist.
        """
        known = self._known_catalog(catalog_event_id)
        key = (database.lower(), name.lower())
        if known is None or key not in known.functions:
            return self.metastore.get_function(database, name)
        return known.functions[key]

    def list_functions(self, database: str, *, catalog_event_id: int | None = None) -> list[str]:
        """The names of a database's functions, in order; the parameter as in :meth:`get_database`.

        :raises NoSuchObjectError: when the database does not exist.
        """
        known = self._known_catalog(catalog_event_id)
        if known is None or database.lower() not in known.databases:
            return self.metastore.list_functions(database)
        return sorted(name for home, name in known.functions if home == database.lower())

    def all_functions(self, *, catalog_event_id: int | None = None) -> list[FunctionInfo]:
        """The functions of all databases, by name; the parameter as in :meth:`get_database`."""
        known = self._known_catalog(catalog_event_id)
        if known is None:
            return self._sql.read(functions.all_functions)
        return [known.functions[key] for key in sorted(known.functions)]

    def catch_up(self, until_event: int | None = None, *, timeout: float = 60.0) -> int:
        """Wait until this replica has applied an event.

        :param until_event: the event's id; None for the present last event.
        :param timeout: seconds to wait.
        :return: the last applied event.
        :raises MetastoreError: when it takes longer.
        """
        return self.updater.catch_up(until_event, timeout)

    def statistics(self) -> CacheStatistics:
        """Hits, misses and their reasons, memory."""
        with self._lock:
            tables = self._state.tables
            return CacheStatistics(
                self._hits + self.latest.hits,
                dict(self._misses),
                len(tables),
                tables.size,
                tables.evicted,
                self._state.event_id,
            )

    def _reads(self) -> tuple[int, int]:
        with self._lock:
            return self._hits + self.latest.hits, self._misses.total()

    def close(self) -> None:
        """Stop following the log and close the database's connections.

        The replica stays registered as a consumer until it expires, so that a
        ``NotificationLogCatchupSensor`` does not count a stopped replica as caught up. See
        :meth:`~airflow_provider.metastore.api.Metastore.unregister_consumer`.
        """
        self.updater.stop()
        with self._lock:
            self._state.end()
        self.metastore.close()

    def _request(
        self, database: str, name: str, reader: Reader, *, with_partitions: bool = False
    ) -> _Request:
        required = reader.get("require_write_ids")
        return _Request(
            database.lower(),
            name.lower(),
            reader.get("valid_write_ids"),
            reader.get("table_id"),
            reader.get("session"),
            self._require_write_ids if required is None else required,
            with_partitions,
        )

    def _read(
        self, request: _Request, from_copy: Callable[[CachedTable], T], ask: Callable[[Connection], T]
    ) -> T:
        """Answer from memory, or from the database."""
        with self._lock:
            found = self._look_up(request)
            if isinstance(found, CachedTable):
                self._hits += 1
                if request.session is not None:
                    request.session.saw(found.event_id)
                return from_copy(found)
            self._misses[found.reason] += 1
            if found.reason is MissReason.STALE and found.copy is not None:
                found.copy.stale_reads += 1
                if found.copy.stale_reads > _STALE_READS:
                    self._state.tables.remove(found.copy.table.id)
        if found.copy is not None:
            _check_write_ids(found.copy.table, request)
        if found.reason is not MissReason.NOT_CACHED:
            return self._sql.read(lambda connection: asked(connection, request.session, ask))
        fresh = self._sql.read(
            lambda connection: read_table(
                connection, request.database, request.name, with_partitions=request.with_partitions
            )
        )
        _check_write_ids(fresh.table, request)
        if request.session is not None:
            request.session.saw(fresh.event_id)
        with self._lock:
            self._state.keep(fresh)
            return from_copy(fresh)

    def _look_up(self, request: _Request) -> CachedTable | _Miss:
        tables = self._state.tables
        copy = None if request.table_id is None else tables.by_id(request.table_id)
        if copy is None:
            copy = tables.by_name(request.database, request.name)
        if copy is None:
            return _Miss(MissReason.NOT_CACHED, None)
        reason = self._why_not(copy, request)
        return copy if reason is None else _Miss(reason, copy)

    def _why_not(self, copy: CachedTable, request: _Request) -> MissReason | None:
        """The reason why a copy cannot answer a read; None when it can."""
        table, state = copy.table, self._state
        if (table.database, table.name) != (request.database, request.name):
            return MissReason.OTHER_TABLE
        if request.table_id is not None and request.table_id != table.id:
            return MissReason.OTHER_TABLE
        if request.write_ids is None:
            if not table.is_external:
                return MissReason.NO_WRITE_IDS
        elif request.table_id is None:
            return MissReason.NO_TABLE_ID
        elif reason := self._why_not_fresh(copy, request.write_ids):
            return reason
        if request.session is not None and max(state.event_id, copy.event_id) < request.session.event_id:
            return MissReason.BEHIND_SESSION
        if request.with_partitions and copy.partitions is None:
            return MissReason.NOT_CACHED
        return None

    def _why_not_fresh(self, copy: CachedTable, write_ids: ValidWriteIdList) -> MissReason | None:
        if write_ids.table is not None and write_ids.table.lower() != copy.table.full_name:
            return MissReason.OTHER_TABLE
        if self._state.is_being_written(copy.table.id):
            return MissReason.IN_TRANSACTION
        if not copy.write_ids.covers(write_ids):
            return MissReason.STALE
        if self._state.may_be_half_made(copy):
            return MissReason.IN_TRANSACTION
        if not self._serve_newer and not write_ids.covers(copy.write_ids):
            return MissReason.NEWER
        return None

    def _known_catalog(self, catalog_event_id: int | None) -> CachedCatalog | None:
        """The databases and functions as of an event or later; None when only the database has them."""
        with self._lock:
            known, at = self._state.catalog, self._state.event_id
            if catalog_event_id is None and not self._eventual_databases:
                self._misses[MissReason.NO_CATALOG_EVENT] += 1
                return None
            if known is not None and max(at, known.event_id) >= (catalog_event_id or 0):
                self._hits += 1
                return known
            reason = MissReason.NOT_CACHED if known is None else MissReason.BEHIND_CATALOG
            self._misses[reason] += 1
        if reason is MissReason.BEHIND_CATALOG:
            return None
        fresh = self._sql.read(read_catalog)
        with self._lock:
            self._state.keep_catalog(fresh)
        return fresh


def asked(connection: Connection, session: ReaderSession | None, ask: Callable[[Connection], T]) -> T:
    """Ask the database, and record the event of its answer in the session."""
    answer = ask(connection)
    if session is not None:
        session.saw(current_event_id(connection))
    return answer


def _check_write_ids(table: TableInfo, request: _Request) -> None:
    if request.write_ids is None and request.require_write_ids and not table.is_external:
        raise WriteIdsRequiredError(
            f"table {table.full_name} is managed: a read has to say which write ids it sees; give the "
            "valid_write_ids and the table_id of a read_snapshot, or allow reads without",
            table=table.full_name,
        )

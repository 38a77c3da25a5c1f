"""The metastore's one public face: :func:`open_metastore` and :class:`Metastore`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from airflow_provider.exceptions import NoSuchObjectError
from airflow_provider.metastore import catalog, notifications, partitions, transactions
from airflow_provider.metastore.catalog import Column, DatabaseInfo, TableInfo
from airflow_provider.metastore.engine import MetastoreEngine
from airflow_provider.metastore.notifications import Consumer, NotificationEvent, Purged
from airflow_provider.metastore.partitions import PartitionInfo, PartitionSpec
from airflow_provider.metastore.schema import SCHEMA_REVISION
from airflow_provider.metastore.transactions import TableWriteInfo, TxnInfo
from airflow_provider.metastore.write_ids import ValidTxnList, ValidWriteIdList

log = logging.getLogger(__name__)

_ALL_EVENTS = 1_000


@dataclass(frozen=True)
class RecoveredTxn:
    """What recovery did with a timed-out transaction.

    :param txn_id: the transaction.
    :param committed: True when it was committed, False when it was aborted.
    :param event_id: its COMMIT_TXN or ABORT_TXN event.
    """

    txn_id: int
    committed: bool
    event_id: int


def open_metastore(url: str, *, timeout_seconds: float = 30.0) -> Metastore:
    """Open a metastore; a new database gets its schema, an old one is migrated.

    Any number of processes may do this at once.

    :param url: SQLAlchemy URL: ``sqlite:////absolute/path.db`` (on a local disk; folders are made) or
        ``postgresql+<driver>://user:password@host/database``.
    :param timeout_seconds: how long a call may wait for other processes.
    :raises InvalidInputError: when the URL cannot be one of a metastore.
    :raises MetastoreUnavailableError: when the database cannot be reached.
    :raises MetastoreError: when the schema is of a newer release.
    """
    engine = MetastoreEngine(url, timeout_seconds)
    engine.upgrade_schema()
    return Metastore(engine)


class Metastore:
    """Databases, tables, partitions, transactions, write ids and the notification log.

    Every change writes its notification event in the same database transaction: both are
    there, or neither. All methods may be called from any thread (in async code through
    :func:`asyncio.to_thread`) and after a fork. All of them raise
    :class:`~airflow_provider.exceptions.MetastoreUnavailableError` when the database cannot
    be reached, or is kept locked by others, for longer than the timeout.

    :param engine: the database; :func:`open_metastore` makes it.
    """

    def __init__(self, engine: MetastoreEngine) -> None:
        self._engine = engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The database's URL, with ``***`` for its secrets."""
        return self._engine.masked_url

    def ping(self) -> str:
        """Ask the database for its last event.

        :return: one line for people: the URL without secrets, the schema's revision, the last event id.
        """
        return f"{self.url}: schema {SCHEMA_REVISION}, last event {self.current_event_id()}"

    def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
        self._engine.close()

    # Databases and tables

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
        if_not_exists: bool = False,
    ) -> TableInfo:
        """Register a table; nothing is written at its location.

        :param location: the table's folder or URL.
        :param schema: its columns, without the partition keys.
        :param partition_keys: its partition keys, in order.
        :param table_type: ``MANAGED_TABLE`` or ``EXTERNAL_TABLE``.
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
        txn_id: int | None = None,
    ) -> TableInfo:
        """Replace those properties of a table that are given.

        :param parameters: all of the table's parameters from now on.
        :param txn_id: the open transaction to which the change belongs; its write id goes into the event.
        :raises NoSuchObjectError: when the table does not exist.
        :raises NoSuchTransactionError: when the transaction is not open.
        :raises TransactionAbortedError: when it was aborted.
        """
        given = {"schema": schema, "location": location, "parameters": parameters, "owner": owner}
        changes = {field: value for field, value in given.items() if value is not None}

        def alter(connection: Connection) -> TableInfo:
            write_id = transactions.write_id_for(connection, txn_id, database, name)
            return catalog.alter_table(connection, database, name, changes=changes, write_id=write_id)

        return self._engine.write(alter)

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> TableInfo:
        """Give a table another name or database; id, partitions and write ids go with it.

        :raises NoSuchObjectError: when the table or the new database does not exist.
        :raises AlreadyExistsError: when there is a table of the new name.
        """
        return self._engine.write(
            lambda connection: catalog.rename_table(connection, database, name, new_database, new_name)
        )

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> bool:
        """Drop a table, its partitions and its write ids; data files stay.

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

    # Partitions

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
        :param txn_id: an open transaction to which the change belongs.
        :return: those that were added.
        :raises NoSuchObjectError: when the table does not exist.
        :raises AlreadyExistsError: see ``if_not_exists``.
        :raises InvalidInputError: when a partition's values do not fit the table's partition keys.
        :raises NoSuchTransactionError: when the transaction is not open.
        :raises TransactionAbortedError: when it was aborted.
        """

        def add(connection: Connection) -> list[PartitionInfo]:
            if txn_id is not None:
                transactions.lock_open(connection, txn_id)
            return partitions.add_partitions(
                connection, database, table, partitions_to_add, if_not_exists=if_not_exists
            )

        return self._engine.write(add)

    def get_partitions(self, database: str, table: str) -> list[PartitionInfo]:
        """All partitions of a table, in the order of their values.

        :raises NoSuchObjectError: when the table does not exist.
        """
        return self._engine.read(lambda connection: partitions.get_partitions(connection, database, table))

    def get_partition(self, database: str, table: str, values: Sequence[str | None]) -> PartitionInfo:
        """Look one partition up by its values.

        :raises NoSuchObjectError: when the table or the partition does not exist.
        :raises InvalidInputError: when the values do not fit the table's partition keys.
        """
        return self._engine.read(
            lambda connection: partitions.get_partition(connection, database, table, values)
        )

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

        def alter(connection: Connection) -> PartitionInfo:
            write_id = transactions.write_id_for(connection, txn_id, database, table)
            return partitions.alter_partition(
                connection, database, table, values, changes=changes, write_id=write_id
            )

        return self._engine.write(alter)

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
        :param txn_id: an open transaction to which the change belongs.
        :return: those that were dropped.
        :raises NoSuchObjectError: when the table does not exist; see ``if_exists``.
        """

        def drop(connection: Connection) -> list[PartitionInfo]:
            if txn_id is not None:
                transactions.lock_open(connection, txn_id)
            return partitions.drop_partitions(
                connection, database, table, partitions_to_drop, if_exists=if_exists
            )

        return self._engine.write(drop)

    # Transactions and write ids

    def open_txn(
        self, user: str, host: str, *, agent: str | None = None, commit_on_recovery: bool = True
    ) -> int:
        """Open a transaction.

        :param user: who opens it.
        :param host: from where.
        :param agent: what opens it, such as a task instance.
        :param commit_on_recovery: False for a transaction that only :meth:`commit_txn` may commit, such as
            one around several ingestions; see :meth:`recover_timed_out`.
        :return: its id, the last one's + 1.
        """
        return self._engine.write(
            lambda connection: transactions.open_txn(
                connection, user, host, agent=agent, commit_on_recovery=commit_on_recovery
            )
        )

    def get_txn(self, txn_id: int) -> TxnInfo:
        """Look a transaction up, whatever its state.

        :raises NoSuchTransactionError: when it was never opened.
        """
        return self._engine.read(lambda connection: transactions.get_txn(connection, txn_id))

    def heartbeat_txn(self, txn_id: int) -> None:
        """Say that a transaction's owner lives.

        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it is committed or was never opened.
        """
        self._engine.write(lambda connection: transactions.heartbeat_txn(connection, txn_id))

    def commit_txn(
        self,
        txn_id: int,
        *,
        new_partitions: Mapping[tuple[str, str], Sequence[PartitionSpec]] | None = None,
    ) -> int:
        """Commit a transaction. Doing it again changes nothing.

        :param new_partitions: by (database, table), partitions to register in the same database
            transaction, so that no reader sees the commit without them; existing ones stay.
        :return: the id of its COMMIT_TXN event.
        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when it was never opened.
        :raises NoSuchObjectError: when a table of ``new_partitions`` does not exist.
        """

        def commit(connection: Connection) -> int:
            transactions.lock_not_aborted(connection, txn_id)
            for (database, table), specs in sorted((new_partitions or {}).items()):
                partitions.add_partitions(connection, database, table, specs, if_not_exists=True)
            return transactions.commit_txn(connection, txn_id)

        return self._engine.write(commit)

    def abort_txn(self, txn_id: int) -> int:
        """Abort a transaction. Doing it again changes nothing.

        Catalog changes made meanwhile stay, as in Hive; what was written under its write ids is
        never seen by a reader with a snapshot.

        :return: the id of its ABORT_TXN event.
        :raises NoSuchTransactionError: when it is committed or was never opened.
        """
        return self._engine.write(lambda connection: transactions.abort_txn(connection, txn_id))

    def abort_timed_out(self, timeout_seconds: float) -> list[int]:
        """Abort the open transactions without a heartbeat for ``timeout_seconds``.

        Those that recorded an instant (:meth:`record_write`) are left to :meth:`recover_timed_out`:
        only their tables' timelines can tell whether they are committed.

        :return: the ids of those aborted, ascending.
        """
        aborted = []
        for txn_id in self._timed_out(timeout_seconds):
            if any(write.instant for write in self.writes_of(txn_id)):
                continue
            if self._close_timed_out(txn_id, timeout_seconds, commit=False):
                aborted.append(txn_id)
        return aborted

    def recover_timed_out(
        self, timeout_seconds: float, is_completed: Callable[[TableWriteInfo], bool]
    ) -> list[RecoveredTxn]:
        """End the open transactions without a heartbeat for ``timeout_seconds`` as their timelines say.

        The timeline is the truth for a table: a transaction all of whose writes completed is
        committed (unless it was opened with ``commit_on_recovery=False``), any other is aborted.

        :param is_completed: asked about each write, outside any database transaction. False must be
            final: an instant that did not complete must be rolled back before the answer, so that it
            never will. For a write without an instant it looks through the table's timeline for the
            transaction's id. It may use the metastore, for example to register the write's partitions.
        :return: what became of each, by transaction id. Those that moved meanwhile are not among them.
        """
        recovered = []
        for txn_id in self._timed_out(timeout_seconds):
            writes = self.writes_of(txn_id)
            outcomes = [is_completed(write) for write in writes]
            commit = bool(writes) and all(outcomes) and self.get_txn(txn_id).commit_on_recovery
            event_id = self._close_timed_out(txn_id, timeout_seconds, commit=commit)
            if event_id:
                recovered.append(RecoveredTxn(txn_id, commit, event_id))
        return recovered

    def allocate_table_write_id(self, txn_id: int, database: str, table: str) -> int:
        """The write id of a transaction on a table, the same one however often it is asked for.

        :return: the table's last write id + 1 when the transaction had none.
        :raises NoSuchObjectError: when the table does not exist.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises NoSuchTransactionError: when it is not open.
        """

        def allocate(connection: Connection) -> int:
            catalog.get_table(connection, database, table)
            return transactions.allocate_table_write_id(connection, txn_id, database, table)

        return self._engine.write(allocate)

    def record_write(self, txn_id: int, database: str, table: str, instant: str) -> None:
        """Record that a transaction writes a table as a Hudi instant; doing it again changes nothing.

        :param instant: the instant's requested time.
        :raises NoSuchObjectError: when the table does not exist.
        :raises TransactionAbortedError: when the transaction was aborted.
        :raises NoSuchTransactionError: when it is not open.
        """
        self._engine.write(
            lambda connection: transactions.record_write(connection, txn_id, database, table, instant)
        )

    def writes_of(self, txn_id: int) -> list[TableWriteInfo]:
        """What a transaction wrote: its recorded instants, and its write ids without one.

        :return: by table and instant; tables dropped since are not among them.
        """
        return self._engine.read(lambda connection: transactions.writes_of(connection, txn_id))

    def valid_txn_list(self, txn_id: int | None = None) -> ValidTxnList:
        """A snapshot: the transactions that a reader that begins now sees.

        :param txn_id: the reader's own transaction: it sees its own writes, and nothing later.
        :raises NoSuchTransactionError: when ``txn_id`` was never opened.
        """
        return self._engine.read(lambda connection: transactions.valid_txn_list(connection, txn_id))

    def valid_write_id_list(
        self, database: str, table: str, valid_txns: ValidTxnList | None = None
    ) -> ValidWriteIdList:
        """The write ids of a table that a reader sees.

        :param valid_txns: the reader's snapshot; None for one of now.
        :raises NoSuchObjectError: when the table does not exist.
        """

        def look(connection: Connection) -> ValidWriteIdList:
            catalog.get_table(connection, database, table)
            snapshot = transactions.valid_txn_list(connection, None) if valid_txns is None else valid_txns
            return transactions.valid_write_id_list(connection, database, table, snapshot)

        return self._engine.read(look)

    # The notification log

    def current_event_id(self) -> int:
        """The id of the last event, 0 when there is none."""
        return self._engine.read(notifications.current_event_id)

    def next_events(
        self,
        after: int,
        limit: int = _ALL_EVENTS,
        *,
        event_types: Collection[str] | None = None,
        database: str | None = None,
        table: str | None = None,
    ) -> list[NotificationEvent]:
        """The events after a position, in order.

        :param after: the id of the last event already read, 0 for none.
        :param limit: at most so many events.
        :param event_types: only events of these types; None for all.
        :param database: only events about this database.
        :param table: only events about tables of this name.
        :raises EventsExpiredError: when retention removed some of the events asked for.
        """
        return self._engine.read(
            lambda connection: notifications.next_events(
                connection, after, limit, event_types=event_types, database=database, table=table
            )
        )

    def register_consumer(
        self, name: str, *, event_id: int | None = None, if_not_exists: bool = False
    ) -> Consumer:
        """Register a reader of the log; retention waits for it from now on.

        :param event_id: the last event that it knows; None for the current one.
        :param if_not_exists: when it is registered, return it with the position that it has.
        :raises AlreadyExistsError: when it is registered, unless ``if_not_exists``.
        :raises EventsExpiredError: when events after ``event_id`` are gone.
        :raises InvalidInputError: when ``event_id`` is beyond the log's end.
        """
        return self._engine.write(
            lambda connection: notifications.register_consumer(
                connection, name, event_id, if_not_exists=if_not_exists
            )
        )

    def advance_consumer(self, name: str, event_id: int) -> Consumer:
        """Record that a consumer has applied all events up to one; it never moves back.

        :return: the consumer as it is now.
        :raises NoSuchObjectError: when it is not registered.
        :raises InvalidInputError: when ``event_id`` is beyond the log's end.
        """
        return self._engine.write(
            lambda connection: notifications.advance_consumer(connection, name, event_id)
        )

    def consumers(self) -> list[Consumer]:
        """All registered consumers, by name."""
        return self._engine.read(notifications.list_consumers)

    def unregister_consumer(self, name: str) -> None:
        """Forget a consumer; retention no longer waits for it.

        :raises NoSuchObjectError: when it is not registered.
        """
        self._engine.write(lambda connection: notifications.unregister_consumer(connection, name))

    def purge_events(self, ttl_seconds: float) -> Purged:
        """Remove events that are older than the time to live and that every consumer has read.

        :param ttl_seconds: Hive's default is a day.
        :return: how many were removed, and who holds back the rest.
        """
        removed = 0
        while True:
            batch = self._engine.write(lambda connection: notifications.purge_batch(connection, ttl_seconds))
            removed += batch.removed
            if not batch.removed:
                return Purged(removed, batch.oldest_event_id, batch.held_back_by)

    def _timed_out(self, timeout_seconds: float) -> list[int]:
        return self._engine.read(lambda connection: transactions.timed_out(connection, timeout_seconds))

    def _close_timed_out(self, txn_id: int, timeout_seconds: float, *, commit: bool) -> int | None:
        """Commit or abort a transaction, unless it moved since it was found timed out."""

        def close(connection: Connection) -> int | None:
            if not transactions.still_timed_out(connection, txn_id, timeout_seconds):
                return None
            end = transactions.commit_txn if commit else transactions.abort_txn
            return end(connection, txn_id)

        event_id = self._engine.write(close)
        if event_id is not None:
            log.info(
                "transaction %d had no heartbeat for %g s: %s",
                txn_id,
                timeout_seconds,
                "all its instants completed, committed" if commit else "aborted",
            )
        return event_id

"""Keeps a replica's copies up to date: fills them, then follows the notification log.

The event of a table or a partition puts the new version into the copy, and makes the copy unusable. The end
of the transaction makes the copy usable again; a commit also adds a committed write id to it. So all changes
of one transaction become visible together, whichever replicas they were made through.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from airflow_provider.exceptions import (
    EventsExpiredError,
    InvalidInputError,
    MetastoreError,
    NoSuchObjectError,
)
from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.cache.cache_state import CacheState, TxnSnapshot, read_table, read_txns
from airflow_provider.metastore.cache.cached_tables import CachedTable
from airflow_provider.metastore.database import Counter, counted
from airflow_provider.metastore.model import (
    NO_WRITE_ID,
    EventType,
    NotificationEvent,
    decode_partition,
    decode_table,
    decode_write_id,
    partition_values,
)
from airflow_provider.metastore.notifications import current_event_id, next_events
from airflow_provider.metastore.transactions import open_table_write_ids, table_write_ids_of

log = logging.getLogger(__name__)

_BATCH = 1_000
_REPORT_INTERVAL = 1.0
_READS_INTERVAL = 10.0  # people watch them, nobody waits for them
_RETRY_INTERVAL = 1.0
_MAX_GAP = 10_000

# The excluded events change no copy: the number alone shows a transaction as new, and no copy has statistics.
_FOLLOWED_EVENTS = frozenset(EventType) - {
    EventType.OPEN_TXN,
    EventType.UPDATE_TABLE_COLUMN_STAT,
    EventType.UPDATE_PARTITION_COLUMN_STAT,
}
_CATALOG_EVENTS = frozenset(
    {
        EventType.CREATE_DATABASE,
        EventType.ALTER_DATABASE,
        EventType.DROP_DATABASE,
        EventType.CREATE_FUNCTION,
        EventType.DROP_FUNCTION,
    }
)


class CacheUpdater:
    """Fills the copies and follows the notification log, in a thread or step by step.

    :param metastore: the database.
    :param replica: its consumer's name in the notification log.
    :param state: the copies to be kept up to date.
    :param lock: guards the state.
    :param poll_interval: seconds between two looks at the log.
    :param snapshot_lifetime: seconds for which :meth:`prewarm` uses one list of valid transactions.
    :param expiry_seconds: see :meth:`~airflow_provider.metastore.api.Metastore.register_consumer`.
    :param reads: the replica's hits and misses until now.
    """

    def __init__(
        self,
        metastore: Metastore,
        replica: str,
        state: CacheState,
        lock: threading.RLock,
        *,
        poll_interval: float,
        snapshot_lifetime: float,
        expiry_seconds: float,
        reads: Callable[[], tuple[int, int]],
    ) -> None:
        if poll_interval <= 0 or expiry_seconds <= 2 * _REPORT_INTERVAL:
            raise InvalidInputError(
                f"replica {replica!r}: poll interval {poll_interval:g} s, expiry {expiry_seconds:g} s; give "
                f"an interval of more than 0 and an expiry of more than {2 * _REPORT_INTERVAL:g} s"
            )
        self._metastore = metastore
        self._replica = replica
        self._state = state
        self._lock = lock
        self._moved = threading.Condition(lock)
        self._poll_interval = poll_interval
        self._snapshot_lifetime = snapshot_lifetime
        self._expiry_seconds = expiry_seconds
        self._reads = reads
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._stepping = threading.Lock()
        self._reported, self._reported_at = -1, 0.0
        self._reported_reads = (0, 0)
        # The last transaction that was opened before the log was followed.
        self._last_unseen_txn = 0
        # The write ids of later transactions, by table id; None where only the database has them.
        self._seen: dict[int, dict[int, int] | None] = {}

    def start(self) -> None:
        """Start a thread that begins, fills the memory, and follows the log."""
        self.begin()
        self._thread = threading.Thread(target=self._run, name=f"replica-{self._replica}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and record its position."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            try:
                self._report(even_if_early=True)
            except MetastoreError as error:
                log.warning("replica %s stops without saying how far it came: %s", self._replica, error)

    def begin(self) -> int:
        """Register as a consumer, forget all copies, and follow the log from its end.

        :return: the last event that counts as applied.
        """
        with self._stepping:
            self._metastore.register_consumer(
                self._replica, expiry_seconds=self._expiry_seconds, if_not_exists=True
            )
            self._metastore.restart_consumer(self._replica)
            event_id, last_txn, open_write_ids = self._metastore.sql.read(
                lambda connection: (
                    current_event_id(connection),
                    counted(connection, Counter.TXN_ID),
                    open_table_write_ids(connection),
                )
            )
            with self._lock:
                self._last_unseen_txn = last_txn
                self._seen.clear()
                self._state.begin(event_id, open_write_ids)
        return event_id

    def prewarm(self) -> int:
        """Copy all tables with their partitions, until the memory is full.

        The caller does this before the first step: the list of valid transactions is older than most of the
        copies, and the log then brings the commits in between.

        :return: the number of copied tables.
        """
        copied = 0
        snapshot: TxnSnapshot | None = None
        taken_at = 0.0
        for database in self._metastore.list_databases():
            for name in self._list_tables(database):
                if self._stopping.is_set():
                    return copied
                if snapshot is None or time.monotonic() - taken_at >= self._snapshot_lifetime:
                    snapshot = self._metastore.sql.read(read_txns)
                    taken_at = time.monotonic()
                copy = self._read_table(database, name, snapshot)
                if copy is None:
                    continue
                with self._lock:
                    tables = self._state.tables
                    if tables.size + copy.size > tables.max_bytes:
                        log.info("replica %s: memory is full after %d tables", self._replica, copied)
                        return copied
                    copied += self._state.keep(copy)
        return copied

    def step(self, limit: int = _BATCH) -> int:
        """Apply the next events.

        :param limit: the largest number of events.
        :return: the number of applied events; 0 at the log's end.
        :raises EventsExpiredError: when retention has removed the next events; then call :meth:`begin`.
        """
        with self._stepping:
            events, last = self._metastore.sql.read(lambda connection: self._next(connection, limit))
            for event in events:
                self._apply(event)
            self._reached(last if len(events) < limit else events[-1].event_id)
        self._report()
        return len(events)

    def catch_up(self, until_event: int | None, timeout: float) -> int:
        """See :meth:`airflow_provider.metastore.cache.cached_store.CachedStore.catch_up`."""
        until = self._metastore.current_event_id() if until_event is None else until_event
        deadline = time.monotonic() + timeout
        while self._state.event_id < until:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise MetastoreError(
                    f"replica {self._replica!r} is at event {self._state.event_id}, not at {until} after "
                    f"{timeout:g} s; look into its log, or wait longer",
                    event_id=self._state.event_id,
                )
            if self._thread is None:
                self._stopping.wait(0 if self.step() else min(remaining, self._poll_interval))
            else:
                with self._moved:
                    self._moved.wait_for(lambda: self._state.event_id >= until, remaining)
        self._report(even_if_early=True)
        return self._state.event_id

    def _run(self) -> None:
        begun, filled = True, False
        while not self._stopping.is_set():
            try:
                if not begun:
                    self.begin()
                    begun = True
                if not filled:
                    log.info("replica %s: copied %d tables", self._replica, self.prewarm())
                    filled = True
                # After a few events the updater pauses; else it would read the log of a busy metastore once
                # for each event.
                self._stopping.wait(0 if self.step() == _BATCH else self._poll_interval)
            except (EventsExpiredError, NoSuchObjectError) as error:
                # The replica was silent for too long, or somebody unregistered it.
                log.warning("replica %s begins anew: %s", self._replica, error)
                begun = filled = False
            except MetastoreError as error:
                # Readers with newer snapshots ask the database meanwhile, if it answers them.
                log.warning("replica %s stays at event %d: %s", self._replica, self._state.event_id, error)
                self._stopping.wait(_RETRY_INTERVAL)

    def _report(self, *, even_if_early: bool = False) -> None:
        """Record the position of this replica in the log, which is also its heartbeat."""
        at, reads = self._state.event_id, self._reads()
        pause = self._expiry_seconds / 4
        if reads != self._reported_reads:
            pause = min(pause, _READS_INTERVAL)
        if at != self._reported:
            pause = _REPORT_INTERVAL
        if even_if_early or time.monotonic() - self._reported_at >= pause:
            self._metastore.advance_consumer(self._replica, at, reads=reads)
            self._reported, self._reported_at, self._reported_reads = at, time.monotonic(), reads

    def _list_tables(self, database: str) -> list[str]:
        try:
            return self._metastore.list_tables(database)
        except NoSuchObjectError:
            return []

    def _read_table(self, database: str, name: str, snapshot: TxnSnapshot) -> CachedTable | None:
        try:
            return self._metastore.sql.read(
                lambda connection: read_table(
                    connection, database, name, with_partitions=True, snapshot=snapshot
                )
            )
        except NoSuchObjectError:
            return None

    def _next(self, connection: Connection, limit: int) -> tuple[list[NotificationEvent], int]:
        """The next events of the followed types, and the log's end."""
        found = next_events(
            connection,
            self._state.event_id,
            limit,
            event_types=_FOLLOWED_EVENTS,
            database=None,
            table=None,
        )
        return found, current_event_id(connection)

    def _reached(self, event_id: int) -> None:
        with self._moved:
            self._state.event_id = event_id
            self._moved.notify_all()

    def _apply(self, event: NotificationEvent) -> None:
        ended: Mapping[int, int] = {}
        match event.event_type:
            case EventType.ALLOC_WRITE_ID:
                self._allocated(event.message)
            case EventType.COMMIT_TXN | EventType.ABORT_TXN:
                # Outside the lock, because the ids may come from the database.
                ended = self._write_ids_of(event.message["txnid"])
                if not ended:
                    return  # no copy changes; the position moves at the batch's end
        with self._moved:
            self._end(ended, committed=event.event_type == EventType.COMMIT_TXN)
            try:
                self._apply_change(event)
            except (MetastoreError, LookupError, TypeError, ValueError) as error:
                self._forget_table_of(event, error)
            self._state.event_id = event.event_id
            self._moved.notify_all()

    def _allocated(self, message: Mapping[str, Any]) -> None:
        for txn_id, write_id in zip(message["txnIdList"], message["writeIdList"], strict=True):
            if message.get("tableId") is None:
                # The table did not exist yet; the database will have its id when the transaction ends.
                self._seen[txn_id] = None
            elif (seen := self._seen.setdefault(txn_id, {})) is not None:
                seen[message["tableId"]] = write_id

    def _write_ids_of(self, txn_id: int) -> Mapping[int, int]:
        """A transaction's write ids by table id: from the log if the replica has seen all its events."""
        seen = self._seen.get(txn_id, {}) if txn_id > self._last_unseen_txn else None
        if seen is None:
            seen = dict(self._metastore.sql.read(lambda asks: table_write_ids_of(asks, txn_id)))
        # Only after the database has answered: if it does not, the updater applies the event again.
        self._seen.pop(txn_id, None)
        return seen

    def _end(self, write_ids: Mapping[int, int], *, committed: bool) -> None:
        for table_id, write_id in write_ids.items():
            self._state.ended(table_id, {write_id})
            copy = self._state.tables.peek(table_id)
            if not committed or copy is None:
                continue
            if write_id > copy.write_ids.high_watermark + _MAX_GAP:
                # Somebody has seeded the ids (seed_write_id): those in between were never allocated.
                self._state.tables.remove(table_id)
            else:
                copy.commit(write_id)

    def _apply_change(self, event: NotificationEvent) -> None:
        message = event.message
        match event.event_type:
            case EventType.ALTER_TABLE:
                table = decode_table(message["tableObjAfterJson"])
                self._state.written(table.id, message.get("writeId", NO_WRITE_ID))
                self._change(event, table.id, lambda copy: copy.describe(table))
            case EventType.DROP_TABLE:
                self._state.dropped(decode_table(message["tableObjJson"]).id)
            case EventType.ADD_PARTITION:
                added = [decode_partition(one) for one in message["partitionListJson"]]
                self._change(event, self._written(message), lambda copy: copy.put_partitions(added))
            case EventType.ALTER_PARTITION:
                before = decode_partition(message["partitionObjBeforeJson"])
                after = decode_partition(message["partitionObjAfterJson"])
                self._change(event, self._written(message), lambda copy: copy.alter_partition(before, after))
            case EventType.DROP_PARTITION:
                # In the order of the table's keys, because a JSON object has none.
                keys = [key.name for key in decode_table(message["tableObjJson"]).partition_keys]
                dropped = [partition_values(one[key] for key in keys) for one in message["partitions"]]
                self._change(event, self._written(message), lambda copy: copy.remove_partitions(dropped))
            case EventType.INSERT:
                self._written(message)
            case kind if kind in _CATALOG_EVENTS:
                known = self._state.catalog
                if known is not None and known.event_id < event.event_id:
                    self._state.forget_catalog()

    def _written(self, message: Mapping[str, Any]) -> int:
        """Mark the table of a message as being written, and return its id."""
        table_id = decode_table(message["tableObjJson"]).id
        self._state.written(table_id, decode_write_id(message["tableObjJson"]))
        return table_id

    def _change(self, event: NotificationEvent, table_id: int, change: Callable[[CachedTable], None]) -> None:
        copy = self._state.tables.peek(table_id)
        if copy is None or copy.event_id >= event.event_id:
            # The copy was read from the database after the event: it holds the change, and maybe later ones.
            return

        def applied(copy: CachedTable) -> None:
            change(copy)
            copy.event_id = event.event_id

        self._state.tables.change(table_id, applied)

    def _forget_table_of(self, event: NotificationEvent, error: Exception) -> None:
        log.warning(
            "replica %s: event %d, %s, cannot be read and its table is read anew: %r",
            self._replica,
            event.event_id,
            event.event_type,
            error,
        )
        copy = self._state.tables.by_name(event.database or "", event.table or "")
        if copy is not None:
            self._state.tables.remove(copy.table.id)

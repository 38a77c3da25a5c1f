"""The replicator: it copies the source's state to the target, then applies the source's events one by one."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from airflow_provider.exceptions import (
    EventsExpiredError,
    InvalidInputError,
    NoSuchObjectError,
    ReplicationLeaseError,
    TableServiceError,
)
from airflow_provider.metastore import (
    AnyMetastore,
    EventType,
    NotificationEvent,
    ValidWriteIdList,
)
from airflow_provider.metastore.model import TXN_EVENTS, Phase, Replication, decode_table
from airflow_provider.replication.copying import Copier
from airflow_provider.replication.hudi_tables import is_hudi_table
from airflow_provider.replication.policy import ReplicationPolicy
from airflow_provider.replication.settings import ReplicationSettings
from airflow_provider.replication.sides import (
    consumer_of,
    is_its_own_source,
    is_same_metastore,
    is_source_of,
    register_consumer,
)
from airflow_provider.replication.table_data import TableData
from airflow_provider.table.storage import Storage

log = logging.getLogger(__name__)


_ABOUT_FILES = frozenset(
    {EventType.ALTER_TABLE, EventType.ADD_PARTITION, EventType.ALTER_PARTITION, EventType.INSERT}
)
"""The events after which a table without transactions may have other files."""


@dataclass(frozen=True)
class Pass:
    """The result of one pass of a replicator.

    :param policy: the replication.
    :param event_id: the last event of the source that the target has applied.
    :param events: the number of applied events.
    :param transactions: the number of applied events that committed a transaction.
    :param bytes_copied: the number of copied bytes of data.
    :param files_copied: the number of copied files.
    :param bootstrapped: whether the pass copied the state of the source.
    """

    policy: str
    event_id: int
    events: int
    transactions: int
    bytes_copied: int
    files_copied: int
    bootstrapped: bool

    def then(self, later: Pass) -> Pass:
        """The sum of this pass and a later one."""
        return Pass(
            self.policy,
            later.event_id,
            self.events + later.events,
            self.transactions + later.transactions,
            self.bytes_copied + later.bytes_copied,
            self.files_copied + later.files_copied,
            self.bootstrapped or later.bootstrapped,
        )


class Replicator:
    """Replicates databases of one metastore into another one.

    ::

        policy = ReplicationPolicy("dr", {"lake": "lake_copy"}, {"/srv/lake": "/srv/copy"})
        Replicator(policy, source, target).run()

    The replicator applies each event in one database transaction of the target, which also stores the
    position. It copies the data of a transaction before it applies the COMMIT_TXN event. If a replicator
    dies, the next one finds its finished steps.

    :param policy: the databases to replicate, and their places at the target.
    :param source: the source's metastore, by its database or by a server of this package.
    :param target: the target's metastore, by its database or by a server of this package.
    :param settings: the settings of the replicator.
    :param step: called with a name before each step; tests raise an error in it to stop there.
    :raises InvalidInputError: when the target is the source.
    """

    def __init__(
        self,
        policy: ReplicationPolicy,
        source: AnyMetastore,
        target: AnyMetastore,
        *,
        settings: ReplicationSettings | None = None,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.policy = policy
        self.source = source
        self.target = target
        if is_same_metastore(source, target):
            raise is_its_own_source(policy.name)
        self.settings = settings or ReplicationSettings()
        self.step = step
        self.scope = policy.scope
        self._waiting: list[NotificationEvent] = []
        self._without_data: set[int] = set()
        self._records = target.replication_target()
        self.owner = f"{socket.gethostname()}:{uuid.uuid4().hex[:8]}"
        self._copier = Copier(self.settings.copy, lambda name: self.step(name))
        self._data = TableData(
            policy,
            self.source,
            self.target,
            self._copier,
            count=self._count,
            step=lambda name: self.step(name),
            patience=self.settings.patience_seconds,
        )

    def status(self) -> Replication:
        """The target's record of the replication.

        :raises NoSuchObjectError: when the replication has never begun.
        """
        return self._records.replication(self.policy.name)

    def run(
        self,
        *,
        upto: int | None = None,
        bootstrap: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Pass:
        """Do one pass: bootstrap if it is due, then apply the events of the source's log.

        :param upto: the last event to apply; None for the present last event of the log.
        :param bootstrap: whether to copy the state of the source although the target has a position. Files
            that are the same are not copied again.
        :param is_stopped: called before each event; True ends the pass.
        :raises EventsExpiredError: when the position has fallen out of the source's log.
        :raises ReplicationLeaseError: when another replicator has the lease.
        :raises ReplicationError: when a file or a table of the source cannot be copied; the error names it.
        :raises InvalidInputError: when the policy differs from the one that has begun, or has failed over.
        :raises UnsupportedByServerError: when the source is a Hive Metastore, which cannot be followed.
        """
        name = self.policy.name
        is_same = is_source_of(name, self.source, self.target)
        self._records.begin(name, self.source.url, self.scope.databases, is_same=is_same)
        with self._lease():
            try:
                done = self._pass(upto, bootstrap, is_stopped)
            except (TableServiceError, OSError) as error:
                message = f"{type(error).__name__}: {error}"
                with suppress(TableServiceError):
                    self._records.note_error(name, message)
                raise
            self._records.note_error(name, None)
        return done

    def follow(
        self,
        seconds: float,
        *,
        poll_seconds: float = 1.0,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Pass:
        """Do pass after pass for some time; the last one may end a little later.

        :param seconds: the time after which no pass begins.
        :param poll_seconds: seconds between two looks at the log after a pass without events.
        :param is_stopped: called before each event; True ends the passes.
        :return: the sum of all passes.
        :raises TableServiceError: see :meth:`run`.
        """
        if poll_seconds <= 0:
            raise InvalidInputError(f"seconds between two looks must be above zero, not {poll_seconds!r}")
        ends = time.monotonic() + seconds
        done = self.run(is_stopped=is_stopped)
        while not is_stopped() and (remaining := ends - time.monotonic()) > 0:
            time.sleep(min(poll_seconds, remaining))
            if self.source.current_event_id() > done.event_id:
                done = done.then(self.run(is_stopped=is_stopped))
        return done

    def _pass(self, upto: int | None, bootstrap: bool, is_stopped: Callable[[], bool]) -> Pass:
        known = self.status()
        if known.phase is Phase.FAILED_OVER:
            raise InvalidInputError(
                f"replication {known.policy!r} has failed over: its target is the source now; replicate back "
                "under another name",
                policy=known.policy,
            )
        self._waiting.clear()
        self._without_data.clear()
        copied = (self._copier.bytes_copied, self._copier.files_copied)
        is_due = bootstrap or known.phase is Phase.BOOTSTRAP
        if is_due:
            self._bootstrap()
        events = transactions = 0
        for event in self._events(upto):
            if is_stopped():
                break
            if self._enters_scope(event):
                self._apply_waiting()
                # Only the source's present state has the table's content and the open transactions on it.
                self._bootstrap()
                is_due = True
                break
            if not self._joins(event):
                self._apply_waiting()
                self._bring_data_of(event)
            self._wait_with_others(event)
            events += 1
            transactions += event.event_type == EventType.COMMIT_TXN
        self._apply_waiting()
        if upto is None and not is_stopped():
            self._bring_services()
        position = self.status().event_id or 0
        self._report(position)
        return Pass(
            self.policy.name,
            position,
            events,
            transactions,
            self._copier.bytes_copied - copied[0],
            self._copier.files_copied - copied[1],
            is_due,
        )

    # --- events ---------------------------------------------------------------------------------

    def _events(self, upto: int | None) -> Iterator[NotificationEvent]:
        position = self.status().event_id or 0
        # Later events belong to the next pass. Otherwise a pass would never end if the source is busy.
        ends = min(self.source.current_event_id(), upto or sys.maxsize)
        while position < ends:
            limit = min(ends - position, self.settings.events_at_once)
            try:
                found = self.source.next_events(position, limit)
            except EventsExpiredError as error:
                raise EventsExpiredError(
                    f"replication {self.policy.name!r} is at event {position}, and the source's log has lost "
                    f"what came next ({error}); bring the source's state over again, which copies only what "
                    "differs: table-services replicate --bootstrap",
                    policy=self.policy.name,
                    event_id=position,
                ) from error
            if not found:
                return
            yield from found
            position = found[-1].event_id
            self._report(self.status().event_id or 0)

    def _bring_data_of(self, event: NotificationEvent) -> None:
        """Copy the data that the target needs before it applies an event."""
        if event.event_type == EventType.COMMIT_TXN:
            self._bring_data(int(event.message["txnid"]))
        elif event.event_type == EventType.CREATE_TABLE:
            self._bring_new_table(event)
        elif event.event_type in _ABOUT_FILES and event.database in self.scope.databases:
            self._data.bring_files_of(event)

    def _joins(self, event: NotificationEvent) -> bool:
        """Whether an event can be applied together with the waiting events, because it has no data."""
        if len(self._waiting) >= self.settings.events_in_one_transaction:
            return False
        if event.event_type != EventType.COMMIT_TXN:
            return event.event_type in TXN_EVENTS
        return int(event.message["txnid"]) in self._without_data

    def _wait_with_others(self, event: NotificationEvent) -> None:
        self._waiting.append(event)
        # A transaction takes a write id on each table before it writes into it.
        if event.event_type == EventType.OPEN_TXN:
            self._without_data.update(map(int, event.message["txnIds"]))
        elif event.event_type == EventType.ALLOC_WRITE_ID and event.database in self.scope.databases:
            self._without_data.difference_update(map(int, event.message["txnIdList"]))

    def _apply_waiting(self) -> None:
        """Apply the waiting events, with the position, in one database transaction."""
        events, self._waiting = self._waiting, []
        self._without_data.clear()
        if not events:
            return
        for event in events:
            self.step(f"apply {event.event_type} {event.event_id}")
        self._records.apply_events(self.scope, events)
        self.step(f"applied {events[-1].event_id}")

    def _enters_scope(self, event: NotificationEvent) -> bool:
        """Whether an event moves a table from a database that is not replicated into a replicated one."""
        if event.event_type != EventType.ALTER_TABLE or self.scope.database(event.database or "") is None:
            return False
        return self.scope.database(str(event.message["db"])) is None and not self._is_applied(event)

    def _bring_data(self, source_txn: int) -> None:
        """Copy the data of a transaction, before the target commits it."""

        mapped = self._records.mapped_txns(self.policy.name)
        target_txn = mapped.get(source_txn)
        if target_txn is None:
            return  # the transaction was copied before, or wrote into no replicated table
        for write in self.target.writes_of(target_txn):
            if write.write_id is None or write.database not in self.scope.databases.values():
                continue
            table = self.target.get_table(write.database, write.table)
            seen = self.target.valid_write_id_list(write.database, write.table)
            self._data.bring(table, seen.with_committed(write.write_id), mapped)

    def _bring_services(self) -> None:
        """Copy changes without an event: clusterings, restores, indexes, commits without a transaction."""
        mapped = self._records.mapped_txns(self.policy.name)
        for database in self.scope.databases.values():
            with suppress(NoSuchObjectError):
                for name in self.target.list_tables(database):
                    table = self.target.get_table(database, name)
                    if table.location and is_hudi_table(Storage(table.location, self.policy.target_options)):
                        seen = self.target.valid_write_id_list(database, name)
                        self._data.bring(table, seen, mapped)

    def _bring_new_table(self, event: NotificationEvent) -> None:
        """Create a table's folder, and copy the data that the table held at its registration."""
        database = self.scope.database(event.database or "")
        if database is None or self._is_applied(event):
            return
        source = decode_table(event.message["tableObjJson"])
        # A table continues the write ids of a dropped table of the same name.
        last = self._records.last_write_id(database, source.name)
        seen = ValidWriteIdList(f"{database}.{source.name}", last)
        target = self.scope.table(source)
        if target is not None:
            self._data.bring(target, seen, {})

    # --- bootstrap --------------------------------------------------------------------------------

    def _bootstrap(self) -> None:
        name = self.policy.name
        self._records.restart(name)
        mapped = self._records.mapped_txns(name)
        # The consumer is registered first, so that the log keeps all events after the state that is read
        # next.
        self._register_consumer()
        self.step("read the source")
        state = self.source.replication_state({*self.scope.databases}, {*mapped})
        log.info("replication %s: bootstrap at event %d of %s", name, state.event_id, self.source.url)
        for each in state.tables:
            self.step(f"bootstrap {each.table.full_name}")
            target = self.scope.table(each.table)
            if target is not None:
                self._data.bring(target, each.write_ids, mapped)
            if target is not None and target.location:
                self._data.bring_partitions_elsewhere(each)
        self.step("bring the catalog over")
        self._records.bring_over(self.scope, state)
        self.step("bootstrapped")
        self._report(state.event_id)

    # --- its parts ----------------------------------------------------------------------------------

    def _count(self, copied: int) -> None:
        self._records.add_bytes(self.policy.name, copied)

    def _is_applied(self, event: NotificationEvent) -> bool:
        return (self.status().event_id or 0) >= event.event_id

    def _register_consumer(self) -> None:
        register_consumer(self.policy.name, self.source, self.target, self.settings.patience_seconds)

    def _report(self, event_id: int) -> None:
        """Tell the source's log that it may remove the events up to this one."""
        with suppress(EventsExpiredError):  # the next look at the log raises it
            try:
                self.source.advance_consumer(consumer_of(self.policy.name), event_id)
            except NoSuchObjectError:
                self._register_consumer()

    @contextmanager
    def _lease(self) -> Iterator[None]:
        """Hold the lease during a ``with`` block; a thread renews it."""
        name, seconds = self.policy.name, self.settings.lease_seconds
        self._records.keep_lease(name, self.owner, seconds)
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(seconds / 3):
                try:
                    self._records.keep_lease(name, self.owner, seconds)
                except ReplicationLeaseError as lost:
                    log.warning("%s; both continue, which costs time but does no harm", lost)
                except TableServiceError as error:
                    log.warning("the lease of replication %s was not renewed: %s", name, error)

        thread = threading.Thread(target=renew, name=f"replication-{name}-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with suppress(TableServiceError):
                self._records.release_lease(name, self.owner)

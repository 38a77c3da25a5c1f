"""A metastore transaction around one write into one table."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence
from types import TracebackType

from airflow_provider.exceptions import (
    MetastoreError,
    NoSuchTransactionError,
    TransactionAbortedError,
)
from airflow_provider.metastore.interface import AnyMetastore
from airflow_provider.metastore.model import Insertion, PartitionSpec, system_user

log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL = 30.0
"""Seconds between heartbeats; a transaction times out after 300 s in Hive's default."""


def table_transaction(
    metastore: AnyMetastore,
    database: str,
    table: str,
    *,
    user: str | None = None,
    host: str | None = None,
    agent: str | None = None,
    txn_id: int | None = None,
    heartbeat_interval: float = HEARTBEAT_INTERVAL,
) -> TableTransaction:
    """A context manager that holds a transaction, with a write id on one table, around a write.

    :class:`TableTransaction` explains the parameters.
    """
    return TableTransaction(
        metastore,
        database,
        table,
        user=user,
        host=host,
        agent=agent,
        txn_id=txn_id,
        heartbeat_interval=heartbeat_interval,
    )


class TableTransaction:
    """Opens a transaction, takes its write id, keeps it alive, and ends it with the block.

    The block's end without an error registers the partitions, writes the INSERT events, and commits, all at
    once. An error aborts the transaction. But while the write may have committed
    (:meth:`may_have_committed`), the error does not tell whether it did: then the transaction stays open, and
    :meth:`~airflow_provider.metastore.api.Metastore.recover_timed_out` ends it as the timeline says.

    :param metastore: the metastore.
    :param database: the table's database.
    :param table: the table; it must exist.
    :param user: the writer's user; None for the operating system's user.
    :param host: the writer's host; None for this host's name.
    :param agent: the program that writes, such as a task instance.
    :param txn_id: an open transaction to join. The block neither opens nor ends it, and an error leaves it to
        its owner.
    :param heartbeat_interval: seconds between heartbeats.
    :raises NoSuchObjectError: at the block's begin, when the table does not exist; no transaction is opened
        then.
    :raises TransactionAbortedError: when the transaction to join was aborted; or, at the block's end, when
        its own transaction was aborted (for example by its timeout).
    :raises NoSuchTransactionError: when the transaction to join is not open.
    """

    def __init__(
        self,
        metastore: AnyMetastore,
        database: str,
        table: str,
        *,
        user: str | None = None,
        host: str | None = None,
        agent: str | None = None,
        txn_id: int | None = None,
        heartbeat_interval: float = HEARTBEAT_INTERVAL,
    ) -> None:
        self._metastore = metastore
        self._database = database
        self._table = table
        self._user = user or system_user()
        self._host = host or socket.gethostname()
        self._agent = agent
        self._joined = txn_id
        self._interval = heartbeat_interval
        self._partitions: list[PartitionSpec] = []
        self._insertions: list[Insertion] = []
        self._may_have_committed = False
        self._lost: MetastoreError | None = None
        self._is_left = False
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None
        self._txn_id: int | None = txn_id
        self._write_id: int | None = None
        self._event_id: int | None = None

    @property
    def txn_id(self) -> int:
        """The transaction's id, inside the block."""
        return _known(self._txn_id, "txn_id", "entered")

    @property
    def write_id(self) -> int:
        """The transaction's write id on the table, inside the block."""
        return _known(self._write_id, "write_id", "entered")

    @property
    def event_id(self) -> int | None:
        """The id of the COMMIT_TXN event after the block; None before, and for a joined transaction."""
        return self._event_id

    def add_partitions(self, partitions: Sequence[PartitionSpec]) -> None:
        """Register partitions when the block ends without an error; existing partitions stay as they are."""
        self._partitions.extend(partitions)

    def add_insertions(self, insertions: Sequence[Insertion]) -> None:
        """Write INSERT events when the block ends without an error."""
        self._insertions.extend(insertions)

    def record_instant(self, instant: str) -> None:
        """Record the Hudi instant that this transaction writes, best before the instant completes.

        From then on the write may have committed.

        :param instant: the instant's requested time.
        :raises TransactionAbortedError: when the transaction was aborted meanwhile.
        """
        self.may_have_committed()
        self._metastore.record_write(self.txn_id, self._database, self._table, instant)

    def may_have_committed(self, may: bool = True) -> None:
        """Say whether the write may have committed on the table's timeline.

        :param may: False once the timeline says that it has not, and never will.
        """
        self._may_have_committed = may

    def leave_open(self) -> None:
        """Leave the transaction as it is when the block ends without an error: another process ends it."""
        self._is_left = True

    def check(self) -> None:
        """Raise when a heartbeat found that another process has ended the transaction.

        :raises TransactionAbortedError: when it was aborted.
        :raises NoSuchTransactionError: when another process committed it.
        """
        if self._lost is not None:
            raise self._lost

    def __enter__(self) -> TableTransaction:
        if self._joined is None:
            # This comes first, so that a wrong table name opens no transaction.
            self._metastore.get_table(self._database, self._table)
            self._txn_id = self._metastore.open_txn(self._user, self._host, agent=self._agent)
        try:
            self._write_id = self._metastore.allocate_table_write_id(self.txn_id, self._database, self._table)
        except BaseException:
            if self._joined is None:
                self._metastore.abort_txn(self.txn_id)
            raise
        self._heart = threading.Thread(target=self._beat, name=f"txn-{self.txn_id}-heartbeat", daemon=True)
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._heart is not None:
            self._heart.join()
        if error is None and self._is_left:
            return
        if error is None:
            self._succeed()
        elif self._joined is None:
            self._fail(error)

    def _succeed(self) -> None:
        if self._joined is not None:
            if self._partitions:
                self._metastore.add_partitions(
                    self._database, self._table, self._partitions, txn_id=self.txn_id
                )
            for one in self._insertions:
                self._metastore.fire_insert_event(
                    self._database,
                    self._table,
                    one.files,
                    values=one.values,
                    replace=one.replace,
                    txn_id=self.txn_id,
                )
            return
        place = (self._database, self._table)
        self._event_id = self._metastore.commit_txn(
            self.txn_id,
            new_partitions={place: self._partitions} if self._partitions else {},
            insertions={place: self._insertions} if self._insertions else {},
        )

    def _fail(self, error: BaseException) -> None:
        if self._may_have_committed:
            log.warning(
                "transaction %d on %s.%s is left open: it ended with %s, and may have committed; recovery "
                "commits or aborts it as the timeline says",
                self.txn_id,
                self._database,
                self._table,
                type(error).__name__,
            )
            return
        try:
            self._metastore.abort_txn(self.txn_id)
        except MetastoreError as failure:
            # The block's own error matters more, and the timeout will abort the transaction.
            log.warning("transaction %d could not be aborted: %s", self.txn_id, failure)

    def _beat(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._metastore.heartbeat_txn(self.txn_id)
            except (TransactionAbortedError, NoSuchTransactionError) as lost:
                self._lost = lost
                log.warning("heartbeat: %s", lost)
                return
            except MetastoreError as failure:
                log.warning("heartbeat of transaction %d failed, trying again: %s", self.txn_id, failure)


def _known(value: int | None, name: str, when: str) -> int:
    if value is None:
        raise RuntimeError(f"{name} is known only once the transaction is {when}")
    return value

"""One write into one table: one instant, and one transaction if the table is registered in a metastore."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from airflow_provider.concurrency import CommitResult, PendingInstant, WriteTransaction, settle_operation
from airflow_provider.concurrency.transactions import (
    commit_predecessors,
    insertions,
    partition_specs,
    recover_transactions,
    settle_transactions,
)
from airflow_provider.concurrency.undo import revert
from airflow_provider.exceptions import (
    EnclosingTransactionError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchTransactionError,
    TableError,
    TableServiceError,
    TransactionAbortedError,
)
from airflow_provider.locks.owner import describe_owner
from airflow_provider.managed.operation import Operation
from airflow_provider.managed.resolved_table import ResolvedTable
from airflow_provider.metastore import (
    AnyMetastore,
    Insertion,
    PartitionSpec,
    TableTransaction,
    TxnState,
    table_transaction,
)
from airflow_provider.services.metastore_columns import follow_columns
from airflow_provider.table.hudi_table import HudiTable

log = logging.getLogger(__name__)


@dataclass
class ManagedWrite:
    """One write into one table, with the transaction and the retry around it.

    A write into a registered table has a transaction. The class opens the transaction, with a write id,
    before the write, and the write puts both ids into its commit metadata. After the commit one step
    registers the new partitions, writes an INSERT event with the new files of each partition, and commits the
    transaction. A write into a table given by its location has no transaction.

    A retry first looks for the earlier try's commit. If that try committed, the retry ends the earlier
    transaction and returns its result. Otherwise the retry rolls the earlier try back, and the write runs.

    :param resolved: the table's location, and its name in the metastore.
    :param table: the table, open.
    :param metastore: opens the metastore; called only for a registered table.
    :param operation: the operation that this try belongs to.
    :param earlier_result: returns the result of a commit that an earlier try of the operation made, with the
        keys of the result of ``write``.
    :param joined_txn: an open transaction that its own caller ends; when None, the write opens a transaction.
    :param is_stopped: whether the caller was told to stop. Then a write that committed all the same does not
        count as success.
    :param wait_for: asked about an earlier try's pending instant; see
        :func:`~airflow_provider.concurrency.settle_operation`.
    """

    resolved: ResolvedTable
    table: HudiTable
    metastore: Callable[[], AnyMetastore]
    operation: Operation
    earlier_result: Callable[[CommitResult], dict[str, Any]]
    joined_txn: int | None = None
    is_stopped: Callable[[], bool] = lambda: False
    wait_for: Callable[[PendingInstant], bool] | None = None

    def run(
        self,
        write: Callable[[WriteTransaction], dict[str, Any]],
        *,
        prepare: Callable[[], Any] = lambda: None,
    ) -> dict[str, Any]:
        """Write, or return the result of an earlier try.

        :param write: writes one commit with these ids and returns its result, a dict with at least
            ``instant``, ``partitions`` and ``schema_changes``. When it raises, no part of the write is
            running any more.
        :param prepare: called before the transaction opens, and only when the write has to run.
        :return: its result, with ``txn_id``, ``write_id`` and ``event_id``, which are None without a
            metastore; ``event_id`` is None in a joined transaction as well.
        :raises EnclosingTransactionError: when the joined transaction has ended or was aborted.
        :raises TransactionAbortedError: when the write's own transaction was aborted, by its timeout.
        :raises MetastoreUnavailableError: when the metastore cannot be reached.
        :raises TableServiceError: any error of ``write``.
        """
        with self.enclosing_transaction():
            result = self.end_earlier_try() if self.operation.is_retry else None
            if result is None:
                self.recover()
                prepare()
                result = self.write(write)
        self.follow_schema(result)
        return result

    def leave(self, start: Callable[[WriteTransaction], None]) -> None:
        """Start a write that continues without this process; :meth:`end` ends it later.

        The transaction stays open; the process that waits for the write keeps it alive by heartbeats.

        :param start: starts the write with these ids and returns. When it raises, no part of the write is
            running.
        :raises EnclosingTransactionError: see :meth:`run`.
        :raises MetastoreUnavailableError: when the metastore cannot be reached.
        :raises TableServiceError: any error of ``start``; the transaction is aborted then.
        """
        with self.enclosing_transaction(), self._transaction() as transaction:
            start(self._begun(transaction))
            if transaction:
                transaction.leave_open()

    def end(self) -> dict[str, Any] | None:
        """End a write that :meth:`leave` started, once no part of the write is running any more.

        :return: its result, as :meth:`run` returns it; None when it left no commit, and its transaction is
            aborted.
        :raises EnclosingTransactionError: see :meth:`run`.
        :raises TableError: when the write cannot be rolled back.
        """
        with self.enclosing_transaction():
            result = self.end_earlier_try()
        if result is not None:
            self.follow_schema(result)
        return result

    @contextmanager
    def enclosing_transaction(self) -> Iterator[None]:
        """Make sure that a joined transaction is open before and after the write.

        :raises EnclosingTransactionError: when the joined transaction has ended or was aborted.
        """
        if self.joined_txn is None:
            yield
            return
        metastore = self.metastore()
        try:
            metastore.heartbeat_txn(self.joined_txn)
            yield
        except (TransactionAbortedError, NoSuchTransactionError) as error:
            settle_transactions(metastore, self.table)  # the write may have committed after the abort
            raise EnclosingTransactionError.caused_by(error) from error

    def recover(self) -> None:
        """End the transactions that dead writers left, as every writer does."""
        if not self.resolved.is_registered:
            return
        metastore = self.metastore()
        try:
            recovered = recover_transactions(metastore, storage_options=self.table.storage.options)
            settle_transactions(metastore, self.table)
        except (TableServiceError, OSError) as error:
            # These transactions may write to other tables, in other storages; this write does not depend on
            # them.
            log.warning("transactions of dead writers could not be ended now: %s", error)
            return
        for each in recovered:
            done = "its instants had completed, so it is committed" if each.committed else "it is aborted"
            log.info("transaction %d had lost its writer: %s", each.txn_id, done)

    def write(self, write: Callable[[WriteTransaction], dict[str, Any]]) -> dict[str, Any]:
        """Write one commit in one transaction, without a look at earlier tries; see :meth:`run`."""
        interruption: BaseException | None = None
        result: dict[str, Any] | None = None
        try:
            with self._transaction() as transaction:
                ids = self._begun(transaction)
                if transaction:
                    transaction.may_have_committed()
                try:
                    result = write(ids)
                except BaseException as error:
                    commit = self._settle(f"its write ended with {type(error).__name__}")
                    if commit is None:
                        if transaction:
                            transaction.may_have_committed(False)
                        raise
                    # The commit succeeded and only the answer was lost: the timeline has the commit.
                    log.warning("instant %s had committed when its write ended: %s", commit.instant, error)
                    result = self.earlier_result(commit)
                    if self.is_stopped() or not isinstance(error, Exception):
                        interruption = error
                if transaction:
                    self._record(transaction, result)
        except TransactionAbortedError:
            # Somebody, such as an administrator, aborted the transaction without a look at the timeline.
            if result is not None and transaction and self.joined_txn is None:
                self._undo_aborted(result["instant"], transaction.txn_id)
            raise
        if interruption is not None:
            raise interruption
        event_id = transaction.event_id if transaction else None
        return {**result, "txn_id": ids.txn_id, "write_id": ids.write_id, "event_id": event_id}

    def end_earlier_try(self, called: str = "an earlier try") -> dict[str, Any] | None:
        """End the earlier tries of the operation.

        :param called: what the log calls them.
        :return: the result of the try that committed; None when the write has to run, and no earlier try is
            left.
        :raises TableError: when an earlier try cannot be rolled back.
        """
        commit = self._settle("its operation is tried again", self.wait_for)
        if commit is None:
            self._abort_earlier()
            log.info("%s left no commit", called)
            return None
        result = self.earlier_result(commit)
        txn_id, write_id = (
            self.operation.recall(name) or result.get(name) for name in ("txn_id", "write_id")
        )
        if self.joined_txn is None and txn_id is not None and self._undo_aborted(commit.instant, txn_id):
            return None
        log.info("%s committed instant %s; nothing is written again", called, commit.instant)
        event_id = None
        if self.joined_txn is not None:
            with self._transaction() as transaction:
                if transaction:
                    transaction.record_instant(commit.instant)
        elif self.resolved.is_registered and txn_id is not None:
            event_id = self._commit_earlier(txn_id, commit.instant, result["partitions"])
        return {**result, "txn_id": txn_id, "write_id": write_id, "event_id": event_id}

    def follow_schema(self, result: Mapping[str, Any]) -> None:
        """Update the table's columns in the metastore after a write that changed them.

        If the metastore cannot be reached now, a later change updates it.

        :param result: the write's result.
        """
        database, name = self.resolved.database, self.resolved.name
        if not result.get("schema_changes") or database is None or name is None:
            return
        try:
            follow_columns(self.metastore(), database, name, self.table)
        except MetastoreError as error:
            log.warning("the metastore was not told the columns of %s: %s", self.resolved.given, error)

    # --- its parts ------------------------------------------------------------------------

    def _begun(self, transaction: TableTransaction | None) -> WriteTransaction:
        """The transaction as its write gets it. The next try remembers its ids."""
        if transaction is None:
            return WriteTransaction()
        self.operation.remember(txn_id=transaction.txn_id, write_id=transaction.write_id)
        return WriteTransaction(transaction.txn_id, transaction.write_id, self.joined_txn is not None)

    def _settle(
        self, reason: str, wait_for: Callable[[PendingInstant], bool] | None = None
    ) -> CommitResult | None:
        return settle_operation(
            self.table, self.operation.key, since=self.operation.since, reason=reason, wait_for=wait_for
        )

    def _transaction(self) -> TableTransaction | nullcontext[None]:
        if not self.resolved.is_registered:
            return nullcontext()
        database, name = self._place
        return table_transaction(
            self.metastore(),
            database,
            name,
            agent=describe_owner(self.operation.key),
            txn_id=self.joined_txn,
        )

    @property
    def _place(self) -> tuple[str, str]:
        return str(self.resolved.database), str(self.resolved.name)

    def _record(self, transaction: TableTransaction, result: Mapping[str, Any]) -> None:
        if self.joined_txn is not None:
            transaction.record_instant(result["instant"])  # partitions and events come with its commit
            return
        with suppress(MetastoreUnavailableError):
            # Recovery needs the instant if the transaction's commit fails.
            with suppress(NoSuchTransactionError):  # a write that was merged on this one has committed it
                transaction.record_instant(result["instant"])
            commit_predecessors(
                self.metastore(), self.table, *self._place, result["instant"], transaction.write_id
            )
        specs, inserted = self._announced(result["instant"], result["partitions"])
        transaction.add_partitions(specs)
        transaction.add_insertions(inserted)

    def _announced(self, instant: str, partitions: list[str]) -> tuple[list[PartitionSpec], list[Insertion]]:
        """The partitions to register, and the INSERT events, of a commit."""
        return partition_specs(self.table, partitions), insertions(self.table, instant)

    def _abort_earlier(self) -> None:
        txn_id = self.operation.recall("txn_id")
        if txn_id is not None and self.joined_txn is None:
            with suppress(NoSuchTransactionError):  # recovery has ended it before
                self.metastore().abort_txn(txn_id)

    def _undo_aborted(self, instant: str, txn_id: int) -> bool:
        """Undo a commit that an earlier try made after its transaction had been aborted.

        Otherwise readers with a snapshot would never see its rows, nor any later write that is merged on
        them.

        :return: False if the transaction is not aborted, or a later write is merged on the commit already.
        """
        if not self.resolved.is_registered or self.metastore().get_txn(txn_id).state is not TxnState.ABORTED:
            return False
        try:
            revert(self.table, instant, reason=f"transaction {txn_id} had timed out")
        except TableError as error:
            log.warning("%s", error)
            return False
        log.info("transaction %d had timed out before instant %s; the write runs again", txn_id, instant)
        return True

    def _commit_earlier(self, txn_id: int, instant: str, partitions: list[str]) -> int | None:
        specs, inserted = self._announced(instant, partitions)
        try:
            return self.metastore().commit_txn(
                txn_id,
                new_partitions={self._place: specs} if specs else {},
                insertions={self._place: inserted} if inserted else {},
            )
        except TransactionAbortedError:
            log.warning(
                "transaction %d timed out before this retry, although its instant had committed: readers "
                "with a snapshot do not see its rows. Its partitions are registered in another transaction",
                txn_id,
            )
            with self._transaction() as transaction:
                if transaction:
                    transaction.add_partitions(specs)
                    transaction.add_insertions(inserted)
            return transaction.event_id if transaction else None

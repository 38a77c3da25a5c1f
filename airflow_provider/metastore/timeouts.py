"""Recovery of transactions without a heartbeat, the same for a database and for a server."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from airflow_provider.exceptions import MetastoreUnavailableError
from airflow_provider.metastore.model import TableWriteInfo, TxnInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecoveredTxn:
    """The end of a timed-out transaction, by recovery.

    :param txn_id: the transaction.
    :param committed: True when it was committed, False when it was aborted.
    :param event_id: its COMMIT_TXN or ABORT_TXN event.
    """

    txn_id: int
    committed: bool
    event_id: int


class TimeoutApi(Protocol):
    """Ends transactions that had no heartbeat for too long."""

    @abstractmethod
    def get_txn(self, txn_id: int) -> TxnInfo:
        """Look up a transaction in any state.

        :raises NoSuchTransactionError: when it was never opened.
        """

    @abstractmethod
    def writes_of(self, txn_id: int) -> list[TableWriteInfo]:
        """The instants that a transaction recorded, and its write ids without an instant.

        :return: the writes in the order of tables and instants; those into dropped tables are left out.
        """

    @abstractmethod
    def timed_out(self, timeout_seconds: float) -> list[int]:
        """The open transactions without a heartbeat for ``timeout_seconds``, or for their own timeout.

        :return: their ids, ascending.
        """

    @abstractmethod
    def end_timed_out(self, txn_id: int, timeout_seconds: float, *, commit: bool) -> int | None:
        """Commit or abort a transaction, unless it ended or sent a heartbeat since it was found timed out.

        :return: the id of its COMMIT_TXN or ABORT_TXN event; None when this call did not end it.
        """

    def abort_timed_out(self, timeout_seconds: float) -> list[int]:
        """Abort the open transactions without a heartbeat for ``timeout_seconds``, or their own timeout.

        Transactions with a write id on a table are left to :meth:`recover_timed_out`: only the tables'
        timelines can tell whether their writes are committed, even before they record an instant.

        :return: the ids of the aborted transactions, ascending.
        """
        return [
            txn_id
            for txn_id in self.timed_out(timeout_seconds)
            if not self.writes_of(txn_id) and self._end(txn_id, timeout_seconds, commit=False)
        ]

    def recover_timed_out(
        self, timeout_seconds: float, is_completed: Callable[[TableWriteInfo], bool]
    ) -> list[RecoveredTxn]:
        """End the open transactions that timed out, each as the timelines of its tables say.

        The timeline is the truth for a table. Recovery commits a transaction when all its writes completed
        (unless it was opened with ``commit_on_recovery=False`` and its commit was not requested), and aborts
        any other.

        :param is_completed: tells of each write whether it completed. It is called outside any database
            transaction, and False must be final: it rolls back an instant that did not complete before it
            returns, so that the instant never will. For a write without an instant it looks through the
            table's timeline for the transaction's id. It may use the metastore, for example to register the
            write's partitions. When it raises, the transaction stays open, and recovery goes on with the
            others.
        :return: the end of each transaction, by transaction id, without those that ended or sent a heartbeat
            meanwhile.
        """
        recovered = []
        for txn_id in self.timed_out(timeout_seconds):
            writes = self.writes_of(txn_id)
            try:
                outcomes = [is_completed(write) for write in writes]
            except MetastoreUnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the tables' file systems raise
                log.warning(
                    "transaction %d timed out and stays open: %s: %s", txn_id, type(error).__name__, error
                )
                continue
            commit = bool(writes) and all(outcomes) and self.get_txn(txn_id).commit_on_recovery
            event_id = self._end(txn_id, timeout_seconds, commit=commit)
            if event_id:
                recovered.append(RecoveredTxn(txn_id, commit, event_id))
        return recovered

    def _end(self, txn_id: int, timeout_seconds: float, *, commit: bool) -> int | None:
        event_id = self.end_timed_out(txn_id, timeout_seconds, commit=commit)
        if event_id is not None:
            log.info(
                "transaction %d timed out: %s",
                txn_id,
                "all its instants completed, committed" if commit else "aborted",
            )
        return event_id

"""Recovery of transactions that had no heartbeat; the same for a database and for a server."""

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
    """What recovery did with a timed-out transaction.

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
        """Look a transaction up, whatever its state.

        :raises NoSuchTransactionError: when it was never opened.
        """

    @abstractmethod
    def writes_of(self, txn_id: int) -> list[TableWriteInfo]:
        """What a transaction wrote: its recorded instants, and its write ids without one.

        :return: by table and instant; tables dropped since are not among them.
        """

    @abstractmethod
    def timed_out(self, timeout_seconds: float) -> list[int]:
        """The open transactions without a heartbeat for so long, or for their own timeout, ascending."""

    @abstractmethod
    def end_timed_out(self, txn_id: int, timeout_seconds: float, *, commit: bool) -> int | None:
        """Commit or abort a transaction, unless it moved since it was found timed out.

        :return: the id of its COMMIT_TXN or ABORT_TXN event, None when it moved.
        """

    def abort_timed_out(self, timeout_seconds: float) -> list[int]:
        """Abort the open transactions without a heartbeat for ``timeout_seconds``, or their own timeout.

        Those that have a write id in a table are left to :meth:`recover_timed_out`: only the tables'
        timelines can tell whether they are committed, also when they have recorded no instant yet.

        :return: the ids of those aborted, ascending.
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

        The timeline is the truth for a table: a transaction all of whose writes completed is
        committed (unless it was opened with ``commit_on_recovery=False`` and its commit was not
        requested), any other is aborted.

        :param is_completed: asked about each write, outside any database transaction. False must be
            final: an instant that did not complete must be rolled back before the answer, so that it
            never will. For a write without an instant it looks through the table's timeline for the
            transaction's id. It may use the metastore, for example to register the write's partitions.
            When it raises, the transaction stays open, and the others are ended all the same.
        :return: the result of each, by transaction id, without those that moved meanwhile.
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

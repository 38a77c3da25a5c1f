"""Transactions around several tasks: their writes become visible together, or not at all."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, TriggerRule

from airflow_provider.concurrency.transactions import (
    abort_transaction,
    commit_transaction,
    recover_transactions,
)
from airflow_provider.exceptions import (
    EnclosingTransactionError,
    InvalidInputError,
    NoSuchTransactionError,
    TableServiceError,
    TransactionAbortedError,
)
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.locks.owner import describe_owner, split_owner
from airflow_provider.metastore import AnyMetastore, TxnState
from airflow_provider.metastore.model import system_user
from airflow_provider.operators._base import TaskOperation

if TYPE_CHECKING:
    from airflow.sdk import Context


class TransactionOperator(BaseOperator):
    """Base of the operators that begin and end transactions.

    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param storage_conn_id: connection of the tables' storage; see
        :class:`~airflow_provider.hooks.table.TableHook` (templated).
    """

    template_fields: Sequence[str] = ("metastore_conn_id", "storage_conn_id")
    ui_color = "#e6dff0"

    def __init__(
        self,
        *,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id

    def _metastore(self) -> AnyMetastore:
        return MetastoreHook(self.metastore_conn_id).get_metastore()

    def _storage_options(self) -> dict[str, Any]:
        return TableHook(self.metastore_conn_id, self.storage_conn_id).storage_options()


class BeginTransactionOperator(TransactionOperator):
    """Begins a transaction; the result is its id.

    ::

        begin = BeginTransactionOperator(task_id="begin", timeout=timedelta(hours=6))
        flights = IngestOperator(task_id="flights", table="lake.flights", txn_id=begin.output, ...)
        delays = IngestOperator(task_id="delays", table="lake.delays", txn_id=begin.output, ...)
        commit = CommitTransactionOperator(task_id="commit", txn_id=begin.output)
        begin >> [flights, delays] >> commit

    A retry returns the transaction of the earlier try, as long as the transaction is open. A task that is
    cleared aborts the old transaction, unless it has ended, and begins a new one: clear all tasks after it
    too.

    :param timeout: how long the transaction may be without a heartbeat before it is aborted and undone; a
        timedelta or seconds. Tasks send heartbeats while they write into the transaction. So give the longest
        time between two such tasks, waiting and retry delays included (templated).
    """

    template_fields: Sequence[str] = (*TransactionOperator.template_fields, "timeout")

    def __init__(self, *, timeout: timedelta | float | str = timedelta(hours=1), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.timeout = timeout

    @fail_unless_retryable
    def execute(self, context: Context) -> int:
        """Begin the transaction.

        :raises AirflowFailException: for an invalid timeout.
        :raises MetastoreUnavailableError: when the metastore cannot be reached.
        """
        timeout, metastore, operation = _seconds(self.timeout), self._metastore(), TaskOperation(context)
        txn_id = operation.recall("txn_id")
        if txn_id is None and operation.is_retry:
            txn_id = _begun(metastore, operation.key)
        if txn_id is not None and metastore.get_txn(txn_id).state is TxnState.OPEN:
            metastore.heartbeat_txn(txn_id)
            operation.remember(txn_id=txn_id)
            self.log.info("transaction %d was begun by an earlier try", txn_id)
            return int(txn_id)
        self._end_what_was_left(metastore, operation.before.get("txn_id"))
        txn_id = metastore.open_txn(
            system_user(),
            socket.gethostname(),
            agent=describe_owner(operation.key),
            commit_on_recovery=False,
            timeout_seconds=timeout,
        )
        operation.remember(txn_id=txn_id)
        self.log.info(
            "transaction %d begins; it is undone after %g s without a sign of life", txn_id, timeout
        )
        return txn_id

    def _end_what_was_left(self, metastore: AnyMetastore, txn_id: int | None) -> None:
        """Abort the transaction that this task began before it was cleared, and all expired ones."""
        options = self._storage_options()
        try:
            if txn_id is not None and metastore.get_txn(txn_id).state is TxnState.OPEN:
                abort_transaction(metastore, txn_id, reason="its task was cleared", storage_options=options)
            recover_transactions(metastore, storage_options=options)
        except (TableServiceError, OSError) as error:
            # These transactions may write to other tables, whose next writers end them.
            self.log.warning("transactions left alone could not be ended now: %s", error)


class CommitTransactionOperator(TransactionOperator):
    """Commits a transaction: everything written in it becomes visible in one step.

    If a task that should write in the transaction has not written, or is still writing, this task fails and
    leaves the transaction open. A retry succeeds if the earlier try committed but could not report it. The
    result is ``txn_id`` and ``event_id``, the id of the COMMIT_TXN event.

    :param txn_id: the transaction, from :class:`BeginTransactionOperator` (templated).
    """

    template_fields: Sequence[str] = (*TransactionOperator.template_fields, "txn_id")

    def __init__(self, *, txn_id: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.txn_id = txn_id

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Commit the transaction.

        :raises AirflowFailException: when the transaction was aborted, or does not exist.
        :raises CommitError: when a write in it is missing or unfinished.
        """
        txn_id = transaction_id(self.txn_id)
        try:
            event_id = commit_transaction(self._metastore(), txn_id, storage_options=self._storage_options())
        except (TransactionAbortedError, NoSuchTransactionError) as error:
            raise EnclosingTransactionError.caused_by(error) from error
        self.log.info("transaction %d is committed, event %d", txn_id, event_id)
        return {"txn_id": txn_id, "event_id": event_id}


class AbortTransactionOperator(TransactionOperator):
    """Aborts a transaction and undoes everything written in it; by default when a task before it failed.

    ::

        begin >> [flights, delays] >> commit
        [flights, delays] >> AbortTransactionOperator(task_id="abort", txn_id=begin.output)

    Without this operator, a failed task can be cleared and run again in the same transaction until the
    transaction times out and is undone. A committed transaction stays committed. The result is ``txn_id`` and
    ``event_id``, the id of the ABORT_TXN or COMMIT_TXN event.

    :param txn_id: the transaction, from :class:`BeginTransactionOperator` (templated).
    """

    template_fields: Sequence[str] = (*TransactionOperator.template_fields, "txn_id")

    def __init__(self, *, txn_id: Any, trigger_rule: str = TriggerRule.ONE_FAILED, **kwargs: Any) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.txn_id = txn_id

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Abort the transaction.

        :raises AirflowFailException: when a table cannot be opened, or a write cannot be undone; even then no
            reader with a snapshot sees any of it.
        """
        txn_id, metastore = transaction_id(self.txn_id), self._metastore()
        if metastore.get_txn(txn_id).state is TxnState.COMMITTED:
            self.log.info("transaction %d is committed, nothing is undone", txn_id)
            event_id = metastore.commit_txn(txn_id)
        else:
            event_id = abort_transaction(
                metastore, txn_id, reason="its DAG run failed", storage_options=self._storage_options()
            )
            self.log.info("transaction %d is aborted, event %d", txn_id, event_id)
        return {"txn_id": txn_id, "event_id": event_id}


def _begun(metastore: AnyMetastore, operation_key: str) -> int | None:
    """The transaction that a try of an operation opened before it died, without storing the id."""
    seen = metastore.valid_txn_list()
    for txn_id in (each for each in seen.exceptions if not seen.is_aborted(each)):
        if split_owner(metastore.get_txn(txn_id).agent or "")[1] == operation_key:
            return txn_id
    return None


def transaction_id(given: Any) -> int:
    """A transaction's id; a template's result is text.

    :raises InvalidInputError: when it is no id.
    """
    text = str(given).strip()
    if isinstance(given, bool) or not text.isdecimal():
        raise InvalidInputError(
            f"txn_id {given!r} is no transaction; give the output of a BeginTransactionOperator"
        )
    return int(text)


def _seconds(given: timedelta | float | str) -> float:
    try:
        return given.total_seconds() if isinstance(given, timedelta) else float(given)
    except (TypeError, ValueError):
        raise InvalidInputError(f"timeout must be a timedelta or seconds, not {given!r}") from None

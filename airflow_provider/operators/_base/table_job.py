"""What all operators have in common that change a table by a Spark job.

Around the job: the metastore's transaction, the retry that finds what an earlier try did, and
the end of a task that is killed. What the job is, the subclass says.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency.transactions import (
    insertions,
    partition_specs,
    recover_transactions,
    settle_transactions,
)
from airflow_provider.concurrency.undo import revert
from airflow_provider.exceptions import (
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchTransactionError,
    TableError,
    TableServiceError,
    TransactionAbortedError,
)
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import ResolvedTable, TableHook
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.result import earlier_result
from airflow_provider.metastore import Insertion, PartitionSpec, TableTransaction, TxnState
from airflow_provider.operators._base.spark_operator import SparkOperator, nobody
from airflow_provider.operators._base.task_errors import failing_without_retries
from airflow_provider.operators._base.task_operation import TaskOperation
from airflow_provider.services.metastore_columns import follow_columns
from airflow_provider.table.hudi_options import EffectiveOptions
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from airflow.sdk import Context

_RESULT_KEYS = (
    "instant",
    "completion_time",
    "action",
    "operation",
    "rows_inserted",
    "rows_updated",
    "rows_deleted",
    "files_written",
    "rebases",
    "schema_changes",
    "txn_id",
    "write_id",
    "event_id",
)


class TableJobOperator(SparkOperator, abc.ABC):
    """Base of operators that change a table by a Spark job, as one instant and one transaction.

    A table given by its name in the metastore is changed in a transaction: it is opened, with a
    write id, before the job, which puts both ids into the commit's metadata; when the job has
    committed, new partitions are registered, an INSERT event tells of each partition's new files, and
    the transaction commits, all at once. A table given by its path or URL is changed without.

    A retried task first finds out what its last try did. If that try committed and could not say
    so, the retry ends the try's transaction and returns its result; anything else it left is
    rolled back, and the job runs again. A task that is cleared does its work again.

    The result is ``table``, ``instant``, ``completion_time``, ``action``, ``operation``, ``txn_id``,
    ``write_id``, ``event_id`` (the last three None without a transaction), ``rows_inserted``,
    ``rows_updated``, ``rows_deleted``, ``files_written``, ``rebases``, ``schema_changes`` and ``bytes``.

    Arguments: see :class:`~airflow_provider.operators._base.SparkOperator`.
    """

    @abc.abstractmethod
    def job(self, context: Context, options: EffectiveOptions, **shared: Any) -> IngestJob:
        """What to do.

        :param context: of the task.
        :param options: Hudi's options, the task's over the table's.
        :param shared: the fields of the job that all operators fill alike.
        :raises InvalidInputError: when an argument cannot work.
        """

    @failing_without_retries
    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job, and everything around it.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        :raises WriteConflictError: when another write to the same file groups completed first.
        :raises JobFailedError: when the job ended without saying why, or was killed.
        """
        hook = TableHook(self.metastore_conn_id, self.storage_conn_id)
        resolved = hook.resolve(self.table)
        table = HudiTable.open(resolved.location, hook.storage_options())
        table.check_writable()
        operation = self._operation(context)
        open_txn = self._open_txn(resolved)
        options = self._options(table)
        job = self.job(
            context,
            options,
            txn_id=open_txn,
            txn_goes_on=open_txn is not None,
            location=resolved.location,
            table_name=self.table if resolved.is_registered else None,
            storage_options=table.storage.options,
            lock=self._lock_config(options),
            operation_key=operation.key,
            operation_since=operation.since,
            spark_conf=dict(self.spark_conf or {}),
        )
        job.validate()
        with self._in_open_txn(table, job):
            summary = self._work(resolved, table, operation, job)
        if summary.get("schema_changes"):
            self._tell_columns(resolved, table)
        return self._result(summary)

    def _tell_columns(self, resolved: ResolvedTable, table: HudiTable) -> None:
        """Tell the metastore what columns the table has; where it cannot be told now, a later change does."""
        if resolved.database is None or resolved.name is None:
            return
        try:
            follow_columns(self._metastore_hook().get_metastore(), resolved.database, resolved.name, table)
        except MetastoreError as error:
            self.log.warning("the metastore was not told of the columns of %s: %s", self.table, error)

    def _operation(self, context: Context) -> TaskOperation:
        return TaskOperation(context)

    def _open_txn(self, resolved: ResolvedTable) -> int | None:
        """The transaction to write in and not to end; None to write in one of its own.

        :raises InvalidInputError: when it cannot be one.
        """
        return None

    @contextmanager
    def _in_open_txn(self, table: HudiTable, job: IngestJob) -> Iterator[None]:
        """Where the write is in somebody's transaction: it must be open before and after."""
        if job.txn_id is None:
            yield
            return
        metastore = self._metastore_hook().get_metastore()
        try:
            metastore.heartbeat_txn(job.txn_id)
            yield
        except (TransactionAbortedError, NoSuchTransactionError) as error:
            settle_transactions(metastore, table)  # it may have committed after the abort
            raise AirflowFailException(
                f"{error}; clear the task that began it, and all that follow"
            ) from error

    def _work(
        self, resolved: ResolvedTable, table: HudiTable, operation: TaskOperation, job: IngestJob
    ) -> dict[str, Any]:
        if operation.is_retry and (earlier := self._end_earlier_try(resolved, table, operation, job)):
            return earlier
        self._recover(resolved, table)
        running = self._spark_job(operation)

        return self._write(
            resolved, table, operation, job, lambda job: self._run(running, job, table.storage)
        )

    def _write(
        self,
        resolved: ResolvedTable,
        table: HudiTable,
        operation: TaskOperation,
        job: IngestJob,
        run: Callable[[IngestJob], dict[str, Any]],
    ) -> dict[str, Any]:
        """One commit, in one transaction: of its own, or in somebody's that goes on.

        :param run: runs the job; when it raises, nothing of the job runs any more.
        """
        interruption: BaseException | None = None
        with self._transaction(resolved, operation, job) as transaction:
            ids: dict[str, Any] = {}
            if transaction:
                ids = {"txn_id": transaction.txn_id, "write_id": transaction.write_id}
            operation.remember(**ids)
            try:
                summary = run(dataclasses.replace(job, **ids))
            except BaseException as error:
                commit = operation.settle(
                    table, f"its task ended with {type(error).__name__}", wait_for=nobody
                )
                if commit is None:
                    raise
                # The job was done and only its word was missing: the timeline is the truth.
                self.log.warning("instant %s had committed when the job ended: %s", commit.instant, error)
                summary = earlier_result(job, table, commit)
                if self._is_killed or not isinstance(error, Exception):
                    interruption = error
            if transaction and job.txn_goes_on:
                transaction.record_instant(summary["instant"])  # partitions come with the commit
            elif transaction:
                # For recovery only, should the commit below not come through.
                with suppress(MetastoreUnavailableError):
                    transaction.record_instant(summary["instant"])
                transaction.add_partitions(partition_specs(table, summary["partitions"]))
                transaction.add_insertions(insertions(table, summary["instant"]))
        if interruption is not None:
            raise interruption
        return {**summary, **ids, "event_id": transaction.event_id if transaction else None}

    def _recover(self, resolved: ResolvedTable, table: HudiTable) -> None:
        """End the transactions of writers that died, as every writer does that comes by."""
        if not resolved.is_registered:
            return
        metastore = self._metastore_hook().get_metastore()
        try:
            recovered = recover_transactions(metastore, storage_options=table.storage.options)
            settle_transactions(metastore, table)
        except (TableServiceError, OSError) as error:
            # They may be of other tables, in other storages; this write does not depend on them.
            self.log.warning("transactions left alone could not be ended now: %s", error)
            return
        for each in recovered:
            self.log.info(
                "transaction %d had been left alone: %s",
                each.txn_id,
                "its instants had completed, committed" if each.committed else "aborted",
            )

    def _end_earlier_try(
        self, resolved: ResolvedTable, table: HudiTable, operation: TaskOperation, job: IngestJob
    ) -> dict[str, Any] | None:
        """What an earlier try committed; None when the work is to be done, and nothing of the try is left."""
        wait = self._still_writing if operation.recall("waits_for_writer") else nobody
        commit = operation.settle(table, "its task is tried again", wait_for=wait)
        txn_id, write_id = operation.recall("txn_id"), operation.recall("write_id")
        if commit is None:
            if txn_id is not None and not job.txn_goes_on:
                with suppress(NoSuchTransactionError):  # recovery was here before
                    self._metastore_hook().get_metastore().abort_txn(txn_id)
            self.log.info("an earlier try of this task left no commit; the job runs again")
            return None
        if not job.txn_goes_on and txn_id is not None and self._undo_aborted(table, commit.instant, txn_id):
            return None
        self.log.info(
            "an earlier try of this task committed instant %s; nothing is done again", commit.instant
        )
        summary = earlier_result(job, table, commit)
        event_id = None
        if job.txn_goes_on:
            with self._transaction(resolved, operation, job) as transaction:
                if transaction:
                    transaction.record_instant(commit.instant)
        elif resolved.is_registered and txn_id is not None:
            specs = partition_specs(table, summary["partitions"])
            told = insertions(table, commit.instant)
            event_id = self._commit_earlier(resolved, operation, txn_id, specs, told)
        return {**summary, "txn_id": txn_id, "write_id": write_id, "event_id": event_id}

    def _undo_aborted(self, table: HudiTable, instant: str, txn_id: int) -> bool:
        """Undo what an earlier try committed after its transaction had been aborted.

        No reader with a snapshot would ever see it, nor, once something is merged on it, anything later.

        :return: False where the transaction is not aborted, or something was merged on it already.
        """
        if self._metastore_hook().get_metastore().get_txn(txn_id).state is not TxnState.ABORTED:
            return False
        try:
            revert(table, instant, reason=f"transaction {txn_id} had timed out")
        except TableError as error:
            self.log.warning("%s", error)
            return False
        self.log.info("transaction %d had timed out before instant %s; the job runs again", txn_id, instant)
        return True

    def _commit_earlier(
        self,
        resolved: ResolvedTable,
        operation: TaskOperation,
        txn_id: int,
        specs: list[PartitionSpec],
        told: list[Insertion],
    ) -> int | None:
        place = (str(resolved.database), str(resolved.name))
        try:
            return (
                self._metastore_hook()
                .get_metastore()
                .commit_txn(
                    txn_id,
                    new_partitions={place: specs} if specs else {},
                    insertions={place: told} if told else {},
                )
            )
        except TransactionAbortedError:
            self.log.warning(
                "transaction %d timed out before this retry, although its instant had committed: readers "
                "with a snapshot do not see its rows. Its partitions are registered in another transaction",
                txn_id,
            )
            with self._metastore_hook().transaction(self.table, agent=operation.key) as transaction:
                transaction.add_partitions(specs)
                transaction.add_insertions(told)
            return transaction.event_id

    def _transaction(
        self, resolved: ResolvedTable, operation: TaskOperation, job: IngestJob
    ) -> TableTransaction | nullcontext[None]:
        if not resolved.is_registered:
            return nullcontext()
        return self._metastore_hook().transaction(self.table, agent=operation.key, txn_id=job.txn_id)

    def _metastore_hook(self) -> MetastoreHook:
        return MetastoreHook(self.metastore_conn_id)

    def _result(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        self.log.info(
            "instant %s completed at %s: %d rows inserted, %d updated, %d deleted; %d files, %d bytes",
            *(summary[key] for key in ("instant", "completion_time", "rows_inserted", "rows_updated")),
            *(summary[key] for key in ("rows_deleted", "files_written", "bytes_written")),
        )
        result = {key: summary[key] for key in _RESULT_KEYS}
        return {"table": self.table, **result, "bytes": summary["bytes_written"]}

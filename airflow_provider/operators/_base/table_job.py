"""The way of an operator that writes one commit by a Spark job. What the job is, the subclass says."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.result import earlier_result
from airflow_provider.managed import ManagedWrite, ResolvedTable, TransactionIds
from airflow_provider.operators._base.spark_operator import SparkOperator
from airflow_provider.operators._base.task_operation import TaskOperation
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

    :class:`~airflow_provider.managed.ManagedWrite` does the work around the job: transaction, earlier try,
    recovery, partitions and INSERT events. This class resolves connections, templates and the task's context.

    A retried task first finds out what its last try did. If that try committed and could not say so, the
    retry ends the try's transaction and returns its result. Anything else that the try left is rolled back,
    and the job runs again. A task that is cleared does its work again.

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

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job, and everything around it.

        :raises AirflowFailException: for an error that is not retryable; caused by the typed error.
        :raises WriteConflictError: when another write to the same file groups completed first.
        :raises JobFailedError: when the job ended without saying why, or was killed.
        """
        hook = TableHook(self.metastore_conn_id, self.storage_conn_id)
        resolved = hook.resolve(self.table)
        table = HudiTable.open(resolved.location, hook.storage_options())
        table.check_writable()
        operation = self._operation(context)
        joined_txn = self._joined_txn(resolved)
        options = self._options(table)
        job = self.job(
            context,
            options,
            txn_id=joined_txn,
            txn_goes_on=joined_txn is not None,
            location=resolved.location,
            table_name=self.table if resolved.is_registered else None,
            storage_options=table.storage.options,
            lock=self._lock_config(options),
            operation_key=operation.key,
            operation_since=operation.since,
            spark_conf=dict(self.spark_conf or {}),
        )
        return self._result(self._ingest(self._managed(resolved, table, operation, job), operation, job))

    def _operation(self, context: Context) -> TaskOperation:
        return TaskOperation(context)

    def _joined_txn(self, resolved: ResolvedTable) -> int | None:
        """The transaction to write in and not to end; None to write in one of its own.

        :raises InvalidInputError: when it cannot be one.
        """
        return None

    def _managed(
        self, resolved: ResolvedTable, table: HudiTable, operation: TaskOperation, job: IngestJob
    ) -> ManagedWrite:
        return ManagedWrite(
            resolved,
            table,
            MetastoreHook(self.metastore_conn_id).get_metastore,
            operation,
            lambda commit: earlier_result(job, table, commit),
            joined_txn=job.transaction.open_txn,
            is_stopped=lambda: self._is_killed,
            wait_for=self._still_writing if operation.recall("waits_for_writer") else None,
        )

    def _ingest(self, managed: ManagedWrite, operation: TaskOperation, job: IngestJob) -> dict[str, Any]:
        running = self._spark_job(operation)

        def write(ids: TransactionIds) -> dict[str, Any]:
            described = job.in_transaction(ids.txn_id, ids.write_id)
            return self._run(running, described, managed.table.storage)

        return managed.run(write)

    def _result(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        self.log.info(
            "instant %s completed at %s: %d rows inserted, %d updated, %d deleted; %d files, %d bytes",
            *(summary[key] for key in ("instant", "completion_time", "rows_inserted", "rows_updated")),
            *(summary[key] for key in ("rows_deleted", "files_written", "bytes_written")),
        )
        result = {key: summary[key] for key in _RESULT_KEYS}
        return {"table": self.table, **result, "bytes": summary["bytes_written"]}

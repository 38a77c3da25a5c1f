"""Writing rows into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import conf
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider.concurrency import WriteTransaction
from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    MissingSourceError,
    SourceNotThereYetError,
    SparkNeededError,
    from_dict,
)
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.ingestion.files import choose_engine_for
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.one_commit import check_operation
from airflow_provider.ingestion.result import earlier_result
from airflow_provider.jobs import SPARK, Choice
from airflow_provider.managed import ManagedWrite, ResolvedTable
from airflow_provider.operators._base import (
    SparkOperator,
    TaskOperation,
    byte_size,
    event_extra,
    lineage_of,
    mapping,
    one_of,
    outlet_of,
    priority_of_run,
    wait_for_turn,
)
from airflow_provider.operators.transaction import transaction_id
from airflow_provider.table.hudi_options import EffectiveOptions, Topic
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
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


class IngestOperator(SparkOperator):
    """Writes the rows of a source into a table, under optimistic concurrency control.

    ::

        IngestOperator(
            task_id="ingest",
            table="lake.flights",
            source="{{ var.value.landing }}/{{ dag_run.run_after | ds }}/*.parquet",
            operation="upsert",
            retries=3,
        )

    The table stores the record key, partition columns and ordering field. A source that cannot be read, a
    null key, or a column that does not fit fails the task before anything is written, and without retries. A
    lost conflict raises :class:`~airflow_provider.exceptions.WriteConflictError`, which Airflow retries like
    any failure, unless ``on_conflict`` is ``rebase``.

    With ``txn_id`` the task writes in a transaction around several tasks. Readers with a snapshot see its
    rows when that transaction commits; see
    :class:`~airflow_provider.operators.transaction.BeginTransactionOperator`.

    A load into a table of the metastore has a transaction; :class:`~airflow_provider.managed.ManagedWrite`
    does the work around the job. A retried task first looks for its last try's commit. If that try committed
    but could not report it, the retry ends the try's transaction and returns its result. Otherwise the retry
    rolls the try back, and the job runs again. A task that is cleared does its work again.

    The result is ``table``, ``instant``, ``completion_time``, ``action``, ``operation``, ``txn_id``,
    ``write_id``, ``event_id`` (the last three None without a transaction), ``rows_inserted``,
    ``rows_updated``, ``rows_deleted``, ``files_written``, ``rebases``, ``schema_changes`` and ``bytes``.

    Arguments beside those of :class:`~airflow_provider.operators._base.SparkOperator`:

    :param source: path, URL or pattern of the files to read, or several (templated).
    :param source_format: ``parquet``, ``csv``, ``json`` or another format that Spark reads; or ``arrow`` or
        ``feather``, which the operator reads without Spark (templated).
    :param source_options: options of Spark's reader, such as ``{"header": "true"}`` (templated).
    :param operation: ``insert``, ``upsert``, ``delete``, ``bulk_insert``, ``insert_overwrite`` (the
        partitions that the rows belong to) or ``insert_overwrite_table`` (templated).
    :param priority: decides which of two writes on the same file groups yields: ``ingestion``, ``backfill``,
        ``table_service``, ``cleaning``, or a number, the larger the more important. When None or ``auto``,
        the run decides: ``write_priority`` in the conf of its trigger; else ``backfill`` in a run of
        Airflow's own backfills; else ``ingestion`` (templated).
    :param on_conflict: what the load does if a write that completed first touched the same file groups, or
        added the same new key. ``raise`` (default) raises the error. ``rebase`` merges only these file groups
        again, on the other write's result, and then commits (templated).
    :param on_rewrite: what the load does if a clustering or compaction of lower priority completed first:
        ``rebase`` onto its file groups, or ``revert`` it (templated).
    :param on_higher_priority: what the load does if a live writer of higher priority works on the same file
        groups: ``wait`` for its end, or ``fail`` (templated).
    :param max_rebases: how often one write is rebased before it raises; 10 by default.
    :param on_pending_clustering: what the load does if another Hudi writer has planned a clustering of a file
        group of its rows: ``fail``, as Hudi does by default, or ``wait`` for its end (templated).
    :param yield_timeout: seconds to wait for writers of higher priority, and for such clusterings; an hour
        by default.
    :param target_file_size: bytes, or a text such as ``100 MB``; the load fills files up to about this size
        (templated).
    :param small_file_limit: bytes, or such a text; the load adds new rows to smaller files before it opens
        new files (templated).
    :param set_null_for_missing_columns: True writes null into columns that the rows lack; False, the default,
        refuses such rows.
    :param validate_schema: True refuses rows that lack a column in any case.
    :param heartbeat_interval: seconds between two heartbeats of the job.
    :param tolerable_misses: number of heartbeats that may be missing before others roll the job back.
    :param extra_metadata: added to the commit's metadata (templated).
    :param txn_id: an open transaction, which another task ends; a transaction of its own when None
        (templated).
    :param missing_source: what the task does if a path of the source does not exist: ``fail`` without
        retries, fail and be retried (``retry``), or ``skip`` (templated).
    :param on_empty: what the task does if the source holds no row: ``fail`` without retries, or ``skip``
        (templated).
    :param asset: whether the table's asset (:func:`~airflow_provider.assets.table_asset`) is an outlet of the
        task, so that the load starts DAGs that have the asset as schedule. The asset's event has instant,
        completion time, rows and event id as ``extra``. A write in a transaction of another task has no such
        outlet, because its rows are not visible yet. A table whose name is a template has none either.
    :param deferrable: whether the task waits in the triggerer, without a worker slot. Before its job starts
        it waits for its turn: for live writers of higher priority, the holder of the table lock, and a job
        that an earlier try left running. Then it waits for the job itself, if the driver runs on a cluster.
        Airflow's ``[operators] default_deferrable`` by default.
    """

    template_fields: Sequence[str] = (
        *SparkOperator.template_fields,
        "source",
        "source_format",
        "source_options",
        "operation",
        "priority",
        "on_conflict",
        "on_rewrite",
        "on_higher_priority",
        "on_pending_clustering",
        "extra_metadata",
        "txn_id",
        "missing_source",
        "on_empty",
        "target_file_size",
        "small_file_limit",
    )
    ui_color = "#cde7f0"
    usual_priority: ClassVar[str] = "ingestion"
    usual_on_conflict: ClassVar[str] = "raise"

    def __init__(
        self,
        *,
        source: str | Sequence[str],
        source_format: str = "parquet",
        source_options: Mapping[str, str] | None = None,
        operation: str = "upsert",
        priority: str | int | None = None,
        on_conflict: str | None = None,
        on_rewrite: str = "rebase",
        on_higher_priority: str = "wait",
        on_pending_clustering: str | None = None,
        max_rebases: int | None = None,
        yield_timeout: float | None = None,
        target_file_size: int | str | None = None,
        small_file_limit: int | str | None = None,
        set_null_for_missing_columns: bool | None = None,
        validate_schema: bool | None = None,
        heartbeat_interval: float | None = None,
        tolerable_misses: int | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        txn_id: Any = None,
        missing_source: str = "fail",
        on_empty: str = "fail",
        asset: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        outlet = outlet_of(self.table) if asset and txn_id is None else None
        if outlet is not None:
            self.outlets = [*self.outlets, outlet]
        self.source = source
        self.source_format = source_format
        self.source_options = source_options
        self.operation = operation
        self.priority = priority
        self.on_conflict = on_conflict
        self.on_rewrite = on_rewrite
        self.on_higher_priority = on_higher_priority
        self.on_pending_clustering = on_pending_clustering
        self.max_rebases = max_rebases
        self.yield_timeout = yield_timeout
        self.target_file_size = target_file_size
        self.small_file_limit = small_file_limit
        self.set_null_for_missing_columns = set_null_for_missing_columns
        self.validate_schema = validate_schema
        self.heartbeat_interval = heartbeat_interval
        self.tolerable_misses = tolerable_misses
        self.extra_metadata = extra_metadata
        self.txn_id = txn_id
        self.missing_source = missing_source
        self.on_empty = on_empty
        self.deferrable = deferrable
        self._comes_back = False
        self._lineage: dict[str, Any] = {}

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job, and everything around it.

        :raises AirflowFailException: for an error that is not retryable; caused by the typed error.
        :raises AirflowSkipException: for a missing or empty source, if the task's arguments say so.
        :raises SourceNotThereYetError: for a missing source, if the task's arguments say so.
        :raises WriteConflictError: when another write to the same file groups completed first.
        :raises JobFailedError: when the job ended without an answer, or was killed.
        """
        return self._work(context)

    @fail_unless_retryable
    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the trigger: it is this write's turn, or its ``yield_timeout`` is over.

        :raises TableServiceError: the trigger's error, in its original type; also see :meth:`execute`.
        """
        if event["status"] == "error":
            raise from_dict(event["error"])
        self._comes_back = True
        return self._work(context)

    def _work(self, context: Context) -> dict[str, Any]:
        """See :meth:`SparkOperator._work`."""
        one_of(self.missing_source, "missing_source", ("fail", "retry", "skip"))
        one_of(self.on_empty, "on_empty", ("fail", "skip"))
        try:
            return self._load(context)
        except MissingSourceError as error:
            if self.missing_source == "retry":
                raise SourceNotThereYetError(str(error), **error.details) from error
            if self.missing_source == "skip":
                raise AirflowSkipException(str(error)) from error
            raise
        except EmptySourceError as error:
            if self.on_empty == "skip":
                raise AirflowSkipException(str(error)) from error
            raise

    def _load(self, context: Context) -> dict[str, Any]:
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
            **self._spark_settings(),
        )
        check_operation(job, table, resolved)
        if self.deferrable and operation.recall("left_job") is None:
            lock = self._lock(table, options)
            job = wait_for_turn(self, table, lock, operation, job, comes_back=self._comes_back)
        self._lineage = {"sources": job.source.paths, "table": self.table, "location": resolved.location}
        result = self._result(self._ingest(self._managed(resolved, table, operation, job), operation, job))
        self._lineage |= {"schema": table.schema, "result": result}
        outlet = outlet_of(self.table)
        if outlet is not None and outlet in self.outlets and "outlet_events" in context:
            context["outlet_events"][outlet].extra = event_extra(result)
        return result

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """The sources as inputs, the table as output, for Airflow's OpenLineage provider.

        :param task_instance: the task's instance; not needed.
        :return: None if the write ended before its table was known.
        """
        return lineage_of(**self._lineage) if self._lineage else None

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """The same without version and statistics; see :meth:`get_openlineage_facets_on_complete`."""
        return self.get_openlineage_facets_on_complete(task_instance)

    def _operation(self, context: Context) -> TaskOperation:
        return TaskOperation(context)

    def _joined_txn(self, resolved: ResolvedTable) -> int | None:
        """The enclosing transaction, which another task ends; None for a transaction of its own.

        :raises InvalidInputError: when the argument is no transaction's id.
        """
        if self.txn_id is None or str(self.txn_id).strip() in ("", "None"):
            return None
        if not resolved.is_registered:
            raise InvalidInputError(
                f"table {self.table} is given by its location, which no transaction knows; give txn_id "
                f"{self.txn_id} with a table of the metastore, as database.table",
                table=self.table,
            )
        return transaction_id(self.txn_id)

    def job(self, context: Context, options: EffectiveOptions, **shared: Any) -> IngestJob:
        """The task's ingestion as data.

        :param context: the task's context.
        :param options: Hudi's options; the task's override the table's.
        :param shared: further fields of the job.
        :raises InvalidInputError: when an argument is invalid.
        """
        tuning = {"on_conflict": self.usual_on_conflict} | options.arguments(
            Topic.WRITING,
            Topic.SCHEMA,
            Topic.HEARTBEAT,
            on_conflict=self.on_conflict,
            on_rewrite=self.on_rewrite,
            on_higher_priority=self.on_higher_priority,
            on_pending_clustering=self.on_pending_clustering,
            max_rebases=self.max_rebases,
            yield_timeout=self.yield_timeout,
            target_file_size=byte_size(self.target_file_size, "target_file_size"),
            small_file_limit=byte_size(self.small_file_limit, "small_file_limit"),
            set_null_for_missing_columns=self.set_null_for_missing_columns,
            validate_schema=self.validate_schema,
            log_block_format=None,  # only hudi_options say it
            heartbeat_interval=self.heartbeat_interval,
            tolerable_misses=self.tolerable_misses,
        )
        return IngestJob.of(
            **shared,
            source=self.source,
            source_format=self.source_format,
            source_options=mapping(self.source_options, "source_options"),
            operation=self.operation,
            priority=priority_of_run(self.priority, context, otherwise=self.usual_priority),
            extra_metadata=mapping(self.extra_metadata, "extra_metadata"),
            **tuning,
        )

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
        if operation.recall("left_job") is not None:
            return self._end_left_job(managed, operation)
        choice = cache(lambda: self._engine(job))
        first = cache(lambda: self._spark_job(operation, choice().engine))

        def write(transaction: WriteTransaction) -> dict[str, Any]:
            begun, storage = replace(job, transaction=transaction), managed.table.storage
            try:
                return self._run(first(), replace(begun, engine=choice().engine), storage)
            except SparkNeededError as error:
                if choice().is_asked_for:
                    raise
                self.log.info("engine spark: %s", error.details.get("reason", error))
            return self._run(self._spark_job(operation), begun, storage)

        # Before a look at the source, because its files may be deleted since the earlier try.
        if self.deferrable and operation.is_retry and (earlier := managed.end()) is not None:
            return earlier
        if not self.deferrable or choice().engine != SPARK or not first().can_be_left:
            return managed.run(write, prepare=first)
        managed.recover()
        managed.leave(
            lambda transaction: self._leave(
                first(), replace(job, transaction=transaction), managed.table, operation
            )
        )
        return self._end_left_job(managed, operation)

    def _end_left_job(self, managed: ManagedWrite, operation: TaskOperation) -> dict[str, Any]:
        txn_id = operation.recall("txn_id") if managed.joined_txn is None else None
        failure = self._left_job(managed.table, operation, txn_id=txn_id)
        # No process of the job runs any more, even if its last heartbeat is fresh.
        managed.wait_for = None
        result = managed.end()
        if result is None:
            raise failure
        return result

    def _engine(self, job: IngestJob) -> Choice:
        engine, limit = self._engine_wanted()
        choice = choose_engine_for(
            *(engine, job.source, job.storage_options, limit),
            sees_what_spark_sees=self.spark_conn_id is None,
        )
        self.log.info("%s", choice)
        return choice

    def _result(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        self.log.info(
            "instant %s completed at %s: %s rows inserted, %s updated, %s deleted; %s files, %s bytes",
            *(summary[key] for key in ("instant", "completion_time")),
            *(f"{summary[key]:,}" for key in ("rows_inserted", "rows_updated", "rows_deleted")),
            *(f"{summary[key]:,}" for key in ("files_written", "bytes_written")),
        )
        result = {key: summary[key] for key in _RESULT_KEYS}
        return {"table": self.table, **result, "bytes": summary["bytes_written"]}

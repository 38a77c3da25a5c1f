"""Indexes of a table: tasks plan, build and drop them while the table's writers continue (RFC-45)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency import pending_instants, rollback_dead_writers
from airflow_provider.concurrency.plans import MAX_FAILURES
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.indexing import (
    IndexJob,
    completed_indexing,
    drop_index,
    end_indexing,
    index_options,
    no_indexing_plan,
    pending_indexings,
    schedule_index,
)
from airflow_provider.operators._base import (
    NO_TRANSACTION,
    SparkOperator,
    TableOperator,
    TaskOperation,
    check_plan_named,
    count,
    plan_named,
    texts,
)
from airflow_provider.table.file_groups import looking_again
from airflow_provider.table.hudi_options import Topic
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action

if TYPE_CHECKING:
    from airflow.sdk import Context

_NOTHING: Mapping[str, Any] = {
    "instant": None,
    "completion_time": None,
    "action": str(Action.INDEXING),
    "indexes": [],
    "file_groups": 0,
    "records": 0,
    "bytes": 0,
    "caught_up": [],
    "already_completed": False,
}
_SECONDS_BETWEEN_LOOKS = 2.0


class _PlansIndex(TableOperator):
    """Base of the operators that plan indexes.

    :param indexes: ``files``, ``column_stats``, ``bloom_filters``, ``record_index``,
        ``partition_stats``; those that Hudi's options enable when None (templated).
    :param columns: the columns with statistics. When None, Hudi's options decide, by default the first 32
        columns whose type has an order (templated).
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "indexes", "columns")

    def __init__(
        self,
        *,
        indexes: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.indexes = indexes
        self.columns = columns

    def _wanted(self, table: HudiTable) -> tuple[str, ...]:
        return texts(self.indexes, "indexes") or index_options(table, self.hudi_options).partitions

    def _schedule(self, table: HudiTable, operation: TaskOperation) -> str | None:
        wanted, columns = self._wanted(table), texts(self.columns, "columns")
        if not wanted and self.indexes is None:
            self.log.info("the options of the table enable no index")
            return None
        instant = schedule_index(
            table,
            wanted,
            columns or None,
            options=self.hudi_options,
            lock=self._lock(table, self._options(table)),
            operation_key=operation.key,
        )
        self.log.info(
            "%s", f"planned indexing {instant}" if instant else "all of it is there or planned already"
        )
        return instant


class ScheduleIndexOperator(_PlansIndex):
    """Plans indexes that :class:`RunIndexOperator` builds. The operator starts no Spark.

    After the plan every commit logs to the planned indexes; readers use them once they are complete. The plan
    includes ``files`` when the table has no such index, and leaves out indexes that exist or are planned.

    ::

        plan = ScheduleIndexOperator(task_id="plan", table="lake.flights", indexes=["column_stats"])
        run = RunIndexOperator(
            task_id="run", table="lake.flights", instant="{{ ti.xcom_pull('plan')['instant'] }}"
        )
        plan >> run

    The result is ``table``, ``instant`` (None when there is nothing to do) and ``action``, and ``txn_id``,
    ``write_id`` and ``event_id``, which are None: an index changes no rows and needs no transaction.

    Arguments beside those of the plan (``indexes``, ``columns``): those of
    :class:`~airflow_provider.operators._base.TableOperator`.
    """

    ui_color = "#d8e4ef"

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Plan.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        :raises LockTimeoutError: when the table lock is not acquired in time.
        """
        table = TableHook(self.metastore_conn_id, self.storage_conn_id).get_table(self.table)
        operation = TaskOperation(context)
        planned = self._planned_before(table, operation)
        instant = self._schedule(table, operation) or planned
        return {"table": self.table, "instant": instant, "action": str(Action.INDEXING), **NO_TRANSACTION}

    def _planned_before(self, table: HudiTable, operation: TaskOperation) -> str | None:
        """The plan of an earlier try that was killed before it could return the plan, if nobody runs it."""
        for each in pending_instants(table) if operation.is_retry else ():
            if each.operation_key == operation.key:
                lock = self._lock(table, self._options(table))
                end_indexing(table, each.instant, operation.key, lock=lock)
                if each.instant in pending_indexings(table):
                    self.log.info("an earlier try planned indexing %s", each.instant)
                    return each.instant
        return None


class RunIndexOperator(SparkOperator):
    """Builds the indexes of a plan, as a Spark job: base files, catch-up, completion.

    A run that fails, is killed or times out leaves its plan, and a retry continues the plan. The retry writes
    no complete base file and no complete index again. Without a plan, the operator starts no Spark.

    The result is ``table``, ``instant`` (None without a plan), ``completion_time``, ``action``,
    ``indexes``, ``file_groups``, ``records``, ``bytes``, ``caught_up`` (instants of other Hudi
    writers that the run logged to the indexes), ``already_completed``; ``txn_id``, ``write_id`` and
    ``event_id`` are None.

    Arguments beside those of :class:`~airflow_provider.operators._base.SparkOperator`:

    :param instant: requested time of the plan; the oldest plan that nobody runs when None (templated).
    :param catch_up_timeout: how long to wait for other Hudi writers that began before the plan; a
        timedelta or seconds; ``hoodie.metadata.index.check.timeout.seconds``, or 15 minutes, when None.
    :param heartbeat_interval: seconds between two heartbeats of the job.
    :param tolerable_misses: number of heartbeats that may be missing before others may run the plan.
    :param max_failures: failures in a row after which the plan is not built any more; None for no limit.
    """

    template_fields: Sequence[str] = (*SparkOperator.template_fields, "instant")
    ui_color = "#d8e4ef"

    def __init__(
        self,
        *,
        instant: str | None = None,
        catch_up_timeout: timedelta | float | None = None,
        heartbeat_interval: float | None = None,
        tolerable_misses: int | None = None,
        max_failures: int | None = MAX_FAILURES,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_plan_named(instant)
        self.instant = instant
        self.catch_up_timeout = catch_up_timeout
        self.heartbeat_interval = heartbeat_interval
        self.tolerable_misses = tolerable_misses
        self.max_failures = max_failures

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Build.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        :raises WriteConflictError: when another process runs the plan.
        :raises IndexCatchUpTimeoutError: when another Hudi writer did not end in time.
        :raises JobFailedError: when the job ended without an answer, or was killed.
        """
        hook = TableHook(self.metastore_conn_id, self.storage_conn_id)
        resolved = hook.resolve(self.table)
        table = HudiTable.open(resolved.location, hook.storage_options())
        table.check_writable()
        operation, options = TaskOperation(context), self._options(table)
        timeout = _seconds(self.catch_up_timeout) or index_options(table, self.hudi_options).check_timeout
        settings = self._spark_settings()
        rollback_dead_writers(table)
        done = dict(_NOTHING)
        for instant in self._plans(table, operation):
            job = IndexJob.of(
                resolved.location,
                instant=instant,
                storage_options=table.storage.options,
                lock=self._lock_config(options),
                timeout_seconds=timeout,
                operation_key=operation.key,
                max_failures=count(self.max_failures, "max_failures"),
                table_name=self.table if resolved.is_registered else None,
                **settings,
                **options.arguments(
                    Topic.HEARTBEAT,
                    heartbeat_interval=self.heartbeat_interval,
                    tolerable_misses=self.tolerable_misses,
                ),
            )
            built = self._build(table, operation, job)
            done = {**built, "indexes": [*done["indexes"], *built["indexes"]]}
            self.log.info("indexing %s completed: %s", instant, ", ".join(built["indexes"]))
        return {"table": self.table, **done, **NO_TRANSACTION}

    def _plans(self, table: HudiTable, operation: TaskOperation) -> Sequence[str]:
        """The plans to run."""
        if (instant := plan_named(self.instant)) is not None:
            return [instant]
        return pending_indexings(table, idle=True)[:1]

    def _build(self, table: HudiTable, operation: TaskOperation, job: IndexJob) -> dict[str, Any]:
        if operation.is_retry:
            self._end_earlier_try(table, operation, job)
        pending = pending_indexings(table)  # before the next look: a plan may complete between the two
        if (earlier := completed_indexing(table, job.instant)) is not None:
            return earlier.to_dict()
        if job.instant not in pending:
            raise no_indexing_plan(table.storage, job.instant)
        engine = self._choose(lambda: _sizes(table), "data files")
        running = self._spark_job(operation, engine)
        try:
            return self._run(running, replace(job, engine=engine), table.storage)
        except BaseException as error:
            self._end(table, operation, job)
            finished = completed_indexing(table, job.instant)
            if finished is None or not isinstance(error, Exception) or self._is_killed:
                raise
            # The job had ended and only its answer was lost: the timeline says whether it completed the plan.
            self.log.warning("indexing %s had completed when the job ended: %s", job.instant, error)
            return finished.to_dict()

    def _end_earlier_try(self, table: HudiTable, operation: TaskOperation, job: IndexJob) -> None:
        """Wait for an earlier try's job that may still be running; end the run of a dead one."""
        while operation.recall("waits_for_writer") and any(
            each.instant == job.instant and each.operation_key == operation.key and self._still_writing(each)
            for each in pending_instants(table)
        ):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        self._end(table, operation, job)

    def _end(self, table: HudiTable, operation: TaskOperation, job: IndexJob) -> None:
        end_indexing(table, job.instant, operation.key, lock=self._lock(table, self._options(table)))


class BuildIndexOperator(_PlansIndex, RunIndexOperator):
    """Plans indexes and builds them.

    ::

        BuildIndexOperator(
            task_id="index", table="lake.flights", indexes=["column_stats", "record_index"], retries=3
        )

    If there is a pending plan of another task, or of a killed one, the operator builds that plan. When all
    indexes are complete, the operator starts no Spark.

    Arguments: those of :class:`ScheduleIndexOperator` and of :class:`RunIndexOperator`, except ``instant``.
    """

    template_fields: Sequence[str] = tuple(
        dict.fromkeys((*_PlansIndex.template_fields, *RunIndexOperator.template_fields))
    )

    def __init__(self, **kwargs: Any) -> None:
        if kwargs.get("instant") is not None:
            raise InvalidInputError(
                f"BuildIndexOperator makes its own plan and takes no instant, not {kwargs['instant']!r}; "
                "leave it out, or give it to RunIndexOperator"
            )
        super().__init__(**kwargs)

    def _plans(self, table: HudiTable, operation: TaskOperation) -> Sequence[str]:
        self._schedule(table, operation)
        return pending_indexings(table, indexes={"files", *self._wanted(table)})


class DropIndexOperator(TableOperator):
    """Drops indexes, complete or not; readers and writers continue without them. It starts no Spark.

    The other indexes depend on ``files``: dropping it drops the whole metadata table. Dropping
    ``column_stats`` also drops ``partition_stats``. A dropped index can be built again at once.

    The result is ``table``, ``instant`` (None when none of the indexes existed), ``completion_time``,
    ``action`` and ``indexes``, the dropped ones; ``txn_id``, ``write_id`` and ``event_id`` are None.

    Arguments beside those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param indexes: the indexes' names (templated).
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "indexes")
    ui_color = "#d8e4ef"

    def __init__(self, *, indexes: str | Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.indexes = indexes

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Drop.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        :raises LockTimeoutError: when the table lock is not acquired in time.
        """
        table = TableHook(self.metastore_conn_id, self.storage_conn_id).get_table(self.table)
        dropped = drop_index(
            table, texts(self.indexes, "indexes") or (), lock=self._lock(table, self._options(table))
        )
        nothing = {name: _NOTHING[name] for name in ("instant", "completion_time", "action", "indexes")}
        result = nothing if dropped is None else dropped.to_dict()
        return {"table": self.table, **result, **NO_TRANSACTION}


@looking_again
def _sizes(table: HudiTable) -> list[int]:
    view = table.view()
    files = (file for each in view.partitions() for file in (*view.base_files(each), *view.log_files(each)))
    return [file.size for file in files]


def _seconds(given: timedelta | float | None) -> float | None:
    return given.total_seconds() if isinstance(given, timedelta) else given

"""The base of operators that execute a plan of a table service as one commit, as a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import conf

from airflow_provider.concurrency import rollback_dead_writers
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.jobs import SPARK, PlanJob
from airflow_provider.operators._base.spark_operator import SparkOperator
from airflow_provider.operators._base.task_operation import TaskOperation
from airflow_provider.operators._base.template_values import check_plan_named, plan_named
from airflow_provider.table.hudi_options import EffectiveOptions
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from airflow.sdk import Context

NO_TRANSACTION: Mapping[str, Any] = {"txn_id": None, "write_id": None, "event_id": None}
"""The part of a result that says that a table service changes no rows, and needs no transaction."""


@dataclass(frozen=True)
class PlanService:
    """A table service, as operators that execute its plans need it.

    :param parts: what a plan consists of, for people.
    :param result_keys: the keys of an operator's result that the job's summary has too.
    :param sizes: returns the bytes that each part of a plan reads; it raises ``NoSuchInstantError`` when the
        plan does not exist.
    :param idle_plans: returns the plans that nobody executes, the oldest first.
    :param summary: returns the summary of a plan that was executed already.
    :param told: describes a summary, for the log.
    """

    parts: str
    result_keys: Sequence[str]
    sizes: Callable[[HudiTable, str], Sequence[int]]
    idle_plans: Callable[[HudiTable], Sequence[str]]
    summary: Callable[[PlanJob, HudiTable, str], dict[str, Any]]
    told: Callable[[Mapping[str, Any]], str]


class RunPlanOperator(SparkOperator):
    """Base of operators that execute a plan of a table service as one commit, as a Spark job.

    A retried task first looks for its last try's commit, like an ingestion. A plan whose execution failed is
    rolled back, and is not executed again: a retry with ``instant`` then fails at once, and the task that
    scheduled the plan has to be cleared. Without a plan, the operator starts no Spark.

    Arguments beside those of :class:`~airflow_provider.operators._base.SparkOperator`:

    :param instant: requested time of the plan; the oldest plan that nobody executes when None (templated).
    :param heartbeat_interval: seconds between two heartbeats of the job.
    :param tolerable_misses: number of heartbeats that may be missing before others roll the job back.
    :param deferrable: whether the task waits for its job in the triggerer, without a worker slot, if the
        job's driver runs on a cluster. Airflow's ``[operators] default_deferrable`` by default.
    :cvar service: the table service.
    """

    template_fields: Sequence[str] = (*SparkOperator.template_fields, "instant")
    service: ClassVar[PlanService]

    def __init__(
        self,
        *,
        instant: str | None = None,
        heartbeat_interval: float | None = None,
        tolerable_misses: int | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        check_plan_named(instant)
        self.instant = instant
        self.heartbeat_interval = heartbeat_interval
        self.tolerable_misses = tolerable_misses

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Execute the plan.

        :raises AirflowFailException: for input that no retry can make work; caused by the typed error.
        :raises WriteConflictError: when another process executes the plan, or every part has a conflict.
        :raises JobFailedError: when the job ended without an answer, or was killed.
        """
        return self._work(context)

    def _job(self, location: str, options: EffectiveOptions, **common: Any) -> PlanJob:
        """The job, without its plan.

        :param location: absolute path or URL of the table.
        :param options: Hudi's options of the task and the table.
        :param common: the fields of any job.
        """
        raise NotImplementedError

    def _work(self, context: Context) -> dict[str, Any]:
        """See :meth:`SparkOperator._work`."""
        hook = TableHook(self.metastore_conn_id, self.storage_conn_id)
        resolved = hook.resolve(self.table)
        table = HudiTable.open(resolved.location, hook.storage_options())
        table.check_writable()
        operation = TaskOperation(context)
        options = self._options(table)
        job = self._job(
            resolved.location,
            options,
            storage_options=table.storage.options,
            lock=self._lock_config(options),
            operation_key=operation.key,
            operation_since=operation.since,
            table_name=self.table if resolved.is_registered else None,
            **self._spark_settings(),
        )
        if operation.recall("left_job") is not None:
            return self._result(self._end_left_job(table, operation, job))
        if operation.is_retry:
            wait_for = self._still_writing if operation.recall("waits_for_writer") else None
            operation.settle(table, "its task is tried again", wait_for=wait_for)
        if (earlier := self._earlier(job, table)) is not None:
            return self._result(earlier)
        rollback_dead_writers(table)  # this rolls back the plans of dead executors
        instant = self._plan(table, operation)
        if instant is None:
            return {
                "table": self.table,
                **dict.fromkeys((*self.service.result_keys, "bytes")),
                **NO_TRANSACTION,
            }
        return self._result(self._carry_out(table, operation, replace(job, instant=instant)))

    def _earlier(self, job: PlanJob, table: HudiTable) -> dict[str, Any] | None:
        """The summary of a plan that was executed already, by an earlier try or by another process."""
        instant = job.executed(table)
        return None if instant is None else self.service.summary(job, table, instant)

    def _plan(self, table: HudiTable, operation: TaskOperation) -> str | None:
        """The plan to execute; None when there is nothing to do."""
        if (instant := plan_named(self.instant)) is not None:
            return instant
        return next(iter(self.service.idle_plans(table)), None)

    def _carry_out(self, table: HudiTable, operation: TaskOperation, job: PlanJob) -> dict[str, Any]:
        if (earlier := self._earlier(job, table)) is not None:
            return earlier
        # This raises if the plan is missing, before a JVM starts.
        sizes = self.service.sizes(table, job.instant or "")
        engine = self._choose(lambda: sizes, self.service.parts)
        running = self._spark_job(operation, engine)
        if self.deferrable and engine == SPARK and running.can_be_left:
            self._leave(running, job, table, operation)
            return self._end_left_job(table, operation, job)
        try:
            return self._run(running, replace(job, engine=engine), table.storage)
        except BaseException as error:
            commit = operation.settle(table, f"its task ended with {type(error).__name__}")
            if commit is None or not isinstance(error, Exception) or self._is_killed:
                raise
            # The job had ended and only its answer was lost: the timeline says whether it committed.
            self.log.warning("instant %s had committed when the job ended: %s", commit.instant, error)
            return self.service.summary(job, table, commit.instant)

    def _end_left_job(self, table: HudiTable, operation: TaskOperation, job: PlanJob) -> dict[str, Any]:
        failure = self._left_job(table, operation, txn_id=None)
        operation.settle(table, "its job is over")
        if (done := self._earlier(job, table)) is None:
            raise failure
        return done

    def _result(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        self.log.info("%s", self.service.told(summary))
        result = {key: summary[key] for key in self.service.result_keys}
        return {"table": self.table, **result, "bytes": summary["bytes_written"], **NO_TRANSACTION}

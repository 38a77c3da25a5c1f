"""The base of operators whose write can wait for its turn in the triggerer."""

from __future__ import annotations

import abc
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import conf

from airflow_provider import metrics
from airflow_provider.exceptions import from_dict
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.operators._base.spark_operator import SparkOperator
from airflow_provider.operators._base.task_operation import TaskOperation
from airflow_provider.table.hudi_options import EffectiveOptions
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.triggers.polling import TRIGGER_TIMEOUT_SLACK, Progress
from airflow_provider.triggers.table_turn import TableTurnTrigger, before_turn

if TYPE_CHECKING:
    from airflow.sdk import Context

# A deferral and the return from it take seconds; another writer's commit takes less.
_SECONDS_IN_THE_WORKER = 5.0
_LOOK_EVERY_SECONDS = 0.5
_LOOK_EVERY_SECONDS_DEFERRED = 5.0


class DeferrableWrite(SparkOperator, abc.ABC):
    """Base of operators whose write can wait for its turn before its job starts, without a worker slot.

    :param deferrable: whether the task, before its job starts, waits for its turn in the triggerer: for live
        writers of higher priority, for the holder of the table lock, and for a job that an earlier try left
        running. Airflow's ``[operators] default_deferrable`` by default.
    """

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self._comes_back = False

    @fail_unless_retryable
    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the trigger: it is this write's turn, or it has waited for long enough.

        :raises TableServiceError: the trigger's error, in its original type; also see ``execute``.
        """
        if event["status"] == "error":
            raise from_dict(event["error"])
        self._comes_back = True
        return self._write(context)

    @abc.abstractmethod
    def _write(self, context: Context) -> dict[str, Any]:
        """Do the task's work after its turn has come; a deferral does not change the operation."""

    def _in_turn(
        self, table: HudiTable, operation: TaskOperation, job: IngestJob, options: EffectiveOptions
    ) -> IngestJob:
        """Defer unless it is this write's turn.

        :return: the job, with the rest of its patience.
        :raises TaskDeferred: when the task has to wait.
        """
        if not self.deferrable:
            return job
        policy, now = job.settings.policy, time.time()
        since = operation.recall("waits_since") if self._comes_back else None
        deadline = (now if since is None else float(since)) + policy.yield_timeout
        waits_for: dict[str, Any] = {
            "priority": job.settings.priority if policy.on_higher_priority == "wait" else None,
            "operation_key": operation.key if operation.recall("waits_for_writer") else None,
        }
        progress = self._look(table, options, waits_for, min(deadline, now + _SECONDS_IN_THE_WORKER))
        if progress.is_done or deadline <= time.time():
            return self._begins(table, operation, job, since)
        for line in progress.blocking:
            self.log.info("waits in the triggerer for %s", line)
        if since is None:
            operation.remember(waits_since=now, has_begun=operation.is_retry)
        self.defer(
            trigger=TableTurnTrigger(
                location=table.location,
                **waits_for,
                hudi_options=None if self.hudi_options is None else dict(self.hudi_options),
                lock_conn_id=self.lock_conn_id,
                storage_conn_id=self.storage_conn_id,
                poke_interval=_LOOK_EVERY_SECONDS_DEFERRED,
                deadline=deadline,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=deadline - time.time()) + TRIGGER_TIMEOUT_SLACK,
        )
        raise AssertionError("unreachable")

    def _look(
        self, table: HudiTable, options: EffectiveOptions, waits_for: Mapping[str, Any], until: float
    ) -> Progress:
        lock = self._lock(table, options)
        while not (progress := before_turn(table, lock, **waits_for)).is_done and time.time() < until:
            time.sleep(_LOOK_EVERY_SECONDS)
        return progress

    def _begins(
        self, table: HudiTable, operation: TaskOperation, job: IngestJob, since: float | None
    ) -> IngestJob:
        operation.remember(waits_since=None, has_begun=None)
        if since is None:
            return job
        waited = time.time() - since
        self.log.info("begins after %.0f s in the triggerer", waited)
        metrics.took("yield_wait", waited, table=table.location, priority=job.settings.priority)
        policy = job.settings.policy
        policy = replace(policy, yield_timeout=max(0.0, policy.yield_timeout - waited))
        return replace(job, settings=replace(job.settings, policy=policy))

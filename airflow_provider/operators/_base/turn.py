"""Waiting for a write's turn before its job starts: for seconds in the worker, then in the triggerer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import tenacity

from airflow_provider import metrics
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.locks import LockProvider
from airflow_provider.operators._base.table_operator import TableOperator
from airflow_provider.operators._base.task_operation import TaskOperation
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.triggers.polling import TRIGGER_TIMEOUT_SLACK, Progress
from airflow_provider.triggers.table_turn import TableTurnTrigger, before_turn

# A deferral and the return from it take seconds; another writer's commit takes less.
_SECONDS_IN_THE_WORKER = 5.0
_LOOK_EVERY_SECONDS = 0.5
_LOOK_EVERY_SECONDS_DEFERRED = 5.0


def wait_for_turn(
    operator: TableOperator,
    table: HudiTable,
    lock: LockProvider,
    operation: TaskOperation,
    job: IngestJob,
    *,
    comes_back: bool,
) -> IngestJob:
    """Defer a task unless it is its write's turn.

    A write waits for live writers of higher priority, for the holder of the table lock, and for a job that an
    earlier try left running.

    :param operator: the task's operator; its ``execute_complete`` continues after the trigger.
    :param table: the table.
    :param lock: the table lock.
    :param operation: the task's operation, which stores when the wait began.
    :param job: the write.
    :param comes_back: whether the task comes back from the triggerer.
    :return: the job; its patience is shorter by the time that the task has waited.
    :raises TaskDeferred: when the task has to wait.
    """
    policy, now = job.settings.policy, time.time()
    since = operation.recall("waits_since") if comes_back else None
    deadline = (now if since is None else float(since)) + policy.yield_timeout
    waits_for: dict[str, Any] = {
        "priority": job.settings.priority if policy.on_higher_priority == "wait" else None,
        "operation_key": operation.key if operation.recall("waits_for_writer") else None,
    }
    progress = _look(table, lock, waits_for, min(deadline, now + _SECONDS_IN_THE_WORKER))
    if progress.is_done or deadline <= time.time():
        return _begins(operator, table, operation, job, since)
    for line in progress.blocking:
        operator.log.info("waits in the triggerer for %s", line)
    if since is None:
        operation.remember(waits_since=now, has_begun=operation.is_retry)
    operator.defer(
        trigger=TableTurnTrigger(
            location=table.location,
            **waits_for,
            hudi_options=None if operator.hudi_options is None else dict(operator.hudi_options),
            lock_conn_id=operator.lock_conn_id,
            storage_conn_id=operator.storage_conn_id,
            poke_interval=_LOOK_EVERY_SECONDS_DEFERRED,
            deadline=deadline,
        ),
        method_name="execute_complete",
        timeout=timedelta(seconds=deadline - time.time()) + TRIGGER_TIMEOUT_SLACK,
    )
    raise AssertionError("unreachable")


def _look(table: HudiTable, lock: LockProvider, waits_for: Mapping[str, Any], until: float) -> Progress:
    """The progress when it is the write's turn, or at the end of the time."""
    looks = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda progress: not progress.is_done),
        stop=lambda _: time.time() >= until,
        wait=tenacity.wait_fixed(_LOOK_EVERY_SECONDS),
        retry_error_callback=lambda last: last.outcome and last.outcome.result(),
    )
    progress: Progress = looks(before_turn, table, lock, **waits_for)
    return progress


def _begins(
    operator: TableOperator, table: HudiTable, operation: TaskOperation, job: IngestJob, since: float | None
) -> IngestJob:
    operation.remember(waits_since=None, has_begun=None)
    if since is None:
        return job
    waited = time.time() - since
    operator.log.info("begins after %.0f s in the triggerer", waited)
    metrics.took("yield_wait", waited, table=table.location, priority=job.settings.priority)
    policy = job.settings.policy
    policy = replace(policy, yield_timeout=max(0.0, policy.yield_timeout - waited))
    return replace(job, settings=replace(job.settings, policy=policy))

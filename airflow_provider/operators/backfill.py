"""Backfills: a task writes history into a table, window by window."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import EmptySourceError, InvalidInputError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.ingestion.backfill import Backfill
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import Window, partition_windows, time_windows
from airflow_provider.jobs import SPARK
from airflow_provider.managed import ManagedWrite, ResolvedTable
from airflow_provider.operators._base import LongRunningSparkJob, TaskOperation, count, seconds, texts
from airflow_provider.operators.ingest import IngestOperator
from airflow_provider.spark.job_request import JobRequest
from airflow_provider.table.hudi_table import HudiTable

if TYPE_CHECKING:
    from airflow.sdk import Context

_BACKFILL_KEYS = (
    "windows",
    "windows_done",
    "windows_skipped",
    "windows_empty",
    "instants",
    "seconds_waited",
)


class BackfillOperator(IngestOperator):
    """Writes history into a table in windows, each a commit of its own, beside steady ingestion.

    ::

        BackfillOperator(
            task_id="history",
            table="lake.flights",
            source="/srv/history/flights/*.parquet",
            order="newest_first",
            retries=10,
        )

    A window is a partition (each partition of the source's rows, or of a list), or a part of a span of time.
    One Spark job writes all windows. Each window becomes visible, with its transaction and its partitions,
    when it commits.

    The backfill finds committed windows on the timeline and does not write them again. So a task that is
    killed or retried, or that failed and is cleared, continues with the next window. A task that had finished
    and is cleared writes everything again; with a ``backfill_id`` it writes nothing again.

    Before each window the backfill waits for live writers of higher priority. After a lost conflict it merges
    the lost file groups again. After each window the task's log has the progress.

    The result is that of :class:`~airflow_provider.operators.ingest.IngestOperator` for the newest
    commit, but with the counts of all windows together; and ``windows``, ``windows_done``,
    ``windows_skipped`` (done by earlier tries), ``windows_empty``, ``instants`` and ``seconds_waited``.

    Arguments beside those of :class:`~airflow_provider.operators.ingest.IngestOperator`; by default
    ``priority`` is ``backfill`` and ``on_conflict`` is ``rebase``:

    :param source: path, URL or pattern, or several. If it contains ``{window}``, a partition column such as
        ``{month}``, or ``{start:%Y-%m-%d}`` or ``{end:%Y}``, each window reads all rows of its own files.
        Otherwise each window reads the rows of the source with the window's values (templated).
    :param partitions: the windows, each as a path, such as ``year=2013/month=1``, or as values by
        column; all partitions of the source's rows when None (templated).
    :param window_columns: the columns of the source whose values are the windows; the table's
        partition columns when None (templated).
    :param time_column: for windows of time, a date or timestamp column of the table (templated).
    :param start: the earliest time of the first window; ISO, UTC if it names no zone (templated).
    :param end: the earliest time after the last window (templated).
    :param step: length of a window: a timedelta, or a text such as ``1 month`` or ``6 hours`` (templated).
    :param order: ``oldest_first`` or ``newest_first`` (templated).
    :param backfill_id: names one backfill over all its runs: a window that is committed under this id is
        never written again (templated).
    :param patience: the most seconds to wait for writers of higher priority, before each window.
    :param attempts: the most attempts at a window, if its errors are retryable; then the task fails.
    :param engine: ``spark``.
    """

    template_fields: Sequence[str] = (
        *IngestOperator.template_fields,
        "partitions",
        "window_columns",
        "time_column",
        "start",
        "end",
        "step",
        "order",
        "backfill_id",
    )
    ui_color = "#e4e0f5"
    usual_priority: ClassVar[str] = "backfill"
    usual_on_conflict: ClassVar[str] = "rebase"

    def __init__(
        self,
        *,
        partitions: Sequence[Mapping[str, Any] | str] | None = None,
        window_columns: Sequence[str] | None = None,
        time_column: str | None = None,
        start: str | date | None = None,
        end: str | date | None = None,
        step: str | timedelta | None = None,
        order: str = "oldest_first",
        backfill_id: str | None = None,
        patience: float = 60.0,
        attempts: int = 3,
        engine: str = SPARK,
        **kwargs: Any,
    ) -> None:
        super().__init__(engine=engine, **kwargs)
        self.partitions = partitions
        self.window_columns = window_columns
        self.time_column = time_column
        self.start = start
        self.end = end
        self.step = step
        self.order = order
        self.backfill_id = backfill_id
        self.patience = patience
        self.attempts = attempts

    def _operation(self, context: Context) -> TaskOperation:
        key = f"backfill/{self.backfill_id}" if self.backfill_id else None
        return TaskOperation(context, key=key, resumes=True)

    def _joined_txn(self, resolved: ResolvedTable) -> int | None:
        if self.txn_id is not None:
            raise InvalidInputError(
                "a backfill commits window by window and cannot be part of a transaction; leave txn_id out"
            )
        return None

    def _ingest(self, managed: ManagedWrite, operation: TaskOperation, job: IngestJob) -> dict[str, Any]:
        if self.engine != SPARK:
            raise InvalidInputError(f"a backfill runs on Spark, not by engine={self.engine!r}; leave it out")
        if not job.source.paths:
            raise InvalidInputError(f"source must name a path, URL or pattern, not {self.source!r}")
        patience, attempts = seconds(self.patience, "patience"), count(self.attempts, "attempts")
        texts(self.window_columns, "window_columns")
        table = managed.table
        if operation.is_retry:
            self._end_earlier_window(managed, operation, job)
        managed.recover()
        # The job looks for commits of this task run only: this process looks for those of earlier runs.
        served = dataclasses.replace(job, operation_since=operation.began)
        with LongRunningSparkJob(lambda: self._spark_job(operation), served, table.storage) as spark:

            def write(window: Window, job: IngestJob) -> dict[str, Any]:
                return self._write_window(managed, operation, spark, window, job)

            summary = Backfill(
                job,
                table,
                self._windows(table, spark),
                patience=patience or 0.0,
                attempts=3 if attempts is None else attempts,
                tell=lambda told: self.log.info("%s", told),
                is_stopped=lambda: self._is_killed,
            ).run(write)
        operation.finish()
        managed.follow_schema(summary)
        return self._with_event(managed.resolved, summary)

    def _with_event(self, resolved: ResolvedTable, summary: dict[str, Any]) -> dict[str, Any]:
        """Add the event of the newest commit, also when an earlier try made it."""
        event_id, txn_id = summary.get("event_id"), summary["txn_id"]
        if resolved.is_registered and event_id is None and txn_id is not None:
            event_id = MetastoreHook(self.metastore_conn_id).get_metastore().get_txn(txn_id).event_id
        return {**summary, "event_id": event_id}

    def _windows(self, table: HudiTable, spark: LongRunningSparkJob) -> list[Window]:
        span = (self.start, self.end, self.step)
        ways = {
            "partitions": self.partitions is not None,
            "window_columns": self.window_columns is not None,
            "start, end and step": any(each is not None for each in (*span, self.time_column)),
        }
        if sum(ways.values()) > 1:
            given = " and ".join(way for way, is_given in ways.items() if is_given)
            raise InvalidInputError(f"windows can be given in one way only, not by {given}")
        if self.partitions is not None:
            return partition_windows(table, self.partitions, order=self.order)
        if ways["start, end and step"]:
            if self.start is None or self.end is None or self.step is None:
                raise InvalidInputError("windows of time need start, end and step")
            if str(self.start) == str(self.end):
                raise InvalidInputError(
                    f"start and end are both {self.start}, so there is no window; if they are the run's data "
                    "interval: it has no length where the DAG's schedule is a cron text, and has one by "
                    "schedule=CronDataIntervalTimetable(...)"
                )
            return time_windows(self.start, self.end, self.step, order=self.order, column=self.time_column)
        request = JobRequest(windows_of=texts(self.window_columns, "window_columns") or (), order=self.order)
        return [Window(**found) for found in spark.ask(request)["windows"]]

    def _write_window(
        self,
        managed: ManagedWrite,
        operation: TaskOperation,
        spark: LongRunningSparkJob,
        window: Window,
        job: IngestJob,
    ) -> dict[str, Any]:
        # An earlier attempt may have committed without reaching the metastore.
        if earlier := self._end_earlier_window(managed, operation, job):
            return earlier
        operation.remember(window=window.name)
        part = self._managed(managed.resolved, managed.table, operation.part(window.name), job)
        try:
            summary = part.write(
                lambda transaction: spark.ask(JobRequest(window=window, transaction=transaction))
            )
        except EmptySourceError:
            _forget_window(operation)
            raise
        _forget_window(operation)
        return summary

    def _end_earlier_window(
        self, managed: ManagedWrite, operation: TaskOperation, job: IngestJob
    ) -> dict[str, Any] | None:
        """End the window of an earlier try or attempt; returns its result if it is this job's window."""
        name = operation.recall("window")
        if name is None:
            return None
        part = operation.part(name)
        described = dataclasses.replace(job, operation_key=part.key)
        written = self._managed(managed.resolved, managed.table, part, described)
        earlier = written.end_earlier_try(f"window {name}: an earlier try")
        _forget_window(operation)
        return earlier if part.key == job.operation_key else None

    def _result(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._result(summary), **{key: summary[key] for key in _BACKFILL_KEYS}}


def _forget_window(operation: TaskOperation) -> None:
    operation.remember(window=None, txn_id=None, write_id=None)

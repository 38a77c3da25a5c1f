"""Compaction of a table, and of its metadata table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency.plans import MAX_FAILURES
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.jobs import PlanJob
from airflow_provider.operators._base import (
    NO_TRANSACTION,
    PlanService,
    RunPlanOperator,
    TableOperator,
    TaskOperation,
    byte_size,
    count,
    flag,
    priority_number,
    seconds,
    texts,
)
from airflow_provider.services.compaction import compact, due_compactions
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.table_compaction import (
    CompactionJob,
    LogCompactionSettings,
    TableCompactionSettings,
    compact_logs,
    compact_table,
    compaction_result,
    due_log_compactions,
    due_table_compactions,
    pending_table_compactions,
    read_plan,
    schedule_table_compaction,
)
from airflow_provider.table.hudi_options import EffectiveOptions, Topic
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action

if TYPE_CHECKING:
    from airflow.sdk import Context


_KINDS = {
    "table_compactions": "compaction",
    "log_compactions": "log compaction",
    "compactions": "compaction of the metadata table",
}


class _PlansCompaction(TableOperator):
    """Base of the operators that plan a compaction of a merge-on-read table.

    :param trigger: when a compaction is due: ``NUM_COMMITS``, ``NUM_COMMITS_AFTER_LAST_REQUEST``,
        ``TIME_ELAPSED``, ``NUM_AND_TIME`` or ``NUM_OR_TIME``; the table's
        ``hoodie.compact.inline.trigger.strategy``, or ``NUM_COMMITS``, when None (templated).
    :param delta_commits: number of deltacommits since the last compaction after which another is due; the
        table's ``hoodie.compact.inline.max.delta.commits``, or 5, when None (templated).
    :param delta_seconds: time since the last compaction after which another is due: a timedelta or seconds;
        the table's ``hoodie.compact.inline.max.delta.seconds``, or an hour, when None (templated).
    :param strategy: how the file groups are chosen: a class of Hudi, such as
        ``DayBasedCompactionStrategy``, or several; the table's ``hoodie.compaction.strategy``, or
        ``LogFileSizeBasedCompactionStrategy``, when None (templated).
    :param min_log_files: a compaction leaves out a file group with fewer log files (templated).
    :param min_log_bytes: a compaction leaves out a file group with fewer bytes of log files; bytes, or a text
        such as ``64 MB`` (templated).
    :param partitions: patterns of partition paths of the table; all when None (templated).
    :param max_io_bytes: most bytes that a compaction reads and writes, as bytes or such a text (templated).
    :param max_failures: failures in a row after which the table's compaction is stopped; None never stops it.
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "trigger",
        "delta_commits",
        "delta_seconds",
        "strategy",
        "min_log_files",
        "min_log_bytes",
        "partitions",
        "max_io_bytes",
    )

    def __init__(
        self,
        *,
        trigger: str | None = None,
        delta_commits: int | str | None = None,
        delta_seconds: timedelta | float | str | None = None,
        strategy: str | Sequence[str] | None = None,
        min_log_files: int | str | None = None,
        min_log_bytes: int | str | None = None,
        partitions: Sequence[str] | str | None = None,
        max_io_bytes: int | str | None = None,
        max_failures: int | None = MAX_FAILURES,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.trigger = trigger
        self.delta_commits = delta_commits
        self.delta_seconds = delta_seconds
        self.strategy = strategy
        self.min_log_files = min_log_files
        self.min_log_bytes = min_log_bytes
        self.partitions = partitions
        self.max_io_bytes = max_io_bytes
        self.max_failures = max_failures

    def _settings(self, options: EffectiveOptions) -> TableCompactionSettings:
        """When a compaction of the table is due, and for which file groups."""
        return TableCompactionSettings.of(
            options,
            trigger=self.trigger,
            delta_commits=count(self.delta_commits, "delta_commits"),
            delta_seconds=seconds(self.delta_seconds, "delta_seconds"),
            strategy=texts(self.strategy, "strategy"),
            min_log_files=count(self.min_log_files, "min_log_files"),
            min_log_bytes=byte_size(self.min_log_bytes, "min_log_bytes"),
            partitions=texts(self.partitions, "partitions"),
            max_io_bytes=byte_size(self.max_io_bytes, "max_io_bytes"),
        )


class ScheduleCompactionOperator(_PlansCompaction):
    """Plans a compaction of a merge-on-read table, which :class:`RunCompactionOperator` executes.

    ::

        plan = ScheduleCompactionOperator(task_id="plan", table="lake.flights", trigger="TIME_ELAPSED")
        run = RunCompactionOperator(
            task_id="run", table="lake.flights", instant="{{ ti.xcom_pull('plan')['instant'] }}"
        )
        plan >> run

    The operator starts no Spark. The result is ``table``, ``instant`` (None when nothing is due), ``action``,
    ``file_groups``, ``log_files`` and ``bytes``, and ``txn_id``, ``write_id`` and ``event_id``, which are
    None: a compaction changes no rows and needs no transaction.

    Arguments beside those of the plan (``trigger``, ``delta_commits``, ``delta_seconds``, ``strategy``,
    ``min_log_files``, ``min_log_bytes``, ``partitions``, ``max_io_bytes`` and ``max_failures``; see
    docs/merge-on-read.md), and those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param priority: decides who yields when two writes meet: a name or a number (templated).
    """

    template_fields: Sequence[str] = (*_PlansCompaction.template_fields, "priority")
    ui_color = "#e0e7f5"

    def __init__(self, *, priority: str | int = "table_service", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.priority = priority

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Plan.

        :raises AirflowFailException: for input that no retry can make work, for a table that is not
            merge-on-read, and when compaction of this table is stopped; caused by the typed error.
        :raises LockTimeoutError: when the table lock is not acquired in time.
        """
        table = TableHook(self.metastore_conn_id, self.storage_conn_id).get_table(self.table)
        options = self._options(table)
        settings = self._settings(options)
        operation = TaskOperation(context)
        operation.end_earlier_try(table)
        instant = schedule_table_compaction(
            table,
            settings,
            priority=priority_number(self.priority),
            lock=self._lock(table, options),
            max_failures=count(self.max_failures, "max_failures"),
            operation_key=operation.key,
        )
        self.log.info("%s", f"planned compaction {instant}" if instant else "no compaction is due")
        parts = read_plan(table, instant, Action.COMPACTION).operations if instant else ()
        return {
            "table": self.table,
            "instant": instant,
            "action": str(Action.COMPACTION),
            "file_groups": len(parts),
            "log_files": sum(len(each.log_files) for each in parts),
            "bytes": sum(each.base_bytes + each.log_bytes for each in parts),
            **NO_TRANSACTION,
        }


def _sizes(table: HudiTable, instant: str) -> list[int]:
    operations = read_plan(table, instant, Action.COMPACTION).operations
    return [each.base_bytes + each.log_bytes for each in operations]


def _told(summary: Mapping[str, Any]) -> str:
    return (
        "compaction {instant} completed at {completion_time}: {file_groups_done} of {file_groups_planned} "
        "file groups, {rows:,} rows, {bytes_written:,} bytes"
    ).format_map(summary)


_SERVICE = PlanService(
    parts="file groups",
    result_keys=(
        "instant",
        "completion_time",
        "action",
        "operation",
        "file_groups_planned",
        "file_groups_done",
        "file_groups_left_out",
        "rows",
    ),
    sizes=_sizes,
    idle_plans=lambda table: pending_table_compactions(table, idle=True),
    summary=lambda job, table, instant: compaction_result(job, table, instant, already_committed=True),
    told=_told,
)


class RunCompactionOperator(RunPlanOperator):
    """Executes a compaction plan of a merge-on-read table, as a Spark job, or without Spark.

    The commit leaves out a file group that another write has replaced or rewritten since the plan. When no
    file group is left, the task fails with :class:`~airflow_provider.exceptions.WriteConflictError`, and is
    retried.

    A retried task first looks for its last try's commit, like an ingestion. A plan whose execution failed is
    rolled back, and is not executed again: a retry with ``instant`` then fails at once, and the task that
    scheduled the plan has to be cleared. Without a plan, the operator starts no Spark.

    The result is ``table``, ``instant`` (None without a plan), ``completion_time``, ``action``,
    ``operation``, ``file_groups_planned``, ``file_groups_done``, ``file_groups_left_out``, ``rows``,
    ``bytes``; ``txn_id``, ``write_id`` and ``event_id`` are None.

    Arguments beside ``instant``, ``heartbeat_interval``, ``tolerable_misses`` and ``deferrable`` of
    :class:`~airflow_provider.operators._base.RunPlanOperator`, and those of
    :class:`~airflow_provider.operators._base.SparkOperator`:

    :param parallel_file_groups: number of file groups that are written at the same time. When None, it is
        the number of the worker's cores without Spark, and four for each core of the session with Spark.
    """

    ui_color = "#e0e7f5"
    service = _SERVICE

    def __init__(self, *, parallel_file_groups: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parallel_file_groups = parallel_file_groups

    def _job(self, location: str, options: EffectiveOptions, **common: Any) -> PlanJob:
        arguments = options.arguments(
            Topic.HEARTBEAT,
            heartbeat_interval=self.heartbeat_interval,
            tolerable_misses=self.tolerable_misses,
            parallel_file_groups=count(self.parallel_file_groups, "parallel_file_groups"),
        )
        return CompactionJob.of(location, **common, **arguments)


class CompactionOperator(_PlansCompaction):
    """Compacts a merge-on-read table, and any table's metadata table: merges log files into base files.

    ::

        CompactionOperator(task_id="compact", table="lake.flights")

    The task compacts a merge-on-read table first: it executes pending plans that nobody executes, then a
    compaction that is due. The task's worker reads and writes the files, with larger files as many file
    groups at once as it has cores. It may run beside loads and backfills; see docs/merge-on-read.md.

    For the metadata table, the task finishes pending compactions, then runs one that is due, deletes file
    slices that no reader can need any more, and archives the metadata table's own timeline. Loads do this
    too, at every tenth entry of the commit log. Use this operator for other numbers of deltacommits, or for
    another time. It starts no Spark, and may run at any time, beside any writer.

    A retry rolls back the unfinished compaction of a killed try, and compacts the table anew.

    The result is ``table``, ``table_compactions``, ``log_compactions``, ``compactions`` (for each
    ``instant``, ``completion_time``, ``partitions``, ``file_groups``, ``records`` and ``bytes_written``) and
    ``dry_run``. Instead of ``compactions``, a dry run has ``pending`` (requested times of compactions that
    were begun) and ``due`` (``partitions``, ``file_groups``, ``log_files`` and ``log_bytes`` of a further
    compaction, or None). It has the same for the table itself under ``of_table``, and for its log blocks
    under ``of_logs``. A copy-on-write table has no entries for the table itself.

    To execute a large plan on Spark, use :class:`ScheduleCompactionOperator` and
    :class:`RunCompactionOperator`.

    Arguments beside those of a plan of the table itself (``trigger``, ``delta_commits``, ``delta_seconds``,
    ``strategy``, ``min_log_files``, ``min_log_bytes``, ``partitions``, ``max_io_bytes`` and ``max_failures``;
    see docs/merge-on-read.md), and those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param log_blocks: after the compaction of the table, a log compaction merges the log blocks of a file
        group that has at least so many; the table's ``hoodie.log.compaction.blocks.threshold`` when None.
        Without either there is no log compaction (templated).
    :param max_delta_commits: a compaction of the metadata table is due after this number of its deltacommits,
        one for each commit, since the last one; the table's ``hoodie.metadata.compact.max.delta.commits``, or
        10, when None (templated).
    :param log_file_size_threshold: a compaction leaves out a file group of the metadata table with fewer
        bytes of log files; the table's ``hoodie.compaction.logfile.size.threshold``, or 0, when None
        (templated).
    :param dry_run: only reports what would be compacted (templated).
    """

    template_fields: Sequence[str] = (
        *_PlansCompaction.template_fields,
        "log_blocks",
        "max_delta_commits",
        "log_file_size_threshold",
        "only_tell",
    )
    ui_color = "#e0e7f5"

    def __init__(
        self,
        *,
        log_blocks: int | str | None = None,
        max_delta_commits: int | str | None = None,
        log_file_size_threshold: int | str | None = None,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.log_blocks = log_blocks
        self.max_delta_commits = max_delta_commits
        self.log_file_size_threshold = log_file_size_threshold
        # BaseOperator has a method dry_run.
        self.only_tell = dry_run

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Compact.

        :raises AirflowFailException: for input that no retry can make work, and for a table that this package
            does not write; caused by the typed error.
        :raises LockTimeoutError: when the table lock is not acquired in time.
        """
        only_tell = flag(self.only_tell, "dry_run")
        most_failures = count(self.max_failures, "max_failures")
        most = count(self.max_delta_commits, "max_delta_commits")
        threshold = count(self.log_file_size_threshold, "log_file_size_threshold")
        table = TableHook(self.metastore_conn_id, self.storage_conn_id).get_table(self.table)
        options = self._options(table)
        settings = CompactionSettings.of(
            table.config,
            **options.arguments(Topic.INDEX, max_delta_commits=most, log_file_size_threshold=threshold),
        )
        own = self._settings(options) if table.is_merge_on_read else None
        logs = self._log_settings(options) if table.is_merge_on_read else None
        result: dict[str, Any] = {}
        if only_tell:
            result |= due_compactions(table, settings)
            if own is not None:
                result["of_table"] = due_table_compactions(table, own)
            if logs is not None:
                result["of_logs"] = due_log_compactions(table, logs)
        else:
            lock, operation = self._lock(table, options), TaskOperation(context)
            operation.end_earlier_try(table)
            if own is not None:
                done = compact_table(
                    table, own, lock=lock, max_failures=most_failures, operation_key=operation.key
                )
                result["table_compactions"] = [each.to_dict() for each in done]
            if logs is not None:
                done = compact_logs(table, logs, lock=lock, operation_key=operation.key)
                result["log_compactions"] = [each.to_dict() for each in done]
            done = compact(table, settings, lock=lock, max_failures=most_failures)
            result["compactions"] = [each.to_dict() for each in done]
        self._tell(result, only_tell)
        return {"table": self.table, **result, "dry_run": only_tell}

    def _tell(self, result: dict[str, Any], only_tell: bool) -> None:
        if only_tell:
            self.log.info("%s", result)
            return
        done = [(kind, each) for kind, all_of_it in result.items() for each in all_of_it]
        for kind, each in done:
            self.log.info(
                "%s %s completed at %s: %s file groups, %s records, %s bytes",
                *(_KINDS[kind], each["instant"], each["completion_time"]),
                *(f"{each[key]:,}" for key in ("file_groups", "records", "bytes_written")),
            )
        if not done:
            self.log.info("nothing to compact")

    def _log_settings(self, options: EffectiveOptions) -> LogCompactionSettings | None:
        """For which file groups a log compaction is due; None if neither task nor table asks for it."""
        found = options.arguments(Topic.COMPACTION, log_blocks=count(self.log_blocks, "log_blocks"))
        partitions = texts(self.partitions, "partitions") or ()
        return LogCompactionSettings(found["log_blocks"], partitions) if found else None

"""Compaction of a table, and of its metadata table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency.plans import MAX_FAILURES
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.operators._base import TableOperator, TaskOperation, count, flag, texts
from airflow_provider.services.compaction import compact, due_compactions
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.table_compaction import (
    LogCompactionSettings,
    TableCompactionSettings,
    compact_logs,
    compact_table,
    due_log_compactions,
    due_table_compactions,
)
from airflow_provider.table.hudi_options import EffectiveOptions, Topic

if TYPE_CHECKING:
    from airflow.sdk import Context


_KINDS = {
    "table_compactions": "compaction",
    "log_compactions": "log compaction",
    "compactions": "compaction of the metadata table",
}


class CompactionOperator(TableOperator):
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

    Arguments beside those of :class:`~airflow_provider.operators._base.TableOperator`:

    :param delta_commits: a compaction of a merge-on-read table is due after this number of deltacommits since
        the last one; the table's ``hoodie.compact.inline.max.delta.commits``, or 5, when None (templated).
    :param min_log_files: a compaction leaves out a file group of the table with fewer log files (templated).
    :param min_log_bytes: a compaction leaves out a file group of the table with fewer bytes of log files
        (templated).
    :param partitions: patterns of partition paths of the table; all when None (templated).
    :param max_io_bytes: most bytes that a compaction of the table reads and writes (templated).
    :param log_blocks: after the compaction of the table, a log compaction merges the log blocks of a file
        group that has at least so many; the table's ``hoodie.log.compaction.blocks.threshold`` when None.
        Without either there is no log compaction (templated).
    :param max_delta_commits: a compaction of the metadata table is due after this number of its deltacommits,
        one for each commit, since the last one; the table's ``hoodie.metadata.compact.max.delta.commits``, or
        10, when None (templated).
    :param log_file_size_threshold: a compaction leaves out a file group of the metadata table with fewer
        bytes of log files; the table's ``hoodie.compaction.logfile.size.threshold``, or 0, when None
        (templated).
    :param max_failures: failures in a row after which the table's compaction is stopped; None never stops it.
    :param dry_run: only reports what would be compacted (templated).
    """

    template_fields: Sequence[str] = (
        *TableOperator.template_fields,
        "delta_commits",
        "min_log_files",
        "min_log_bytes",
        "partitions",
        "max_io_bytes",
        "log_blocks",
        "max_delta_commits",
        "log_file_size_threshold",
        "only_tell",
    )
    ui_color = "#e0e7f5"

    def __init__(
        self,
        *,
        delta_commits: int | str | None = None,
        min_log_files: int | str | None = None,
        min_log_bytes: int | str | None = None,
        partitions: Sequence[str] | str | None = None,
        max_io_bytes: int | str | None = None,
        log_blocks: int | str | None = None,
        max_delta_commits: int | str | None = None,
        log_file_size_threshold: int | str | None = None,
        max_failures: int | None = MAX_FAILURES,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.delta_commits = delta_commits
        self.min_log_files = min_log_files
        self.min_log_bytes = min_log_bytes
        self.partitions = partitions
        self.max_io_bytes = max_io_bytes
        self.log_blocks = log_blocks
        self.max_delta_commits = max_delta_commits
        self.log_file_size_threshold = log_file_size_threshold
        self.max_failures = max_failures
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
        own = self._own_settings(options) if table.is_merge_on_read else None
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
        return LogCompactionSettings(found["log_blocks"], self._partitions) if found else None

    @property
    def _partitions(self) -> tuple[str, ...]:
        return texts(self.partitions, "partitions") or ()

    def _own_settings(self, options: EffectiveOptions) -> TableCompactionSettings:
        """When a compaction of the table itself is due, and for which file groups."""
        names = ("delta_commits", "min_log_files", "min_log_bytes", "max_io_bytes")
        given: dict[str, Any] = {name: count(getattr(self, name), name) for name in names}
        if self.partitions is not None:
            given["partitions"] = self._partitions
        return TableCompactionSettings(**options.arguments(Topic.COMPACTION, **given))

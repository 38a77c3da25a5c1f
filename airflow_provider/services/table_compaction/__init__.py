"""Compaction of merge-on-read tables: it merges log files into new base files.

Begin to read at ``table_compaction``: it plans under the table lock, and executes a plan beside writers.
``compaction_trigger`` tells when one is due, and ``table_compaction_plan`` chooses the file groups.
``log_compaction`` merges many log blocks into one instead. ``run_plans`` executes the pending plans of both.

The choice of file groups may be changed. A plan reads the files of instants that had completed when it was
scheduled. Files of instants that complete later belong to the next file slice
(:func:`airflow_provider.concurrency.conflicts.rules.shared_by`).
"""

from airflow_provider.services.table_compaction.compaction_job import (
    CompactionJob,
    compaction_result,
    earlier_compaction,
    run_compaction_job,
)
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.services.table_compaction.compaction_task import CompactionTask
from airflow_provider.services.table_compaction.log_compaction import (
    LogCompactionSettings,
    compact_logs,
    compact_logs_when_due,
    due_log_compactions,
    pending_log_compactions,
    run_log_compaction,
    schedule_log_compaction,
)
from airflow_provider.services.table_compaction.table_compaction import (
    WriteSlices,
    compact_table,
    compact_table_when_due,
    due_table_compactions,
    pending_table_compactions,
    preview_table_compaction,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.services.table_compaction.table_compaction_plan import read_plan

__all__ = [
    "CompactionJob",
    "CompactionTask",
    "LogCompactionSettings",
    "TableCompactionSettings",
    "WriteSlices",
    "compact_logs",
    "compact_logs_when_due",
    "compact_table",
    "compact_table_when_due",
    "compaction_result",
    "due_log_compactions",
    "due_table_compactions",
    "earlier_compaction",
    "pending_log_compactions",
    "pending_table_compactions",
    "preview_table_compaction",
    "read_plan",
    "run_compaction_job",
    "run_log_compaction",
    "run_table_compaction",
    "schedule_log_compaction",
    "schedule_table_compaction",
]

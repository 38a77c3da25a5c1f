"""The commit log: entries, the log itself, unique instant times, and how an instant has ended.

The log is the total order of a table's commits. Only :func:`airflow_provider.concurrency.commit.commit`
appends to it. A new kind of entry is added in ``log_entry`` and must stay readable by older releases.
"""

from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER, CommitLog
from airflow_provider.concurrency.log.fate import Fate, commit_of, fate_of, find_rollback
from airflow_provider.concurrency.log.instant_time import (
    completion_time_after,
    request_instant,
    requested_times_before,
)
from airflow_provider.concurrency.log.log_entry import (
    Archival,
    Commit,
    IndexState,
    LogEntry,
    Plan,
    Restore,
    Revert,
    Rollback,
    Savepoint,
    without_reverted,
)

__all__ = [
    "COMMIT_LOG_FOLDER",
    "Archival",
    "Commit",
    "CommitLog",
    "Fate",
    "IndexState",
    "LogEntry",
    "Plan",
    "Restore",
    "Revert",
    "Rollback",
    "Savepoint",
    "commit_of",
    "completion_time_after",
    "fate_of",
    "find_rollback",
    "request_instant",
    "requested_times_before",
    "without_reverted",
]

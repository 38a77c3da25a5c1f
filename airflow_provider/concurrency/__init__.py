"""The commit protocol, the conflict rules, priorities and heartbeats (design sections 4, 5)."""

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry
from airflow_provider.concurrency.conflicts import PRIORITIES, Conflict, first_conflict
from airflow_provider.concurrency.failed_writes import (
    PendingInstant,
    pending_instants,
    rollback,
    rollback_dead_writers,
)
from airflow_provider.concurrency.writer import CommitResult, Writer, begin_write, find_operation

__all__ = [
    "PRIORITIES",
    "CommitLog",
    "CommitResult",
    "Conflict",
    "LogEntry",
    "PendingInstant",
    "Writer",
    "begin_write",
    "find_operation",
    "first_conflict",
    "pending_instants",
    "rollback",
    "rollback_dead_writers",
]

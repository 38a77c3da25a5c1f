"""The commit protocol, the conflict rules, priorities and heartbeats (design sections 4, 5)."""

from airflow_provider.concurrency.begin import begin_planned, begin_write
from airflow_provider.concurrency.commit_log import CommitLog
from airflow_provider.concurrency.conflicts import PRIORITIES, Conflict, ConflictPolicy, Outcome
from airflow_provider.concurrency.content import CommitResult, Rebase, Rebased
from airflow_provider.concurrency.failed_writes import rollback, rollback_dead_writers
from airflow_provider.concurrency.in_flight import PendingInstant, pending_instants, wait_for_instant
from airflow_provider.concurrency.log_entry import LogEntry
from airflow_provider.concurrency.make_way import make_way
from airflow_provider.concurrency.operations import find_operation, find_operations
from airflow_provider.concurrency.plans import ServicePlan, schedule
from airflow_provider.concurrency.writer import Writer

__all__ = [
    "PRIORITIES",
    "CommitLog",
    "CommitResult",
    "Conflict",
    "ConflictPolicy",
    "LogEntry",
    "Outcome",
    "PendingInstant",
    "Rebase",
    "Rebased",
    "ServicePlan",
    "Writer",
    "begin_planned",
    "begin_write",
    "find_operation",
    "find_operations",
    "make_way",
    "pending_instants",
    "rollback",
    "rollback_dead_writers",
    "schedule",
    "wait_for_instant",
]

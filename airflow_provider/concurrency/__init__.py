"""The commit protocol, the conflict rules, priorities and heartbeats."""

from airflow_provider.concurrency.commit import CommitResult, Rebase, Rebased
from airflow_provider.concurrency.conflicts import (
    PRIORITIES,
    Conflict,
    ConflictPolicy,
    Outcome,
    PendingInstant,
    make_way,
    pending_instants,
    wait_for_instant,
)
from airflow_provider.concurrency.heartbeats import HeartbeatSettings
from airflow_provider.concurrency.log import CommitLog, LogEntry
from airflow_provider.concurrency.plans import ServicePlan, schedule
from airflow_provider.concurrency.undo import rollback, rollback_dead_writers
from airflow_provider.concurrency.write import (
    Writer,
    WriteSettings,
    begin_planned,
    begin_write,
    find_operation,
    find_operations,
)

__all__ = [
    "PRIORITIES",
    "CommitLog",
    "CommitResult",
    "Conflict",
    "ConflictPolicy",
    "HeartbeatSettings",
    "LogEntry",
    "Outcome",
    "PendingInstant",
    "Rebase",
    "Rebased",
    "ServicePlan",
    "WriteSettings",
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

"""The commit protocol: how writers and table services change one table at once, and nothing is lost.

``log`` is the total order of a table's commits. ``commit`` has the one function that appends to the log and
publishes. ``conflicts`` has the rules that decide conflicts. ``write`` is one write from its beginning to its
commit. ``plans`` schedules table services. ``undo`` is rollback and revert. ``heartbeats`` and ``readers``
tell which processes live, and which files they need. ``indexes`` is what a commit logs to the metadata table.
``transactions`` is the end of a metastore transaction.

Begin to read at docs/commit-protocol.md, then ``write/writer.py``, ``commit/commit_point.py`` and
``conflicts/rules.py``. A rule, a kind of entry and a step of a write may be changed or added. Only ``commit``
appends to the log. A step before the entry must do no harm when its process dies or is paused right after it:
``tests/unit/concurrency`` tries any interleaving, and ``ARCHITECTURE.md`` lists what must always hold.
"""

from airflow_provider.concurrency.commit import CommitResult, Rebase, Rebased
from airflow_provider.concurrency.conflicts import (
    PRIORITIES,
    Conflict,
    ConflictPolicy,
    Outcome,
    PendingInstant,
    pending_instants,
    wait_for_higher_priority,
    wait_for_instant,
    writers_ahead,
)
from airflow_provider.concurrency.heartbeats import HeartbeatSettings
from airflow_provider.concurrency.log import CommitLog, LogEntry
from airflow_provider.concurrency.plans import ServicePlan, schedule
from airflow_provider.concurrency.undo import rollback, rollback_dead_writers
from airflow_provider.concurrency.write import (
    Writer,
    WriteSettings,
    WriteTransaction,
    begin_planned,
    begin_write,
    find_operation,
    find_operations,
    roll_back_operation,
    settle_operation,
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
    "WriteTransaction",
    "Writer",
    "begin_planned",
    "begin_write",
    "find_operation",
    "find_operations",
    "pending_instants",
    "roll_back_operation",
    "rollback",
    "rollback_dead_writers",
    "schedule",
    "settle_operation",
    "wait_for_higher_priority",
    "wait_for_instant",
    "writers_ahead",
]

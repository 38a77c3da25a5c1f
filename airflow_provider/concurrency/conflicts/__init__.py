"""Who excludes whom: the rules, priorities, writes in flight, open transactions, and other engines.

``rules`` are pure functions over two descriptions of writes. The other modules find those descriptions.
"""

from airflow_provider.concurrency.conflicts.foreign_writers import (
    OWNER,
    as_entry,
    changes_something,
    clustered,
    compacted,
    is_lost,
    planned_clusterings,
    unfinished_error,
    unfinished_write,
)
from airflow_provider.concurrency.conflicts.open_transactions import (
    check_no_open_transaction,
    instants_of_open_transactions,
    mark_open_transaction,
    unmark_open_transaction,
    writes_of_open_transactions,
)
from airflow_provider.concurrency.conflicts.pending_writes import (
    PendingInstant,
    action_of,
    others_writing,
    pending_instants,
    wait_for_clustering,
    wait_for_instant,
    wait_for_others_to_tell,
    writers_above,
)
from airflow_provider.concurrency.conflicts.rules import (
    CLEANING,
    COMPACT,
    PRIORITIES,
    RESTORE,
    Conflict,
    ConflictPolicy,
    Outcome,
    WriteDescription,
    conflicts_with,
    kind_of,
    resolve_conflict,
)
from airflow_provider.concurrency.conflicts.turns import (
    LOSSES_BEFORE_A_TURN,
    SECONDS_FOR_ANOTHER_ENGINE,
    SHORT_TURN_SECONDS,
    turn_seconds,
    why_no_turn_helps,
)
from airflow_provider.concurrency.conflicts.yielding import wait_for_higher_priority, writers_ahead

__all__ = [
    "CLEANING",
    "COMPACT",
    "LOSSES_BEFORE_A_TURN",
    "OWNER",
    "PRIORITIES",
    "RESTORE",
    "SECONDS_FOR_ANOTHER_ENGINE",
    "SHORT_TURN_SECONDS",
    "Conflict",
    "ConflictPolicy",
    "Outcome",
    "PendingInstant",
    "WriteDescription",
    "action_of",
    "as_entry",
    "changes_something",
    "check_no_open_transaction",
    "clustered",
    "compacted",
    "conflicts_with",
    "instants_of_open_transactions",
    "is_lost",
    "kind_of",
    "mark_open_transaction",
    "others_writing",
    "pending_instants",
    "planned_clusterings",
    "resolve_conflict",
    "turn_seconds",
    "unfinished_error",
    "unfinished_write",
    "unmark_open_transaction",
    "wait_for_clustering",
    "wait_for_higher_priority",
    "wait_for_instant",
    "wait_for_others_to_tell",
    "why_no_turn_helps",
    "writers_above",
    "writers_ahead",
    "writes_of_open_transactions",
]

"""How an instant has ended, by the commit log and the archived timeline.

Neither suffices alone. The log is trimmed when its instants are archived. The timeline may show a file of an
archived instant, put by a process that was paused for longer than an archival. So a caller asks
:func:`fate_of` before it takes an instant for dead, rolls it back, or deletes a file of it. The answer is
final.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_provider.concurrency.log.commit_log import CommitLog
from airflow_provider.concurrency.log.log_entry import (
    Commit,
    LogEntry,
    Plan,
    Restore,
    Revert,
    Rollback,
    Savepoint,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, find_archived, newest_archived


class Fate(StrEnum):
    """How an instant has ended, which decides what happens to the files that it left."""

    COMPLETED = "completed"
    """It has committed. It may not be published yet."""
    ARCHIVED = "archived"
    """It has committed, and is archived. A pending file of it came too late."""
    UNDONE = "undone"
    """It had completed, and a revert or a restore has undone it, which also deals with its data files."""
    DEAD = "dead"
    """It can never complete: it was rolled back, or its indexes were dropped before they were complete. No
    reader needs its data files."""


def fate_of(storage: Storage, commit_log: CommitLog, instant: str) -> Fate | None:
    """How an instant has ended.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param instant: the instant's requested time.
    :return: None as long as the instant has not ended, or when it is unknown.
    """
    for entry in commit_log.about(instant):
        if instant in entry.undone:
            return Fate.UNDONE if isinstance(entry, Revert | Restore) else Fate.DEAD
        if isinstance(entry, Savepoint):
            continue  # a savepoint has the requested time of its commit
        if not entry.leaves_pending:
            return Fate.COMPLETED
        return Fate.DEAD if _is_dropped(commit_log, entry) else None
    # Archival writes the archived timeline before it trims the log. It stops before a pending instant, and
    # passes a rolled-back instant only long after the rollback.
    if instant > newest_archived(storage):
        return None
    return Fate.DEAD if find_archived(storage, instant) is None else Fate.ARCHIVED


def _is_dropped(commit_log: CommitLog, entry: LogEntry) -> bool:
    """Whether an entry plans indexes that are all dropped, so that no process can carry it out."""
    if not isinstance(entry, Plan) or entry.action is not Action.INDEXING:
        return False
    newest = commit_log.newest()
    left = newest.indexes if newest is not None else None  # None when its writer knew no indexes
    return left is not None and all(each.instant != entry.instant for each in left)


def commit_of(commit_log: CommitLog, instant: str) -> Commit | None:
    """The log entry that completed an instant, unless a later one undoes it."""
    for entry in commit_log.about(instant):
        if instant in entry.undone:
            return None
        if isinstance(entry, Commit):
            return entry
    return None


def find_rollback(commit_log: CommitLog, instant: str) -> Rollback | None:
    """The log entry that made a pending instant dead, if there is one."""
    found = (entry for entry in commit_log.about(instant) if isinstance(entry, Rollback))
    return next((entry for entry in found if entry.rolls_back == instant), None)

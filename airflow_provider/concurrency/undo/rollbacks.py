"""Rollback: the only way to undo a write that did not commit.

The order makes it safe. First an entry of the commit log says that the instant is dead. From then on its
writer can never commit, because the writer must read that entry before its own put. Only after that are its
files deleted.

If an instant has completed, a rollback may delete its pending files and its heartbeat, but never a data file.
This holds for archived instants too.
"""

from __future__ import annotations

import logging

from airflow_provider.concurrency.commit import (
    Moment,
    clean_up,
    commit,
    publish_head,
    staged_plan_path,
    take_off_pending,
)
from airflow_provider.concurrency.conflicts import action_of
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, heartbeat_path, observe
from airflow_provider.concurrency.log import CommitLog, Fate, Plan, Rollback, fate_of
from airflow_provider.concurrency.undo.first_commit import ensure_commit_before
from airflow_provider.exceptions import NoSuchInstantError, TableError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import WRITE_ACTIONS, Action, State, Timeline

log = logging.getLogger(__name__)

_REASON_LENGTH = 500  # an error of Spark can be pages long

# Any process may carry out a plan of these actions, and none is rolled back: a clean may have deleted files
# already, and writers log to the indexes of an indexing plan already.
_FINISHED = frozenset({Action.CLEAN, Action.INDEXING})


def rollback(
    table: HudiTable, instant: str, *, reason: str = "asked for", dry_run: bool = False
) -> Rollback | None:
    """Roll back an instant that has not completed, whether or not its writer is alive.

    :param table: the table.
    :param instant: requested time of the instant.
    :param reason: why, for the log.
    :param dry_run: whether to check only that the instant can be rolled back.
    :return: the rollback's log entry; None for a dry run, and when the instant had been rolled back before
        and only leftovers were deleted.
    :raises NoSuchInstantError: when there is no such instant.
    :raises TableError: when the instant has committed, or is a clean, which can only be finished, or an
        indexing plan, which has to be run again or its index dropped.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable(keeps_indexes=False)
    storage = table.storage
    commit_log = CommitLog(storage)
    publish_head(storage, commit_log)
    found = Timeline.load(storage).find(instant)
    heartbeat = observe(storage).get(instant)
    if found is None and heartbeat is None:
        raise NoSuchInstantError(
            f"table {storage.root}: no pending instant {instant}; it was rolled back, or never existed",
            instant=instant,
        )
    fate = fate_of(storage, commit_log, instant)
    if (found is not None and found.state is State.COMPLETED) or fate in (Fate.COMPLETED, Fate.ARCHIVED):
        raise TableError(
            f"table {storage.root}: instant {instant} has completed; a rollback undoes pending instants only",
            instant=instant,
        )
    if found is not None and found.action is Action.CLEAN:
        raise TableError(
            f"table {storage.root}: clean {instant} may have deleted files, and cannot be undone; clean "
            "the table to finish it",
            instant=instant,
        )
    if found is not None and found.action is Action.INDEXING and fate is None:
        raise TableError(
            f"table {storage.root}: indexing plan {instant} is not rolled back, because writers log to its "
            "indexes already; run it, or drop them",
            instant=instant,
        )
    if dry_run:
        return None
    action = found.action if found else action_of(heartbeat.info if heartbeat else HeartbeatInfo())
    if fate is not None:
        # Its writer did not know that it was dead, and has put its instant file again.
        _delete_leftovers(storage, instant, action, fate)
        return None
    return _put_rollback(storage, instant, action, reason, heartbeat.info if heartbeat else None)


def rollback_dead_writers(table: HudiTable) -> list[str]:
    """Roll back every writer whose heartbeat expired. Every writer does this first.

    Pending instants without a heartbeat belong to writers that keep none, and are left alone. If the log or
    the archived timeline says that such an instant has ended, its leftovers are deleted.

    :param table: the table.
    :return: requested times of the instants rolled back.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable(keeps_indexes=False)
    storage = table.storage
    commit_log = CommitLog(storage)
    rolled_back = []
    heartbeats = observe(storage)
    for requested_time, heartbeat in sorted(heartbeats.items()):
        if heartbeat.alive:
            continue
        publish_head(storage, commit_log)
        found = Timeline.load(storage).find(requested_time)
        if found is not None and (found.state is State.COMPLETED or found.action in _FINISHED):
            _forget(storage, requested_time)
            continue
        action = found.action if found else action_of(heartbeat.info)
        if (fate := fate_of(storage, commit_log, requested_time)) is not None:
            _delete_leftovers(storage, requested_time, action, fate)
            continue
        reason = f"no heartbeat for {heartbeat.age_seconds:.1f} s"
        if _put_rollback(storage, requested_time, action, reason, heartbeat.info):
            rolled_back.append(requested_time)
    for instant in Timeline.load(storage, archived_too=True).pending():
        if instant.requested_time in heartbeats or storage.stat(heartbeat_path(instant.requested_time)):
            continue
        fate = fate_of(storage, commit_log, instant.requested_time)
        if fate is not None:
            _delete_leftovers(storage, instant.requested_time, instant.action, fate)
    return rolled_back


def _delete_leftovers(storage: Storage, instant: str, action: Action, fate: Fate) -> None:
    """Delete the leftovers of an ended instant, and the files that its writer put after its end."""
    if fate is Fate.DEAD:
        clean_up(storage, instant, action)
        return
    if fate is not Fate.COMPLETED:  # a completed instant may just be published, and needs its pending files
        take_off_pending(storage, instant, action)
    _forget(storage, instant)


def _forget(storage: Storage, instant: str) -> None:
    """Delete the heartbeat of a published instant, and the staged plan that a killed publisher leaves."""
    storage.delete(staged_plan_path(instant))
    storage.delete(heartbeat_path(instant))


def _put_rollback(
    storage: Storage, dead: str, action: Action, reason: str, writer: HeartbeatInfo | None
) -> Rollback | None:
    """Put the entry after which the instant is dead; None when the instant has ended before."""
    told = writer if writer is not None and writer != HeartbeatInfo() else None
    if action.when_completed in WRITE_ACTIONS:
        ensure_commit_before(storage, dead)

    def decide(moment: Moment) -> Rollback | None:
        if moment.fate_of(dead) is not None or _is_for_anybody(storage, dead):
            return None
        return Rollback(
            # The time is later than the dead instant's, even if this clock is behind its writer's.
            instant=moment.request_instant(Action.ROLLBACK, "ROLLBACK", later_than=dead),
            priority=0,
            rolls_back=dead,
            rolled_back_action=action,
            owner=describe_owner(),
            reason=reason[:_REASON_LENGTH],
            dead_owner=told.owner if told else "",
            dead_operation=told.operation if told else "",
            dead_priority=told.priority if told else 0,
        )

    entry = commit(storage, decide)
    if entry is not None:
        log.info("table %s: instant %s rolled back by %s: %s", storage.root, dead, entry.instant, reason)
    return entry


def _is_for_anybody(storage: Storage, instant: str) -> bool:
    """Whether an instant is a plan that any process may finish, and that is not rolled back."""
    own = (entry for entry in CommitLog(storage).about(instant) if entry.instant == instant)
    return any(isinstance(entry, Plan) and entry.action in _FINISHED for entry in own)

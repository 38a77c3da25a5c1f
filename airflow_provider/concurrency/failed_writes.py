"""Rollback: the only way to undo a write that did not commit.

The order is what makes it safe: first an entry in the commit log says that the instant is
dead, and from then on its writer can never commit, because it must read that entry before
its own put; only after that its files are deleted.
"""

from __future__ import annotations

import logging

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry
from airflow_provider.concurrency.first_commit import ensure_commit_before
from airflow_provider.concurrency.heartbeat import HeartbeatInfo, heartbeat_path, observe
from airflow_provider.concurrency.in_flight import action_of, is_dead
from airflow_provider.concurrency.indexes import current_indexes
from airflow_provider.concurrency.instant_time import completion_time_after, request_instant
from airflow_provider.concurrency.publish import clean_up, ensure_published, publish, publish_head
from airflow_provider.exceptions import NoSuchInstantError, TableError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import WRITE_ACTIONS, Action, State
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline

log = logging.getLogger(__name__)

_REASON_LENGTH = 500  # an error of Spark's can be pages long

# What is planned is carried out, by anybody, and not rolled back: what a clean names is needed by nobody,
# and to the indexes of an indexing plan writers log already.
_FINISHED = frozenset({Action.CLEAN, Action.INDEXING})


def rollback(
    table: HudiTable, instant: str, *, reason: str = "asked for", dry_run: bool = False
) -> LogEntry | None:
    """Roll back an instant that has not completed, whether or not its writer lives.

    :param table: the table.
    :param instant: requested time of the instant.
    :param reason: why, for the log.
    :param dry_run: whether only to find out that it can be.
    :return: the rollback's log entry; None when the instant had been rolled back before and
        only leftovers were removed, and of a dry run.
    :raises NoSuchInstantError: when there is no such instant.
    :raises TableError: when the instant has committed (a completed instant is not undone here), or is a
        clean, which can only be finished, or an indexing plan, which is run again, or its index dropped.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage = table.storage
    commit_log = CommitLog(storage)
    base = publish_head(storage, commit_log)
    found = Timeline.load(storage).find(instant)
    if found is not None and found.state is State.COMPLETED:
        raise TableError(
            f"table {storage.root}: instant {instant} has completed; a rollback undoes pending instants only",
            instant=instant,
        )
    if found is not None and found.action is Action.CLEAN:
        raise TableError(
            f"table {storage.root}: clean {instant} has deleted files, perhaps, and cannot be undone; clean "
            "the table to finish it",
            instant=instant,
        )
    if found is not None and found.action is Action.INDEXING:
        raise TableError(
            f"table {storage.root}: indexing plan {instant} is not rolled back, because writers log to its "
            "indexes already; run it, or drop them",
            instant=instant,
        )
    heartbeat = observe(storage).get(instant)
    if found is None and heartbeat is None:
        raise NoSuchInstantError(
            f"table {storage.root}: no pending instant {instant}; it was rolled back or never was",
            instant=instant,
        )
    if dry_run:
        return None
    action = found.action if found else action_of(heartbeat.info if heartbeat else HeartbeatInfo())
    if heartbeat is None and is_dead(storage, commit_log, instant, action):
        # A writer that did not know yet that it was dead wrote its instant file once more.
        clean_up(storage, instant, action)
        return None
    return _put_rollback(storage, commit_log, base, instant, action, reason)


def rollback_dead_writers(table: HudiTable) -> list[str]:
    """Roll back every writer whose heartbeat expired; what every writer does first.

    Pending instants without a heartbeat are left alone unless the log says that they are
    dead: they belong to a writer that keeps no heartbeat.

    :param table: the table.
    :return: requested times of the instants rolled back.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage = table.storage
    commit_log = CommitLog(storage)
    rolled_back = []
    heartbeats = observe(storage)
    timeline: Timeline | None = None
    for requested_time, heartbeat in sorted(heartbeats.items()):
        if heartbeat.alive:
            continue
        base = publish_head(storage, commit_log)
        timeline = Timeline.load(storage)
        found = timeline.find(requested_time)
        if found is not None and (found.state is State.COMPLETED or found.action in _FINISHED):
            storage.delete(heartbeat_path(requested_time))
            continue
        action = found.action if found else action_of(heartbeat.info)
        reason = f"no heartbeat for {heartbeat.age_seconds:.1f} s"
        if _put_rollback(storage, commit_log, base, requested_time, action, reason):
            rolled_back.append(requested_time)
    for instant in (timeline or Timeline.load(storage)).pending():
        if instant.requested_time in heartbeats or storage.stat(heartbeat_path(instant.requested_time)):
            continue
        requested_time, action = instant.requested_time, instant.action
        if action is not Action.ROLLBACK and is_dead(storage, commit_log, requested_time, action):
            clean_up(storage, requested_time, action)
    return rolled_back


def _put_rollback(
    storage: Storage, commit_log: CommitLog, base: LogEntry | None, dead: str, action: Action, reason: str
) -> LogEntry | None:
    if action is Action.COMPACTION and _is_on_metadata_table(commit_log, dead):
        storage.delete(heartbeat_path(dead))  # its planner died, but the plan is for anybody to carry out
        return None
    if action.when_completed in WRITE_ACTIONS:
        ensure_commit_before(storage, commit_log, dead)
    known = base.sequence if base else 0
    info = HeartbeatInfo(describe_owner(), Action.ROLLBACK, "ROLLBACK", 0, 10.0, 6, base=known)
    # Later than the dead one: by a clock behind its writer's its time would be taken once more.
    instant, newest = request_instant(storage, commit_log, base, info, later_than=dead)
    while True:
        for entry in commit_log.after(newest.sequence if newest else 0):
            newest = entry
        if newest is not None:
            ensure_published(storage, newest)
        since = base.sequence if base else 0
        ended = list(commit_log.after(since))
        if any(_ends(entry, dead) for entry in ended):
            storage.delete(heartbeat_path(instant))
            return None
        if any(entry.rolls_back == instant for entry in ended):
            # This one stood still for so long that others took it for dead: once more, by another name.
            return _put_rollback(storage, commit_log, base, dead, action, reason)
        sequence = (newest.sequence if newest else 0) + 1
        entry = LogEntry(
            instant=instant,
            action=Action.ROLLBACK,
            completion_time=completion_time_after(newest, instant),
            operation="ROLLBACK",
            priority=0,
            rolls_back=dead,
            rolled_back_action=action,
            owner=describe_owner(),
            reason=reason[:_REASON_LENGTH],
            indexes=current_indexes(storage, commit_log, newest),
            sequence=sequence,
        )
        if commit_log.append(sequence, entry):
            log.info("table %s: instant %s rolled back by %s: %s", storage.root, dead, instant, reason)
            publish(storage, entry)
            return entry


def _is_on_metadata_table(commit_log: CommitLog, instant: str) -> bool:
    own = (entry for entry in commit_log.about(instant) if entry.instant == instant)
    return any(entry.on_metadata_table for entry in own)


def _ends(entry: LogEntry, instant: str) -> bool:
    if entry.rolls_back == instant:
        return True
    goes_on = entry.leaves_pending and entry.action not in _FINISHED
    return entry.instant == instant and entry.rolls_back is None and not goes_on

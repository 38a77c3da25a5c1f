"""Revert: the rollback of a completed commit, either a rewrite (RFC-22's example for priorities), or a write
whose transaction was aborted.

A revert is the most dangerous step of all; ARCHITECTURE.md lists its four guards. It is encoded as a rollback
of the instant: the instant's completed file is deleted, so that readers see the replaced file groups again. A
new replacecommit that named those file groups would lose all of their rows in a standard reader. A search
over a model has shown that each guard is necessary. If a guard fails, the caller rebases instead.
"""

from __future__ import annotations

import logging

from airflow_provider.concurrency.commit import Moment, commit, revert_entry, view_without
from airflow_provider.concurrency.conflicts import CLEANING, COMPACT
from airflow_provider.concurrency.log import Commit, CommitLog, Revert, commit_of, without_reverted
from airflow_provider.exceptions import NoSuchInstantError, TableError
from airflow_provider.table.file_groups import Effect, FileGroupId, effect_of
from airflow_provider.table.files import LogFileName
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import REWRITES, Instant, Timeline

log = logging.getLogger(__name__)


def obstacle(storage: Storage, commit_log: CommitLog, rewrite: Commit) -> str | None:
    """The reason why a completed rewrite must not be reverted now.

    This function does not check two of the guards in ARCHITECTURE.md, because they always hold. A writer in
    flight whose base shows the rewrite's outputs loses, because the revert's entry touches them (2). The
    merge base of a file group is its last committed slice, even while the group is replaced, because a writer
    merges on the snapshot at its base (3).

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param rewrite: the entry that completed the rewrite.
    :return: None when nothing is in the way of a revert at the log's end.
    """
    if rewrite.operation not in REWRITES or not rewrite.sequence:
        return "it is no rewrite that this package made"
    if commit_of(commit_log, rewrite.instant) is None:  # a restore touches no file group
        return "it was undone since, or archived"
    if found := _obstacle(storage, commit_log, rewrite):
        return found
    # A compaction replaces a slice within its file group.
    superseded = rewrite.replaced or rewrite.written
    for entry in commit_log.after(rewrite.sequence):
        if entry.operation in CLEANING and entry.claimed & superseded:
            return f"clean {entry.instant} takes files that it replaced"
    archived = commit_log.archived(commit_log.newest())  # such instants may still be on the timeline
    commits = Timeline.load(storage).commits()
    if not any(archived < commit.requested_time < rewrite.instant for commit in commits):
        # Readers take instants that are older than the timeline for committed (Hudi's rule).
        return "it is the oldest commit of the active timeline"
    return _gone(storage, rewrite.instant, superseded)


def _obstacle(
    storage: Storage, commit_log: CommitLog, entry: Commit, *, in_any_order: bool = False
) -> str | None:
    """The reason why a commit cannot be reverted, because of a later entry, a savepoint or the storage.

    :param in_any_order: whether a log file needs no other log file of its file group.
    """
    if not storage.moves_atomically:
        return "the storage cannot move a file in one step, so that a late publisher could bring it back"
    for later in without_reverted(commit_log.after(entry.sequence)):
        # A compaction has not read the log files of this commit, because no plan names a file group that an
        # open transaction holds.
        kept = entry.appended if later.operation == COMPACT else frozenset[FileGroupId]()
        if in_any_order and isinstance(later, Commit | Revert):
            kept |= entry.appended & later.appended
        if later.touched & entry.written - kept:
            return f"{later.operation} {later.instant} has written to its file groups since"
    timeline = Timeline.load(storage)
    if any(timeline.kept_moment(savepoint) >= entry.completion_time for savepoint in timeline.savepoints()):
        return "a savepoint holds it"
    return None


def _gone(storage: Storage, instant: str, superseded: frozenset[FileGroupId]) -> str | None:
    view = view_without(storage, instant)
    for group in sorted(superseded):
        if not view.is_live(group):
            return f"the files of {group.partition_path}/{group.file_id}, which it replaced, are gone"
    return None


def revert_rewrite(storage: Storage, rewrite: Commit) -> str | None:
    """Undo a completed rewrite that is in the way of a write of higher priority.

    :param storage: the table's storage.
    :param rewrite: the entry that completed it.
    :return: the reason why it cannot be undone; None when it is undone.
    """
    why_not: list[str] = []

    def decide(moment: Moment) -> Revert | None:
        reason = obstacle(storage, CommitLog(storage), rewrite)
        why_not[:] = [reason] if reason else []
        return None if reason else revert_entry(storage, moment, rewrite)

    commit(storage, decide)
    return why_not[0] if why_not else None


def revert(table: HudiTable, instant: str, *, reason: str) -> Revert | None:
    """Undo a completed write whose transaction was aborted, and on which no other write was built.

    Its data files are deleted at once, even if a reader still reads them: they were never committed.

    :param table: the table.
    :param instant: requested time of the commit.
    :param reason: why, for the log.
    :return: the revert's entry; None when the instant is no commit any more.
    :raises TableError: when something is in the way.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage, commit_log = table.storage, CommitLog(table.storage)

    def decide(moment: Moment) -> Revert | None:
        while True:
            timeline = Timeline.load(storage)
            found, entry = timeline.find(instant), commit_of(commit_log, instant)
            if entry is None or found is None:
                return None
            try:
                effect = effect_of(storage, timeline, found)
                merged_on = _merged_on(storage, timeline, effect)
            except NoSuchInstantError:
                continue  # another process has just undone this commit, or one after it
            break
        # No clean is in the way. A clean planned since leaves alone the file groups that the transaction
        # holds. A clean planned before the commit deletes only slices that were superseded then.
        why_not = (
            _obstacle(storage, commit_log, entry, in_any_order=table.is_non_blocking)
            or merged_on
            or _gone(storage, instant, effect.merged_on | effect.replaced)
        )
        if why_not is not None:
            raise TableError(
                f"table {storage.root}: commit {instant} cannot be undone ({reason}): {why_not}",
                instant=instant,
            )
        return revert_entry(storage, moment, entry, brings_back=effect.taken_out_of)

    put = commit(storage, decide)
    if put is not None:
        log.info("table %s: %s was reverted because %s", storage.root, instant, reason)
    return put


def _merged_on(storage: Storage, timeline: Timeline, effect: Effect) -> str | None:
    """The reason why a commit cannot be undone: a Hudi writer that knows no transactions was merged on it."""
    commits = timeline.commits()
    for later_commit in commits[commits.index(effect.instant) + 1 :]:
        later = effect_of(storage, timeline, later_commit)
        if later.operation == COMPACT and effect.instant.requested_time not in _compacted(
            timeline, later_commit
        ):
            continue
        if later.merged_on & effect.written:
            return f"{later.operation} {later_commit.requested_time} was merged on it"
    return None


def _compacted(timeline: Timeline, compaction: Instant) -> set[str]:
    """Requested times of the instants whose log files a compaction has read."""
    operations = (timeline.plan(compaction) or {}).get("operations") or ()
    names = (name.rpartition("/")[2] for each in operations for name in each["deltaFilePaths"] or ())
    return {parsed.instant for parsed in map(LogFileName.parse, names) if parsed}

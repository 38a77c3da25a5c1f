"""Revert: the rollback of a commit that has completed: of a rewrite (RFC-22's example for priorities), or
of a write whose transaction was aborted.

The most dangerous step of all (design section 5). It is encoded as a rollback of the instant: its
completed file goes, so that the file groups that it took out show again. To name them in a new
replacecommit instead would lose every row of them in a standard reader. Each guard here was found
necessary by a search over a model; where one fails, the caller rebases instead.
"""

from __future__ import annotations

import logging

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry, without_reverted
from airflow_provider.concurrency.conflicts import CLEANING, PRIORITIES
from airflow_provider.concurrency.heartbeat import HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.indexes import (
    StagedChange,
    change_of_undoing,
    current_indexes,
    drop_staged,
)
from airflow_provider.concurrency.instant_time import completion_time_after, request_instant
from airflow_provider.concurrency.publish import files_in, publish, publish_head
from airflow_provider.exceptions import NoSuchInstantError, TableError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action
from airflow_provider.table.metadata import REWRITES
from airflow_provider.table.metadata_table.changes import TableChange
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline
from airflow_provider.table.visibility import Effect, effect_of

log = logging.getLogger(__name__)


def obstacle(storage: Storage, commit_log: CommitLog, rewrite: LogEntry) -> str | None:
    """Why a completed rewrite must not be reverted now.

    What is not asked here because it holds by itself: a writer in flight that is based on the
    rewrite's outputs loses, because the revert's entry touches them (guard 2), and a file group's
    merge base is its last committed slice also while it is replaced, because a writer merges on the
    snapshot at its base (guard 3).

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param rewrite: the entry that completed the rewrite.
    :return: None when nothing is in the way of a revert at the log's end.
    """
    if rewrite.operation not in REWRITES or not rewrite.sequence:
        return "it is no rewrite that this package made"
    if found := _obstacle(storage, commit_log, rewrite):
        return found
    for entry in commit_log.after(rewrite.sequence):
        if entry.operation in CLEANING and entry.written & rewrite.replaced:
            return f"clean {entry.instant} takes the file groups that it replaced"
    archived = commit_log.archived(commit_log.newest())  # perhaps still on the timeline
    commits = Timeline.load(storage).commits()
    if not any(archived < commit.requested_time < rewrite.instant for commit in commits):
        # Readers take what is older than the timeline for committed (Hudi's rule).
        return "it is the oldest commit of the active timeline"
    return _gone(storage, rewrite.instant, rewrite.replaced)


def _obstacle(storage: Storage, commit_log: CommitLog, entry: LogEntry) -> str | None:
    """What has come since that is in the way of reverting a commit."""
    if not storage.moves_atomically:
        return "the storage cannot move a file in one step, so that a late publisher could bring it back"
    for later in without_reverted(commit_log.after(entry.sequence)):
        if later.touched & entry.written:
            return f"{later.operation} {later.instant} has written to its file groups since"
    timeline = Timeline.load(storage)
    if any(timeline.kept_moment(savepoint) >= entry.completion_time for savepoint in timeline.savepoints()):
        return "a savepoint holds it"
    return None


def _gone(storage: Storage, instant: str, superseded: frozenset[FileGroupId]) -> str | None:
    view = _view_without(storage, instant)
    for group in sorted(superseded):
        if view.base_file(group) is None:
            return f"the files of {group.partition_path}/{group.file_id}, which it replaced, are gone"
    return None


def _view_without(storage: Storage, instant: str) -> FileSystemView:
    return FileSystemView(
        storage, lambda: Timeline.load(storage).showing(lambda i: i.requested_time != instant)
    )


def revert(table: HudiTable, instant: str, *, reason: str) -> LogEntry | None:
    """Undo a completed write on which nothing was built, because its transaction was aborted.

    Its data files go at once: whoever still reads them reads what was never committed.

    :param table: the table.
    :param instant: requested time of the commit.
    :param reason: why, for the log.
    :return: the revert's entry; None when the instant is no commit any more.
    :raises TableError: when something is in the way.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage, commit_log = table.storage, CommitLog(table.storage)
    while True:
        newest = publish_head(storage, commit_log)
        timeline = Timeline.load(storage)
        found = timeline.find(instant)
        entry = _commit_of(commit_log, instant)
        if newest is None or entry is None or found is None:
            return None
        try:
            effect = effect_of(storage, timeline, found)
            merged_on = _merged_on(storage, timeline, effect)
        except NoSuchInstantError:
            continue  # undone by somebody else in this moment, this one or one after it
        # No clean is in the way: one planned since left alone what is held, one planned before the commit
        # takes only what was superseded then.
        why_not = (
            _obstacle(storage, commit_log, entry)
            or merged_on
            or _gone(storage, instant, effect.merged_on | effect.replaced)
        )
        if why_not is not None:
            raise TableError(
                f"table {storage.root}: commit {instant} cannot be undone ({reason}): {why_not}",
                instant=instant,
            )
        put = put_revert(
            storage,
            commit_log,
            newest,
            entry,
            later_than=timeline.newest_completion,
            brings_back=effect.taken_out_of,
        )
        if put is not None:
            log.info("table %s: %s was reverted because %s", storage.root, instant, reason)
            return put


def _merged_on(storage: Storage, timeline: Timeline, effect: Effect) -> str | None:
    """Whether something was merged on a commit: by a Hudi writer that knows nothing of transactions."""
    commits = timeline.commits()
    for commit in commits[commits.index(effect.instant) + 1 :]:
        later = effect_of(storage, timeline, commit)
        if later.merged_on & effect.written:
            return f"{later.operation} {commit.requested_time} was merged on it"
    return None


def _commit_of(commit_log: CommitLog, instant: str) -> LogEntry | None:
    """The entry that completed an instant, unless it was reverted."""
    for entry in commit_log.about(instant):
        if entry.rolls_back == instant or instant in entry.undoes:
            return None
        if entry.commits:
            return entry
    return None


def put_revert(
    storage: Storage,
    commit_log: CommitLog,
    newest: LogEntry,
    reverted: LogEntry,
    *,
    later_than: str,
    brings_back: frozenset[str] = frozenset(),
) -> LogEntry | None:
    """Put the revert's entry right after an entry of the log, and publish it.

    :param storage: the table's storage.
    :param commit_log: the table's commit log.
    :param newest: the entry up to which :func:`obstacle` has looked.
    :param reverted: the entry to be reverted.
    :param later_than: an instant time that the revert's must exceed.
    :param brings_back: partition paths in which records show again that had been taken out.
    :return: the entry; None when somebody else was first, so that all has to be looked at again.
    """
    owner = describe_owner()
    info = HeartbeatInfo(
        owner, Action.ROLLBACK, "ROLLBACK", interval=10.0, tolerable_misses=6, base=newest.sequence
    )
    instant, _ = request_instant(storage, commit_log, newest, info, later_than=later_than)
    indexes = current_indexes(storage, commit_log, newest)
    StagedChange(storage, instant).stage(indexes, lambda: _change_of(storage, reverted))
    entry = LogEntry(
        instant=instant,
        action=Action.ROLLBACK,
        completion_time=completion_time_after(newest, instant),
        operation="ROLLBACK",
        priority=PRIORITIES["ingestion"],
        written=reverted.written,
        replaced=reverted.replaced,
        inserted_in=brings_back,
        rolls_back=reverted.instant,
        rolled_back_action=reverted.action,
        reverts=reverted.sequence,
        owner=owner,
        indexes=indexes,
        sequence=newest.sequence + 1,
    )
    if not commit_log.append(entry.sequence, entry):
        drop_staged(storage, instant)
        storage.delete(heartbeat_path(instant))
        return None
    log.info("table %s: %s %s reverted by %s", storage.root, reverted.operation, reverted.instant, instant)
    publish(storage, entry)
    return entry


def _change_of(storage: Storage, reverted: LogEntry) -> TableChange:
    """What it changes in the indexes that a commit is undone."""
    before = FileSystemView(storage, lambda: Timeline.load(storage))
    after = _view_without(storage, reverted.instant)
    removed = files_in(storage, {group.partition_path for group in reverted.written}, reverted.instant)
    return change_of_undoing(before, after, reverted.touched, removed)

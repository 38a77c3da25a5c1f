"""Entries that undo a commit of the log.

If another Hudi writer has undone a commit, the log does not know it yet; the next entry says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.commit.undone_files import files_in
from airflow_provider.concurrency.conflicts import OWNER, PRIORITIES
from airflow_provider.concurrency.indexes import StagedChange, change_of_undoing, state_in_indexes
from airflow_provider.concurrency.log import Commit, CommitLog, IndexState, Revert, commit_of
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.metadata_table import FileChanges
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import UNDOING, Action, State, Timeline, find_undoing, undone_by

_said: WeakKeyDictionary[Storage, set[str]] = WeakKeyDictionary()
"""Requested times of the rollbacks and restores on the timeline whose undone commits the log all names."""


def next_undone(storage: Storage, moment: Moment) -> Revert | None:
    """The entry that has to be put first, because another Hudi writer has undone a commit of the log.

    The newest entry's commit may have been undone before it was shown. This function looks for other undone
    commits only if the timeline of the moment has been loaded.

    :param storage: the table's storage.
    :param moment: the moment that the entry follows.
    :return: the entry for one commit; None when the log names all undone commits.
    """
    newest = moment.newest
    if moment.is_newest_lost and isinstance(newest, Commit):
        if state_in_indexes(storage, newest.instant, newest.completion_time) is State.COMPLETED:
            return revert_entry(storage, moment, newest)  # the indexes show what the timeline does not
        undoing = find_undoing(Timeline.load(storage), newest.instant)
        return _undone_by(newest, undoing.requested_time if undoing else newest.instant)
    timeline, said = moment.known_timeline, _said.setdefault(storage, set())
    for undoing in timeline.instants if timeline else ():
        if undoing.action not in UNDOING or undoing.requested_time in said or timeline is None:
            continue
        for instant in sorted(undone_by(timeline, undoing)):
            if (commit := commit_of(CommitLog(storage), instant)) is not None:
                return _undone_by(commit, undoing.requested_time)
        said.add(undoing.requested_time)
    return None


def _undone_by(commit: Commit, undoing: str) -> Revert:
    return Revert(
        instant=undoing,
        priority=commit.priority,
        written=commit.written,
        replaced=commit.replaced,
        appended=commit.appended,
        inserted_in=frozenset(group.partition_path for group in commit.touched),
        rolls_back=commit.instant,
        rolled_back_action=commit.action,
        reverts=commit.sequence,
        owner=OWNER,
        by_another=True,
    )


def revert_entry(
    storage: Storage, moment: Moment, reverted: Commit, *, brings_back: frozenset[str] = frozenset()
) -> Revert:
    """The entry that undoes a commit. This function also stages its index records.

    :param storage: the table's storage.
    :param moment: the moment that the entry follows.
    :param reverted: the entry to be reverted.
    :param brings_back: partition paths in which records become visible again.
    """
    _ = moment.timeline  # loaded, so that the entry completes after the commits of other Hudi writers
    instant = moment.request_instant(Action.ROLLBACK, "ROLLBACK")
    after = view_without(storage, reverted.instant)
    StagedChange(storage, instant).stage(
        moment.indexes, lambda: _change_of(storage, reverted, after, moment.indexes), lambda: after
    )
    return Revert(
        instant=instant,
        priority=PRIORITIES["ingestion"],
        written=reverted.written,
        replaced=reverted.replaced,
        appended=reverted.appended,
        inserted_in=brings_back,
        rolls_back=reverted.instant,
        rolled_back_action=reverted.action,
        reverts=reverted.sequence,
        owner=describe_owner(),
    )


def _change_of(
    storage: Storage, reverted: Commit, after: FileSystemView, indexes: Iterable[IndexState]
) -> FileChanges:
    """The change of the indexes when a commit is undone."""
    before = FileSystemView(storage, lambda: Timeline.load(storage))
    removed = files_in(storage, {group.partition_path for group in reverted.written}, reverted.instant)
    return change_of_undoing(storage, before, after, reverted.touched, removed, indexes)


def view_without(storage: Storage, instant: str) -> FileSystemView:
    """The snapshot without a commit.

    :param storage: the table's storage.
    :param instant: requested time of the commit.
    """
    return FileSystemView(
        storage, lambda: Timeline.load(storage).showing(lambda i: i.requested_time != instant)
    )

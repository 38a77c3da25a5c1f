"""The timeline as it was at a moment, even if later instants are archived, and whether it can still change.

Completion times increase in the order of the commits, and each commit is published before the next one is
put. So the part of the timeline up to its newest completion never changes. For a later moment it may change:
a writer may have chosen its completion time and be paused before its commit. Until that writer goes on, the
snapshot as of such a moment is not settled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from airflow_provider.exceptions import CommitUndoneError, SnapshotNotSettledError
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.archived_timeline import archived_commits, find_archived, newest_archived
from airflow_provider.table.timeline.instant import (
    WRITE_ACTIONS,
    Instant,
    before,
    format_time,
    now,
    parse_time,
)
from airflow_provider.table.timeline.undoing import UNDOING, doomed_files, find_undoing, undone_by
from airflow_provider.table.timeline.zone import timeline_zone


def settled_timeline(storage: Storage, load: Callable[[], Timeline], moment: str) -> Timeline:
    """A table's timeline, after a check that no more instant can complete up to a moment.

    :param storage: the table's storage.
    :param load: loads the active timeline.
    :param moment: see :meth:`Timeline.as_of`.
    :raises InvalidInputError: when the moment is not an instant time.
    :raises SnapshotNotSettledError: when a write may still complete by then; also when the moment is the
        requested time of a pending instant, because it then means the moment right after its completion.
    """
    asked = format_time(parse_time(moment))
    timeline = load()
    if timeline.names_commit(moment):
        return timeline
    # A listing that runs while files are created may show a later file and miss an earlier one. The next
    # listing shows everything that had completed when the first one ended.
    newest, timeline = timeline.newest_completion, load()
    is_past = (
        asked <= newest or next(archived_commits(storage, completed_after=before(asked)), None) is not None
    )
    told = f"table {storage.root}: the snapshot as of {moment} is not settled yet"
    commits = timeline.commits()
    known = f", or as of {commits[-1].completion_time}, its newest commit" if commits else ""
    waited_for = [
        each
        for each in timeline.pending()
        if _is_named(storage, each, moment) or (not is_past and _may_complete_by(storage, each, asked))
    ]
    undone = _being_undone(timeline) if waited_for else frozenset()
    for pending in waited_for:
        if pending.requested_time not in undone:  # an instant looks pending while it is undone
            raise SnapshotNotSettledError(
                f"{told}: {pending.action} {pending.requested_time} is {pending.state} and may complete by "
                f"then; read without as_of{known}, or again once that write has ended; where its writer is "
                "dead, `table-services rollback` ends it",
                instant=moment,
                pending=pending.requested_time,
            )
    if not is_past and asked > now(timeline_zone(storage)):
        raise SnapshotNotSettledError(
            f"{told}: that moment has not come, and whatever completes until then belongs to it; "
            f"read without as_of{known}",
            instant=moment,
        )
    return timeline


def timeline_as_of(storage: Storage, timeline: Timeline, moment: str) -> Timeline:
    """A timeline as it was right after a moment.

    A commit that was requested before the moment and completed after it is pending on this timeline, even if
    it was archived since; otherwise readers would take it for committed.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param moment: see :meth:`Timeline.as_of`.
    :raises InvalidInputError: when the moment is not an instant time.
    :raises NoSuchInstantError: when nothing had completed by then.
    """
    shown = timeline.as_of(moment)
    # The archived timeline is read last, so that it has every instant that has left the active one.
    later = archived_commits(storage, completed_after=timeline.bound(moment))
    hidden = [each for each in later if timeline.find(each.requested_time) is None]
    return shown.hiding(hidden) if hidden else shown


def without_undone(timeline: Timeline) -> Timeline:
    """A timeline without the commits that a running rollback or restore undoes.

    Their files leave the indexes, then the storage, before all of the commits have left the timeline. So a
    snapshot with them may lack files, and so may the states between the commits of a restore.

    :param timeline: the active timeline.
    """
    undone = _being_undone(timeline)
    return timeline.showing(lambda i: i.requested_time not in undone) if undone else timeline


def undone_since(storage: Storage, seen: Timeline, now: Timeline) -> list[Instant]:
    """The commits on an earlier timeline that were undone since, or are being undone.

    :param storage: the table's storage.
    :param seen: the earlier timeline.
    :param now: the active timeline as it is now.
    """
    standing = {each.requested_time for each in without_undone(now).commits()}
    gone = [each for each in seen.commits() if each.requested_time not in standing]
    return [each for each in gone if find_archived(storage, each.requested_time, each.layout) is None]


def check_files_of_undone(
    storage: Storage, seen: Timeline, now: Timeline, listed: Mapping[str, Collection[str]]
) -> None:
    """Make sure that listings lack no file of a commit that was undone since an earlier timeline.

    The files of a reverted rewrite stay for readers. Those of other undone commits are deleted.

    :param storage: the table's storage.
    :param seen: the earlier timeline.
    :param now: the active timeline, loaded after the listings.
    :param listed: file names by partition path.
    :raises CommitUndoneError: when a file is gone, or nothing tells the commit's files.
    """
    for commit in undone_since(storage, seen, now):
        undoing = find_undoing(now, commit.requested_time)
        doomed = [] if undoing is None else doomed_files(now, undoing)
        if not doomed or any(
            partition in listed and name not in listed[partition]
            for partition, _, name in (path.rpartition("/") for path in doomed)
        ):
            raise CommitUndoneError(
                f"table {storage.root}: {commit.action} {commit.requested_time} was undone while its files "
                "were listed; read again",
                instant=commit.requested_time,
            )


def _being_undone(timeline: Timeline) -> frozenset[str]:
    undoing = (each for each in timeline.pending() if each.action in UNDOING)
    return frozenset[str]().union(*(undone_by(timeline, each) for each in undoing))


def _is_named(storage: Storage, pending: Instant, moment: str) -> bool:
    # The moment right after a pending instant comes after all instants that complete before it.
    if pending.requested_time != moment or pending.action.when_completed not in WRITE_ACTIONS:
        return False
    return _may_complete(storage, pending)


def _may_complete_by(storage: Storage, pending: Instant, moment: str) -> bool:
    if not pending.action.holds_fence or pending.requested_time > moment:
        return False
    return _may_complete(storage, pending)


def _may_complete(storage: Storage, pending: Instant) -> bool:
    # Archival stops before every instant that may still complete, so a paused writer has put an older one
    # late.
    return pending.layout != 2 or pending.requested_time > newest_archived(storage)

"""A commit of a replication's source, as an entry of the target's log.

The instant keeps its requested and completion times, and so its place on the timeline. Its data files are
already at the target, under their names. The index records are made anew, for the indexes of the target.
They cannot be copied, because the source's metadata table also holds the records of open and aborted
transactions, and is compacted at other times. The entry has a completion time of its own, from the target's
log, whose order is that in which the source's transactions were committed. So every rule that rests on the
log's order holds, even where a transaction that began early is committed late.
"""

from __future__ import annotations

from airflow_provider.concurrency.commit.commit_point import commit
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path
from airflow_provider.concurrency.commit.undo_entry import revert_entry
from airflow_provider.concurrency.conflicts import as_entry
from airflow_provider.concurrency.indexes import StagedChange, change_of_metadata
from airflow_provider.concurrency.log import Commit, CommitLog, Fate, Revert, commit_of
from airflow_provider.exceptions import InvalidInputError, TableError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import effect_of
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Instant,
    Timeline,
    decode_commit_metadata,
    find_archived,
    schema_of_commit,
)


def replay_commit(storage: Storage, source: Storage, instant: Instant, content: bytes) -> Commit | None:
    """Append a commit of the source to the log of its target, and publish it. A second call changes nothing.

    :param storage: the target's storage, which has the commit's data files.
    :param source: the source's storage.
    :param instant: a completed commit of the source's timeline.
    :param content: the content of the completed instant at the target.
    :return: the entry; None when the target has the commit already.
    :raises TableError: when the target has archived its timeline past this instant, or has undone it.
    :raises FileNotFoundError: when a data file of the commit is not there.
    """
    described, completed = as_entry(source, instant), instant.completion_time
    if not isinstance(described, Commit) or completed is None:
        raise InvalidInputError(f"table {source.root}: {instant} is no completed commit")
    metadata = decode_commit_metadata(content)
    staged = StagedChange(storage, instant.requested_time)

    def decide(moment: Moment) -> Commit | None:
        if moment.timeline.find(instant.requested_time) is not None:
            return None
        fate = moment.fate_of(instant.requested_time)
        if fate is Fate.ARCHIVED or (fate is Fate.COMPLETED and _is_archived(storage, instant)):
            return None
        if fate is not None or instant.requested_time <= moment.archived:
            why = f"it is {fate} here" if fate else f"the timeline is archived up to {moment.archived}"
            raise TableError(
                f"table {storage.root}: commit {instant.requested_time} of {source.root} cannot be replayed: "
                f"{why}; delete this folder, and bootstrap the replication again",
                instant=instant.requested_time,
            )
        storage.put(staged_metadata_path(instant.requested_time), content)
        change = change_of_metadata(storage, moment.timeline, metadata, _AFTER_ALL, moment.indexes)
        staged.stage(moment.indexes, lambda: change, moment.view, schema_of_commit(metadata))
        return Commit(
            instant=instant.requested_time,
            action=instant.action,
            operation=described.operation,
            priority=described.priority,
            written=described.written,
            replaced=described.replaced,
            appended=described.appended,
            inserted_in=described.inserted_in,
            metadata_path=staged_metadata_path(instant.requested_time),
            owner=describe_owner(),
            replayed=completed,
        )

    return commit(storage, decide)


def undo_replayed(storage: Storage, requested_time: str) -> Revert | None:
    """Undo a commit of a target, because the source has undone it. A second call changes nothing.

    The target's log has no entry for a commit that came with the bootstrap.

    :param storage: the target's storage, which has the files that become visible again.
    :param requested_time: requested time of the commit; the commits built on it are undone by now.
    :return: the entry; None when the target does not have the commit any more.
    """

    def decide(moment: Moment) -> Revert | None:
        timeline = moment.timeline
        found = timeline.find(requested_time)
        if found is None:
            return None
        entry = commit_of(CommitLog(storage), requested_time) or as_entry(storage, found)
        if not isinstance(entry, Commit):
            return None
        effect = effect_of(storage, timeline, found)
        return revert_entry(storage, moment, entry, brings_back=effect.taken_out_of)

    return commit(storage, decide)


def _is_archived(storage: Storage, instant: Instant) -> bool:
    return find_archived(storage, instant.requested_time) is not None


def is_there(storage: Storage, timeline: Timeline, instant: Instant) -> bool:
    """Whether a target has a commit of its source.

    :param storage: the target's storage.
    :param timeline: its active timeline.
    :param instant: of the source.
    """
    return timeline.find(instant.requested_time) is not None or _is_archived(storage, instant)


_AFTER_ALL = "9"
"""Later than every completion time: the commit is added to all that the target shows now."""

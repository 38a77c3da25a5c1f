"""Savepoints: the snapshot of a commit is kept in spite of cleans (Hudi's ``savepoint`` action).

A savepoint has the requested time of its commit, and names the data files of that snapshot. It is an entry of
the commit log, so it comes either before or after a clean's plan, never while the plan is made.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any

from airflow_provider.concurrency import PRIORITIES, CommitLog
from airflow_provider.concurrency.commit import Moment, commit, publish_head, staged_metadata_path
from airflow_provider.concurrency.conflicts import writes_of_open_transactions
from airflow_provider.concurrency.log import Savepoint
from airflow_provider.exceptions import NoSuchInstantError, SnapshotUnavailableError, TableError
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import FileSystemView, missing_file
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import UsableIndexes
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    Instant,
    State,
    Timeline,
    archived_since,
    decode,
    encode,
    instant_path,
    timeline_as_of,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableSavepoint:
    """A commit whose snapshot is kept.

    :param instant: requested time of the commit.
    :param completion_time: when the savepoint was made.
    :param created_by: the user that made it.
    :param comments: the reason, for people.
    :param files: number of data files that it keeps.
    """

    instant: str
    completion_time: str
    created_by: str
    comments: str
    files: int

    def to_dict(self) -> dict[str, Any]:
        """The savepoint as a JSON-able dict."""
        return {
            "instant": self.instant,
            "completion_time": self.completion_time,
            "created_by": self.created_by,
            "comments": self.comments,
            "files": self.files,
        }


def create_savepoint(
    table: HudiTable, instant: str | None = None, *, comments: str = "", lock: LockProvider | None = None
) -> TableSavepoint:
    """Keep the snapshot of a commit until the savepoint is deleted. A second call changes nothing.

    :param table: the table.
    :param instant: requested time of the commit; the one that completed last when None.
    :param comments: the reason, for people.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :raises NoSuchInstantError: when there is no such commit on the active timeline, or another process has
        just deleted its savepoint.
    :raises SnapshotUnavailableError: when a clean has deleted files of the snapshot, or is about to; or when
        a commit that completed later was archived, and other Hudi readers show its files in the snapshot.
    :raises TableError: when the snapshot shows a write of an open transaction, which may yet be undone.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage, owner = table.storage, describe_owner()
    # The staged file has a unique name: the commit's writer, or another savepoint of the same commit, may be
    # paused before it moves its own file.
    name, staged = uuid.uuid4().hex, set[str]()
    kept: list[Instant] = []

    def decide(moment: Moment) -> Savepoint | None:
        kept[:] = [_commit(storage, moment.timeline, moment.archived, instant)]
        requested = kept[0].requested_time
        if find_savepoint(table, requested):
            return None
        _check_no_open_transaction(storage, kept[0])
        content = _content(storage, moment.timeline, moment.archived, kept[0], owner, comments)
        path = staged_metadata_path(f"{requested}.savepoint.{name}")
        staged.add(path)
        storage.put(path, content)
        return Savepoint(instant=requested, priority=PRIORITIES["ingestion"], metadata_path=path, owner=owner)

    with lock or default_lock(table):
        entry = commit(storage, decide)
    for path in staged - {entry.metadata_path if entry else None}:
        storage.delete(path)
    if entry is not None:
        log.info("table %s: commit %s is kept by a savepoint", storage.root, entry.instant)
    publish_head(storage, CommitLog(storage))
    requested = kept[0].requested_time
    found = find_savepoint(table, requested)
    if found is None:
        raise NoSuchInstantError(
            f"table {storage.root}: the savepoint of commit {requested} was deleted in this moment",
            instant=requested,
        )
    return found


def savepoints(table: HudiTable) -> list[TableSavepoint]:
    """All savepoints of a table, in the order in which they were made.

    :param table: the table.
    """
    timeline = table.timeline()
    return [_savepoint(timeline, instant) for instant in timeline.savepoints()]


def find_savepoint(table: HudiTable, instant: str) -> TableSavepoint | None:
    """The savepoint of a commit, if there is one.

    :param table: the table.
    :param instant: requested time of the commit.
    """
    return next((each for each in savepoints(table) if each.instant == instant), None)


def delete_savepoint(table: HudiTable, instant: str) -> None:
    """Delete a savepoint, so that cleans may delete its files again by their policy.

    :param table: the table.
    :param instant: requested time of the commit.
    :raises NoSuchInstantError: when there is no such savepoint.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    storage = table.storage
    publish_head(storage, CommitLog(storage))
    found = next((i for i in table.timeline().savepoints() if i.requested_time == instant), None)
    if found is None:
        known = ", ".join(i.requested_time for i in table.timeline().savepoints()) or "none"
        raise NoSuchInstantError(
            f"table {storage.root}: there is no savepoint {instant}; there are: {known}", instant=instant
        )
    # The staged file of a dead publisher goes first, because a publisher could bring the savepoint back from
    # it.
    for entry in CommitLog(storage).about(instant):
        if isinstance(entry, Savepoint) and entry.metadata_path is not None:
            storage.delete(entry.metadata_path)
    storage.delete(instant_path(found))
    storage.delete(instant_path(Instant(instant, Action.SAVEPOINT, State.INFLIGHT)))  # another Hudi writer's
    storage.sync()


def _commit(storage: Storage, timeline: Timeline, archived: str, instant: str | None) -> Instant:
    commits = [commit for commit in timeline.commits() if commit.requested_time > archived]
    if instant is None and commits:
        return commits[-1]
    found = next((commit for commit in commits if commit.requested_time == instant), None)
    if found is None:
        raise NoSuchInstantError(
            f"table {storage.root}: there is no commit {instant or ''} on its active timeline to be kept, or "
            "it is just being archived; see `table-services timeline`",
            instant=instant,
        )
    return found


def _check_no_open_transaction(storage: Storage, commit: Instant) -> None:
    for write in writes_of_open_transactions(storage):
        if (write.instant.completion_time or "") <= (commit.completion_time or ""):
            raise TableError(
                f"table {storage.root}: commit {commit.requested_time} cannot be kept yet: its snapshot "
                f"shows commit {write.instant.requested_time} of transaction {write.txn_id}, which has not "
                "ended; keep it after that",
                instant=commit.requested_time,
                txn_id=write.txn_id,
            )


def _content(
    storage: Storage, timeline: Timeline, archived: str, commit: Instant, owner: str, comments: str
) -> bytes:
    told = f"table {storage.root}: commit {commit.requested_time} cannot be kept any more"
    requested, moment = commit.requested_time, commit.completion_time or ""
    view = FileSystemView(storage, lambda: timeline_as_of(storage, Timeline.load(storage), requested))
    later = archived_since(storage, timeline, archived, moment)
    if later is not None and _paths(view) != _paths(_others_view(storage, archived, moment)):
        raise SnapshotUnavailableError(
            f"{told}: commit {later.requested_time}, which completed later, was archived, and other Hudi "
            "readers show it as of then too; choose a later one",
            instant=requested,
        )
    if found := missing_file(storage, view, timeline, also_planned=True):
        path, clean = found
        raise SnapshotUnavailableError(
            f"{told}: clean {clean.requested_time} took {path}; choose a later commit",
            instant=commit.requested_time,
            clean=clean.requested_time,
        )
    partitions = {
        partition: {
            "partitionPath": partition,
            "savepointDataFile": [
                file.path.rpartition("/")[2]
                for file in (*view.base_files(partition), *view.log_files(partition))
            ],
        }
        for partition in view.partitions()
    }
    record = {
        "savepointedBy": owner,
        "savepointedAt": round(time.time() * 1000),
        "comments": comments,
        "partitionMetadata": partitions,
    }
    return encode("HoodieSavepointMetadata", record)


def _others_view(storage: Storage, archived: str, moment: str) -> FileSystemView:
    """The view of other Hudi readers as of a moment, which shows all archived instants and uses ``files``."""

    def is_shown(instant: Instant) -> bool:
        return (instant.completion_time or "") <= moment or instant.requested_time <= archived

    return FileSystemView(
        storage,
        lambda: Timeline.load(storage).showing(is_shown),
        lambda timeline: UsableIndexes(storage, timeline(), is_moment=False),
    )


def _paths(view: FileSystemView) -> set[str]:
    logs = (log for partition in view.partitions() for log in view.log_files(partition))
    return {file.path for file in (*view.all_base_files(), *logs)}


def _savepoint(timeline: Timeline, instant: Instant) -> TableSavepoint:
    said = decode(timeline.read(instant))
    files = sum(len(each["savepointDataFile"]) for each in said["partitionMetadata"].values())
    return TableSavepoint(
        instant.requested_time,
        instant.completion_time or "",
        said["savepointedBy"],
        said["comments"],
        files,
    )

"""Publication: deriving from a log entry everything that readers see.

Every step here is idempotent, and any process may take it at any time: the committer right after its put,
or a writer or reader that finds the newest entry unpublished.

So a publisher may be paused until others have published the entry, and undone or archived its instant. If
the storage moves a file in one step, the publisher never has the content in memory, and cannot bring a file
back. After any other put, the publisher checks whether the instant has left the timeline, and if so deletes
the file again (:func:`_put`, :func:`_move`).

A rollback or a restore of another Hudi writer, which does not know the log, is final too. A publisher that
may be late looks for one on the timeline, before and after it puts the completed instant.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.commit.undone_files import (
    clean_up,
    data_files_of,
    files_in,
    forget_buckets,
    hide,
    hide_completed,
    hide_pending,
)
from airflow_provider.concurrency.conflicts import has_other_writers, is_lost, unmark_open_transaction
from airflow_provider.concurrency.heartbeats import heartbeat_path
from airflow_provider.concurrency.indexes import (
    StagedChange,
    change_of_metadata,
    drop_staged,
    publish_index_change,
    publish_staged,
    state_in_indexes,
)
from airflow_provider.concurrency.log import (
    COMMIT_LOG_FOLDER,
    Archival,
    Commit,
    CommitLog,
    Fate,
    LogEntry,
    Plan,
    Restore,
    Revert,
    Rollback,
    Savepoint,
    fate_of,
)
from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.metadata_table import METADATA_FOLDER
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    RESTORED_TO,
    REWRITES,
    Action,
    Instant,
    State,
    Timeline,
    decode,
    decode_commit_metadata,
    encode,
    find_archived,
    instant_path,
    newest_archived,
    schema_of_commit,
)

log = logging.getLogger(__name__)

_PENDING = (State.REQUESTED, State.INFLIGHT)


def completed_instant(entry: LogEntry) -> Instant:
    """The completed instant that an entry stands for."""
    return Instant(entry.instant, entry.action, State.COMPLETED, entry.shown_completion)


def publish(storage: Storage, entry: LogEntry, *, looks: bool) -> bool:
    """Make an entry visible on the timeline, if it is not yet.

    :param storage: the table's storage.
    :param entry: the newest entry of the commit log.
    :param looks: whether to look for what other Hudi writers have done to the entry. This is needed where
        they share the lock, or where the publisher is not the process that has put the entry.
    :return: False when another Hudi writer was faster, so that the commit is not shown; see
        :func:`~airflow_provider.concurrency.conflicts.is_lost`.
    :raises CorruptTableError: when the staged metadata is gone although nothing was published.
    """
    if isinstance(entry, Archival):
        return True
    if isinstance(entry, Revert) and entry.by_another:
        _clear_undone(storage, entry)
        return True
    changes_indexes = isinstance(entry, Commit) and entry.action is Action.INDEXING
    commit = entry if looks and isinstance(entry, Commit) and not changes_indexes else None
    if commit is not None and is_lost(storage, commit):
        return False
    doomed: list[str] | None = None
    if isinstance(entry, Rollback | Revert):
        doomed = _plan_rollback(storage, entry)
    elif isinstance(entry, Restore):
        _plan_restore(storage, entry)
    if entry.indexes and not isinstance(entry, Plan | Savepoint):
        # The indexes come first, so that no reader sees data that an index lacks. What is undone leaves them
        # once its plan is on the timeline: readers leave it out from then on.
        is_watched = commit is not None or (not changes_indexes and has_other_writers(storage))
        if is_watched and state_in_indexes(storage, entry.instant, entry.completion_time) is None:
            _stage_again(storage, entry)
        publish_staged(storage, entry.instant, entry.completion_time)
    if entry.action is Action.INDEXING:
        publish_index_change(storage, entry, _staged(entry))
    match entry:
        case Plan():
            with suppress(FileNotFoundError):  # an earlier publisher has moved it
                _move(storage, _staged(entry), _published_path(entry), entry.instant)
        case Savepoint():
            _publish_savepoint(storage, entry)
        case Rollback() | Revert() if doomed is not None:
            _publish_rollback(storage, entry, doomed)
        case Restore():
            _publish_restore(storage, entry)
        case Commit() if not changes_indexes:
            if entry.pending_action is not None:
                _rename_pending(storage, entry.instant, entry.pending_action, entry.action)
            if not _move_staged(storage, entry) and not _is_shown(storage, entry):
                # Another publisher has moved it. It may have found then that the commit is lost, and hidden
                # it.
                if is_lost(storage, entry):
                    return False
                raise _gone(storage, entry)
    if commit is not None and is_lost(storage, commit):
        storage.delete(instant_path(completed_instant(commit)))
        return False
    if not entry.leaves_pending:  # a plan stays pending, and its executor beats under its instant
        storage.delete(heartbeat_path(entry.instant))
    return True


def publish_head(storage: Storage, log: CommitLog) -> LogEntry | None:
    """Publish the newest entry of the log if its writer did not. Every operation does this first.

    Entries are published in log order, so only the newest one can be unpublished.

    :return: the newest entry; None for an empty log.
    """
    entry = log.newest()
    if entry is not None:
        ensure_published(storage, entry)
    return entry


def ensure_published(storage: Storage, entry: LogEntry) -> bool:
    """Publish an entry unless its instant is on the timeline, or was archived.

    :return: False when another Hudi writer was faster; see :func:`publish`.
    """
    if is_published(storage, entry) or not _is_newest(storage, entry):
        return True
    if entry.instant <= newest_archived(storage) and entry.action is not Action.INDEXING:
        # Another Hudi writer has archived it: archival by this package is an entry of its own.
        return not isinstance(entry, Commit | Restore) or find_archived(storage, entry.instant) is not None
    storage.sync(COMMIT_LOG_FOLDER)  # the process that put the entry may have died before its sync
    return publish(storage, entry, looks=True)


def is_published(storage: Storage, entry: LogEntry) -> bool:
    """Whether the entry's instant is on the timeline, in the state that the entry gives it."""
    if isinstance(entry, Archival) or (isinstance(entry, Revert) and entry.by_another):
        return True
    if (
        isinstance(entry, Commit) and entry.action is Action.INDEXING
    ):  # a completed indexing leaves no file on the timeline
        return storage.stat(_staged(entry)) is None
    return storage.stat(_published_path(entry)) is not None


def _published_path(entry: LogEntry) -> str:
    if not isinstance(entry, Plan):
        return instant_path(completed_instant(entry))
    path = instant_path(Instant(entry.instant, entry.action, State.REQUESTED))
    return f"{METADATA_FOLDER}/{path}" if entry.on_metadata_table else path


def _is_newest(storage: Storage, entry: LogEntry) -> bool:
    """Whether an entry is the newest. Only the newest can be unpublished."""
    return CommitLog(storage).head() == entry.sequence


def _staged(entry: LogEntry) -> str:
    return getattr(entry, "metadata_path", None) or staged_metadata_path(entry.instant)


def _move_staged(storage: Storage, entry: LogEntry) -> bool:
    """Move the staged metadata to its place on the timeline; False when it is gone.

    The file is moved, not copied: a process that is paused here until the commit is reverted then finds no
    file to move.
    """
    try:
        _move(storage, _staged(entry), instant_path(completed_instant(entry)), entry.instant)
    except FileNotFoundError:
        return False
    return True


def _is_shown(storage: Storage, entry: LogEntry) -> bool:
    """Whether the entry's instant is on the timeline, or was there before a later entry."""
    return storage.stat(instant_path(completed_instant(entry))) is not None or not _is_newest(storage, entry)


def _gone(storage: Storage, entry: LogEntry) -> CorruptTableError:
    staged, path = _staged(entry), instant_path(completed_instant(entry))
    return CorruptTableError(
        f"table {storage.root}: commit log entry {entry.sequence} names {staged}, which is gone, "
        f"and {path} does not exist; restore one of the two files",
        path=staged,
    )


def _rename_pending(storage: Storage, instant: str, old: Action, new: Action) -> None:
    # An instant has one action: readers of the timeline must not find it pending under another one. The
    # writer has staged the content of the renamed requested instant.
    old_requested, old_inflight = (instant_path(Instant(instant, old, each)) for each in _PENDING)
    requested, inflight = (instant_path(Instant(instant, new, each)) for each in _PENDING)
    with suppress(FileNotFoundError):
        _move(storage, staged_plan_path(instant), requested, instant)
    storage.delete(old_requested)
    with suppress(FileNotFoundError):
        _move(storage, old_inflight, inflight, instant)


def _move(storage: Storage, source: str, target: str, instant: str) -> None:
    """Move a file of an instant to its place on a timeline.

    :raises FileNotFoundError: when there is no source.
    """
    storage.move_if_absent(source, target)
    if not storage.moves_atomically:  # also if the file was there: this client may have sent its put twice
        _look_again(storage, target, instant)


def _put(storage: Storage, instant: Instant, content: bytes) -> None:
    """Put a file of an instant on the timeline."""
    path = instant_path(instant)
    if storage.put_if_absent(path, content) or not storage.moves_atomically:
        _look_again(storage, path, instant.requested_time)


def _look_again(storage: Storage, path: str, instant: str) -> None:
    """Delete a file that came too late, because its instant has left the timeline."""
    if fate_of(storage, CommitLog(storage), instant) not in (None, Fate.COMPLETED):
        log.info("table %s: %s came too late, and is deleted", storage.root, path)
        storage.delete(path)


def _publish_savepoint(storage: Storage, entry: Savepoint) -> None:
    """Put a savepoint on the timeline, unless another publisher has; a user may have deleted it since.

    The deletion of a savepoint deletes its staged content first. So a late publisher notices the deletion,
    even on storage that cannot move a file in one step. On such storage only the publisher that has put the
    savepoint deletes the staged content. If another publisher deleted it, this one would take the savepoint
    for deleted.
    """
    staged, path = _staged(entry), _published_path(entry)
    with suppress(FileNotFoundError):
        if storage.moves_atomically:
            storage.move_if_absent(staged, path)
        elif storage.put_if_absent(path, storage.read(staged)):
            was_deleted = storage.stat(staged) is None
            storage.delete(path if was_deleted else staged)


def _plan_rollback(storage: Storage, entry: Rollback | Revert) -> list[str] | None:
    """Put the plan of a rollback or revert on the timeline.

    :return: paths of the data files to delete; None if the entry has been published already.
    """
    if not _is_newest(storage, entry):
        return None  # others have published the entry while this process was paused
    dead, dead_action = entry.rolls_back, entry.rolled_back_action
    doomed = (
        files_in(storage, {group.partition_path for group in entry.written}, dead)
        if isinstance(entry, Revert)
        else data_files_of(storage, dead, dead_action)
    )
    plan = {
        "instantToRollback": {"commitTime": dead, "action": str(dead_action)},
        "RollbackRequests": [
            {
                "partitionPath": partition,
                "fileId": "",
                "latestBaseInstant": "",
                "filesToBeDeleted": files,
                "logBlocksToBeDeleted": {},
            }
            for partition, files in _urls(storage, doomed).items()
        ],
    }
    planned = encode("HoodieRollbackPlan", plan)
    _put(storage, Instant(entry.instant, Action.ROLLBACK, State.REQUESTED), planned)
    _put(storage, Instant(entry.instant, Action.ROLLBACK, State.INFLIGHT), b"")
    return doomed


def _urls(storage: Storage, paths: Iterable[str]) -> dict[str, list[str]]:
    """The URLs of data files, by partition path."""
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(path.rpartition("/")[0], []).append(storage.url(path))
    return found


def _publish_rollback(storage: Storage, entry: Rollback | Revert, doomed: Collection[str]) -> None:
    """Delete the files of an undone instant, take it from the timeline, and complete the rollback."""
    started = time.monotonic()
    dead, dead_action = entry.rolls_back, entry.rolled_back_action
    # The files of a rewrite stay, because readers may be reading them. The files of an aborted write go at
    # once: readers would see them once the timeline starts later.
    deletes = not _reverts_a_rewrite(storage, entry)
    deleted: list[str] = []
    if isinstance(entry, Rollback):
        deleted = clean_up(storage, dead, dead_action)
    else:
        if deletes:
            deleted = [path for path in doomed if storage.delete(path)]
        hide(storage, Timeline.load(storage), dead, dead_action)
        forget_buckets(storage, dead, dead_action, {group.partition_path for group in entry.touched})
        unmark_open_transaction(storage, dead)
    metadata = {
        "startRollbackTime": entry.instant,
        "timeTakenInMillis": round((time.monotonic() - started) * 1000),
        "totalFilesDeleted": len(deleted),
        "commitsRollback": [dead],
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "successDeleteFiles": files if deletes else [],
                "failedDeleteFiles": [] if deletes else files,
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition, files in _urls(storage, doomed).items()
        },
        "instantsRollback": [{"commitTime": dead, "action": str(dead_action)}],
    }
    _put(storage, completed_instant(entry), encode("HoodieRollbackMetadata", metadata))


def _reverts_a_rewrite(storage: Storage, entry: Rollback | Revert) -> bool:
    reverted = CommitLog(storage).read(entry.reverts) if isinstance(entry, Revert) else None
    return reverted is not None and reverted.operation in REWRITES


def _plan_restore(storage: Storage, entry: Restore) -> None:
    """Put the plan of a restore on the timeline; the staged metadata lists the work."""
    with suppress(FileNotFoundError):  # an earlier publisher has finished
        restored = decode(storage.read(_staged(entry)))
        plan = {
            "instantsToRollback": restored["restoreInstantInfo"],
            "savepointToRestoreTimestamp": restored["extraMetadata"][RESTORED_TO],
        }
        for state, content in (
            (State.REQUESTED, encode("HoodieRestorePlan", plan)),
            (State.INFLIGHT, b""),
        ):
            _put(storage, Instant(entry.instant, Action.RESTORE, state), content)


def _publish_restore(storage: Storage, entry: Restore) -> None:
    """Undo the commits that a restore names, the newest one first.

    Files of a state in between may have been cleaned. Readers of this package see no such state: once the
    restore is planned, they leave out all commits that it undoes
    (:func:`~airflow_provider.table.timeline.without_undone`).

    The staged metadata is moved to its place when the work is done.
    """
    with suppress(FileNotFoundError):  # an earlier publisher has finished, maybe since the plan was put
        restored = decode(storage.read(_staged(entry)))
        timeline = Timeline.load(storage)
        for undone in restored["restoreInstantInfo"]:
            hide(storage, timeline, undone["commitTime"], Action(undone["action"]))
        for undone, rollbacks in restored["hoodieRestoreMetadata"].items():
            for one in rollbacks:
                for partition in one["partitionMetadata"].values():
                    for url in partition["successDeleteFiles"]:
                        storage.delete(url.removeprefix(storage.root).removeprefix("/"))
                for each in one["instantsRollback"]:
                    forget_buckets(storage, undone, Action(each["action"]), one["partitionMetadata"])
    if not _move_staged(storage, entry) and not _is_shown(storage, entry):
        raise _gone(storage, entry)


def _clear_undone(storage: Storage, entry: Revert) -> None:
    """Delete the files that remain of a commit that another Hudi writer has undone.

    The pending instant goes last. Without it readers would show the data files once the timeline starts
    later, and no other process would find what is left if this one died.
    """
    dead, action = entry.rolls_back, entry.rolled_back_action
    hide_completed(storage, Timeline.load(storage), dead)
    partitions = {group.partition_path for group in entry.written}
    for path in files_in(storage, partitions, dead):
        storage.delete(path)
    forget_buckets(storage, dead, action, partitions)
    clean_up(storage, dead, action)
    hide_pending(storage, dead, action)


def _stage_again(storage: Storage, entry: LogEntry) -> None:
    """Stage an entry's index records again: another Hudi writer took them for a dead writer's, and rolled
    them back.

    Those of a clean, rollback or restore are only dropped: the next commit logs what it deletes, as it does
    for other Hudi writers.
    """
    if not isinstance(entry, Commit) or entry.action is Action.CLEAN:
        drop_staged(storage, entry.instant)
        return
    with suppress(FileNotFoundError):  # another publisher was faster
        metadata = decode_commit_metadata(storage.read(_staged(entry)))
        timeline = Timeline.load(storage)
        change = change_of_metadata(storage, timeline, metadata, entry.completion_time, entry.indexes or ())
        StagedChange(storage, entry.instant).stage(
            entry.indexes or (),
            lambda: change,
            lambda: FileSystemView(storage, timeline),
            schema_of_commit(metadata),
        )

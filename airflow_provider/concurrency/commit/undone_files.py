"""The files of instants that have ended without a commit, and their removal.

Data files go before the instant that they belong to. Otherwise readers would show them once the timeline
starts later, and no other process would find what is left if this one died.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.conflicts import unmark_open_transaction
from airflow_provider.concurrency.heartbeats import heartbeat_path
from airflow_provider.concurrency.indexes import drop_staged
from airflow_provider.table.bucket_index import delete_hashing_metadata
from airflow_provider.table.files import delete_markers, parse_data_file_name
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    Instant,
    State,
    Timeline,
    decode_commit_metadata,
    instant_path,
)

_PENDING = (State.REQUESTED, State.INFLIGHT)

_BEFORE_COMPLETED = {
    Action.REPLACE_COMMIT: (Action.CLUSTERING,),
    Action.COMMIT: (Action.COMPACTION,),
    Action.DELTA_COMMIT: (Action.LOG_COMPACTION,),
}


def clean_up(storage: Storage, instant: str, action: Action) -> list[str]:
    """Delete the files of a dead instant: data files first, so that a crash can be resumed.

    :param storage: the table's storage.
    :param instant: requested time of an instant that a log entry declared dead.
    :param action: the instant's action.
    :return: paths of the data files deleted.
    """
    deleted = [path for path in data_files_of(storage, instant, action) if storage.delete(path)]
    delete_markers(storage, instant)
    drop_staged(storage, instant)
    forget_buckets(storage, instant, action, _planned_partitions(storage, instant, action))
    take_off_pending(storage, instant, action)
    storage.delete(staged_metadata_path(instant))
    storage.delete(staged_plan_path(instant))
    unmark_open_transaction(storage, instant)
    storage.delete(heartbeat_path(instant))
    return deleted


def take_off_pending(storage: Storage, instant: str, action: Action) -> None:
    """Delete the pending files of an instant that has ended.

    :param storage: the table's storage.
    :param instant: the instant's requested time.
    :param action: under which it is pending.
    """
    for state in reversed(_PENDING):
        storage.delete(instant_path(Instant(instant, action, state)))


def data_files_of(storage: Storage, instant: str, action: Action) -> list[str]:
    """Paths of the data files that a pending instant wrote, found by its plan.

    A writer writes its plan before its first data file, so no plan means no file.
    """
    return files_in(storage, _planned_partitions(storage, instant, action), instant)


def _planned_partitions(storage: Storage, instant: str, action: Action) -> set[str]:
    plan = instant_path(Instant(instant, action, State.INFLIGHT))
    try:
        content = storage.read(plan)
    except FileNotFoundError:
        return set()
    return {stat.partition_path for stat in decode_commit_metadata(content).write_stats} if content else set()


def forget_buckets(storage: Storage, instant: str, action: Action, partitions: Iterable[str]) -> None:
    """Delete the hashing metadata that an undone instant has put into partitions."""
    if action in (Action.REPLACE_COMMIT, Action.CLUSTERING):
        delete_hashing_metadata(storage, instant, partitions)


def files_in(storage: Storage, partitions: Iterable[str], instant: str) -> list[str]:
    """Paths of the data files that an instant wrote into some partitions."""
    return [
        f"{partition}/{name}".lstrip("/")
        for partition in sorted(partitions)
        for name in storage.names(partition)
        if instant in name and (parsed := parse_data_file_name(name)) and parsed.instant == instant
    ]


def hide(storage: Storage, timeline: Timeline, instant: str, action: Action) -> None:
    """Take a completed instant that was undone from the timeline.

    :param storage: the table's storage.
    :param timeline: the active timeline.
    :param instant: the instant's requested time.
    :param action: its action when it completed.
    """
    hide_completed(storage, timeline, instant)
    hide_pending(storage, instant, action)


def hide_completed(storage: Storage, timeline: Timeline, instant: str) -> None:
    """Delete the completed file of an instant; see :func:`hide`. Its pending files stay."""
    # The staged metadata goes first, because a publisher could bring the instant back from it.
    storage.delete(staged_metadata_path(instant))
    found = timeline.find(instant)
    if found is not None and found.state is State.COMPLETED:
        storage.delete(instant_path(found))


def hide_pending(storage: Storage, instant: str, action: Action) -> None:
    """Delete the pending files of an instant; see :func:`hide`. It may be pending as its plan's action."""
    for pending in (action, *_BEFORE_COMPLETED.get(action, ())):
        take_off_pending(storage, instant, pending)

"""Writes that have not ended: their writers, whether these live, and their file groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import tenacity

from airflow_provider import metrics
from airflow_provider.concurrency.conflicts.rules import WriteDescription
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, observe, observe_above
from airflow_provider.concurrency.log import CommitLog, fate_of
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    WRITE_ACTIONS,
    Action,
    Instant,
    State,
    Timeline,
    decode_commit_metadata,
    instant_path,
)

_LOOK_EVERY_SECONDS = 0.5
_BEAT_OF_THE_JVM_SECONDS = 60.0
"""Default of ``hoodie.client.heartbeat.interval_in_ms``: a writer whose beat is older is probably dead."""


@dataclass(frozen=True)
class PendingInstant:
    """An instant that has not completed, with what its heartbeat says.

    :param instant: requested time.
    :param action: the instant's action.
    :param alive: whether its heartbeat is in time; None when it has none: a plan that no process carries out,
        or a writer that keeps no heartbeat, such as the JVM's Hudi with eager cleaning.
    :param priority: the writer's priority.
    :param operation: Hudi's operation type.
    :param owner: host and process of its writer.
    :param age_seconds: since the last beat; None without a heartbeat.
    :param operation_key: the key under which its caller looks for it.
    """

    instant: str
    action: Action
    alive: bool | None
    priority: int
    operation: str
    owner: str
    age_seconds: float | None
    operation_key: str | None


def pending_instants(table: HudiTable) -> list[PendingInstant]:
    """Instants of a table that have not completed, oldest first.

    :param table: the table; nothing is written to it.
    """
    log_, storage = CommitLog(table.storage), table.storage
    heartbeats = observe(storage)
    timeline = table.timeline()
    head = log_.newest()
    # A commit has completed once its entry exists, even while its instant is being published.
    ended = {head.instant, *head.undone} if head and not head.leaves_pending else set()
    pending = {i.requested_time: i.action for i in timeline.pending() if i.requested_time not in ended}
    for requested_time, heartbeat in heartbeats.items():
        if timeline.find(requested_time) is None and requested_time not in ended:
            pending[requested_time] = action_of(heartbeat.info)
    if not heartbeats.keys() >= pending.keys():
        heartbeats |= observe(storage)  # a writer may have begun before the timeline was loaded
    found = []
    for requested_time, action in sorted(pending.items()):
        heartbeat_ = heartbeats.get(requested_time)
        if heartbeat_ is None and fate_of(storage, log_, requested_time) is not None:
            continue  # its writer put the file before it knew that the instant had ended
        info = heartbeat_.info if heartbeat_ else HeartbeatInfo()
        found.append(
            PendingInstant(
                instant=requested_time,
                action=action,
                alive=heartbeat_.alive if heartbeat_ else None,
                priority=info.priority,
                operation=info.operation,
                owner=info.owner,
                age_seconds=heartbeat_.age_seconds if heartbeat_ else None,
                operation_key=info.operation_key,
            )
        )
    return found


def writers_above(storage: Storage, priority: int) -> list[WriteDescription]:
    """Live writers of higher priority, with the file groups that they work on.

    :param storage: the table's storage.
    :param priority: the calling writer's priority.
    """
    found = []
    for instant, heartbeat in sorted(observe_above(storage, priority).items()):
        info = heartbeat.info
        if heartbeat.alive:
            planned, appended = _inflight_groups(storage, instant, action_of(info))
            found.append(
                WriteDescription(
                    instant=instant,
                    operation=info.operation,
                    priority=info.priority,
                    state=State.REQUESTED if planned is None else State.INFLIGHT,
                    file_groups=planned or frozenset(),
                    appended=appended,
                    alive=True,
                    owner=info.owner,
                )
            )
    return found


def inflight_file_groups(storage: Storage, instant: str, action: Action) -> frozenset[FileGroupId] | None:
    """The existing file groups that an inflight instant plans to touch.

    :return: None when the instant is not inflight yet, or has ended.
    """
    return _inflight_groups(storage, instant, action)[0]


def _inflight_groups(
    storage: Storage, instant: str, action: Action
) -> tuple[frozenset[FileGroupId] | None, frozenset[FileGroupId]]:
    """The file groups of :func:`inflight_file_groups`, and those of them that get log files alone."""
    try:
        content = storage.read(instant_path(Instant(instant, action, State.INFLIGHT)))
    except FileNotFoundError:
        return None, frozenset()
    stats = decode_commit_metadata(content).write_stats if content else ()
    groups = {stat.file_group: stat for stat in stats if stat.file_id}
    appended = (group for group, stat in groups.items() if stat.log_files is not None)
    return frozenset(groups), frozenset(appended)


def others_writing(storage: Storage) -> dict[str, frozenset[FileGroupId] | None]:
    """Live writes of other Hudi writers, and the existing file groups that each touches.

    :param storage: the table's storage.
    :return: file groups by requested time; None for a write that has no plan yet, because it still looks for
        its keys.
    """
    found = {}
    for instant, heartbeat in observe(storage).items():
        if heartbeat.info != HeartbeatInfo() or heartbeat.age_seconds > _BEAT_OF_THE_JVM_SECONDS:
            continue
        pending = Timeline.load(storage).find(instant)
        if pending is None or pending.state is State.COMPLETED or pending.action not in WRITE_ACTIONS:
            continue
        found[instant] = inflight_file_groups(storage, instant, pending.action)
    return found


def wait_for_others_to_tell(storage: Storage, timeout: float) -> None:
    """Wait until every live write of another Hudi writer has put its plan, or has ended.

    :param storage: the table's storage.
    :param timeout: seconds to wait at most.
    """
    _wait_while(lambda: None in others_writing(storage).values(), timeout)


def wait_for_instant(table: HudiTable, instant: str, timeout: float) -> bool:
    """Wait until a write has ended: it completed, was rolled back, or its writer is dead.

    :param table: the table.
    :param instant: requested time of the write.
    :param timeout: seconds to wait at most.
    :return: False when it still goes on.
    """

    def goes_on() -> bool:
        heartbeat = observe(table.storage).get(instant)
        return heartbeat is not None and heartbeat.alive

    with metrics.timed("yield_wait", table=table.location):
        return _wait_while(goes_on, timeout)


def wait_for_clustering(table: HudiTable, instant: str, timeout: float) -> bool:
    """Wait until a clustering that another Hudi writer has planned was carried out, or rolled back.

    :param table: the table.
    :param instant: requested time of the plan.
    :param timeout: seconds to wait at most.
    :return: False when it is still pending.
    """

    def is_pending() -> bool:
        found = Timeline.load(table.storage).find(instant)
        return found is not None and found.state is not State.COMPLETED

    with metrics.timed("yield_wait", table=table.location):
        return _wait_while(is_pending, timeout)


def _wait_while(goes_on: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(bool),
        wait=tenacity.wait_fixed(_LOOK_EVERY_SECONDS),
        stop=lambda _: time.monotonic() >= deadline,
        retry_error_callback=lambda _: True,
    )
    return not retrying(goes_on)


def action_of(info: HeartbeatInfo) -> Action:
    """The action of a writer, by its heartbeat; it may have no instant yet."""
    return Action(info.action) if info.action in set(Action) else Action.COMMIT

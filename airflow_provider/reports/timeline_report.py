"""The instants of a table, each with its writer and its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from airflow_provider.concurrency import PRIORITIES, PendingInstant, pending_instants
from airflow_provider.concurrency.commit import REBASED_ONTO
from airflow_provider.concurrency.heartbeats import progress_of
from airflow_provider.concurrency.instant_report import describe_instant
from airflow_provider.concurrency.log import Commit, LogEntry, Plan, Restore, Revert, Rollback, Savepoint
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.locks.owner import TaskRun, split_owner, task_of
from airflow_provider.reports.history import CommitSummary, TableHistory
from airflow_provider.table.timeline import (
    WRITE_ACTIONS,
    Action,
    Instant,
    State,
    parse_time,
    timeline_zone,
)

_OF_SERVICES = {
    Action.CLEAN: "cleaning",
    Action.CLUSTERING: "table_service",
    Action.COMPACTION: "table_service",
    Action.LOG_COMPACTION: "table_service",
    Action.INDEXING: "table_service",
}
_UNDOING = "undoing"
_MOST_ENTRIES = 5_000
_MOST_PARTITIONS = 200


def report_timeline(history: TableHistory, last: int, *, with_rows: bool = True) -> list[dict[str, Any]]:
    """The newest instants of a table's active timeline, and undone instants of the same time.

    :param history: the table's history.
    :param last: number of instants.
    :param with_rows: whether to report the rows and files of each commit; this costs one read of storage for
        each commit that was not read before.
    :return: JSON-able, in the order of requested times. Each has ``instant``, ``action``, ``operation``,
        ``state`` (``planned``, ``running``, ``silent``, ``done``, ``rolled back`` or ``reverted``), ``began``
        and ``ended`` (seconds since the epoch; None while it is running), ``completed`` (completion time),
        ``lane``, ``priority``, ``who`` (see :func:`who`), ``reason`` if it was undone, ``silent_seconds`` and
        ``progress`` of its writer, and its rows and files.
    """
    table = history.table
    timeline, zone = table.timeline(), timeline_zone(table.storage)
    pending = {each.instant: each for each in pending_instants(table)}
    entries = history.entries(2 * last)
    logged = _LogEntries(entries)
    shown = list(timeline.instants[-last:])
    commits = [each for each in shown if each.state is State.COMPLETED and each.action in WRITE_ACTIONS]
    silent = [each for each in commits if each.requested_time not in logged.done]  # the log was trimmed
    summaries = history.summaries(timeline, commits if with_rows else silent)

    def moment(text: str | None) -> float | None:
        return parse_time(text, zone).timestamp() if text else None

    bars: dict[str, dict[str, Any]] = {}
    for instant in shown:
        requested = instant.requested_time
        if requested in logged.undone and instant.state is not State.COMPLETED:
            continue  # the report shows it below, with its end
        if instant.action is Action.SAVEPOINT:
            bar = _completed(instant, logged.kept.get(requested), None)
        elif instant.state is State.COMPLETED:
            bar = _completed(instant, logged.done.get(requested), summaries.get(requested))
        else:
            bar = _pending(instant, pending.get(requested), logged.planned.get(requested))
            bar["progress"] = progress_of(table.storage, requested) if bar["state"] == "running" else None
        key = f"{requested}.savepoint" if instant.action is Action.SAVEPOINT else requested
        bars[key] = bar
    for requested, beating in pending.items():
        if requested not in bars and requested not in logged.undone:  # the timeline is still empty
            bars[requested] = _pending(Instant(requested, beating.action, State.REQUESTED), beating, None)
    oldest = shown[0].requested_time if shown else ""
    for requested, (entry, kind) in logged.undone.items():
        if requested >= oldest and requested not in bars:
            bars[requested] = _undone(requested, entry, kind, logged)
    for requested, entry in logged.done.items():
        if requested >= oldest and requested not in bars and _is_index_change(entry):
            bars[requested] = _completed(
                Instant(requested, entry.action, State.COMPLETED, entry.completion_time), entry, None
            )
    for bar in bars.values():
        # A savepoint has the requested time of the commit that it keeps.
        bar["began"] = moment(bar["completed"] if bar["action"] == Action.SAVEPOINT else bar["instant"])
        bar["ended"] = moment(bar["completed"])
    return sorted(bars.values(), key=lambda bar: str(bar["instant"]))


def report_instant(history: TableHistory, instant: str) -> dict[str, Any]:
    """The full description of one instant.

    :param history: history of its table.
    :param instant: requested time.
    :return: JSON-able: the result of :func:`~airflow_provider.concurrency.instant_report.describe_instant`,
        with ``who``, ``rows``, ``partitions`` (for each ``partition``, ``files``, ``bytes``, ``inserted``,
        ``updated``, ``deleted``), and ``rebased_onto`` (``instant``, ``operation``, ``who``). For an instant
        that was rolled back, the description comes from its rollback.
    :raises NoSuchInstantError: when the table has no such instant.
    """
    try:
        described = describe_instant(history.table, instant)
    except NoSuchInstantError:
        found = _LogEntries(history.entries(_MOST_ENTRIES)).undone.get(instant)
        if found is None:
            raise
        entry, kind = found
        return _undone(instant, entry, kind, _LogEntries([])) | {"partitions": []}
    metadata = described.get("metadata") or {}
    stats = metadata.get("partitionToWriteStats") or {}
    extra_metadata = metadata.get("extraMetadata") or {}
    rebased = _rebased_onto(extra_metadata)
    shown = {name: value for name, value in extra_metadata.items() if name not in ("schema", REBASED_ONTO)}
    plan = described.get("plan") or {}
    return {
        **described,
        "metadata": {name: value for name, value in metadata.items() if name != "partitionToWriteStats"}
        | {"extraMetadata": shown},
        "plan": plan,
        "who": who(described["owner"]),
        "partitions": [_of_partition(path, each) for path, each in sorted(stats.items())][:_MOST_PARTITIONS],
        "more_partitions": max(0, len(stats) - _MOST_PARTITIONS),
        "rebased_onto": rebased,
    }


def _rebased_onto(extra_metadata: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        each | {"who": who(each.get("owner"))} for each in json.loads(extra_metadata.get(REBASED_ONTO, "[]"))
    ]


def _of_partition(path: str, stats: list[dict[str, Any]]) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(each.get(name) or 0 for each in stats)

    return {
        "partition": path,
        "files": len(stats),
        "bytes": total("totalWriteBytes"),
        "inserted": total("numInserts"),
        "updated": total("numUpdateWrites"),
        "deleted": total("numDeletes"),
    }


def _is_index_change(entry: LogEntry) -> bool:
    """Whether an entry completes a build or a drop of indexes, which leaves no instant on the timeline."""
    return isinstance(entry, Commit) and entry.action is Action.INDEXING


class _LogEntries:
    """The commit log's entries about instants, by requested time."""

    def __init__(self, entries: list[LogEntry]) -> None:
        self.done: dict[str, LogEntry] = {}
        self.planned: dict[str, Plan] = {}
        self.kept: dict[str, Savepoint] = {}
        self.undone: dict[str, tuple[LogEntry, str]] = {}
        for entry in reversed(entries):
            if isinstance(entry, Plan):
                self.planned[entry.instant] = entry
            elif isinstance(entry, Savepoint):
                self.kept[entry.instant] = entry
            else:
                self.done[entry.instant] = entry
            for instant in entry.undone:
                kind = "reverted" if isinstance(entry, Revert | Restore) else "rolled back"
                self.undone[instant] = (entry, kind)


def who(owner: str | None) -> dict[str, Any] | None:
    """The writer of an instant: the DAG, task and run if the owner's description names them.

    :param owner: a description by :func:`~airflow_provider.locks.owner.describe_owner`.
    :return: JSON-able: ``process`` (its host and number, or the whole description if it names no task), and
        for a task ``dag``, ``task``, ``run``, ``map_index`` and ``try_number``; None for an unknown owner.
    """
    if not owner:
        return None
    task = task_of(owner)
    process, _ = split_owner(owner)
    return {"process": process.rpartition(" on ")[2], **asdict(task)} if task else {"process": process}


def name_of(named: dict[str, Any] | None) -> str | None:
    """The writer in one line for people; None for an unknown writer.

    :param named: a result of :func:`who`.
    """
    if named is None or "dag" not in named:
        return named["process"] if named else None
    return f"{TaskRun(*(named[name] for name in ('dag', 'task', 'run', 'map_index', 'try_number')))}"


def lane_of(priority: int | None, action: Action) -> str:
    """The lane in which the page draws an instant: the name of its priority, or its number."""
    if action in (Action.ROLLBACK, Action.RESTORE):
        return _UNDOING
    if priority is None:
        return _OF_SERVICES.get(action, "other")
    if action is Action.SAVEPOINT:
        return "other"
    if priority == 0:  # the empty commit that a rollback puts
        return _UNDOING
    names = {number: name for name, number in PRIORITIES.items()}
    return names.get(priority, str(priority))


def _bar(
    instant: str,
    action: Action,
    operation: str,
    state: str,
    completed: str | None,
    priority: int | None,
    owner: str | None,
) -> dict[str, Any]:
    return {
        "instant": instant,
        "action": str(action),
        "operation": operation,
        "state": state,
        "completed": completed,
        "lane": lane_of(priority, action),
        "priority": priority,
        "who": who(owner),
    }


def _completed(instant: Instant, entry: LogEntry | None, summary: CommitSummary | None) -> dict[str, Any]:
    operation = entry.operation if entry else summary.operation if summary else str(instant.action).upper()
    priority = entry.priority if entry else summary.number("priority") if summary else None
    owner = entry.owner if entry else None
    action = instant.action
    bar = _bar(instant.requested_time, action, operation, "done", instant.completion_time, priority, owner)
    if (
        isinstance(entry, Commit)
        and entry.priority == 0
        and not entry.written | entry.replaced | entry.appended
    ):
        bar["about"] = "an empty commit: a rollback puts one where the table has none that is older"
    if isinstance(entry, Rollback | Revert):
        bar["undoes"] = entry.rolls_back
        bar["reason"] = getattr(entry, "reason", "")
    return bar | (_wrote(summary) if summary else {})


def _wrote(summary: CommitSummary) -> dict[str, Any]:
    return {
        "rows_inserted": summary.rows_inserted,
        "rows_updated": summary.rows_updated,
        "rows_deleted": summary.rows_deleted,
        "files": summary.files,
        "bytes": summary.bytes,
        "file_sizes": list(summary.file_sizes),
        "rebased_onto": _rebased_onto(summary.extra_metadata),
        "txn_id": summary.number("txn_id"),
        "write_id": summary.number("write_id"),
    }


def _pending(instant: Instant, beating: PendingInstant | None, plan: Plan | None) -> dict[str, Any]:
    state = "planned"
    if beating is not None and beating.alive is not None:
        state = "running" if beating.alive else "silent"
    known: PendingInstant | Plan | None = (
        beating if beating and beating.alive is not None else plan or beating
    )
    bar = _bar(
        instant.requested_time,
        instant.action,
        known.operation if known and known.operation else str(instant.action).upper(),
        state,
        None,
        known.priority if known and known.priority else None,
        known.owner if known and known.owner != "unknown" else None,
    )
    return bar | {
        "phase": str(instant.state),
        "silent_seconds": beating.age_seconds if beating else None,
    }


def _undone(requested: str, entry: LogEntry, kind: str, logged: _LogEntries) -> dict[str, Any]:
    """The bar of an instant that is not on the timeline any more."""
    if isinstance(entry, Rollback | Revert):
        action, by = entry.rolled_back_action, entry.instant
    else:
        action, by = Action.COMMIT, entry.instant
    begun = logged.done.get(requested) or logged.planned.get(requested)
    begun = begun if isinstance(begun, Commit | Plan) else None
    operation, priority, owner = (
        (begun.operation, begun.priority, begun.owner) if begun else _of_the_dead(entry, action)
    )
    # A revert undoes a completed commit, so the bar ends at the revert.
    bar = _bar(requested, action, operation, kind, entry.completion_time, priority, owner)
    return bar | {"undone_by": by, "reason": getattr(entry, "reason", ""), "ender": who(entry.owner)}


def _of_the_dead(entry: LogEntry, action: Action) -> tuple[str, int | None, str | None]:
    """Operation, priority and owner of an instant that never completed; only its rollback has them."""
    if not isinstance(entry, Rollback) or not entry.dead_owner:
        return str(action).upper(), None, None
    return entry.dead_operation, entry.dead_priority, entry.dead_owner

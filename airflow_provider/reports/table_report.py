"""One row of the list of tables: its last commit, its writers, and what needs a person."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from airflow_provider.concurrency import pending_instants
from airflow_provider.concurrency.conflicts import instants_of_open_transactions
from airflow_provider.concurrency.heartbeats import observe, progress_of
from airflow_provider.concurrency.log import Commit
from airflow_provider.concurrency.plans import MAX_FAILURES, Service, failures
from airflow_provider.concurrency.readers import READERS_FOLDER, registered_consumers
from airflow_provider.exceptions import TableServiceError
from airflow_provider.indexing import index_status
from airflow_provider.locks import LockProvider
from airflow_provider.reports.history import TableHistory
from airflow_provider.reports.timeline_report import lane_of, who
from airflow_provider.table.file_groups import looking_again
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import State, Timeline, format_time, parse_time, timeline_zone

_DAY = 24 * 3600.0
_ENTRIES = 50  # entries of the log that the report searches for the last commit


def report_table(history: TableHistory, lock: LockProvider | None = None) -> dict[str, Any]:
    """One row of the list of tables.

    :param history: the table's history.
    :param lock: a contender for its lock; None leaves the lock out.
    :return: JSON-able: ``type``, ``instants`` (on the active timeline), ``last_commit`` (``instant``, ``at``
        in seconds since the epoch, ``operation``, ``who``), ``day`` (``commits`` and ``rows_inserted``,
        ``rows_updated``, ``rows_deleted`` of the last 24 hours), ``writers`` and ``plans`` (see
        :func:`report_pending`), ``lock`` (see :func:`report_locks`), ``indexes``, ``stopped`` (services that
        are stopped, or have failed, and why), ``files``, ``bytes``, ``holders`` (savepoints, consumers and
        others for whom a clean or an archival keeps files or instants).
    """
    table = history.table
    timeline = table.timeline()
    locks = _locks(lock)
    pending = report_pending(table, timeline, locks)
    size = history.unless_changed("size", _state(timeline), lambda: _size(table))
    return {
        "type": table.config.table_type,
        "instants": len(timeline.instants),
        "last_commit": _last_commit(history, timeline),
        "day": _day(history, timeline),
        "writers": [each for each in pending if each["alive"] is not None],
        "plans": [each for each in pending if each["alive"] is None],
        "locks": locks,
        "indexes": [each.to_dict() | {"who": who(each.owner)} for each in index_status(table)],
        "stopped": _stopped(table),
        "files": size[0],
        "bytes": size[1],
        "holders": _holders(table, timeline),
    }


def report_pending(
    table: HudiTable, timeline: Timeline | None = None, locks: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Writes that have not ended: their writers, their progress, and whether the writers are alive.

    :param table: the table; the report never writes to it.
    :param timeline: the table's active timeline; read when None.
    :param locks: from :func:`report_locks`, to find the writer that commits now; without locks no phase is
        ``commits`` or ``waits for the lock``.
    :return: JSON-able, the fields of a :class:`~airflow_provider.concurrency.PendingInstant`, and ``who``,
        ``lane`` and ``phase``: ``planned``, ``looks for its keys``, ``writes``, ``waits for the lock``,
        ``commits``, or a phase that the writer itself reports.
    """
    timeline = timeline or table.timeline()
    at_lock = {each["owner"]: each["state"] for each in locks or ()}
    found = []
    for each in pending_instants(table):
        instant = timeline.find(each.instant)
        if each.alive is None:
            phase = "planned"
        elif (lock_state := at_lock.get(each.owner)) is not None:
            phase = "commits" if lock_state == "held" else "waits for the lock"
        elif (progress := progress_of(table.storage, each.instant)) is not None:
            phase = progress
        else:
            is_writing = instant is not None and instant.state is State.INFLIGHT
            phase = "writes" if is_writing else "looks for its keys"
        named = who(each.owner) if each.owner != "unknown" else None
        lane = lane_of(each.priority or None, each.action)
        found.append(asdict(each) | {"who": named, "lane": lane, "phase": phase})
    return found


def report_locks(lock: LockProvider) -> list[dict[str, Any]]:
    """The holder of a table's lock, and the contenders that wait for it.

    :param lock: a contender for the lock.
    :return: JSON-able, the holder first: ``state`` (``held`` or ``waits``), ``owner``, ``who``, and for a
        holder ``fencing_token``, ``age_seconds`` and ``seconds_left``.
    :raises LockUnavailableError: when the backend cannot be reached.
    """
    holder = lock.holder()
    rows = [{"state": "held", **asdict(holder)}] if holder else []
    empty = dict.fromkeys(("fencing_token", "age_seconds", "seconds_left"))
    rows += [{"state": "waits", "owner": owner, **empty} for owner in lock.waiters()]
    return [row | {"who": who(str(row["owner"]))} for row in rows]


def _locks(lock: LockProvider | None) -> list[dict[str, Any]]:
    if lock is None:
        return []
    try:
        return report_locks(lock)
    except (TableServiceError, OSError) as error:  # the rest of the report does not need the lock
        return [{"state": "unknown", "owner": "", "who": None, "error": f"{type(error).__name__}: {error}"}]


def _state(timeline: Timeline) -> str:
    return f"{timeline.newest_completion} {len(timeline.instants)}"


@looking_again
def _size(table: HudiTable) -> tuple[int, int]:
    base_files = table.view().all_base_files()
    return len(base_files), sum(each.size for each in base_files)


def _last_commit(history: TableHistory, timeline: Timeline) -> dict[str, Any] | None:
    commits = timeline.commits()
    if not commits:
        return None
    last = max(commits, key=lambda commit: commit.completion_time or "")
    entries = (each for each in history.entries(_ENTRIES) if isinstance(each, Commit))
    entry = next((each for each in entries if each.instant == last.requested_time), None)
    at = parse_time(last.completion_time or "", timeline_zone(history.table.storage)).timestamp()
    return {
        "instant": last.requested_time,
        "at": at,
        "operation": entry.operation if entry else str(last.action),
        "who": who(entry.owner) if entry else None,
    }


def _day(history: TableHistory, timeline: Timeline) -> dict[str, int]:
    since = datetime.fromtimestamp(time.time() - _DAY, UTC)
    bound = format_time(since, timeline_zone(history.table.storage))
    commits = [each for each in timeline.commits() if (each.completion_time or "") >= bound]
    done = history.summaries(timeline, commits).values()
    return {
        "commits": len(commits),
        "rows_inserted": sum(each.rows_inserted for each in done),
        "rows_updated": sum(each.rows_updated for each in done),
        "rows_deleted": sum(each.rows_deleted for each in done),
    }


def _stopped(table: HudiTable) -> list[dict[str, Any]]:
    found = []
    for service in Service:
        if failed := failures(table, service):
            last = failed[-1]
            found.append(
                {
                    "service": str(service),
                    "failures": len(failed),
                    "has_stopped": len(failed) >= MAX_FAILURES,
                    "at": last.at,
                    "reason": last.reason,
                    "who": who(last.owner),
                }
            )
    return found


def _holders(table: HudiTable, timeline: Timeline) -> list[dict[str, Any]]:
    storage = table.storage
    found: list[dict[str, Any]] = [
        {"by": f"consumer {each.name}", "since": each.checkpoint, "who": None}
        for each in registered_consumers(storage)
        if not each.is_expired
    ]
    found += [
        {"by": f"reader {name}", "since": name[:17], "who": who(lease.info.owner)}
        for name, lease in sorted(observe(storage, READERS_FOLDER).items())
        if lease.alive
    ]
    found += [
        {"by": f"savepoint {each.requested_time}", "since": each.requested_time, "who": None}
        for each in timeline.savepoints()
    ]
    found += [
        {"by": f"transaction {txn_id}", "since": instant, "who": None}
        for instant, txn_id in instants_of_open_transactions(storage).items()
    ]
    return found

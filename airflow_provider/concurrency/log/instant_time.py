"""Unique requested times and strictly increasing completion times (C4 of ARCHITECTURE.md).

A requested time is an even number of milliseconds, a completion time an odd one. So no requested time equals
the completion time of another commit, and a moment that names a commit names one snapshot. An empty commit
before a dead write may be an exception (:func:`requested_times_before`).
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider.concurrency.heartbeats import HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.log.commit_log import CommitLog
from airflow_provider.concurrency.log.log_entry import LogEntry
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import after, before, now, timeline_zone


def request_instant(
    storage: Storage,
    log: CommitLog,
    newest: LogEntry | None,
    info: HeartbeatInfo,
    *,
    later_than: str,
    soonest: bool = False,
) -> tuple[str, LogEntry | None]:
    """Take a requested time that no other instant of the table has or will have.

    The test-and-set is the exclusive creation of the heartbeat file. A heartbeat is deleted only once a log
    entry has ended its instant, and that entry's completion time is later than the instant's requested time.
    So a time that exceeds every completion time in the log, read after the creation, has never been another
    instant's.

    :param storage: the table's storage.
    :param log: the table's commit log.
    :param newest: the newest entry known.
    :param info: the heartbeat's content.
    :param later_than: a time that the requested time must exceed as well.
    :param soonest: take the first possible time, and not the present one.
    :return: the requested time, and the newest entry seen.
    """
    candidate = _even(after(later_than) if soonest and later_than else now(timeline_zone(storage)))
    while True:
        bound = max(newest.completion_time if newest else "", later_than)
        if bound and candidate <= bound:
            candidate = _even(after(bound))
        if not storage.put_if_absent(heartbeat_path(candidate), info.to_json()):
            candidate = _even(after(candidate))
            continue
        # The log is not read from the known entry on: the entries after it may have been trimmed before this
        # heartbeat existed.
        newest = log.newest()
        if newest is None or candidate > newest.completion_time:
            return candidate, newest
        storage.delete(heartbeat_path(candidate))


def completion_time_after(
    storage: Storage,
    newest: LogEntry | None,
    requested_time: str,
    *,
    later_than: str = "",
    soonest: bool = False,
) -> str:
    """The completion time of the entry after ``newest``. It makes the log order the completion order, on any
    clock.

    :param storage: the table's storage.
    :param newest: the entry before; None for the first.
    :param requested_time: the committing instant's requested time.
    :param later_than: a time that it must exceed as well.
    :param soonest: take the first possible time, and not the present one.
    """
    before = newest.completion_time if newest else ""
    time = after(max(requested_time, later_than, before))
    if not soonest:
        time = max(now(timeline_zone(storage)), time)
    return after(time) if _is_even(time) else time


def requested_times_before(time: str, bound: str) -> Iterator[str]:
    """The requested times that are possible before another time, the latest first.

    Requested times are even, so that none is the completion time of another instant. The odd times follow
    after all even ones. Only an empty commit may take an odd time, because readers order nothing by its
    requested time.

    :param time: a requested time, or a completion time.
    :param bound: a time that all returned times exceed; empty for no bound.
    """
    for is_even in (True, False):
        earlier = before(time)
        while earlier > bound:
            if _is_even(earlier) is is_even:
                yield earlier
            earlier = before(earlier)


def _even(time: str) -> str:
    return time if _is_even(time) else after(time)


def _is_even(time: str) -> bool:
    return time[-1] in "02468"

"""The time zone in which a table's instant times are written.

``hoodie.table.timeline.timezone`` is ``UTC`` or ``LOCAL``. LOCAL is the default of tables that the JVM's
Hudi makes, and means the zone of the JVM that writes (``HoodieInstantTimeGenerator``). No file names that
zone, unless the option :data:`~airflow_provider.table.properties.TIMELINE_ZONE` does.

Readers order the slices of a file group by requested time. So a new instant has to come after all instants
on the timeline. It must not be ahead of that JVM's clock either, because readers would not see the slice that
the JVM writes next. If no option names the zone, the newest instant gives a lower bound for that clock's
offset from UTC: the instant's time less the moment at which the storage got its file. The bound is rounded up
to a quarter of an hour, because a file comes later than its time, and zones differ by quarters of an hour. A
copied table has newer files. Then new instants lag behind the JVM's clock, and nothing is lost.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo, available_timezones

from airflow_provider.table.properties import LOCAL
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, parse_time

_QUARTER = timedelta(minutes=15)
_CLOCKS_APART = timedelta(minutes=5)  # tolerated difference between the JVM's clock and the storage's
_BEHIND, _AHEAD = timedelta(hours=-12), timedelta(hours=14)  # no clock on earth is further from UTC


def timeline_zone(storage: Storage) -> tzinfo:
    """The zone of a table's instant times. If no option names it, the answer holds only for now.

    :param storage: the storage of an opened table.
    """
    if storage.timeline_zone != LOCAL:
        return ZoneInfo(storage.timeline_zone) if storage.timeline_zone != "UTC" else UTC
    return timezone(_local_offset(storage))


def earliest_zone(storage: Storage) -> tzinfo:
    """A zone in which a moment's time is not later than any instant time written at that moment.

    :param storage: see :func:`timeline_zone`.
    """
    return UTC if storage.timeline_zone == "UTC" else timezone(_BEHIND)


class _Newest:
    """The newest instant whose file was looked at, and the offset of its clock from UTC."""

    of: WeakKeyDictionary[Storage, _Newest] = WeakKeyDictionary()

    def __init__(self, requested_time: str, written: float) -> None:
        self.requested_time = requested_time
        self.written = written
        ahead = parse_time(requested_time) - datetime.fromtimestamp(written, UTC) - _CLOCKS_APART
        quarters = math.ceil(ahead / _QUARTER)
        self.offset = min(max(quarters * _QUARTER, _BEHIND), _AHEAD)


def _local_offset(storage: Storage) -> timedelta:
    timeline = Timeline.load(storage, storage.timeline_layout)
    for instant in reversed(timeline.instants):
        if instant.action is Action.SAVEPOINT:
            continue  # a savepoint has the requested time of its commit
        known = _Newest.of.get(storage)
        if known is None or known.requested_time != instant.requested_time:
            written = _written(storage, instant)
            if written is None:
                continue
            known = _Newest.of[storage] = _Newest(instant.requested_time, written)
        now = datetime.now(UTC).timestamp()
        return _least_now(known.offset, *(int(time // _QUARTER.seconds) for time in (known.written, now)))
    return _BEHIND


def _written(storage: Storage, instant: Instant) -> float | None:
    """The time at which the storage got the first file of an instant, in seconds since the epoch."""
    for action in (instant.action, *instant.action.when_pending):
        status = storage.stat(instant_path(replace(instant, action=action, state=State.REQUESTED)))
        if status is not None:
            return status.modified
    return None


@lru_cache(maxsize=64)
def _least_now(offset: timedelta, then: int, now: int) -> timedelta:
    """The least offset that a zone with this offset then may have now, because zones change their clocks.

    :param then: quarters of an hour since the epoch, as ``now``; clocks change at such times.
    """
    then_at, now_at = (datetime.fromtimestamp(time * _QUARTER.seconds, UTC) for time in (then, now))
    fitting = (zone for zone in _zones() if _offset(then_at, zone) == offset)
    return min((_offset(now_at, zone) for zone in fitting), default=offset)


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


@cache
def _zones() -> tuple[ZoneInfo, ...]:
    return tuple(ZoneInfo(name) for name in available_timezones())

"""Instants: the actions on a table, with their times and states.

File names are those of timeline layout 2 (table version 8 and later): Hudi's
``InstantFileNameGeneratorV2``. A completed instant carries both its requested and its
completion time: ``<requested>_<completed>.<action>``. Layout 1 (table version 6,
``InstantFileNameGeneratorV1``) has no completion time: ``<requested>.<action>``. Readers of such
tables order commits by requested time, so this module takes it as the completion time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache

from airflow_provider.exceptions import InvalidInputError


class Action(StrEnum):
    """The action of an instant, by Hudi's names; an archival exists in the commit log only."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"
    ARCHIVE = "archive"

    @property
    def when_completed(self) -> Action:
        """The action under which Hudi records the completed instant."""
        return _WHEN_COMPLETED.get(self, self)

    @property
    def when_pending(self) -> tuple[Action, ...]:
        """The actions under which a completed instant of this action may have been pending."""
        return tuple(action for action in Action if action.when_completed is self)

    @property
    def holds_fence(self) -> bool:
        """Whether a pending instant of this action can still show rows, so that fenced readers wait for it.

        Table services and indexing change no row, and a rollback removes rows that no reader has seen.
        """
        return self in WRITE_ACTIONS


_WHEN_COMPLETED = {
    Action.CLUSTERING: Action.REPLACE_COMMIT,
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
}

WRITE_ACTIONS = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
"""Actions whose completed instants put base files into the table."""


class State(StrEnum):
    """The state of an instant."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


_TIME = r"\d{14}(?:\d{3})?"
_COMPLETED = re.compile(rf"^({_TIME})_({_TIME})\.([a-z]+)$")
_PENDING = re.compile(rf"^({_TIME})\.([a-z]+)\.(requested|inflight)$")
_INFLIGHT_COMMIT = re.compile(rf"^({_TIME})\.inflight$")
_COMPLETED_IN_LAYOUT_1 = re.compile(rf"^({_TIME})\.([a-z]+)$")


@dataclass(frozen=True)
class Instant:
    """One state of one action on the timeline.

    :param requested_time: ``yyyyMMddHHmmssSSS``, in the table's time zone; unique in a table.
    :param action: its action.
    :param state: its state.
    :param completion_time: in the form of the requested time; None unless completed.
    :param layout: timeline layout version, which decides the name of its file.
    """

    requested_time: str
    action: Action
    state: State
    completion_time: str | None = None
    layout: int = field(default=2, compare=False, repr=False)

    @property
    def file_name(self) -> str:
        """The file's name in the timeline folder."""
        if self.state is State.COMPLETED:
            if self.layout == 1:
                return f"{self.requested_time}.{self.action.when_completed}"
            return f"{self.requested_time}_{self.completion_time}.{self.action.when_completed}"
        if self.state is State.INFLIGHT and self.action is Action.COMMIT:
            return f"{self.requested_time}.inflight"
        return f"{self.requested_time}.{self.action}.{self.state}"

    @classmethod
    @lru_cache(maxsize=4_096)  # a timeline is listed again and again
    def parse(cls, file_name: str, layout: int = 2) -> Instant | None:
        """The instant of a timeline file; None for any other file.

        :param file_name: the file's name, without its folder.
        :param layout: timeline layout version.
        """
        if match := _INFLIGHT_COMMIT.match(file_name):
            return cls(match[1], Action.COMMIT, State.INFLIGHT, layout=layout)
        try:
            if match := _PENDING.match(file_name):
                return cls(match[1], Action(match[2]), State(match[3]), layout=layout)
            if layout == 2 and (match := _COMPLETED.match(file_name)):
                return cls(match[1], Action(match[3]), State.COMPLETED, match[2])
            if layout == 1 and (match := _COMPLETED_IN_LAYOUT_1.match(file_name)):
                return cls(match[1], Action(match[2]), State.COMPLETED, match[1], layout)
        except ValueError:
            pass  # an action of a later Hudi
        return None


def format_time(moment: datetime, zone: tzinfo = UTC) -> str:
    """A moment as an instant time: ``yyyyMMddHHmmssSSS``.

    :param zone: the zone of the table's instant times, from
        :func:`~airflow_provider.table.timeline.timeline_zone`.
    """
    return moment.astimezone(zone).strftime("%Y%m%d%H%M%S%f")[:17]


def parse_time(text: str, zone: tzinfo = UTC) -> datetime:
    """The moment of an instant time; 14 digits count as their last millisecond (Hudi's rule).

    :param zone: see :func:`format_time`.
    :raises InvalidInputError: when the text is not 14 or 17 digits of a date.
    """
    padded = f"{text}999" if len(text) == 14 else text
    try:
        # This takes a tenth of the time of strptime, which would also accept fewer digits.
        if found := _DIGITS.fullmatch(padded):
            year, month, day, hour, minute, second, milliseconds = map(int, found.groups())
            return datetime(year, month, day, hour, minute, second, milliseconds * 1000, zone)
    except ValueError:
        pass  # there is no such day or hour
    raise InvalidInputError(
        f"instant time {text!r} is not of the form yyyyMMddHHmmssSSS (17 digits)", instant=text
    )


_DIGITS = re.compile(r"(\d{4})" + r"(\d{2})" * 5 + r"(\d{3})", re.ASCII)


def now(zone: tzinfo = UTC) -> str:
    """The present instant time by this machine's clock.

    :param zone: see :func:`format_time`.
    """
    return format_time(datetime.now(UTC), zone)


def age(text: str, now: float, zone: tzinfo = UTC) -> float:
    """Seconds since an instant time.

    The result is 0 for a time ahead of the clock, which occurs when many commits complete in one millisecond.

    :param text: the instant time.
    :param now: seconds since the epoch, by :meth:`~airflow_provider.table.storage.storage.Storage.clock`.
    :param zone: see :func:`format_time`.
    """
    return max(0.0, now - parse_time(text, zone).timestamp())


def after(text: str) -> str:
    """The instant time one millisecond later."""
    return format_time(parse_time(text) + timedelta(milliseconds=1))


def before(text: str) -> str:
    """The instant time one millisecond earlier."""
    return format_time(parse_time(text) - timedelta(milliseconds=1))

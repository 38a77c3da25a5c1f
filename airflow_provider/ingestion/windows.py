"""Windows: the parts of history that a backfill writes one after the other, each as one commit."""

from __future__ import annotations

import calendar
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import DEFAULT_PARTITION, escape_path_name, partition_values

if TYPE_CHECKING:
    from airflow_provider.ingestion.ingest_job import IngestJob

ORDERS = ("oldest_first", "newest_first")
"""The orders in which windows can be written."""

_MOST_WINDOWS = 100_000
_STEP = re.compile(r"(?:(\d+)\s+)?(second|minute|hour|day|week|month|year)s?")
_PLACEHOLDER = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


@dataclass(frozen=True)
class Window:
    """A part of history, by the values of columns or by a span of time.

    :param name: the window's name, for people, and for finding its commit again.
    :param values: value by column, as text; None for null.
    :param column: a column with a date or a time.
    :param start: the earliest time in the window, ISO, UTC.
    :param end: the earliest time after the window.
    :param rows: number of the source's rows in the window; None when they are not counted.
    """

    name: str
    values: Mapping[str, str | None] = field(default_factory=dict)
    column: str | None = None
    start: str | None = None
    end: str | None = None
    rows: int | None = None

    def job(self, backfill: IngestJob) -> IngestJob:
        """The ingestion of this window alone.

        If the path of the source has a placeholder, the path selects the window's rows. Otherwise the rows of
        the source are filtered.

        :param backfill: the ingestion of all windows.
        """
        source = tuple(self.source(each) for each in backfill.source.paths)
        key = backfill.operation_key
        return replace(
            backfill,
            source=replace(
                backfill.source, paths=source, window=self if source == backfill.source.paths else None
            ),
            operation_key=f"{key}/{self.name}" if key else None,
            extra_metadata={**backfill.extra_metadata, "backfill_window": self.name},
        )

    def source(self, template: str) -> str:
        """The paths of the window's rows.

        :param template: path, URL or pattern; ``{window}`` stands for the window's name, ``{month}``
            for the value of its column ``month``, and ``{start:%Y-%m-%d}`` or ``{end:%Y}`` for the
            bounds of a span. Other braces stay, because Spark's patterns contain some.
        """
        known: dict[str, Any] = {"window": self.name, **self.values}
        if self.start and self.end:
            known |= {"start": datetime.fromisoformat(self.start), "end": datetime.fromisoformat(self.end)}

        def filled(found: re.Match[str]) -> str:
            name, form = found.groups()
            if name not in known:
                return found[0]
            if isinstance(known[name], datetime):
                return format(known[name], form) if form else str(known[name].isoformat())
            return DEFAULT_PARTITION if known[name] is None else str(known[name])

        return _PLACEHOLDER.sub(filled, template)


def value_windows(values: pa.Table, *, order: str, rows: Sequence[int] | None = None) -> list[Window]:
    """A window for every row of a table of values.

    :param values: distinct values; its columns filter the source.
    :param order: one of :data:`ORDERS`.
    :param rows: number of the source's rows for each row of values.
    """
    names = values.schema.names
    texts = values.cast(pa.schema([(name, pa.string()) for name in names])).to_pylist()
    found = []
    for at, (value, text) in enumerate(zip(values.to_pylist(), texts, strict=True)):
        steps = (
            f"{name}={DEFAULT_PARTITION if text[name] is None else escape_path_name(text[name])}"
            for name in names
        )
        window = Window("/".join(steps), text, rows=None if rows is None else rows[at])
        found.append(([(value[name] is not None, value[name]) for name in names], window))
    found.sort(key=lambda pair: pair[0], reverse=_is_newest_first(order))
    return [window for _, window in found]


def partition_windows(
    table: HudiTable, partitions: Iterable[Mapping[str, Any] | str], *, order: str
) -> list[Window]:
    """A window for every partition of a list.

    :param table: the table.
    :param partitions: paths, such as ``year=2013/month=1``, or values by column, such as
        ``{"year": 2013, "month": 1}``; ``{"year": 2013}`` is the whole year, in one commit.
    :param order: one of :data:`ORDERS`.
    :raises InvalidInputError: when a partition does not belong to the table, is listed twice, or has other
        columns than the first.
    :raises NotATableError: when a path is not one of the table's partitions.
    """
    chosen = [
        dict(zip(table.config.partition_fields, partition_values(each, table.config), strict=True))
        if isinstance(each, str)
        else dict(each)
        for each in partitions
    ]
    if not chosen or not chosen[0]:
        raise InvalidInputError("the list of partitions is empty; leave it out for all that the source has")
    columns = list(chosen[0])
    fields = [column_of(table, column) for column in columns]
    for each in chosen:
        if set(each) != set(columns):
            raise InvalidInputError(
                f"partitions must all be of the same columns, so that no row is in two of them: the first is "
                f"of {columns}, another of {list(each)}"
            )
    typed = {
        field.name: pa.array([_typed(row[field.name], field).as_py() for row in chosen], field.type)
        for field in fields
    }
    windows = value_windows(pa.table(typed), order=order)
    for name, same in itertools.groupby(sorted(window.name for window in windows)):
        if len(list(same)) > 1:
            raise InvalidInputError(f"partition {name} is in the list twice")
    return windows


def time_windows(
    start: str | date, end: str | date, step: str | timedelta, *, order: str, column: str | None = None
) -> list[Window]:
    """Windows of a span of time, each as long as a step; the last one ends with the span.

    :param start: the earliest time, ISO or a date or datetime; UTC where it names no zone.
    :param end: the earliest time after the span.
    :param step: a duration, or a text such as ``1 month``, ``6 hours``, ``day``.
    :param order: one of :data:`ORDERS`.
    :param column: the column with the time; None where only the path of the source has it.
    :raises InvalidInputError: when a time or the step cannot be parsed, or the span is empty.
    """
    first, last = _moment("start", start), _moment("end", end)
    if first >= last:
        raise InvalidInputError(f"start {first} must be before end {last}")
    bounds = list(itertools.takewhile(lambda bound: bound < last, _bounds(first, _stepper(step))))
    windows = []
    for begin, finish in zip(bounds, [*bounds[1:], last], strict=True):
        low, high = begin.isoformat(), finish.isoformat()
        windows.append(Window(f"{low}--{high}", column=column, start=low, end=high))
    return windows[::-1] if _is_newest_first(order) else windows


def check_windows(table: HudiTable, job: IngestJob, windows: Sequence[Window]) -> None:
    """Check windows against the table and the operation, before anything is written.

    :param table: the table.
    :param job: the ingestion of all windows.
    :param windows: its windows.
    :raises InvalidInputError: when one window would overwrite another's rows, the source's path does not
        distinguish the windows, or a column has no times.
    """
    replaces = job.kind.replaces
    by_path = any(window.source(each) != each for window in windows for each in job.source.paths)
    apart = all(set(window.values) <= set(table.config.partition_fields) for window in windows)
    by_values = all(window.values for window in windows)
    if replaces == "table" or (replaces and len(windows) > 1 and not (apart and by_values)):
        raise InvalidInputError(
            f"operation {job.operation!r} would take out in one window what another has written; use it with "
            "windows by partition, and insert_overwrite, or use upsert",
            operation=job.operation,
        )
    for window in windows:
        if window.column is None:
            if not window.values and not by_path:
                raise InvalidInputError(
                    "windows of time need a column, or a source with {start}, {end} or {window} in its path"
                )
            continue
        kind = column_of(table, window.column).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise InvalidInputError(
                f"column {window.column!r} of type {kind} does not say when; windows of time need a date or "
                "a timestamp",
                column=window.column,
            )
        bounds = [datetime.fromisoformat(each).time() for each in (window.start, window.end) if each]
        if pa.types.is_date(kind) and any(bound != time() for bound in bounds):
            raise InvalidInputError(
                f"column {window.column!r} has dates, so start, end and step must be whole days",
                column=window.column,
            )


def column_of(table: HudiTable, name: str) -> pa.Field:
    """A column of a table.

    :raises InvalidInputError: when the table has no such column.
    """
    if name not in table.schema.names:
        raise InvalidInputError(
            f"table {table.location} has no column {name!r}; it has {', '.join(table.schema.names)}",
            column=name,
        )
    return table.schema.field(name)


def _typed(value: object, field_: pa.Field) -> pa.Scalar:
    try:
        if value is None or not isinstance(value, str):
            return pa.scalar(value, field_.type)
        return pa.scalar(value).cast(field_.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"partition value {value!r} is not of column {field_.name!r}, which has type {field_.type}: "
            f"{error}",
            column=field_.name,
        ) from error


def _is_newest_first(order: str) -> bool:
    if order not in ORDERS:
        raise InvalidInputError(f"order must be {' or '.join(map(repr, ORDERS))}, not {order!r}")
    return order == "newest_first"


def _moment(name: str, given: str | date) -> datetime:
    try:
        moment = datetime.fromisoformat(str(given).strip())
    except ValueError as error:
        raise InvalidInputError(f"{name} {given!r} is not an ISO date or time, such as 2013-01-31") from error
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _bounds(first: datetime, bound: Callable[[datetime, int], datetime]) -> Iterator[datetime]:
    for number in range(_MOST_WINDOWS):
        yield bound(first, number)
    raise InvalidInputError(f"more than {_MOST_WINDOWS} windows; choose a longer step")


def _stepper(step: str | timedelta) -> Callable[[datetime, int], datetime]:
    """A function for the start of the nth window, from the start of the first."""
    if isinstance(step, str):
        found = _STEP.fullmatch(step.strip().lower())
        if found is None:
            raise InvalidInputError(
                f"step {step!r} is not understood; write for example '1 month' or '6 hours'"
            )
        count, unit = int(found[1] or 1), found[2]
        if not count:
            raise InvalidInputError(f"step must be longer than nothing, not {step!r}")
        if unit in ("month", "year"):
            months = count * (12 if unit == "year" else 1)
            return lambda first, number: _months_later(first, months * number)
        step = timedelta(**{f"{unit}s": count})
    length = step
    if length <= timedelta():
        raise InvalidInputError(f"step must be longer than nothing, not {step!r}")
    return lambda first, number: first + length * number


def _months_later(moment: datetime, months: int) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)

"""Answers: tables for people, in which nothing is cut off; JSON for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import groupby
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

if TYPE_CHECKING:
    from rich.progress import Progress

console = Console()

_P = ParamSpec("_P")
_R = TypeVar("_R")


def show(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows with the same columns. If the columns do not fit side by side, print them below each other.

    :param rows: one mapping for each row.
    :param as_json: whether to print a JSON array.
    """
    if as_json:
        console.print_json(json.dumps(rows, default=str))
        return
    if not rows:
        console.print("nothing")
        return
    texts = [[_text(value) for value in row.values()] for row in rows]
    columns = list(zip(rows[0], zip(*texts, strict=True), strict=True))
    if sum(_least_width(*column) + 3 for column in columns) >= console.width:
        for number, described in enumerate(rows):
            if number:
                console.print()
            show_one(described, as_json)
        return
    # An instant is one word, which people copy.
    shown = Table(
        *(Column(name, overflow="fold", no_wrap=any(map(_is_instant, found))) for name, found in columns)
    )
    for row in texts:
        shown.add_row(*row)
    console.print(shown)


def show_grouped(
    rows: Sequence[Mapping[str, Any]],
    by: str,
    as_json: bool,
    *,
    nothing: str = "(no partition)",
    titled: bool = False,
) -> None:
    """Print rows below a heading for each value of a column, so that a row has one line of 100 characters.

    :param rows: one mapping for each row, with the rows of a group together; long values come last.
    :param by: the column.
    :param as_json: whether to print a JSON array.
    :param nothing: the heading of rows whose value in the column is empty.
    :param titled: whether to print the columns' names above all rows. If the window is too narrow for that,
        :func:`show` prints the rows.
    """
    if as_json or not rows:
        show(rows, as_json)
        return
    names = [name for name in rows[0] if name != by]
    widths = {name: max(len(name), *(len(_text(row[name])) for row in rows)) for name in names}
    if titled:
        if sum(width + 2 for width in widths.values()) + 2 > console.width:
            show(rows, as_json)
            return
        titles = "  ".join(name.ljust(widths[name]) for name in names)
        console.print(f"  [italic]{titles.rstrip()}[/]")
    for heading, group in groupby(rows, lambda row: row[by]):
        shown = Table.grid(padding=(0, 2), pad_edge=True)
        for name in names:
            whole = titled or (console.width >= 100 and name != names[-1])
            least = widths[name] if titled else None
            shown.add_column(name, overflow="fold", no_wrap=whole, min_width=least)
        for row in group:
            shown.add_row(*(_text(row[name]) for name in names))
        console.print(f"[bold]{escape(_text(heading)) or nothing}[/]")
        console.print(shown)


def show_one(described: Mapping[str, Any], as_json: bool) -> None:
    """Print one thing, a line for each of its properties.

    :param described: its properties; nested properties are printed as JSON.
    :param as_json: whether to print a JSON object.
    """
    if as_json:
        console.print_json(json.dumps(described, default=str))
        return
    shown = Table.grid(Column(), Column(overflow="fold"), padding=(0, 2))
    for name, value in described.items():
        shown.add_row(f"[bold]{name}[/]", "none" if value in ([], {}, ()) else _text(value))
    console.print(shown)


def _least_width(name: str, found: Sequence[str]) -> int:
    return max(len(name), *(len(text) for text in found if _is_instant(text)), 0)


def _is_instant(text: str) -> bool:
    return len(text) == 17 and text.isdecimal()


def _text(value: Any) -> str:
    if isinstance(value, Mapping) or (isinstance(value, list) and value and isinstance(value[0], Mapping)):
        return json.dumps(value, indent=2, default=str)
    if isinstance(value, tuple | list | set | frozenset):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return str(round(value, 3))
    return "" if value is None else str(value)


def telling_progress(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorator: on a terminal, shows for how long the command has been working, and its last step.

    The line goes to the standard error, and disappears when the command ends.
    """

    @wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        terminal = Console(stderr=True)
        if not terminal.is_terminal:
            return command(*args, **kwargs)
        # Imported here: most commands answer at once.
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        log = logging.getLogger("airflow_provider")
        with Progress(
            SpinnerColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=terminal,
            transient=True,
        ) as progress:
            handler = _Shown(progress)
            level = log.level
            log.addHandler(handler)
            log.setLevel(logging.INFO)
            try:
                return command(*args, **kwargs)
            finally:
                log.removeHandler(handler)
                log.setLevel(level)

    return wrapped


class _Shown(logging.Handler):
    """Shows the newest message, in place of the previous one."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.update(self._task, description=escape(record.getMessage()))

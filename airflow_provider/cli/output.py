"""Answers: tables for people, in which nothing is cut off; JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

console = Console()


def show(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows with the same columns.

    :param rows: one mapping a row.
    :param as_json: as a JSON array.
    """
    if as_json:
        console.print_json(json.dumps(rows, default=str))
        return
    if not rows:
        console.print("nothing")
        return
    shown = Table(*(Column(name, overflow="fold") for name in rows[0]))
    for row in rows:
        shown.add_row(*(_text(value) for value in row.values()))
    console.print(shown)


def show_one(described: Mapping[str, Any], as_json: bool) -> None:
    """Print one thing, a line for each of its properties.

    :param described: its properties; nested ones are printed as JSON.
    :param as_json: as a JSON object.
    """
    if as_json:
        console.print_json(json.dumps(described, default=str))
        return
    shown = Table.grid(Column(), Column(overflow="fold"), padding=(0, 2))
    for name, value in described.items():
        shown.add_row(f"[bold]{name}[/]", _text(value))
    console.print(shown)


def _text(value: Any) -> str:
    if isinstance(value, Mapping) or (isinstance(value, list) and value and isinstance(value[0], Mapping)):
        return json.dumps(value, indent=2, default=str)
    if isinstance(value, tuple | list | set | frozenset):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)

"""``table-services``: a table's timeline and writers, for people on call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from airflow_provider.concurrency import pending_instants, rollback, rollback_dead_writers
from airflow_provider.exceptions import TableServiceError
from airflow_provider.locks import open_lock
from airflow_provider.table import HudiTable

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
console = Console()

Location = Annotated[str, typer.Argument(help="Absolute path or URL of the table.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one document.")]


@app.command()
def timeline(location: Location, as_json: AsJson = False, last: int = 20) -> None:
    """Instants of the active timeline, the newest last."""
    table = HudiTable.open(location)
    rows = [
        {
            "requested": instant.requested_time,
            "completed": instant.completion_time,
            "action": str(instant.action),
            "state": str(instant.state),
        }
        for instant in table.timeline().instants[-last:]
    ]
    _show(rows, as_json)


@app.command()
def files(location: Location, as_json: AsJson = False, as_of: str | None = None) -> None:
    """File groups that a reader sees, with the base file of their newest slice."""
    view = HudiTable.open(location).view(as_of)
    rows = [
        {
            "partition": f.partition_path,
            "file_id": f.file_id,
            "instant": f.instant,
            "bytes": f.size,
            "path": f.path,
        }
        for f in view.all_base_files()
    ]
    _show(rows, as_json)


@app.command()
def heartbeats(location: Location, as_json: AsJson = False) -> None:
    """Writes that have not ended, and whether their writers live."""
    _show([asdict(pending) for pending in pending_instants(HudiTable.open(location))], as_json)


@app.command()
def locks(location: Location, as_json: AsJson = False) -> None:
    """Who holds the table's filesystem lock."""
    table = HudiTable.open(location)
    holder = open_lock({"provider": "filesystem"}, table.storage).holder()
    _show([asdict(holder)] if holder else [], as_json)


@app.command("rollback")
def roll_back(
    location: Location,
    instant: Annotated[
        str | None, typer.Argument(help="A pending instant; all dead writers when left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Roll back a pending instant, or every writer whose heartbeat has expired."""
    table = HudiTable.open(location)
    if instant is None:
        rolled_back: Sequence[str] = rollback_dead_writers(table)
    else:
        rollback(table, instant, reason="asked for on the command line")
        rolled_back = [instant]
    _show([{"rolled_back": each} for each in rolled_back], as_json)


def main() -> None:
    """Run the command line; an error of ours is a message, not a traceback."""
    try:
        app()
    except TableServiceError as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/]: {error}")
        raise SystemExit(1) from None


def _show(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        console.print_json(json.dumps(rows, default=str))
        return
    if not rows:
        console.print("nothing")
        return
    shown = Table(*rows[0])
    for row in rows:
        shown.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(shown)

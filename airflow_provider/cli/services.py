"""Commands that run table services, as the operators do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_provider.cli.arguments import AsJson, TableArgument
from airflow_provider.cli.output import show
from airflow_provider.concurrency import rollback as roll_back
from airflow_provider.concurrency import rollback_dead_writers


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (rollback,):
        app.command()(command)


def rollback(
    table: TableArgument,
    instant: Annotated[
        str | None, typer.Argument(help="A pending instant; all dead writers when left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Roll back a pending instant, or every writer whose heartbeat has expired."""
    if instant is None:
        rolled_back: Sequence[str] = rollback_dead_writers(table)
    else:
        roll_back(table, instant, reason="asked for on the command line")
        rolled_back = [instant]
    show([{"rolled_back": each} for each in rolled_back], as_json)

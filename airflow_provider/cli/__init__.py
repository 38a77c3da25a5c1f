"""``table-services``: tables, their services and the metastore, for people on call."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from airflow_provider.cli import columns, compaction, looking, metastore_contents, replication, services
from airflow_provider.cli.arguments import given_lock, given_metastore
from airflow_provider.cli.index import commands as index_commands
from airflow_provider.cli.metastore import commands as metastore_commands
from airflow_provider.exceptions import TableServiceError

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def given(
    metastore: Annotated[
        str | None,
        typer.Option(
            help="The metastore that knows tables by name: SQLAlchemy URL, or thrift://host:port.",
            envvar="TABLE_SERVICES_METASTORE_DB",
            show_envvar=True,
        ),
    ] = None,
    lock: Annotated[
        str | None,
        typer.Option(
            help="The table's lock, as in the extra of its table_lock connection: a JSON object.",
            envvar="TABLE_SERVICES_LOCK",
            show_envvar=True,
        ),
    ] = None,
) -> None:
    """Tables, their services and the metastore, for people on call."""
    given_metastore.set(metastore)
    given_lock.set(lock)


looking.register(app)
services.register(app)
compaction.register(app)
columns.register(app)
replication.register(app)
metastore_contents.register(metastore_commands)
app.add_typer(index_commands, name="index")
app.add_typer(metastore_commands, name="metastore")


def main() -> None:
    """Run the command line; an error of ours is a message, not a traceback."""
    try:
        app()
    except TableServiceError as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/]: {error}")
        raise SystemExit(1) from None

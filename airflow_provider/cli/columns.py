"""The command that changes a table's columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from airflow_provider.cli.arguments import (
    AsJson,
    TableArgument,
    opened_table,
    registered_name,
    table_lock,
    table_metastore,
)
from airflow_provider.cli.output import show_one

_Pairs = list[str] | None


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(alter)


def alter(
    name: TableArgument,
    add: Annotated[_Pairs, typer.Option(metavar="COLUMN=TYPE", help="A new column; may be repeated.")] = None,
    widen: Annotated[
        _Pairs, typer.Option(metavar="COLUMN=TYPE", help="A column's new type; may be repeated.")
    ] = None,
    rename: Annotated[
        _Pairs, typer.Option(metavar="COLUMN=NAME", help="A column's new name; may be repeated.")
    ] = None,
    comment: Annotated[
        _Pairs, typer.Option(metavar="COLUMN=TEXT", help="A remark on a column; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a table's columns, as one commit; name nested columns by their path, as in address.street.

    If the table is given by its name, the command also changes the metastore's columns.
    """
    from airflow_provider.services.alter_table import Alteration, alter_table
    from airflow_provider.services.metastore_columns import follow_columns

    table = opened_table(name)
    alteration = Alteration(
        _pairs(add, "--add"),
        _pairs(widen, "--widen"),
        _pairs(rename, "--rename"),
        _pairs(comment, "--comment"),
    )
    result = alter_table(table, alteration, lock=table_lock(table))
    with table_metastore() as metastore:
        registered = registered_name()
        if metastore is not None and registered is not None:
            follow_columns(metastore, *registered, table)
    show_one(result, as_json)


def _pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given or ():
        column, equals, text = each.partition("=")
        if not equals or column.strip() in found:
            raise typer.BadParameter(f"{column!r} must be given once, as COLUMN=...", param_hint=option)
        found[column.strip()] = text.strip()
    return found

"""Commands that list the content of a metastore, and change nothing: ``table-services metastore``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider.cli.arguments import AsJson
from airflow_provider.cli.metastore import MetastoreDatabase, opened_metastore
from airflow_provider.cli.output import show, show_one

if TYPE_CHECKING:
    from airflow_provider.metastore.model import NotificationEvent


def register(commands: typer.Typer) -> None:
    """Add the commands of this module."""
    commands.command()(tables)
    commands.command()(transactions)
    commands.command("write-ids")(write_ids)
    commands.command()(events)


def tables(
    db: MetastoreDatabase,
    database: Annotated[str | None, typer.Option(help="Only its tables.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the tables with their locations."""
    with opened_metastore(db) as metastore:
        databases = metastore.list_databases() if database is None else [database]
        named = [(each, name) for each in databases for name in metastore.list_tables(each)]
        found = [metastore.get_table(each, name) for each, name in named]
    show([{"table": f"{each.database}.{each.name}", "location": each.location} for each in found], as_json)


def transactions(db: MetastoreDatabase, as_json: AsJson = False) -> None:
    """List the open transactions, with owner, age and the tables that each writes."""
    from airflow_provider.reports import name_of, report_metastore

    with opened_metastore(db) as metastore:
        told = report_metastore(metastore)
    rows = [
        {
            "txn_id": each["txn_id"],
            "who": name_of(each["who"]) or f"{each['user']} on {each['host']}",
            "open_seconds": round(each["age_seconds"]),
            "silent_seconds": round(each["silent_seconds"]),
            "writes": [f"{write['table']} {write['write_id']}" for write in each["writes"]],
        }
        for each in told["transactions"]
    ]
    show(rows, as_json)
    if told["more_transactions"] and not as_json:
        typer.echo(f"and {told['more_transactions']} more")


def write_ids(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="database.table.", show_default=False)],
    db: MetastoreDatabase,
    as_json: AsJson = False,
) -> None:
    """Show the write ids of a table that a reader sees, and the transactions of the open ones."""
    from airflow_provider.metastore.model import split_table_name
    from airflow_provider.reports import name_of, report_write_ids

    with opened_metastore(db) as metastore:
        told = report_write_ids(metastore, *split_table_name(table))
    if as_json or not told["open"]:
        show_one(told, as_json)
        return
    show_one({"high_watermark": told["high_watermark"], "aborted": told["aborted"]}, as_json)
    show(
        [
            {"open": each["write_id"], "txn_id": each["txn_id"], "who": name_of(each["who"])}
            for each in told["open"]
        ],
        as_json,
    )


def events(
    db: MetastoreDatabase,
    last: Annotated[int, typer.Option(help="So many of the newest.")] = 20,
    table: Annotated[str | None, typer.Option(help="Only those of database.table.")] = None,
    event_type: Annotated[
        list[str] | None, typer.Option("--type", help="Only these, such as INSERT; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the newest events of the notification log, oldest first; --json has their messages too."""
    from airflow_provider.metastore.model import split_table_name
    from airflow_provider.reports import newest_events

    database, name = split_table_name(table) if table else (None, None)
    with opened_metastore(db) as metastore:
        found = newest_events(metastore, last, event_types=event_type, database=database, table=name)
    show([_described(each, with_message=as_json) for each in found], as_json)


def _described(event: NotificationEvent, *, with_message: bool) -> dict[str, Any]:
    at = datetime.fromtimestamp(event.event_time, UTC).isoformat(timespec="seconds")
    about = None if event.table is None else f"{event.database}.{event.table}"
    told: dict[str, Any] = {
        "event_id": event.event_id,
        "at": at,
        "type": str(event.event_type),
        "of": about or event.database,
    }
    if with_message:
        return {**told, "message": event.message}
    return {**told, "txn_id": event.message.get("txnid")}

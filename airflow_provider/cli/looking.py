"""Commands that show a table and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider.cli.arguments import AsJson, TableArgument, lock_config, opened_table, table_lock
from airflow_provider.cli.output import show, show_grouped, show_one

if TYPE_CHECKING:
    from airflow_provider.table.file_groups import FileSlice


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (timeline, show_, files, explain_, heartbeats, locks):
        app.command(command.__name__.rstrip("_"))(command)


def timeline(name: TableArgument, as_json: AsJson = False, last: int = 20) -> None:
    """Show the instants of the active timeline with their owners, and undone instants; the newest last."""
    from airflow_provider.reports import TableHistory, name_of, report_timeline

    rows = [
        {
            "requested": bar["instant"],
            "completed": bar["completed"],
            "action": bar["action"],
            "state": bar["state"],
            "priority": bar["priority"],
            "who": name_of(bar["who"]),
        }
        for bar in report_timeline(TableHistory(opened_table(name)), last, with_rows=False)
    ]
    show_grouped(rows, "who", as_json, nothing="(unknown)", titled=True)


def show_(
    name: TableArgument,
    instant: Annotated[
        str | None, typer.Argument(help="Requested time of an instant: its plan or its metadata.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a table, or the work of one instant."""
    from airflow_provider.concurrency.instant_report import describe_instant, describe_table

    table = opened_table(name)
    show_one(describe_table(table) if instant is None else describe_instant(table, instant), as_json)


def files(name: TableArgument, as_json: AsJson = False, as_of: str | None = None) -> None:
    """Show the file groups that a reader sees, with the files of their newest slice."""
    from airflow_provider.table.file_groups import looking_again
    from airflow_provider.table.reading import file_slices

    table = opened_table(name)
    base_files = looking_again(lambda: table.view(as_of).all_base_files())()
    if table.config.table_type == "MERGE_ON_READ":
        sizes = {each.path: each.size for each in base_files}
        _show_files([_described(each, sizes) for each in file_slices(table, as_of)], as_json)
        return
    rows = [
        {
            "partition": f.partition_path,
            "file_id": f.file_id,
            "instant": f.instant,
            "bytes": f.size,
            "path": f.path,
        }
        for f in base_files
    ]
    _show_files(rows, as_json)


def _show_files(rows: list[dict[str, Any]], as_json: bool) -> None:
    if not as_json:  # the path contains partition, file group and instant, too
        rows = [
            {"partition": each["partition"], "bytes": each["bytes"], "instant": each["instant"]}
            | {"file_id": each["file_id"]}
            | ({"log_files": f"+ {len(each['log_files'])} log files"} if each.get("log_files") else {})
            for each in rows
        ]
    show_grouped(rows, "partition", as_json)


def _described(file_slice: FileSlice, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "partition": file_slice.partition_path,
        "file_id": file_slice.file_id,
        "instant": file_slice.base_instant,
        "bytes": sizes.get(file_slice.base_path or ""),
        "path": file_slice.base_path,
        "log_files": list(file_slice.log_paths),
    }


def explain_(
    name: TableArgument,
    where: Annotated[
        list[str] | None,
        typer.Option(help="What a query asks: 'delay > 300'; may be repeated, then all must be true."),
    ] = None,
    as_of: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Show which indexes a query can use, and how many files it has to open."""
    from airflow_provider.table.reading import explain
    from airflow_provider.table.skipping import parse_filter

    explained = explain(opened_table(name), [parse_filter(each) for each in where] if where else None, as_of)
    if as_json:
        show_one(explained, as_json)
        return
    steps, indexes = explained.pop("steps"), explained.pop("indexes")
    explained["where"] = " and ".join(where or ())
    show_one({**explained, "indexes": [f"{index}: {state}" for index, state in indexes.items()]}, as_json)
    if steps:
        show(steps, as_json)


def heartbeats(name: TableArgument, as_json: AsJson = False) -> None:
    """Show the writes that have not ended, and whether their writers are alive."""
    from airflow_provider.reports import report_pending

    told = ("instant", "operation", "phase", "alive", "age_seconds", "priority", "owner", "operation_key")
    show([{word: each[word] for word in told} for each in report_pending(opened_table(name))], as_json)


def locks(name: TableArgument, as_json: AsJson = False) -> None:
    """Show who holds the table's lock, and who waits for it."""
    from airflow_provider.reports import report_locks

    table = opened_table(name)
    provider = lock_config(table).get("provider", "filesystem")
    told = ("state", "owner", "fencing_token", "age_seconds", "seconds_left")
    found = report_locks(table_lock(table))
    show([{"lock": provider, **{word: each[word] for word in told}} for each in found], as_json)

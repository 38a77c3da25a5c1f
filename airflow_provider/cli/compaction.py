"""The command that compacts a table and its metadata table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from airflow_provider.cli.arguments import (
    AsJson,
    DryRun,
    TableArgument,
    effective_options,
    opened_table,
    table_lock,
)
from airflow_provider.cli.output import show, show_one, telling_progress

if TYPE_CHECKING:
    from airflow_provider.services.table_compaction import TableCompactionSettings
    from airflow_provider.table import HudiTable

TriggerName = Literal[
    "NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(telling_progress(compact))


def compact(
    name: TableArgument,
    instant: Annotated[
        str | None, typer.Argument(help="With --run: the plan; the oldest one when left out.")
    ] = None,
    max_delta_commits: Annotated[
        int | None, typer.Option(help="Commits since the last one; the table's property when left out.")
    ] = None,
    trigger: Annotated[
        TriggerName | None,
        typer.Option(help="When one of the table itself is due; the table's when left out."),
    ] = None,
    delta_commits: Annotated[
        int | None,
        typer.Option(help="Commits since the last one of the table itself; the table's when left out."),
    ] = None,
    delta_seconds: Annotated[
        float | None,
        typer.Option(help="Seconds since the last one of the table itself; the table's when left out."),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="Hudi's class that chooses the file groups; the table's when left out."),
    ] = None,
    min_log_files: Annotated[
        int | None, typer.Option(help="Leave out file groups of the table with fewer log files.")
    ] = None,
    min_log_bytes: Annotated[
        int | None, typer.Option(help="Leave out file groups of the table with fewer bytes of log files.")
    ] = None,
    partition: Annotated[
        list[str] | None, typer.Option(help="Pattern of partition paths of the table; may be repeated.")
    ] = None,
    max_io_bytes: Annotated[
        int | None, typer.Option(help="Most bytes that one of the table itself reads and writes.")
    ] = None,
    log_blocks: Annotated[
        int | None, typer.Option(help="Log blocks of a file group from which to make one; none if left out.")
    ] = None,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Only plan one of the table itself, for --run or an operator.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="Only execute a plan of the table itself.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Compact a merge-on-read table, and any table's metadata table: pending compactions, then due ones."""
    from airflow_provider.services import compaction
    from airflow_provider.services.compaction_plan import CompactionSettings
    from airflow_provider.services.table_compaction import (
        LogCompactionSettings,
        TableCompactionSettings,
        compact_logs,
        compact_table,
        due_log_compactions,
        due_table_compactions,
    )

    if schedule + run + dry_run > 1:
        raise typer.BadParameter("give one of --schedule, --run and --dry-run")
    if instant is not None and not run:
        raise typer.BadParameter("a plan goes with --run", param_hint="INSTANT")
    table = opened_table(name)
    settings = CompactionSettings.of(table.config, max_delta_commits=max_delta_commits)
    own = None
    if table.is_merge_on_read:
        own = TableCompactionSettings.of(
            effective_options(table),
            trigger=trigger,
            delta_commits=delta_commits,
            delta_seconds=delta_seconds,
            strategy=strategy,
            min_log_files=min_log_files,
            min_log_bytes=min_log_bytes,
            partitions=tuple(partition) if partition else None,
            max_io_bytes=max_io_bytes,
        )
    if schedule:
        show_one({"scheduled": _scheduled(table, own)}, as_json)
        return
    if run:
        show(_executed(table, instant), as_json)
        return
    logs = None if own is None or log_blocks is None else LogCompactionSettings(log_blocks)
    if dry_run:
        of_table = {} if own is None else {"of_table": due_table_compactions(table, own)}
        if logs is not None:
            of_table["of_logs"] = due_log_compactions(table, logs)
        show_one({**compaction.due_compactions(table, settings), **of_table}, as_json)
        return
    lock = table_lock(table)
    done = [] if own is None else compact_table(table, own, lock=lock, max_failures=None)
    done += [] if logs is None else compact_logs(table, logs, lock=lock)
    done += compaction.compact(table, settings, lock=lock, max_failures=None)
    show([each.to_dict() for each in done], as_json)


def _scheduled(table: HudiTable, settings: TableCompactionSettings | None) -> str | None:
    from airflow_provider.services.table_compaction import schedule_table_compaction

    return schedule_table_compaction(table, settings, lock=table_lock(table), max_failures=None)


def _executed(table: HudiTable, instant: str | None) -> list[dict[str, Any]]:
    from airflow_provider.services.table_compaction import run_table_compaction

    done = run_table_compaction(table, instant, lock=table_lock(table))
    return [] if done is None else [done.to_dict()]

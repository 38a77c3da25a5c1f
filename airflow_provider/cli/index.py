"""Commands that show, build and drop indexes."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_provider.cli.arguments import (
    AsJson,
    TableArgument,
    effective_options,
    opened_table,
    table_lock,
)
from airflow_provider.cli.output import show, telling_progress

commands = typer.Typer(no_args_is_help=True, help="The indexes of a table, in its metadata table.")

Indexes = Annotated[
    list[str] | None,
    typer.Argument(help="files, column_stats, bloom_filters, record_index, partition_stats."),
]

ToDrop = Annotated[
    list[str] | None,
    typer.Argument(
        help="The same, or any other that the table's properties name: secondary_index_..., expr_index_..."
    ),
]


@commands.command("show")
def show_indexes(name: TableArgument, as_json: AsJson = False) -> None:
    """Show the indexes of a table, and the progress of index builds."""
    from airflow_provider.indexing import index_status

    show([each.to_dict() for each in index_status(opened_table(name))], as_json)


@commands.command()
@telling_progress
def build(
    name: TableArgument,
    indexes: Indexes = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Whose statistics are kept; the first 32 when left out.")
    ] = None,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Only plan it; an operator can carry it out.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that other Hudi writers are waited for; the table's when left out."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan indexes and build them in this process.

    Without names, it builds the indexes that the table's options enable, or `files` alone.
    """
    from airflow_provider.concurrency import HeartbeatSettings
    from airflow_provider.indexing import (
        IndexRunSettings,
        index_options,
        pending_indexings,
        run_index,
        schedule_index,
    )
    from airflow_provider.table.hudi_options import Topic
    from airflow_provider.table.metadata_table import MetadataPartition

    table = opened_table(name)
    options = index_options(table, None)
    wanted = indexes or options.partitions or (MetadataPartition.FILES,)
    planned = schedule_index(table, wanted, column or None, lock=table_lock(table))
    if schedule:
        show([{"instant": planned}] if planned else [], as_json)
        return
    plans = pending_indexings(table, indexes={MetadataPartition.FILES, *wanted})
    beats = effective_options(table).arguments(
        Topic.HEARTBEAT, heartbeat_interval=None, tolerable_misses=None
    )
    settings = IndexRunSettings(
        timeout_seconds=options.check_timeout if timeout is None else timeout,
        heartbeat=HeartbeatSettings(**beats),
        max_failures=None,  # a person who builds an index by hand knows about earlier failures
    )
    done = [run_index(table, each, settings=settings, lock=table_lock(table)) for each in plans]
    show([each.to_dict() for each in done if each is not None], as_json)


@commands.command()
def drop(name: TableArgument, indexes: ToDrop = None, as_json: AsJson = False) -> None:
    """Drop indexes. With `files`, or without names, it drops the whole metadata table."""
    from airflow_provider.indexing import drop_index
    from airflow_provider.table.metadata_table import MetadataPartition

    table = opened_table(name)
    dropped = drop_index(table, indexes or [MetadataPartition.FILES], lock=table_lock(table))
    show([dropped.to_dict()] if dropped is not None else [], as_json)

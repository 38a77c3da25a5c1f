"""Commands that run table services, as the operators do.

A person who runs a service by hand knows why it failed. So the command also runs a service that has stopped
itself.

A command imports only the service that it runs, so that the other services do not delay it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from airflow_provider.cli.arguments import (
    AsJson,
    DryRun,
    TableArgument,
    effective_options,
    opened_table,
    table_lock,
    table_metastore,
)
from airflow_provider.cli.output import show, show_grouped, show_one, telling_progress

PolicyName = Literal["KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS"]
ServiceName = Literal["clustering", "cleaning", "compaction", "table-compaction", "archival", "indexing"]

Policy = Annotated[
    PolicyName | None,
    typer.Option(help="Which superseded file slices are kept; as the table's options say when left out."),
]
Retained = Annotated[
    float | None,
    typer.Option(help="Commits, slices a file group, or hours, by the policy; the table's when left out."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    short: tuple[Callable[..., None], ...] = (plan, failures, options, savepoint)
    long: tuple[Callable[..., None], ...] = (rollback, clean, archive, restore, upgrade)
    for command in (*short, *map(telling_progress, long)):
        app.command()(command)


def plan(
    name: TableArgument,
    sort_by: Annotated[
        list[str] | None,
        typer.Option(help="Column to order by; may be repeated; the table's when left out."),
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="linear, z-order or hilbert; the table's when left out.")
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of partition paths; may be repeated; the table's when left out."),
    ] = None,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Make it a plan that an operator can carry out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the clusterings that are planned or running, and what another clustering would do now."""
    from airflow_provider.services.clustering import (
        ClusteringSettings,
        clustering_progress,
        pending_clusterings,
        preview_clustering,
        schedule_clustering,
    )
    from airflow_provider.table.hudi_options import Topic

    table = opened_table(name)
    settings = ClusteringSettings(
        **effective_options(table).arguments(
            Topic.CLUSTERING,
            sort_by=tuple(sort_by) if sort_by else None,
            layout=layout,
            partitions=tuple(partition) if partition else None,
            **dict.fromkeys(("small_file_limit", "target_file_size", "max_groups", "max_group_size")),
        )
    )
    progress = clustering_progress(table)
    pending = {each: progress.get(each, "waits") for each in pending_clusterings(table)}
    found = preview_clustering(table, settings)
    groups = [
        {
            "partition": group.partition_path,
            "file_groups": len(group.slices),
            "bytes": group.size,
            "outputs": group.outputs,
        }
        for group in (found.groups if found else ())
    ]
    scheduled = None
    if schedule:
        scheduled = schedule_clustering(table, settings, lock=table_lock(table), max_failures=None)
    show_one({"pending": pending, "groups": groups, "scheduled": scheduled}, as_json)


def rollback(
    name: TableArgument,
    instant: Annotated[
        str | None, typer.Argument(help="A pending instant; all dead writers when left out.")
    ] = None,
    reverted_after: Annotated[
        float, typer.Option(help="Seconds after which the files of a rewrite that was reverted go.")
    ] = 86_400.0,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Roll back a pending instant, or every writer with an expired heartbeat; delete files that reverts left.

    If the table is given by its name, the command also ends transactions that timed out.
    """
    from airflow_provider.concurrency import rollback as roll_back
    from airflow_provider.services.failed_writes import rollback_failed_writes

    table = opened_table(name)
    if instant is None:
        with table_metastore() as metastore:
            done = rollback_failed_writes(
                table, metastore=metastore, reverted_after=reverted_after, dry_run=dry_run
            )
        show_one({**done.to_dict(), "dry_run": dry_run}, as_json)
        return
    roll_back(table, instant, reason="asked for on the command line", dry_run=dry_run)
    show_one({"rolled_back": [instant], "dry_run": dry_run}, as_json)


def clean(
    name: TableArgument,
    policy: Policy = None,
    retained: Retained = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete the files that no reader and no writer needs."""
    from airflow_provider.services import cleaning
    from airflow_provider.table.hudi_options import Topic

    table = opened_table(name)
    chosen = cleaning.CleaningPolicy(policy) if policy else None
    retention = cleaning.Retention(
        **effective_options(table).arguments(Topic.CLEANING, policy=chosen, retained=retained)
    )
    if dry_run:
        _show_clean_plan(cleaning.plan_clean(table, retention).to_dict(), as_json)
    else:
        done = cleaning.clean(table, retention, lock=table_lock(table), max_failures=None)
        show([each.to_dict() for each in done], as_json)


def _show_clean_plan(planned: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_one(planned, as_json)
        return
    paths = [(*each["path"].rpartition("/"), each) for each in planned["files"]]
    rows = [
        {"of": f"{folder or '(no partition)'}: {each['why']}", "bytes": each["bytes"], "file": name}
        for folder, _, name, each in paths
    ]
    show_one({**planned, "files": len(rows)}, as_json)
    if rows:
        show_grouped(rows, "of", as_json)


def archive(name: TableArgument, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Move the oldest instants into the archived timeline, and trim the commit log."""
    from airflow_provider.services import archival

    table = opened_table(name)
    if dry_run:
        done = archival.plan_archival(table)
    else:
        done = archival.archive(table, lock=table_lock(table), max_failures=None)
    show_one(done.to_dict(), as_json)


def failures(
    name: TableArgument,
    clear: Annotated[
        ServiceName | None,
        typer.Option(help="Let this service go on, as if it had not failed."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the services that have failed in a row, and may have stopped themselves."""
    from airflow_provider.concurrency import plans

    table = opened_table(name)
    if clear is not None:
        plans.clear_failures(table, plans.Service(clear))
    found = ((service, failure) for service in plans.Service for failure in plans.failures(table, service))
    show([{"service": str(service), **asdict(failure)} for service, failure in found], as_json)


def options(
    name: TableArgument,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change an option; may be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Let the default hold again; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or change the Hudi options of a table, which apply to all its writers and services."""
    from airflow_provider.services import table_options

    table = opened_table(name)
    given: dict[str, str] = {}
    for each in set_ or ():
        key, equals, value = each.partition("=")
        if not equals or key.strip() in given:
            raise typer.BadParameter(f"{key!r} must be given once, as KEY=VALUE", param_hint="--set")
        given[key.strip()] = value
    if given or unset:
        table = table_options.change_options(table, given, unset=unset or (), lock=table_lock(table))
    rows = table_options.describe_options(table)
    if not as_json:  # a value may be long, and comes last
        rows = [{word: each[word] for word in ("topic", "option", "from", "value")} for each in rows]
    show_grouped(rows, "topic", as_json)


def savepoint(
    name: TableArgument,
    instant: Annotated[
        str | None, typer.Argument(help="Requested time of a commit; the newest when left out.")
    ] = None,
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    delete: Annotated[
        bool, typer.Option("--delete", help="Let the commit's files be cleaned again.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Only tell which there are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep the snapshot of a commit, so that the table can be restored to it."""
    from airflow_provider.services import savepoint as savepointing

    table = opened_table(name)
    if delete and instant is None:
        raise typer.BadParameter("say which savepoint to delete", param_hint="INSTANT")
    if delete and instant is not None:
        savepointing.delete_savepoint(table, instant)
    elif not list_:
        savepointing.create_savepoint(table, instant, comments=comment, lock=table_lock(table))
    show([each.to_dict() for each in savepointing.savepoints(table)], as_json)


def restore(
    name: TableArgument,
    to: Annotated[str, typer.Argument(help="Requested time of a commit, or of its savepoint.")],
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore the table to a commit; all later commits are gone for good."""
    from airflow_provider.services import restore as restoring

    table = opened_table(name)
    planned = restoring.plan_restore(table, to).to_dict()
    if dry_run:
        show_one(planned, as_json)
        return
    if not yes:
        typer.confirm(
            f"Undo {len(planned['undone'])} commits and delete {planned['files']} files?", abort=True
        )
    show_one(restoring.restore(table, to, lock=table_lock(table)).to_dict(), as_json)


def upgrade(
    name: TableArgument,
    down: Annotated[bool, typer.Option("--down", help="From version 9 to 8 instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upgrade a copy-on-write table of version 6 or 8 to version 9, and drop its indexes."""
    from airflow_provider.services import upgrade as versions

    table = opened_table(name)
    change = versions.downgrade if down else versions.upgrade
    show_one(change(table.location, lock=table_lock(table)).to_dict(), as_json)

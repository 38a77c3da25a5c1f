"""Commands of replications: ``table-services replicate``, ``table-services replication``."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_provider.cli.arguments import AsJson
from airflow_provider.cli.output import show, show_one
from airflow_provider.exceptions import InvalidInputError

if TYPE_CHECKING:
    from airflow_provider.metastore import AnyMetastore
    from airflow_provider.replication import ReplicationPolicy

commands = typer.Typer(no_args_is_help=True, help="Replications into a metastore.")

Source = Annotated[
    str,
    typer.Option(
        help="SQLAlchemy URL of the source's metastore, or thrift:// of a server of it.",
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Option(
        help="SQLAlchemy URL of the target's metastore, or thrift:// of a server of it.",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Option(help="Name of the replication.", show_default=False)]
Databases = Annotated[
    list[str],
    typer.Option("--database", help="source=target; may be given several times.", show_default=False),
]
Locations = Annotated[
    list[str],
    typer.Option(
        "--location",
        help="source=target, folders or URLs that hold the tables; may be given several times.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(replicate)
    app.command()(failover)
    app.add_typer(commands, name="replication")


def replicate(
    policy: Name,
    source: Source,
    target: Target,
    database: Databases,
    location: Locations,
    follow: Annotated[
        float | None, typer.Option(help="Go on for so many seconds; one pass when left out.")
    ] = None,
    poll: Annotated[float, typer.Option(help="Seconds between two looks at the log, with --follow.")] = 1.0,
    bootstrap: Annotated[
        bool, typer.Option(help="Bring the source's state over again; what is the same is not copied.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Files that are copied at once.")] = 8,
    megabytes_per_second: Annotated[float | None, typer.Option(help="Copy no faster than this.")] = None,
    checksum: Annotated[bool, typer.Option(help="Compare contents after the copy, besides sizes.")] = True,
    lease: Annotated[
        float, typer.Option(help="Seconds for which the next replicator waits after the death of this one.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Copy databases of one metastore into another one, with their tables' data, under the same ids."""
    from airflow_provider.replication import CopySettings, ReplicationSettings, Replicator

    if not as_json:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    rate = None if megabytes_per_second is None else megabytes_per_second * 1e6
    settings = ReplicationSettings(CopySettings(threads, checksum, rate), lease_seconds=lease)
    given = _policy(policy, database, location)
    with ExitStack() as opened:
        metastores = _open(source, opened), _open(target, opened)
        replicator = Replicator(given, *metastores, settings=settings)
        done = replicator.run(bootstrap=bootstrap)
        if follow is not None:
            done = done.then(replicator.follow(follow, poll_seconds=poll))
    show_one(asdict(done), as_json)


def failover(
    policy: Name,
    source: Source,
    target: Target,
    database: Databases,
    location: Locations,
    wait: Annotated[
        float, typer.Option(help="Seconds that open transactions of the source may take to end.")
    ] = 600.0,
    abort_open: Annotated[
        bool, typer.Option(help="Abort and undo those that have not ended then; else it is an error.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Let the source's writers go on after a failover that was begun.")
    ] = False,
    promote: Annotated[
        bool,
        typer.Option(
            "--promote", help="The source is gone: the target takes writes from its last transaction on."
        ),
    ] = False,
    source_is_there: Annotated[
        bool, typer.Option(help="With --promote: ask the source's metastore what the target lacks.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="After --promote: the old source follows; what it alone has is kept."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the target of a replication the source, and the old source its target."""
    from airflow_provider import replication

    if abort + promote + follow > 1:
        raise InvalidInputError("give one of --abort, --promote and --follow, or none for a planned failover")
    given = _policy(policy, database, location)
    with ExitStack() as opened:
        other = _open(target, opened)
        one = _open(source, opened) if source_is_there or not promote else None
        if promote:
            show_one(replication.promote(given, other, source=one).to_dict(), as_json)
        elif one is not None and abort:
            replication.abort_failover(given, one, other)
            show_one({"policy": policy, "aborted": True}, as_json)
        elif one is not None and follow:
            kept = replication.follow_after_promotion(given, one, other)
            show([each.to_dict() for each in kept], as_json)
        elif one is not None:
            done = replication.failover(given, one, other, timeout_seconds=wait, abort_open=abort_open)
            show_one(done.to_dict(), as_json)


@commands.command()
def status(
    target: Target,
    source: Annotated[str | None, typer.Option(help="URL of the source's metastore, for the lag.")] = None,
    policy: Annotated[str | None, typer.Option(help="Only this replication.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the replications into a metastore: lag in events, transactions and seconds, last error."""
    from airflow_provider.replication import is_source_of, replication_lag, replications

    with ExitStack() as opened:
        other = _open(target, opened)
        found = [each for each in replications(other) if policy in (None, each.policy)]
        if source is None:
            show([asdict(each) for each in found], as_json)
            return
        one = _open(source, opened)
        followed = [each.policy for each in found if is_source_of(each.policy, one, other)]
        told = [replication_lag(policy, one, other) for policy in followed]
    show([each.to_dict() for each in told], as_json)


@commands.command()
def end(
    policy: Name,
    target: Target,
    source: Annotated[
        str | None,
        typer.Option(help="URL of the source's metastore, whose log and tables wait no longer then."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """End a replication for good; its target takes writes from its last whole transaction on."""
    from airflow_provider.replication import end_replication

    with ExitStack() as opened:
        one = None if source is None else _open(source, opened)
        show_one(end_replication(policy, _open(target, opened), source=one).to_dict(), as_json)


def _policy(name: str, databases: list[str], locations: list[str]) -> ReplicationPolicy:
    from airflow_provider.replication import ReplicationPolicy

    return ReplicationPolicy(name, _pairs(databases, "--database"), _pairs(locations, "--location"))


def _pairs(given: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for each in given:
        source, equals, target = each.partition("=")
        if not (source and equals and target):
            raise InvalidInputError(f"{option} {each!r} is not of the form source=target")
        pairs[source] = target
    return pairs


def _open(url: str, opened: ExitStack) -> AnyMetastore:
    from airflow_provider.metastore import open_metastore

    metastore = open_metastore(url)
    opened.callback(metastore.close)
    return metastore

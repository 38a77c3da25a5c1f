"""Commands of the metastore: ``table-services metastore``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_provider.cli.arguments import AsJson
from airflow_provider.cli.output import show

if TYPE_CHECKING:
    from airflow_provider.metastore import Metastore

commands = typer.Typer(no_args_is_help=True, help="The metastore as a service.")

MetastoreDatabase = Annotated[
    str,
    typer.Option(
        help="SQLAlchemy URL of the metastore's database.",
        envvar="TABLE_SERVICES_METASTORE_DB",
        show_default=False,
        show_envvar=True,
    ),
]


@commands.command()
def serve(
    db: MetastoreDatabase,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 9083,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    processes: Annotated[int, typer.Option(help="Processes that listen on the port.")] = 1,
    replica: Annotated[
        str | None, typer.Option(help="Answer reads from memory, as the replica of this name.")
    ] = None,
    cache_megabytes: Annotated[float, typer.Option(help="Memory of a replica, roughly.")] = 256.0,
    require_write_ids: Annotated[
        bool, typer.Option(help="Refuse get_table_req and the like for managed tables without write ids.")
    ] = False,
    eventual_reads: Annotated[
        bool,
        typer.Option(
            help="Answer for external tables from memory although requests name no write ids: a moment late. "
            "Not where Iceberg tables are written."
        ),
    ] = False,
    eventual_databases: Annotated[
        bool, typer.Option(help="Answer for databases and functions from memory alone: a moment late.")
    ] = False,
    clients_have_hudi: Annotated[
        bool,
        typer.Option(
            " /--clients-without-hudi",
            help="Describe Hudi tables as Hive tables: clients without Hudi's bundle can list them, "
            "not read them.",
        ),
    ] = True,
    warehouse: Annotated[
        str | None, typer.Option(help="Folder or URL for databases without a location of their own.")
    ] = None,
    manage_folders: Annotated[
        bool,
        typer.Option(help="Make folders of databases and tables; move and DELETE those of managed tables."),
    ] = False,
    managed_location: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder or URL outside of the warehouse below which --manage-folders moves and deletes, too."
        ),
    ] = None,
    txn_timeout: Annotated[
        float, typer.Option(help="Seconds without heartbeat after which transactions and locks end.")
    ] = 300.0,
    event_ttl: Annotated[float, typer.Option(help="Seconds that notification events are kept.")] = 86_400.0,
    housekeeping_interval: Annotated[float, typer.Option(help="Seconds between two clean-ups.")] = 60.0,
    tls_certificate: Annotated[str | None, typer.Option(help="File; TLS is on with it.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="File with the certificate's key.")] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(help="File; clients need a certificate that it signed.")
    ] = None,
    users: Annotated[str | None, typer.Option(help="File of users, for SASL PLAIN.")] = None,
    max_message_bytes: Annotated[int, typer.Option(help="Largest request.")] = 100_000_000,
    max_elements: Annotated[
        int, typer.Option(help="Most elements in all lists and maps of a request.")
    ] = 2_000_000,
    max_write_ids: Annotated[
        int, typer.Option(help="Longest list of write ids or transactions.")
    ] = 1_000_000,
    max_txn_range: Annotated[int, typer.Option(help="Most transactions of one range heartbeat.")] = 100_000,
    max_connections: Annotated[int, typer.Option(help="Most connections of a process.")] = 1_000,
    idle_timeout: Annotated[
        int, typer.Option(help="Seconds without a request after which a connection is closed.")
    ] = 86_400,
    database_outage: Annotated[
        float, typer.Option(help="Seconds that requests wait for a PostgreSQL that is away.")
    ] = 10.0,
    message_format: Annotated[
        str, typer.Option(help="Of messages of the notification log: json-0.2 or gzip(json-2.0).")
    ] = "json-0.2",
) -> None:
    """Serve a metastore by Hive's Thrift protocol until SIGTERM."""
    # Imported here: the other commands need no database and no Thrift.
    from airflow_provider.concurrency.transactions.recovery import recover_transactions
    from airflow_provider.metastore.thrift.server.limits import ServerLimits
    from airflow_provider.metastore.thrift.server.serve import ServiceOptions
    from airflow_provider.metastore.thrift.server.serve import serve as serve_metastore

    options = ServiceOptions(
        db,
        host=host,
        port=port,
        processes=processes,
        replica=replica,
        cache_megabytes=cache_megabytes,
        require_write_ids=require_write_ids,
        eventual_reads=eventual_reads,
        eventual_databases=eventual_databases,
        clients_have_hudi=clients_have_hudi,
        warehouse=warehouse,
        manages_folders=manage_folders,
        managed_locations=tuple(managed_location or ()),
        txn_timeout=txn_timeout,
        event_ttl=event_ttl,
        housekeeping_interval=housekeeping_interval,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        users=users,
        message_format=message_format,
        database_outage=database_outage,
        limits=ServerLimits(
            max_message_bytes, max_elements, max_write_ids, max_txn_range, max_connections, idle_timeout
        ),
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    recover = partial(recover_transactions, sees_all_tables=False)
    serve_metastore(options, ready=lambda line: typer.echo(line), recover=recover)


@commands.command()
def user(
    name: Annotated[str, typer.Argument(help="The user's name.")],
    password: Annotated[str, typer.Option(prompt=True, hide_input=True, confirmation_prompt=True)],
) -> None:
    """Print a line for the file of users."""
    from airflow_provider.metastore.thrift.protocol.sasl import password_digest

    typer.echo(f"{name}:{password_digest(password)}")


@commands.command()
def consumers(db: MetastoreDatabase, as_json: AsJson = False) -> None:
    """Show the consumers of the notification log, their positions, and for which ones retention waits."""
    # Imported here: the other commands need no database.
    from airflow_provider.reports import report_consumers

    with opened_metastore(db) as opened:
        show(report_consumers(opened), as_json)


@commands.command()
def forget(
    consumer: Annotated[str, typer.Argument(help="The consumer's name.", show_default=False)],
    db: MetastoreDatabase,
    as_json: AsJson = False,
) -> None:
    """Unregister a consumer of the notification log, so that retention no longer waits for it."""
    with opened_metastore(db) as opened:
        opened.unregister_consumer(consumer)
    show([{"forgotten": consumer}], as_json)


@commands.command()
def purge(
    db: MetastoreDatabase,
    event_ttl: Annotated[float, typer.Option(help="Seconds that events are kept at least.")] = 86_400.0,
    as_json: AsJson = False,
) -> None:
    """Remove old notification events that every live consumer has read."""
    with opened_metastore(db) as opened:
        purged = opened.purge_events(event_ttl)
    show([asdict(purged)], as_json)


@contextmanager
def opened_metastore(db: str) -> Iterator[Metastore]:
    """The metastore in a database, as long as a command needs it."""
    # Imported here: the other commands need no database.
    from airflow_provider.metastore.api import open_embedded_metastore

    opened = open_embedded_metastore(db, must_exist=True)
    try:
        yield opened
    finally:
        opened.close()

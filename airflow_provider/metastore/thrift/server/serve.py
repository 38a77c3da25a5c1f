"""A metastore as a service: one or several processes on one port, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Semaphore

from airflow_provider.exceptions import InvalidInputError, MetastoreError
from airflow_provider.metastore.api import (
    EVENT_TTL_SECONDS,
    Housekeeper,
    Metastore,
    Recover,
    open_embedded_metastore,
)
from airflow_provider.metastore.cache import CachedStore, open_cached_store
from airflow_provider.metastore.database import mask_url, parse_url
from airflow_provider.metastore.model import LOCK_TIMEOUT_SECONDS, MESSAGE_FORMAT
from airflow_provider.metastore.thrift.protocol import TableStructs
from airflow_provider.metastore.thrift.server.handlers import (
    CatalogHandler,
    ConstraintHandler,
    EmptyAnswers,
    NotificationHandler,
    PartitionHandler,
    PartitionReadHandler,
    PrivilegeHandler,
    StatisticsHandler,
    TransactionHandler,
)
from airflow_provider.metastore.thrift.server.limits import ServerLimits
from airflow_provider.metastore.thrift.server.processor import MetastoreProcessor
from airflow_provider.metastore.thrift.server.reads import CatalogReads
from airflow_provider.metastore.thrift.server.server import MetastoreServer, wait_for_free_port
from airflow_provider.metastore.thrift.server.warehouse import Warehouse
from airflow_provider.metastore.thrift.url import DEFAULT_PORT, is_loopback

log = logging.getLogger(__name__)

# Each process is a fork of one that has imported this module, so that the imports are done once.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])
# The answers' part of a replica's memory. Answers take about half as much memory as their tables.
_OF_ANSWERS = 0.25
_LOOK_SECONDS = 0.2
# The time until a server that waits for connections notices its stop.
_STOP_SECONDS = 0.05
# The processes of a killed service end within _LOOK_SECONDS, and free the port.
_FREE_SECONDS = 5.0


@dataclass(frozen=True)
class ServiceOptions:
    """The options of a metastore service.

    :param url: the database; see :func:`~airflow_provider.metastore.api.open_embedded_metastore`.
    :param host: the address to listen on; the default is for this machine only.
    :param port: the port, 0 for any that is free.
    :param processes: the number of processes that listen on it.
    :param replica: the name of the replica that answers reads; None to read from the database. With several
        processes each is a replica of its own, and its name ends in ``-1``, ``-2`` ...
    :param cache_megabytes: memory of a replica: three quarters for its copies, see
        :func:`~airflow_provider.metastore.cache.open_cached_store`, and one for encoded answers.
    :param require_write_ids: see :class:`~airflow_provider.metastore.thrift.server.CatalogReads`.
    :param eventual_reads: see ``eventual`` of the same class.
    :param eventual_databases: see the same class.
    :param clients_have_hudi: see :func:`~airflow_provider.metastore.thrift.protocol.table_struct`.
    :param warehouse: see :class:`~airflow_provider.metastore.thrift.server.Warehouse`.
    :param manages_folders: see the same class.
    :param managed_locations: see the same class.
    :param txn_timeout: transactions and locks end after so many seconds without a heartbeat.
    :param housekeeping_interval: seconds between two rounds of upkeep.
    :param event_ttl: seconds for which the log keeps notification events; None for ever.
    :param tls_certificate: file with the server's certificate; None for no TLS.
    :param tls_key: file with its key.
    :param tls_client_ca: file with the authorities that may sign clients' certificates; None to ask for
        no certificate.
    :param users: file of users, see :func:`~airflow_provider.metastore.thrift.protocol.read_users`; None
        for a service without authentication.
    :param message_format: the format of messages of the notification log: ``json-0.2``, or
        ``gzip(json-2.0)``, Hive's default.
    :param database_outage: seconds for which a request waits for a PostgreSQL that is away and cannot have
        applied it; see :meth:`~airflow_provider.metastore.database.SqlDatabase.outlast`.
    :param limits: the limits of requests and connections.
    """

    url: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    processes: int = 1
    replica: str | None = None
    cache_megabytes: float = 256.0
    require_write_ids: bool = False
    eventual_reads: bool = False
    eventual_databases: bool = False
    clients_have_hudi: bool = True
    warehouse: str | None = None
    manages_folders: bool = False
    managed_locations: tuple[str, ...] = ()
    txn_timeout: float = LOCK_TIMEOUT_SECONDS
    housekeeping_interval: float = 60.0
    event_ttl: float | None = EVENT_TTL_SECONDS
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    users: str | None = None
    message_format: str = MESSAGE_FORMAT
    database_outage: float = 10.0
    limits: ServerLimits = field(default_factory=ServerLimits)


def serve(options: ServiceOptions, ready: Callable[[str], None], *, recover: Recover | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Only a process's main thread may call it.

    :param options: the options of the service.
    :param ready: called once, with a line for people, when every process listens.
    :param recover: see :class:`~airflow_provider.metastore.api.Housekeeper`; can be pickled.
    :raises InvalidInputError: when the options cannot work.
    :raises MetastoreUnavailableError: when the database cannot be reached.
    :raises MetastoreError: when one of several processes ends by itself.
    """
    if options.processes < 1 or (options.processes > 1 and options.port == 0):
        raise InvalidInputError(
            f"{options.processes} processes on port {options.port}: give 1 or more, and several a port"
        )
    if options.users is not None and options.tls_certificate is None and not is_loopback(options.host):
        raise InvalidInputError(
            f"passwords would cross the network in clear text: give --tls-certificate for host {options.host}"
        )
    if not is_loopback(options.host) and options.users is None and options.tls_client_ca is None:
        log.warning(
            "every client that reaches %s may change everything: no client is authenticated", options.host
        )
    with _stop_signal() as stopping:
        if options.processes == 1:
            with served(options, recover=recover) as server:
                ready(_line(options, server.port))
                while not stopping.wait(_LOOK_SECONDS):  # a signal right before a wait does not end it
                    pass
        else:
            _serve_processes(options, ready, stopping, recover)


@contextmanager
def served(
    options: ServiceOptions, *, housekeeping: bool = True, recover: Recover | None = None
) -> Iterator[MetastoreServer]:
    """A context manager of a server in threads of this process, which listens already.

    :param options: the options of the service; ``processes`` has no effect.
    :param housekeeping: whether it also ends timed-out transactions and locks.
    :param recover: see :func:`serve`.
    """
    store: Metastore | CachedStore
    if options.replica is None:
        store = open_embedded_metastore(options.url)
    else:
        store = open_cached_store(
            options.url,
            options.replica,
            max_megabytes=options.cache_megabytes * (1 - _OF_ANSWERS),
            eventual_databases=options.eventual_databases,
        )
    try:
        with serving(store, options, housekeeping=housekeeping, recover=recover) as server:
            yield server
    finally:
        store.close()


@contextmanager
def serving(
    store: Metastore | CachedStore,
    options: ServiceOptions,
    *,
    housekeeping: bool = True,
    recover: Recover | None = None,
) -> Iterator[MetastoreServer]:
    """As :func:`served`, for a metastore or a replica that is open already, and stays open.

    :param options: the options of the service; those of the database and the replica have no effect.
    """
    metastore = store.metastore if isinstance(store, CachedStore) else store
    metastore.sql.outlast(options.database_outage)
    keeper = Housekeeper(
        metastore,
        recover=recover,
        interval=options.housekeeping_interval,
        timeout_seconds=options.txn_timeout,
        event_ttl=options.event_ttl,
    )
    server = _server(options, store, metastore)
    if housekeeping:
        keeper.start()
    thread = threading.Thread(
        target=server.serve_forever, args=(_STOP_SECONDS,), name="metastore-accept", daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        if housekeeping:
            keeper.stop()


def _server(options: ServiceOptions, store: Metastore | CachedStore, metastore: Metastore) -> MetastoreServer:
    reads = CatalogReads(
        store,
        require_write_ids=options.require_write_ids,
        eventual=options.eventual_reads,
        eventual_databases=options.eventual_databases,
        most_write_ids=options.limits.write_ids,
    )
    warehouse = Warehouse(
        options.warehouse,
        manages_folders=options.manages_folders,
        managed_locations=options.managed_locations,
    )
    kept = int(options.cache_megabytes * 1_000_000 * _OF_ANSWERS)
    structs = TableStructs(clients_have_hudi=options.clients_have_hudi, max_bytes=kept)
    tables = CatalogHandler(reads, structs, warehouse)
    processor = MetastoreProcessor(
        tables,
        ConstraintHandler(metastore, tables),
        PartitionReadHandler(reads, structs),
        PartitionHandler(reads, structs, warehouse),
        TransactionHandler(metastore, options.txn_timeout, options.limits),
        NotificationHandler(metastore, options.message_format, options.limits),
        StatisticsHandler(metastore),
        PrivilegeHandler(),
        EmptyAnswers(),
    )
    authenticate = None
    if options.users is not None:
        # The import needs an extra that most installations do without.
        from airflow_provider.metastore.thrift.protocol.sasl import SaslPlain, read_users

        authenticate = SaslPlain(read_users(options.users))
    return MetastoreServer(
        processor,
        options.host,
        options.port,
        tls=_tls(options),
        authenticate=authenticate,
        limits=options.limits,
        shares_port=options.processes > 1,
    )


def _tls(options: ServiceOptions) -> ssl.SSLContext | None:
    if options.tls_certificate is None:
        if options.tls_key or options.tls_client_ca:
            raise InvalidInputError("TLS needs --tls-certificate")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.tls_client_ca)
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInputError(
            f"the certificate {options.tls_certificate} with the key {options.tls_key} cannot be used: "
            f"{error.strerror or error}"
        ) from error
    if options.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _serve_processes(
    options: ServiceOptions,
    ready: Callable[[str], None],
    stopping: threading.Event,
    recover: Recover | None,
) -> None:
    # Opened before the processes start, for one migration, and one error if the database cannot be used.
    open_embedded_metastore(options.url).close()
    wait_for_free_port(options.host, options.port, _FREE_SECONDS)
    listening = _FORKS.Semaphore(0)
    children = [
        _FORKS.Process(target=_serve_child, args=(_of_process(options, number), number, listening, recover))
        for number in range(1, options.processes + 1)
    ]
    for child in children:
        child.start()
    try:
        waited_for = len(children)
        while not stopping.is_set():
            _check(children)
            if waited_for and listening.acquire(timeout=_LOOK_SECONDS):
                waited_for -= 1
                if not waited_for:
                    ready(_line(options, options.port))
            elif not waited_for:
                stopping.wait(_LOOK_SECONDS)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.join()


def _of_process(options: ServiceOptions, number: int) -> ServiceOptions:
    return replace(options, replica=options.replica and f"{options.replica}-{number}")


def _serve_child(options: ServiceOptions, number: int, listening: Semaphore, recover: Recover | None) -> None:
    parent = multiprocessing.parent_process()
    with _stop_signal() as stopping, served(options, housekeeping=number == 1, recover=recover):
        listening.release()
        # A killed parent cannot send a signal, so its child looks for it.
        while not stopping.wait(_LOOK_SECONDS) and parent is not None and parent.is_alive():
            pass


def _check(children: list[ForkServerProcess]) -> None:
    for child in children:
        if child.exitcode is not None:
            raise MetastoreError(f"a process of the metastore ended by itself, with {child.exitcode}")


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """A context manager of an event that SIGTERM and SIGINT set."""
    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _line(options: ServiceOptions, port: int) -> str:
    from_memory = f", replica {options.replica}" if options.replica else ""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"serving thrift://{host}:{port} from {mask_url(parse_url(options.url))}{from_memory}"

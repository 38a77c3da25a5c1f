"""The clients of ``benchmarks.metastore``, the same for every server; each is a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TClient
from thriftpy2.transport import TMemoryBuffer

from airflow_provider.metastore.thrift.protocol.idl import hive

PARTITIONED = "parts"

_FILTERS = 50  # different ones of each client


@dataclass(frozen=True)
class Server:
    """A metastore to be measured.

    :param name: for people.
    :param port: where it listens on the loopback interface.
    :param database: where its tables are.
    :param requests: one ``get_table`` request for each table, as bytes.
    :param partitions: of the table ``parts``, a hundred for each value of its first key.
    """

    name: str
    port: int
    database: str
    requests: tuple[bytes, ...]
    partitions: int


@dataclass(frozen=True)
class Measured:
    """What some clients saw together.

    :param rate: calls per second.
    :param p50: median of a call in milliseconds.
    :param p99: 99th percentile, as ``p50``.
    :param failed: number of calls that failed.
    :param used: milliseconds per call of what was looked at.
    """

    rate: float
    p50: float
    p99: float
    failed: int
    used: float


def encoded(method: str, **arguments: Any) -> bytes:
    """The bytes of a request."""
    sink = TMemoryBuffer()
    TClient(hive.ThriftHiveMetastore, TBinaryProtocolFactory().get_protocol(sink))._send(method, **arguments)
    return bytes(sink.getvalue())


def reads(server: Server, client: int) -> Callable[[], None]:
    """Reads one table after the other."""
    return _sent(server, server.requests, client)


def _sent(server: Server, requests: Sequence[bytes], client: int) -> Callable[[], None]:
    """Sends one request after the other, and counts the answers' bytes: each is as long as the first time.

    A client that decoded them would be what is measured.
    """
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lengths: dict[bytes, int] = {}

    def first(request: bytes) -> int:
        connection.sendall(request)
        received = connection.recv(65_536)
        connection.settimeout(0.1)
        with contextlib.suppress(TimeoutError):
            while True:
                received += connection.recv(65_536) or _closed(server)
        connection.settimeout(None)
        if b"Exception" in received[:64] or len(received) < 100:
            raise RuntimeError(f"{server.name} answered {received[:200]!r}")
        return len(received)

    for request in requests:
        lengths[request] = first(request)
    number = client

    def read() -> None:
        nonlocal number
        request = requests[number % len(requests)]
        number += 1
        connection.sendall(request)
        missing = lengths[request]
        while missing:
            missing -= len(connection.recv(missing) or _closed(server))

    return read


def _closed(server: Server) -> bytes:
    raise RuntimeError(f"{server.name} closed the connection")


def transactions(server: Server, client: int) -> Callable[[], None]:
    """Opens and commits, by one request each: our own client asks a Hive for more."""
    metastore = _connected(server)

    def transaction() -> None:
        _commit(metastore, _opened(metastore))

    return transaction


def _connected(server: Server) -> Any:
    return make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=30_000)


def _opened(metastore: Any) -> int:
    request = hive.OpenTxnRequest(num_txns=1, user="benchmark", hostname="localhost")
    return int(metastore.open_txns(request).txn_ids[0])


def _commit(metastore: Any, txn_id: int) -> None:
    metastore.commit_txn(hive.CommitTxnRequest(txnid=txn_id, exclWriteEnabled=False))


def locks(server: Server, client: int) -> Callable[[], None]:
    """Locks and unlocks."""
    metastore = _connected(server)
    component = hive.LockComponent(
        type=hive.LockType.EXCLUSIVE,
        level=hive.LockLevel.TABLE,
        dbname="default",
        tablename=f"t{client}",
        operationType=hive.DataOperationType.NO_TXN,
    )
    request = hive.LockRequest(component=[component], user="benchmark", hostname="localhost")

    def lock() -> None:
        answer = metastore.lock(request)
        if answer.state != hive.LockState.ACQUIRED:
            raise RuntimeError(f"{server.name} let the only one who asks wait: {answer}")
        metastore.unlock(hive.UnlockRequest(lockid=answer.lockid))

    return lock


def write_ids(server: Server, client: int) -> Callable[[], None]:
    """Opens, allocates a write id, commits."""
    metastore = _connected(server)

    def write_id() -> None:
        txn_id = _opened(metastore)
        metastore.allocate_table_write_ids(
            hive.AllocateTableWriteIdsRequest(dbName=server.database, tableName=f"t{client}", txnIds=[txn_id])
        )
        _commit(metastore, txn_id)

    return write_id


def one_partition(server: Server, client: int) -> Callable[[], None]:
    """Asks for one partition by a filter on both keys."""
    return _filtered(server, client, lambda day, hour: f'd = "{day}" and n = {hour}', 1)


def first_key(server: Server, client: int) -> Callable[[], None]:
    """Asks for the hundred partitions of one value of the first key."""
    return _filtered(server, client, lambda day, hour: f'd = "{day}"', 100)


def second_key(server: Server, client: int) -> Callable[[], None]:
    """Asks for the partitions of ten values of the first key and one value of the second, by a range."""

    def text(day: str, hour: int) -> str:
        return f'd >= "{day[:-1]}0" and d <= "{day[:-1]}9" and n = {hour}'

    return _filtered(server, client, text, 10)


def _filtered(
    server: Server, client: int, text: Callable[[str, int], str], expected: int
) -> Callable[[], None]:
    metastore, chance = _connected(server), random.Random(client)
    requests = []
    for _ in range(_FILTERS):
        day, hour = f"d{chance.randrange(server.partitions // 100):04d}", chance.randrange(100)
        asked = {"db_name": server.database, "tbl_name": PARTITIONED, "filter": text(day, hour)}
        found = metastore.get_partitions_by_filter(**asked, max_parts=-1)
        if len(found) != expected:
            raise RuntimeError(f"{server.name}: {len(found)} partitions by {text(day, hour)}, not {expected}")
        requests.append(encoded("get_partitions_by_filter", **asked, max_parts=-1))
    return _sent(server, list(dict.fromkeys(requests)), client)


def names(server: Server, client: int) -> Callable[[], None]:
    """Asks for the names of all partitions."""
    asked = {"db_name": server.database, "tbl_name": PARTITIONED, "max_parts": -1}
    found = _connected(server).get_partition_names(**asked)
    if len(found) != server.partitions:
        raise RuntimeError(f"{server.name}: {len(found)} names, not {server.partitions}")
    return _sent(server, [encoded("get_partition_names", **asked)], client)


WORK: dict[str, Callable[[Server, int], Callable[[], None]]] = {
    "get_table": reads,
    "transactions": transactions,
    "locks": locks,
    "write ids": write_ids,
    "one partition": one_partition,
    "100 partitions": first_key,
    "a later key": second_key,
    "all names": names,
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


def measure(
    work: str, server: Server, clients: int, seconds: float, used: Callable[[], float] = lambda: 0.0
) -> Measured:
    """Let some clients do one kind of work at the same time.

    :param used: seconds that something had used until it is called, such as a processor.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    start, told = context.Barrier(clients + 1), context.Queue()
    processes = [
        context.Process(target=client, args=(work, server, number, seconds, start, told))
        for number in range(clients)
    ]
    for process in processes:
        process.start()
    start.wait()
    before = used()
    answers = [told.get() for _ in processes]
    use = used() - before
    for process in processes:
        process.join()
    took = [one for part, _ in answers for one in part]
    if not took:
        raise RuntimeError(f"{server.name} answered none of the calls")
    p50, p99 = np.percentile(took, [50, 99]) * 1000
    failed = sum(failed for _, failed in answers)
    return Measured(len(took) / seconds, float(p50), float(p99), failed, use * 1000 / len(took))

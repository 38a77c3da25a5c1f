"""The thread of one request answers the requests of a group: in order, once, each with its own result."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TBufferedTransportFactory, TMemoryBuffer, TSocket

from airflow_provider.metastore import open_metastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.metastore.thrift.server.server import MetastoreServer

CLIENTS = 6


@pytest.fixture
def server(url: str) -> Iterator[MetastoreServer]:
    with served(ServiceOptions(url, port=0)) as opened:
        yield opened


def connected(server: MetastoreServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def request(method: str, *arguments: Any) -> bytes:
    sink = TMemoryBuffer()
    client = TClient(hive.ThriftHiveMetastore, TBinaryProtocolFactory().get_protocol(sink))
    names = [spec[1] for spec in getattr(hive.ThriftHiveMetastore, f"{method}_args").thrift_spec.values()]
    client._send(method, **dict(zip(names, arguments, strict=True)))
    return bytes(sink.getvalue())


def answers(connection: socket.socket, methods: list[str]) -> list[Any]:
    """The answers, one after the other; an error as an exception object."""
    transport = TBufferedTransportFactory().get_transport(TSocket(sock=connection))
    client = TClient(hive.ThriftHiveMetastore, TBinaryProtocolFactory().get_protocol(transport))
    found: list[Any] = []
    for method in methods:
        try:
            found.append(client._recv(method))
        except (hive.NoSuchTxnException, hive.NoSuchLockException, TApplicationException) as error:
            found.append(error)
    return found


def open_txn() -> bytes:
    return request("open_txns", hive.OpenTxnRequest(num_txns=1, user="me", hostname="here"))


def commit_txn(txn_id: int) -> bytes:
    return request("commit_txn", hive.CommitTxnRequest(txnid=txn_id))


def test_requests_sent_at_once_are_answered_in_their_order(server: MetastoreServer) -> None:
    with connected(server) as connection:
        sent = [open_txn(), commit_txn(1), commit_txn(77), request("getVersion"), open_txn(), commit_txn(2)]
        connection.sendall(b"".join(sent))
        methods = ["open_txns", "commit_txn", "commit_txn", "getVersion", "open_txns", "commit_txn"]
        first, committed, unknown, version, second, last = answers(connection, methods)
    assert (first.txn_ids, committed, version, second.txn_ids, last) == ([1], None, "4.1.0", [2], None)
    assert isinstance(unknown, hive.NoSuchTxnException)


def test_one_that_is_gone_leaves_the_others_of_its_group(server: MetastoreServer, url: str) -> None:
    rounds = 10

    def work(number: int) -> None:
        client = make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=30_000)
        for _ in range(rounds):
            asked = hive.OpenTxnRequest(num_txns=1, user=f"u{number}", hostname="here")
            [txn_id] = client.open_txns(asked).txn_ids
            client.commit_txn(hive.CommitTxnRequest(txnid=txn_id))
        client.close()

    def come_and_go() -> None:
        for _ in range(rounds):
            with connected(server) as connection:
                connection.sendall(open_txn())

    with ThreadPoolExecutor(CLIENTS + 2) as pool:
        done = [pool.submit(work, number) for number in range(CLIENTS)]
        done += [pool.submit(come_and_go) for _ in range(2)]
        for one in done:
            one.result()
    server.stop()
    metastore = open_metastore(url)
    events = metastore.next_events(0, 10_000)
    metastore.close()
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    opened = [event.message["txnIds"][0] for event in events if event.event_type == "OPEN_TXN"]
    assert opened == list(range(1, len(opened) + 1))
    assert [event.event_type for event in events].count("COMMIT_TXN") == CLIENTS * rounds


def test_one_that_reads_none_of_its_answers_is_hung_up_on(server: MetastoreServer) -> None:
    asked = 1_000
    with socket.socket() as deaf, connected(server) as other:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # as small as can be
        deaf.connect(("127.0.0.1", server.port))
        deaf.settimeout(30)
        for each in (other, deaf):
            each.sendall(request("getVersion"))
            answers(each, ["getVersion"])
        for connection in list(server._open):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        deaf.sendall(open_txn() * asked)
        deadline = time.monotonic() + 60
        while len(server._open) > 1:
            assert time.monotonic() < deadline, "it is not hung up on"
            time.sleep(0.01)
        other.sendall(open_txn())
        # The server does not do the client's later requests, which nobody would read.
        assert 1 < answers(other, ["open_txns"])[0].txn_ids[0] < asked / 2


def test_a_stopping_server_answers_the_requests_that_are_under_way(server: MetastoreServer, url: str) -> None:
    with connected(server) as connection:
        connection.sendall(open_txn() + commit_txn(1))
        assert answers(connection, ["open_txns", "commit_txn"])[0].txn_ids == [1]
        connection.sendall(open_txn())
        server.stop()
        answer = connection.recv(1_000)
    metastore = open_metastore(url)
    is_opened = metastore.valid_txn_list().high_watermark == 2
    metastore.close()
    assert bool(answer) == is_opened

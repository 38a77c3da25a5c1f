"""One request cannot stop a server or take its memory; the error of a large one names the limit."""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TApplicationException, TType

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore import ValidTxnList, ValidWriteIdList
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.server.limits import ServerLimits
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.metastore.thrift.server.server import MetastoreServer

LIMITS = ServerLimits(message_bytes=100_000, elements=1_000, write_ids=50, txn_range=10)
NAMES_FIELD, UNKNOWN_FIELD = 2, 99
VOID = 1


@pytest.fixture
def server(url: str) -> Iterator[MetastoreServer]:
    with served(ServiceOptions(url, port=0, limits=LIMITS), housekeeping=False) as server:
        yield server


@pytest.fixture
def client(server: MetastoreServer) -> Iterator[Any]:
    with closing(make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=60_000)) as client:
        yield client


def asked(server: MetastoreServer, body: bytes) -> bytes:
    """All bytes that a server sends for one ``get_table_objects_by_name`` before it closes the connection."""
    name = b"get_table_objects_by_name"
    request = struct.pack(">II", 0x80010001, len(name)) + name + struct.pack(">I", 7) + body
    found = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request)
        while more := connection.recv(65_536):
            found += more
    return found


def container(field: int, element: int, size: int, kind: int = TType.LIST) -> bytes:
    types = struct.pack(">bb", element, element) if kind == TType.MAP else struct.pack(">b", element)
    return struct.pack(">bh", kind, field) + types + struct.pack(">i", size)


@pytest.mark.parametrize("field", [NAMES_FIELD, UNKNOWN_FIELD])
@pytest.mark.parametrize("element", [TType.STRUCT, TType.STRING, TType.LIST])
@pytest.mark.parametrize("kind", [TType.LIST, TType.SET, TType.MAP])
def test_a_container_of_too_many_elements_is_refused_before_they_are_read(
    server: MetastoreServer, client: Any, field: int, element: int, kind: int
) -> None:
    told = asked(server, container(field, element, 2**31 - 1, kind))
    assert b"--max-elements allows 1000" in told
    assert client.get_all_databases()


@pytest.mark.parametrize("size", [2**31 - 1, -1])
def test_elements_that_take_no_bytes_are_no_thrift(server: MetastoreServer, client: Any, size: int) -> None:
    assert asked(server, container(NAMES_FIELD, VOID, size)) == b""
    assert client.get_all_databases()


def test_containers_count_together(server: MetastoreServer, client: Any) -> None:
    inner = struct.pack(">bi", TType.BYTE, 500) + bytes(500)
    told = asked(server, container(UNKNOWN_FIELD, TType.LIST, 3) + inner * 3 + b"\0")
    assert b"--max-elements allows 1000" in told
    # Each request has the whole limit.
    for _ in range(3):
        assert client.get_table_objects_by_name("lake", ["nowhere"] * 900) == []


def test_a_request_of_too_many_bytes_is_refused(server: MetastoreServer, client: Any) -> None:
    for _ in range(3):
        assert client.get_tables("lake", "x" * 90_000) == []
    with pytest.raises(TApplicationException, match=r"more than 100000 bytes; .* --max-message-bytes"):
        client.get_tables("lake", "x" * 1_000_000)


def test_a_request_that_unzips_to_too_many_bytes_is_refused(client: Any) -> None:
    def ask(arguments: bytes) -> Any:
        return client.serve_replicator(hive.ReplicatorRequest(operation="replication", arguments=arguments))

    bomb = gzip.compress(b'["' + b"x" * 30_000_000 + b'"]')
    assert len(bomb) < LIMITS.message_bytes
    with pytest.raises(
        (hive.MetaException, TApplicationException), match=r"more than 100000 bytes; .* --max-message-bytes"
    ):
        ask(bomb)
    with pytest.raises(hive.NoSuchObjectException):
        ask(gzip.compress(b'["trips"]'))


def test_a_range_of_too_many_transactions_is_refused(client: Any) -> None:
    with pytest.raises(TApplicationException, match=r"more than 10 in one range; .* --max-txn-range"):
        client.heartbeat_txn_range(hive.HeartbeatTxnRangeRequest(min=1, max=2**60))
    beaten = client.heartbeat_txn_range(hive.HeartbeatTxnRangeRequest(min=1, max=10))
    assert {*beaten.nosuch} == {*range(1, 11)}


@pytest.mark.parametrize("ids", ["1-30000000:", ":1-30000000", "1-40:41-60", f"1-{2**62}:"])
def test_a_list_of_too_many_ids_is_refused(client: Any, ids: str) -> None:
    request = hive.GetTableRequest(
        dbName="lake", tblName="flights", validWriteIdList=f"lake.flights:9:1:{ids}"
    )
    with pytest.raises(hive.MetaException, match="longer than 50; a server allows more by --max-write-ids"):
        client.get_table_req(request)
    with pytest.raises((hive.MetaException, TApplicationException), match="--max-write-ids"):
        client.get_valid_write_ids(
            hive.GetValidWriteIdsRequest(fullTableNames=["lake.flights"], validTxnList=f"9:1:{ids}")
        )


def test_lists_have_a_limit_without_a_server() -> None:
    for parse in (ValidWriteIdList.parse, ValidTxnList.parse):
        name = "lake.t:" if parse == ValidWriteIdList.parse else ""
        with pytest.raises(InvalidInputError, match="longer than 1000000"):
            parse(f"{name}9:1:1-30000000:")
        assert parse(f"{name}9:1:1-5,7:").exceptions == (1, 2, 3, 4, 5, 7)
        with pytest.raises(InvalidInputError, match="is no Valid") as caught:
            parse(f"{name}9:1:x{'y' * 100_000}:")
        assert len(str(caught.value)) < 1_000


def test_a_limit_below_one_is_no_limit() -> None:
    with pytest.raises(InvalidInputError, match="the limit elements is 0"):
        ServerLimits(elements=0)

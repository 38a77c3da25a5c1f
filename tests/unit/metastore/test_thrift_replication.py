"""What Hive's own replication asks a target for, by Hive's own definition and Apache Thrift's client.

Named after Hive's tests (TestDbTxnManager2, TestTxnHandler, TestReplicationScenariosAcidTables).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore
from hive_metastore import ttypes as hive
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport import TTransport
from thrift.transport.TSocket import TSocket

from airflow_provider.metastore import Metastore, TxnState, TxnType, open_metastore
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served

POLICY = "lake.*"


@pytest.fixture
def metastore(url: str) -> Iterator[Metastore]:
    opened: Metastore = open_metastore(url)
    yield opened
    opened.close()


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with served(ServiceOptions(url, port=0)) as server:
        transport = TTransport.TBufferedTransport(TSocket("127.0.0.1", server.port))
        transport.open()
        yield ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
        transport.close()


def open_txns(client: Any, *source: int) -> list[int]:
    request = hive.OpenTxnRequest(
        num_txns=len(source),
        user="hive",
        hostname="here",
        replPolicy=POLICY,
        replSrcTxnIds=list(source),
        txn_type=hive.TxnType.REPL_CREATED,
    )
    return list(client.open_txns(request).txn_ids)


def allocate(client: Any, *pairs: tuple[int, int]) -> list[tuple[int, int]]:
    wanted = [hive.TxnToWriteId(txnId=txn, writeId=write_id) for txn, write_id in pairs]
    request = hive.AllocateTableWriteIdsRequest(
        dbName="lake", tableName="flights", replPolicy=POLICY, srcTxnToWriteIdList=wanted
    )
    return [(one.txnId, one.writeId) for one in client.allocate_table_write_ids(request).txnToWriteIds]


def test_repl_open_txn_twice_gives_the_same_ids(client: Any, metastore: Metastore) -> None:
    metastore.open_txn("somebody", "here")
    opened = open_txns(client, 11, 12)
    assert open_txns(client, 11, 12) == opened == [2, 3]
    assert {metastore.get_txn(one).txn_type for one in opened} == {TxnType.REPL_CREATED}
    assert metastore.timed_out(0.0) == [1]


def test_repl_allocate_write_ids_are_the_sources(client: Any, metastore: Metastore) -> None:
    first, second = open_txns(client, 11, 12)
    assert allocate(client, (11, 7), (12, 9)) == [(first, 7), (second, 9)]
    assert allocate(client, (11, 7), (12, 9)) == [(first, 7), (second, 9)]
    client.commit_txn(hive.CommitTxnRequest(txnid=12, replPolicy=POLICY))
    seen = metastore.valid_write_id_list("lake", "flights")
    assert (seen.high_watermark, seen.exceptions) == (9, (7,))
    assert allocate(client, (12, 9)) == []  # its transaction has ended


def test_repl_commit_and_abort_twice(client: Any, metastore: Metastore) -> None:
    first, second = open_txns(client, 11, 12)
    allocate(client, (11, 1), (12, 2))
    told = hive.ReplLastIdInfo(database="lake", lastReplId=77)
    for _ in range(2):
        client.commit_txn(hive.CommitTxnRequest(txnid=11, replPolicy=POLICY, replLastIdInfo=told))
        client.abort_txn(hive.AbortTxnRequest(txnid=12, replPolicy=POLICY))
    states = [metastore.get_txn(one).state for one in (first, second)]
    assert states == [TxnState.COMMITTED, TxnState.ABORTED]
    assert metastore.get_database("lake").parameters["repl.last.id"] == "77"


def test_nobody_else_ends_a_transaction_of_the_policy(client: Any, metastore: Metastore) -> None:
    [opened] = open_txns(client, 11)
    with pytest.raises(TException, match="opened by replication"):
        client.abort_txn(hive.AbortTxnRequest(txnid=opened))
    assert metastore.get_txn(opened).state is TxnState.OPEN


def test_as_many_transactions_as_are_named(client: Any) -> None:
    request = hive.OpenTxnRequest(
        num_txns=2, user="hive", hostname="here", replPolicy=POLICY, replSrcTxnIds=[1]
    )
    with pytest.raises(TException):
        client.open_txns(request)


def test_repl_bootstrap_write_id_state(client: Any, metastore: Metastore) -> None:
    request = hive.ReplTblWriteIdStateRequest(
        validWriteIdlist="lake.flights:10:7:7:2,3",
        user="hive",
        hostName="here",
        dbName="lake",
        tableName="flights",
    )
    client.repl_tbl_writeid_state(request)
    seen = metastore.valid_write_id_list("lake", "flights")
    assert (seen.high_watermark, sorted(seen.aborted)) == (10, [2, 3])
    events = metastore.current_event_id()
    client.repl_tbl_writeid_state(request)  # it has write ids: nothing is done
    assert metastore.current_event_id() == events
    txn = metastore.open_txn("me", "here")
    assert metastore.allocate_table_write_id(txn, "lake", "flights") == 11

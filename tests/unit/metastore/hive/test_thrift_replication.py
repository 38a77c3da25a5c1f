"""The requests of Hive's own replication to a target, by Hive's own definition and Apache Thrift's client.

Named after Hive's tests (TestDbTxnManager2, TestTxnHandler, TestReplicationScenariosAcidTables).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore
from hive_metastore import ttypes as hive
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport import TTransport
from thrift.transport.TSocket import TSocket

from airflow_provider.metastore import (
    Column,
    Metastore,
    PartitionSpec,
    TxnState,
    TxnType,
    open_metastore,
)
from airflow_provider.metastore.model import decode_partition, decode_table
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served

POLICY = "lake.*"


@pytest.fixture
def metastore(url: str) -> Iterator[Metastore]:
    opened: Metastore = open_metastore(url)
    yield opened
    opened.close()


@pytest.fixture
def port(url: str) -> Iterator[int]:
    with served(ServiceOptions(url, port=0)) as server:
        yield server.port


@pytest.fixture
def client(port: int) -> Iterator[Any]:
    with client_of(port) as opened:
        yield opened


@contextmanager
def client_of(port: int) -> Iterator[Any]:
    transport = TTransport.TBufferedTransport(TSocket("127.0.0.1", port))
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
    request = hive.OpenTxnRequest(1, "hive", "here", txn_type=hive.TxnType.REPL_CREATED)
    with pytest.raises(TException, match="needs replPolicy"):
        client.open_txns(request)


def test_a_hive_3_names_no_types(client: Any, metastore: Metastore) -> None:
    request = hive.OpenTxnRequest(1, "hive", "here", replPolicy=POLICY, replSrcTxnIds=[11])
    request.txn_type = None
    [opened] = client.open_txns(request).txn_ids
    client.abort_txn(hive.AbortTxnRequest(txnid=11, replPolicy=POLICY))
    info = metastore.get_txn(opened)
    assert (info.txn_type, info.state) == (TxnType.REPL_CREATED, TxnState.ABORTED)


def test_transactions_of_repl_dump_and_load_themselves_leave_no_events(
    client: Any, metastore: Metastore
) -> None:
    """OpenTxnsFunction, CommitTxnFunction, TxnHandler.abortTxn: isHiveReplTxn."""
    before = metastore.current_event_id()
    own = {"replPolicy": POLICY, "txn_type": hive.TxnType.DEFAULT}
    first, second = client.open_txns(hive.OpenTxnRequest(2, "hive", "here", **own)).txn_ids
    [third] = client.open_txns(hive.OpenTxnRequest(1, "hive", "here", **own)).txn_ids
    assert metastore.valid_txn_list().exceptions == ()
    client.commit_txn(hive.CommitTxnRequest(first, **own))
    client.commit_txn(hive.CommitTxnRequest(third, **own))
    client.abort_txn(hive.AbortTxnRequest(second, **own))
    states = [metastore.get_txn(one).state for one in (first, second, third)]
    assert states == [TxnState.COMMITTED, TxnState.ABORTED, TxnState.COMMITTED]
    assert metastore.current_event_id() == before


def test_repl_last_id_of_database_table_and_partition(client: Any, metastore: Metastore) -> None:
    metastore.add_partitions("lake", "flights", [PartitionSpec(("2013", one), f"/{one}") for one in "12"])
    open_txns(client, 11)
    told = hive.ReplLastIdInfo(
        database="Lake", lastReplId=77, table="Flights", partitionList=["year=2013/month=2"]
    )
    repl = {"replPolicy": POLICY, "txn_type": hive.TxnType.REPL_CREATED}
    client.commit_txn(hive.CommitTxnRequest(11, replLastIdInfo=told, **repl))
    told.lastReplId = 50  # the transaction has ended: nothing is done, as in Hive
    client.commit_txn(hive.CommitTxnRequest(11, replLastIdInfo=told, **repl))
    table = metastore.get_table("lake", "flights")
    partitions = [one.parameters for one in metastore.get_partitions("lake", "flights")]
    assert metastore.get_database("lake").parameters["repl.last.id"] == "77"
    assert table.parameters == {"provider": "hudi", "repl.last.id": "77"}
    assert partitions == [{}, {"repl.last.id": "77"}]


def test_write_ids_of_a_source_need_the_sources_list(client: Any) -> None:
    request = hive.AllocateTableWriteIdsRequest("lake", "flights", replPolicy=POLICY, txnIds=[1])
    with pytest.raises(TException, match="srcTxnToWriteIdList"):
        client.allocate_table_write_ids(request)


def test_write_ids_begin_anew_with_a_table_of_the_same_name(client: Any, metastore: Metastore) -> None:
    """AllocateTableWriteIdsFunction: the target's write ids of the earlier table are stale."""
    open_txns(client, 11, 12, 13, 14)
    allocate(client, (11, 1), (12, 2), (13, 3))
    for source in (11, 12, 13):
        client.commit_txn(hive.CommitTxnRequest(txnid=source, replPolicy=POLICY))
    assert metastore.valid_write_id_list("lake", "flights").high_watermark == 3
    allocate(client, (14, 1))
    assert metastore.valid_write_id_list("lake", "flights").exceptions == (1,)
    asked = hive.MaxAllocatedTableWriteIdRequest("lake", "flights")
    assert client.get_max_allocated_table_write_id(asked).maxWriteId == 1
    client.commit_txn(hive.CommitTxnRequest(txnid=14, replPolicy=POLICY))
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:1:9223372036854775807::"


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


def test_seed_txn_id(client: Any, metastore: Metastore) -> None:
    """TestTxnHandler, TxnHandler.seedTxnId: the next id is the seed, and ids never move back."""
    first = metastore.open_txn("me", "here")
    client.seed_txn_id(hive.SeedTxnIdRequest(100))
    for seed in (1, 99):
        with pytest.raises(hive.MetaException, match=f"Invalid txnId seed {seed}, the highWaterMark is 99"):
            client.seed_txn_id(hive.SeedTxnIdRequest(seed))
    assert metastore.open_txn("me", "here") == 100
    opened = client.get_open_txns()
    assert (opened.txn_high_water_mark, opened.open_txns) == (100, [first, 100])
    metastore.commit_txn(first)
    write_id = metastore.allocate_table_write_id(100, "lake", "flights")
    metastore.commit_txn(100)
    assert metastore.valid_write_id_list("lake", "flights").is_valid(write_id)


class TestWriteNotifications:
    """DbNotificationListener.onAcidWrite and onBatchAcidWrite, ObjectStore.getAllWriteEventInfo."""

    @pytest.fixture
    def txn(self, metastore: Metastore) -> int:
        """An open transaction with write id 1 on ``lake.plain``, a table without partition keys."""
        metastore.create_table("lake", "plain", location="/plain", schema=[Column("id", "bigint")])
        txn = metastore.open_txn("hive", "here")
        assert metastore.allocate_table_write_id(txn, "lake", "plain") == 1
        return txn

    def test_files_of_a_table(self, client: Any, metastore: Metastore, txn: int) -> None:
        before = metastore.current_event_id()
        client.add_write_notification_log(noted(txn, "Plain", "/plain/a", "/plain/b"))
        client.add_write_notification_log(noted(txn, "plain", "/plain/a", "/plain/b"))  # asks again
        client.add_write_notification_log(noted(txn, "plain", "/plain/c", folder="delta_1_1"))
        assert metastore.current_event_id() == before  # the log has no ACID_WRITE
        metastore.commit_txn(txn)
        [told] = written(client, txn)
        assert (told.database, told.table, told.partition, told.writeId) == ("lake", "plain", "", 1)
        assert told.files == "/plain/c###delta_1_1]/plain/a###]/plain/b###"
        assert decode_table(told.tableObj).location == "/plain"
        assert told.partitionObj is None
        [event] = metastore.next_events(before)
        assert event.message["files"] is None

    def test_files_of_partitions(self, client: Any, metastore: Metastore, txn: int) -> None:
        null = "__HIVE_DEFAULT_PARTITION__"
        specs = [PartitionSpec(("2013", "1"), "/1"), PartitionSpec(("2013", None), "/null")]
        metastore.add_partitions("lake", "flights", specs)
        client.add_write_notification_log(noted(txn, "flights", "/1/a", values=["2013", "1"]))
        with pytest.raises(TException, match="has no partition"):
            client.add_write_notification_log(noted(txn, "flights", "/9/a", values=["2013", "9"]))
        with pytest.raises(TException, match="has 0 values"):
            client.add_write_notification_log(noted(txn, "flights", "/9/a"))
        batch = [
            noted(txn, "flights", "/1/b", values=["2013", "1"]),
            noted(txn, "flights", "/1/c", values=["2013", "1"]),
            noted(txn, "flights", "/9/a", values=["2013", "9"]),  # the answer leaves it out
            noted(txn, "flights", "/null/a", values=["2013", null]),
        ]
        in_batch(client, "flights", batch)
        found = {told.partition: told for told in written(client, txn)}
        assert {name: told.files for name, told in found.items()} == {
            "year=2013/month=1": "/1/c###]/1/b###]/1/a###",
            f"year=2013/month={null}": "/null/a###",
        }
        assert decode_partition(found["year=2013/month=1"].partitionObj).location == "/1"

    def test_asked_by_database_and_table(self, client: Any, metastore: Metastore, txn: int) -> None:
        metastore.create_database("bay")
        schema = [Column("id", "bigint")]
        metastore.create_table("bay", "plain", location="/bay", schema=schema)
        metastore.create_table("lake", "more", location="/more", schema=schema)
        for database, table in (("lake", "plain"), ("lake", "more"), ("bay", "plain")):
            in_batch(client, table, [noted(txn, table, "/file", database=database)], database)
        other = metastore.open_txn("hive", "here")
        client.add_write_notification_log(noted(other, "plain", "/other"))
        everything = [("bay", "plain"), ("lake", "more"), ("lake", "plain")]
        for asked, wanted in (
            ({}, everything),
            ({"dbName": "*", "tableName": "*"}, everything),
            ({"dbName": "Lake", "tableName": "*"}, everything[1:]),
            ({"dbName": "lake", "tableName": "Plain"}, everything[2:]),
            ({"tableName": "plain"}, [everything[0], everything[2]]),
            ({"dbName": "none"}, []),
        ):
            found = written(client, txn, **asked)
            assert [(told.database, told.table) for told in found] == wanted
        assert written(client, 999) == []

    def test_told_after_the_table_is_gone(self, client: Any, metastore: Metastore, txn: int) -> None:
        client.add_write_notification_log(noted(txn, "plain", "/plain/a"))
        metastore.commit_txn(txn)
        metastore.drop_table("lake", "plain")
        assert [told.files for told in written(client, txn)] == ["/plain/a###"]

    def test_what_is_refused(self, client: Any, metastore: Metastore, txn: int) -> None:
        committed, aborted = (metastore.open_txn("hive", "here") for _ in range(2))
        metastore.commit_txn(committed)
        metastore.allocate_table_write_id(aborted, "lake", "plain")
        metastore.abort_txn(aborted)
        for refused, reason in (
            (noted(committed, "plain", "/a"), "is already committed"),
            (noted(aborted, "plain", "/a"), "already aborted"),
            (noted(999, "plain", "/a"), "No such transaction"),
            (noted(txn, "missing", "/a"), "does not exist"),
        ):
            for ask in (client.add_write_notification_log, lambda one: in_batch(client, one.table, [one])):
                with pytest.raises(TException, match=reason):
                    ask(refused)
            assert written(client, refused.txnId) == []
        for field in ("subDirectoryList", "filesAddedChecksum"):
            uneven = noted(txn, "plain", "/a", "/b")
            setattr(uneven.fileInfo, field, ["x"])
            with pytest.raises(TException, match=f"2 files and 1 values of {field}"):
                client.add_write_notification_log(uneven)
        with pytest.raises(TException, match=r"batch about table lake\.plain has .* about lake\.flights"):
            in_batch(client, "plain", [noted(txn, "flights", "/a")])
        in_batch(client, "plain", [])
        assert written(client, txn) == []

    def test_retention_removes_them_with_the_event_of_the_commit(
        self, client: Any, metastore: Metastore, txn: int
    ) -> None:
        kept = metastore.open_txn("hive", "here")
        for one in (txn, kept):
            client.add_write_notification_log(noted(one, "plain", f"/plain/{one}"))
        metastore.register_consumer("replication")
        metastore.commit_txn(txn)
        metastore.purge_events(0)
        assert len(written(client, txn)) == 1  # the consumer has not read the event
        metastore.advance_consumer("replication", metastore.current_event_id())
        metastore.purge_events(0)
        assert written(client, txn) == []
        assert len(written(client, kept)) == 1

    def test_two_at_once_lose_no_file(self, port: int, client: Any, txn: int) -> None:
        begin = threading.Barrier(4)

        def note(writer: int) -> None:
            with client_of(port) as mine:
                begin.wait()
                for number in range(10):
                    mine.add_write_notification_log(noted(txn, "plain", f"/plain/{writer}_{number}"))

        threads = [threading.Thread(target=note, args=(writer,)) for writer in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        [told] = written(client, txn)
        assert sorted(told.files.split("]")) == [
            f"/plain/{writer}_{number}###" for writer in range(4) for number in range(10)
        ]


def noted(
    txn: int,
    table: str,
    *files: str,
    values: list[str] | None = None,
    folder: str | None = None,
    database: str = "lake",
) -> Any:
    added = hive.InsertEventRequestData(
        filesAdded=list(files),
        filesAddedChecksum=[""] * len(files),
        subDirectoryList=None if folder is None else [folder] * len(files),
    )
    return hive.WriteNotificationLogRequest(txn, 1, database, table, added, values)


def in_batch(client: Any, table: str, requests: list[Any], database: str = "lake") -> None:
    client.add_write_notification_log_in_batch(
        hive.WriteNotificationLogBatchRequest("hive", database, table, requests)
    )


def written(client: Any, txn: int, **asked: str) -> list[Any]:
    return list(client.get_all_write_event_info(hive.GetAllWriteEventInfoRequest(txn, **asked)))

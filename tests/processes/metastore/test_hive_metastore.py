"""Our client on a real Hive Metastore 2.3: the methods that this version has."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider.exceptions import (
    AlreadyExistsError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchObjectError,
    NoSuchTransactionError,
    TransactionAbortedError,
    TransactionOpenError,
    UnsupportedByServerError,
)
from airflow_provider.metastore import (
    Column,
    FunctionInfo,
    LockComponent,
    LockState,
    LockType,
    PartitionSpec,
    TxnState,
    table_transaction,
)
from airflow_provider.metastore.api import open_embedded_metastore
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.replication import ReplicationPolicy, Replicator
from tests.processes.metastore.hive_metastore import hive_metastore
from tests.processes.metastore.hives_answers import answers, found_by_like, hives_client
from tests.processes.servers import free_port

TABLE = LockComponent(LockType.EXCLUSIVE, "lake", "flights")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with hive_metastore(tmp_path_factory.mktemp("hive")) as served:
        yield served


@pytest.fixture
def metastore(port: int) -> Iterator[ThriftMetastore]:
    opened = ThriftMetastore(f"thrift://127.0.0.1:{port}")
    yield opened
    opened.close()


def test_it_is_there(metastore: ThriftMetastore, port: int) -> None:
    assert metastore.ping() == f"thrift://127.0.0.1:{port}: Hive Metastore 3.0"
    assert metastore.list_databases() == ["default"]
    assert metastore.current_event_id() == 0


def test_transactions(metastore: ThriftMetastore) -> None:
    first, second, third = (metastore.open_txn("me", "here", agent="dag.task") for _ in range(3))
    assert (second, third) == (first + 1, first + 2)
    metastore.heartbeat_txn(first)
    metastore.abort_txn(second)
    snapshot = metastore.valid_txn_list()
    assert (snapshot.high_watermark, snapshot.min_open) == (third, first)
    assert set(snapshot.exceptions) >= {first, second, third}
    assert snapshot.is_aborted(second)
    assert not snapshot.is_aborted(first)
    own = metastore.valid_txn_list(third)
    assert own.is_valid(third)
    assert not own.is_valid(second)
    metastore.commit_txn(first)
    assert metastore.valid_txn_list().is_valid(first)
    for ask in (metastore.heartbeat_txn, metastore.commit_txn):
        with pytest.raises(TransactionAbortedError, match=f"Transaction txnid:{second} already aborted"):
            ask(second)
    with pytest.raises(NoSuchTransactionError, match="No such transaction txnid:99999"):
        metastore.heartbeat_txn(99999)
    with pytest.raises(NoSuchTransactionError):
        metastore.valid_txn_list(99999)
    metastore.commit_txn(third)
    for end in (metastore.commit_txn, metastore.abort_txn):
        with pytest.raises(NoSuchTransactionError):
            end(third)


def test_locks_of_a_transaction(metastore: ThriftMetastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    held = metastore.lock([TABLE], "me", "here", agent="dag.task", txn_id=txn_id)
    assert held.state is LockState.ACQUIRED
    [info] = metastore.show_locks("lake", "flights", txn_id=txn_id)
    assert (info.component, info.agent, info.txn_id) == (TABLE, "dag.task", txn_id)
    assert metastore.show_locks("lake", txn_id=txn_id + 1) == []
    waiting = metastore.lock([TABLE], "you", "there")
    assert waiting.state is LockState.WAITING
    with pytest.raises(TransactionOpenError):
        metastore.unlock(held.lock_id)
    metastore.commit_txn(txn_id)
    assert metastore.check_lock(waiting.lock_id) is LockState.ACQUIRED
    with pytest.raises(NoSuchLockError):
        metastore.check_lock(held.lock_id)
    metastore.unlock(waiting.lock_id)
    metastore.unlock(waiting.lock_id)


@pytest.mark.parametrize("level", [("lake",), ("lake", "flights"), ("lake", "flights", "month=1")])
def test_locks_of_every_level_and_type(metastore: ThriftMetastore, level: tuple[str, ...]) -> None:
    for type_ in (LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE):
        component = LockComponent(type_, *level)
        held = metastore.lock([component], "me", "here")
        assert [info.component for info in metastore.show_locks()] == [component]
        metastore.unlock(held.lock_id)


def test_what_is_known_of_a_transaction(metastore: ThriftMetastore) -> None:
    """A Hive sends fewer fields than our server, and ends timed-out transactions by itself."""
    started = time.time()
    txn_id = metastore.open_txn("me", "here", agent="dag.task", commit_on_recovery=False)
    txn = metastore.get_txn(txn_id)
    assert (txn.state, txn.user, txn.host, txn.agent) == (TxnState.OPEN, "me", "here", None)
    assert (txn.commit_on_recovery, txn.event_id) == (False, None)
    assert started - 1 <= txn.opened_at <= time.time() + 1
    metastore.record_write(txn_id, "lake", "flights", "20250101000000000")
    assert metastore.writes_of(txn_id) == []
    assert metastore.recover_timed_out(0.001, lambda write: True) == []
    assert metastore.commit_txn(txn_id) == 0  # this Hive keeps no log of events
    committed = metastore.get_txn(txn_id)
    assert (committed.state, committed.event_id, committed.user) == (TxnState.COMMITTED, 0, "")


def test_databases_and_tables(metastore: ThriftMetastore, tmp_path: Path) -> None:
    place = f"file:{tmp_path}/lake"
    made = metastore.create_database("lake", place, "for people", parameters={"a": "b"})
    assert (made.name, made.location, made.comment, made.parameters["a"]) == (
        "lake",
        place,
        "for people",
        "b",
    )
    assert metastore.create_database("lake", if_not_exists=True) == made
    with pytest.raises(AlreadyExistsError):
        metastore.create_database("lake")
    # This version of Hive changes no other field of a database.
    assert metastore.alter_database("lake", parameters={"a": "c"}).parameters["a"] == "c"
    table = metastore.create_table(
        "lake",
        "flights",
        location=f"{place}/flights",
        schema=[Column("id", "bigint"), Column("dest", "string", "airport")],
        partition_keys=[Column("year", "int")],
        parameters={"spark.sql.sources.provider": "hudi"},
        owner="ops",
    )
    assert (table.full_name, table.location, table.table_type) == (
        "lake.flights",
        f"{place}/flights",
        "MANAGED_TABLE",
    )
    assert table.schema == (Column("id", "bigint"), Column("dest", "string", "airport"))
    assert (table.partition_keys, table.owner) == ((Column("year", "int"),), "ops")
    assert table.parameters["spark.sql.sources.provider"] == "hudi"
    assert not any(name.startswith("spark.sql.sources.schema") for name in table.parameters)
    assert metastore.get_table("lake", "flights") == table
    with pytest.raises(AlreadyExistsError):
        metastore.create_table("lake", "flights", location=place, schema=[Column("id", "bigint")])
    external = metastore.create_table(
        "lake", "logs", location=f"{place}/logs", schema=[Column("id", "int")], table_type="EXTERNAL_TABLE"
    )
    assert external.is_external
    assert "EXTERNAL" not in external.parameters
    assert metastore.list_tables("lake") == ["flights", "logs"]
    wider = metastore.alter_table("lake", "flights", schema=[*table.schema, Column("tail", "string")])
    assert [column.name for column in wider.schema] == ["id", "dest", "tail"]
    assert wider.parameters["spark.sql.sources.provider"] == "hudi"
    assert metastore.rename_table("lake", "logs", "lake", "journal").location == f"{place}/logs"
    with pytest.raises(NoSuchObjectError):
        metastore.get_table("lake", "logs")
    with pytest.raises(MetastoreError, match="not empty"):
        metastore.drop_database("lake")
    assert metastore.drop_table("lake", "journal") is True
    assert metastore.drop_table("lake", "journal", if_exists=True) is False
    metastore.drop_database("lake", cascade=True)
    with pytest.raises(NoSuchObjectError):
        metastore.list_tables("lake")


def test_partitions(metastore: ThriftMetastore, tmp_path: Path) -> None:
    place = f"file:{tmp_path}/mart"
    metastore.create_database("mart", place)
    keys = [Column("year", "int"), Column("day", "string")]
    metastore.create_table(
        "mart", "trips", location=f"{place}/trips", schema=[Column("id", "bigint")], partition_keys=keys
    )
    specs = [
        PartitionSpec((str(year), day), f"{place}/trips/{year}-{n}")
        for year in (2013, 2014)
        for n, day in enumerate(["mon", "a/b %", None])
    ]
    assert len(metastore.add_partitions("mart", "trips", specs[:4])) == 4
    assert [one.values for one in metastore.add_partitions("mart", "trips", specs)] == [
        ("2014", "a/b %"),
        ("2014", None),
    ]
    with pytest.raises(AlreadyExistsError):
        metastore.add_partitions("mart", "trips", specs[:1], if_not_exists=False)
    found = metastore.get_partitions("mart", "trips")
    assert {one.values: one.location for one in found} == {spec.values: spec.location for spec in specs}
    assert metastore.get_partition("mart", "trips", ("2013", None)).location == f"{place}/trips/2013-2"
    kept = metastore.get_partitions_by_filter("mart", "trips", "day = 'mon' and year > 2013")
    assert [one.values for one in kept] == [("2014", "mon")]
    altered = metastore.alter_partition("mart", "trips", ("2013", "mon"), parameters={"a": "b"})
    assert (altered.parameters["a"], altered.location) == ("b", f"{place}/trips/2013-0")
    dropped = metastore.drop_partitions("mart", "trips", [("2013", "a/b %"), ("2099", "mon")])
    assert [one.values for one in dropped] == [("2013", "a/b %")]
    with pytest.raises(NoSuchObjectError):
        metastore.drop_partitions("mart", "trips", [("2099", "mon")], if_exists=False)
    with pytest.raises(NoSuchObjectError):
        metastore.get_partition("mart", "trips", ("2013", "a/b %"))
    metastore.drop_database("mart", cascade=True)


def test_partitions_and_their_commit(metastore: ThriftMetastore, tmp_path: Path) -> None:
    place = f"file:{tmp_path}/t"
    metastore.create_table(
        "default", "t", location=place, schema=[Column("id", "int")], partition_keys=[Column("year", "int")]
    )
    txn_id = metastore.open_txn("me", "here")
    new = {("default", "t"): [PartitionSpec(("2013",), f"{place}/2013")]}
    with pytest.raises(UnsupportedByServerError, match="no write ids"):
        metastore.commit_txn(txn_id, new_partitions=new)
    with (
        pytest.raises(UnsupportedByServerError, match="no write ids"),
        table_transaction(metastore, "default", "t"),
    ):
        pytest.fail("must not be entered")
    metastore.abort_txn(txn_id)
    assert metastore.get_partitions("default", "t") == []
    metastore.drop_table("default", "t")


def test_functions(metastore: ThriftMetastore) -> None:
    made = metastore.create_function(
        "default", "shout", "com.example.Shout", owner="ops", resources=["/s.jar"]
    )
    assert made == FunctionInfo("default", "shout", "com.example.Shout", "ops", ("/s.jar",))
    assert metastore.list_functions("default") == ["shout"]
    metastore.drop_function("default", "shout")
    with pytest.raises(NoSuchObjectError):
        metastore.get_function("default", "shout")
    assert metastore.list_functions("default") == []


def test_what_an_old_server_lacks_is_an_error_and_the_connection_lives_on(
    metastore: ThriftMetastore,
) -> None:
    txn_id = metastore.open_txn("me", "here")
    for ask in (
        lambda: metastore.allocate_table_write_id(txn_id, "lake", "flights"),
        lambda: metastore.valid_write_id_list("lake", "flights"),
        lambda: metastore.read_snapshot([("lake", "flights")]),
        lambda: metastore.end_timed_out(txn_id, 1, commit=False),
    ):
        with pytest.raises(
            UnsupportedByServerError, match=r"has no method .*; a Hive of version 2 has no write"
        ):
            ask()
    assert metastore.next_events(0) == []
    metastore.abort_txn(txn_id)


def test_a_replication_cannot_follow_it_and_says_why(metastore: ThriftMetastore, tmp_path: Path) -> None:
    target = open_embedded_metastore(f"sqlite:///{tmp_path}/target.db")
    policy = ReplicationPolicy("dr", {"default": "copy"}, {"/warehouse": f"{tmp_path}/copy"})
    with pytest.raises(UnsupportedByServerError, match=r"cannot follow thrift.*no consumers.*no request for"):
        Replicator(policy, metastore, target).run()
    assert "copy" not in target.list_databases()
    with pytest.raises(UnsupportedByServerError, match="serve_replicator"):
        Replicator(policy, target, metastore).run()
    target.close()


def test_a_fork_leaves_the_parents_connection_alone(metastore: ThriftMetastore) -> None:
    assert metastore.list_databases() == ["default"]
    child = multiprocessing.get_context("fork").Process(target=metastore.list_databases)
    child.start()
    child.join(300)
    assert child.exitcode == 0
    assert metastore.list_databases() == ["default"]
    assert len(metastore._server._idle) == 1  # the same connection


def test_our_server_answers_as_it_does(port: int, tmp_path: Path) -> None:
    with hives_client(port) as client:
        expected = list(answers(client))
    with (
        served(ServiceOptions(f"sqlite:///{tmp_path}/metastore.db", port=0)) as server,
        hives_client(server.port) as client,
    ):
        assert list(answers(client)) == expected


def test_our_server_finds_what_it_finds_by_like(port: int, tmp_path: Path) -> None:
    """Our server also matches SQL's patterns, as Hive 4.0.1 does: tests/engines compares with Hive 4.0.1."""
    with hives_client(port) as client:
        expected = found_by_like(client)
    with (
        served(ServiceOptions(f"sqlite:///{tmp_path}/metastore.db", port=0)) as server,
        hives_client(server.port) as client,
    ):
        found = found_by_like(client)
    assert expected["a.*"] == ["a", "a%", "a.b", "ab"]
    assert expected["a%"] == ["a%"]
    sqls = {"a%": ["a", "a%", "a.b", "ab"], "a_": ["a%", "ab"], "%b": ["a.b", "ab", "b"]}
    assert found == {
        pattern: sorted({*values, *sqls.get(pattern, ())}) for pattern, values in expected.items()
    }


def test_no_server_can_be_reached() -> None:
    ports = free_port(), free_port()
    metastore = ThriftMetastore(f"thrift://127.0.0.1:{ports[0]},thrift://localhost:{ports[1]}")
    with pytest.raises(MetastoreUnavailableError, match="cannot be reached") as raised:
        metastore.list_databases()
    for name in (f"127.0.0.1:{ports[0]}: Connection refused", f"localhost:{ports[1]}: "):
        assert name in str(raised.value)

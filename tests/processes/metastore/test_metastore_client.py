"""The metastore's client over a failing network: each request takes effect once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider.exceptions import MetastoreUnavailableError
from airflow_provider.metastore import (
    AnyMetastore,
    Column,
    LockComponent,
    LockState,
    LockType,
    Metastore,
    PartitionSpec,
    TxnState,
    open_metastore,
    table_transaction,
)
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from tests.processes.servers import TcpProxy

ID, YEAR = Column("id", "bigint"), Column("year", "int")
PARTITION = PartitionSpec(("2013",), "/lake/flights/year=2013")
INSTANT = "20250101000000000"
# A message of the strict binary protocol: version, a call, length and name of the method.
CALL = b"\x80\x01\x00\x01"


def lose_answer(proxy: TcpProxy, method: str) -> None:
    proxy.lose_answer(CALL + len(method).to_bytes(4, "big") + method.encode())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Metastore]:
    """The database behind the servers, with the table ``lake.flights``."""
    with closing(open_metastore(f"sqlite:///{tmp_path}/metastore.db")) as opened:
        opened.create_database("lake")
        opened.create_table("lake", "flights", location="/lake/flights", schema=[ID], partition_keys=[YEAR])
        yield opened


@pytest.fixture
def proxies(database: Metastore, tmp_path: Path) -> Iterator[list[TcpProxy]]:
    """The proxies in front of two servers of the database."""
    options = ServiceOptions(f"sqlite:///{tmp_path}/metastore.db", port=0)
    with served(options) as first, served(options, housekeeping=False) as second:
        ways = [TcpProxy(first.port), TcpProxy(second.port)]
        yield ways
        for way in ways:
            way.close()


@pytest.fixture
def client(proxies: list[TcpProxy]) -> Iterator[AnyMetastore]:
    url = f"thrift://127.0.0.1:{proxies[0].port},127.0.0.1:{proxies[1].port}"
    with closing(open_metastore(url, timeout_seconds=10)) as opened:
        assert opened.list_databases() == ["default", "lake"]
        yield opened


def events(database: Metastore, after: int) -> Counter[str]:
    return Counter(event.event_type for event in database.next_events(after))


CHANGE = {"OPEN_TXN": 1, "ALLOC_WRITE_ID": 1, "COMMIT_TXN": 1}


@pytest.mark.parametrize(
    ("method", "write", "told"),
    [
        ("create_database", lambda metastore: metastore.create_database("sea"), {"CREATE_DATABASE": 1}),
        (
            "create_table",
            lambda metastore: metastore.create_table("lake", "t", location="/t", schema=[ID]),
            {"CREATE_TABLE": 1},
        ),
        (
            "alter_table",
            lambda metastore: metastore.alter_table("lake", "flights", owner="ops"),
            CHANGE | {"ALTER_TABLE": 1},
        ),
        (
            "alter_table",
            lambda metastore: metastore.rename_table("lake", "flights", "lake", "trips"),
            {"ALTER_TABLE": 1},
        ),
        ("drop_table", lambda metastore: metastore.drop_table("lake", "flights"), {"DROP_TABLE": 1}),
        (
            "add_partitions_req",
            lambda metastore: metastore.add_partitions("lake", "flights", [PARTITION]),
            CHANGE | {"ADD_PARTITION": 1},
        ),
        (
            "fire_listener_event",
            lambda metastore: metastore.fire_insert_event("lake", "flights", ["/f"]),
            CHANGE | {"INSERT": 1},
        ),
        (
            "create_function",
            lambda metastore: metastore.create_function("lake", "f", "F"),
            {"CREATE_FUNCTION": 1},
        ),
        ("open_txns", lambda metastore: metastore.open_txn("me", "here"), {"OPEN_TXN": 1}),
        ("register_log_consumer", lambda metastore: metastore.register_consumer("report"), {}),
    ],
)
def test_a_write_whose_answer_got_lost_is_not_sent_again(
    client: AnyMetastore,
    database: Metastore,
    proxies: list[TcpProxy],
    method: str,
    write: Callable[[AnyMetastore], object],
    told: dict[str, int],
) -> None:
    before = database.current_event_id()
    lose_answer(proxies[0], method)
    with pytest.raises(MetastoreUnavailableError, match=f"no answer to {method} .* done is not known"):
        write(client)
    assert events(database, before) == told


@pytest.mark.parametrize(
    ("method", "write", "told"),
    [
        ("heartbeat", lambda metastore, txn_id: metastore.heartbeat_txn(txn_id), {}),
        (
            "allocate_table_write_ids",
            lambda metastore, txn_id: metastore.allocate_table_write_id(txn_id, "lake", "flights"),
            {"ALLOC_WRITE_ID": 1},
        ),
        (
            "record_table_write",
            lambda metastore, txn_id: metastore.record_write(txn_id, "lake", "flights", INSTANT),
            {},
        ),
        ("commit_changes", lambda metastore, txn_id: metastore.commit_txn(txn_id), {"COMMIT_TXN": 1}),
        (
            "commit_changes",
            lambda metastore, txn_id: metastore.commit_txn(
                txn_id, new_partitions={("lake", "flights"): [PARTITION]}
            ),
            {"ALLOC_WRITE_ID": 1, "ADD_PARTITION": 1, "COMMIT_TXN": 1},
        ),
        ("abort_txn", lambda metastore, txn_id: metastore.abort_txn(txn_id), {"ABORT_TXN": 1}),
        (
            "create_table",
            lambda metastore, txn_id: metastore.create_table(
                "lake", "t", location="/t", schema=[ID], if_not_exists=True
            ),
            {"CREATE_TABLE": 1},
        ),
        (
            "create_database",
            lambda metastore, txn_id: metastore.create_database("sea", if_not_exists=True),
            {"CREATE_DATABASE": 1},
        ),
        (
            "register_log_consumer",
            lambda metastore, txn_id: metastore.register_consumer("report", if_not_exists=True),
            {},
        ),
    ],
)
def test_an_idempotent_write_is_sent_again_and_done_once(
    client: AnyMetastore,
    database: Metastore,
    proxies: list[TcpProxy],
    method: str,
    write: Callable[[AnyMetastore, int], object],
    told: dict[str, int],
) -> None:
    txn_id = client.open_txn("me", "here")
    before = database.current_event_id()
    lose_answer(proxies[0], method)
    answer = write(client, txn_id)
    assert proxies[0]._losing is None  # the answer was lost
    assert events(database, before) == told
    if method in ("commit_changes", "abort_txn"):
        assert answer == database.current_event_id()


def test_the_next_server_is_asked_when_one_is_away(
    client: AnyMetastore, database: Metastore, proxies: list[TcpProxy]
) -> None:
    proxies[0].cut()
    assert client.list_tables("lake") == ["flights"]
    txn_id = client.open_txn("me", "here")  # the client must not send it twice, and did not
    proxies[0].mend()
    proxies[1].cut()
    held = client.lock([LockComponent(LockType.EXCLUSIVE, "lake")], "me", "here", txn_id=txn_id)
    assert held.state is LockState.ACQUIRED
    client.commit_txn(txn_id)
    assert database.get_txn(txn_id).state is TxnState.COMMITTED
    proxies[0].cut()
    with pytest.raises(MetastoreUnavailableError, match="cannot be reached"):
        client.list_databases()


def test_a_transaction_goes_on_while_its_server_goes_and_comes(
    client: AnyMetastore, database: Metastore, proxies: list[TcpProxy]
) -> None:
    with table_transaction(client, "lake", "flights", heartbeat_interval=0.05) as transaction:
        proxies[0].cut()
        transaction.record_instant(INSTANT)
        proxies[0].mend()
        proxies[1].cut()
        transaction.add_partitions([PARTITION])
        lose_answer(proxies[0], "commit_changes")
    txn = database.get_txn(transaction.txn_id)
    assert (txn.state, txn.event_id) == (TxnState.COMMITTED, transaction.event_id)
    assert [write.instant for write in database.writes_of(txn.id)] == [INSTANT]
    assert len(database.get_partitions("lake", "flights")) == 1

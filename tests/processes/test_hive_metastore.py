"""Our client against a real Hive Metastore 2.3: what that version has."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from airflow_provider.exceptions import (
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchTransactionError,
    TransactionAbortedError,
    TransactionOpenError,
)
from airflow_provider.metastore import LockComponent, LockState, LockType
from airflow_provider.metastore.thrift.client import ThriftMetastore
from tests.processes.hive_metastore import hive_metastore
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


def test_what_an_old_server_lacks_is_an_error_and_the_connection_lives_on(
    metastore: ThriftMetastore,
) -> None:
    txn_id = metastore.open_txn("me", "here")
    with pytest.raises(MetastoreError, match=r"no method allocate_table_write_ids; .* no write ids"):
        metastore.allocate_table_write_id(txn_id, "lake", "flights")
    metastore.abort_txn(txn_id)


def test_a_fork_leaves_the_parents_connection_alone(metastore: ThriftMetastore) -> None:
    assert metastore.list_databases() == ["default"]
    child = multiprocessing.get_context("fork").Process(target=metastore.list_databases)
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert metastore.list_databases() == ["default"]
    assert len(metastore._servers._idle) == 1  # the same connection


def test_nobody_there() -> None:
    ports = free_port(), free_port()
    metastore = ThriftMetastore(f"thrift://127.0.0.1:{ports[0]},thrift://localhost:{ports[1]}")
    with pytest.raises(MetastoreUnavailableError, match="cannot be reached") as raised:
        metastore.list_databases()
    for name in (f"127.0.0.1:{ports[0]}: Connection refused", f"localhost:{ports[1]}: "):
        assert name in str(raised.value)

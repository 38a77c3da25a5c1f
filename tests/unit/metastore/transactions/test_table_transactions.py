"""One write into one table as one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from airflow_provider.exceptions import (
    NoSuchObjectError,
    NoSuchTransactionError,
    TransactionAbortedError,
)
from airflow_provider.metastore import (
    AnyMetastore,
    EventType,
    Insertion,
    PartitionSpec,
    TableTransaction,
    TxnState,
    table_transaction,
)

JANUARY = PartitionSpec(("2013", "1"), "/lake/flights/year=2013/month=1")


def types(metastore: AnyMetastore, after: int = 2) -> list[str]:
    return [event.event_type for event in metastore.next_events(after)]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_success_registers_partitions_and_commits(metastore: AnyMetastore) -> None:
    with table_transaction(metastore, "lake", "flights", user="me", host="here", agent="t1") as transaction:
        assert (transaction.txn_id, transaction.write_id, transaction.event_id) == (1, 1, None)
        transaction.add_partitions([JANUARY])
        transaction.add_insertions([Insertion([f"{JANUARY.location}/a.parquet"], JANUARY.values)])
        transaction.record_instant("20250101000000000")
        assert metastore.get_partitions("lake", "flights") == []
        assert metastore.writes_of(1)[0].instant == "20250101000000000"
        transaction.check()
    assert types(metastore) == ["OPEN_TXN", "ALLOC_WRITE_ID", "ADD_PARTITION", "INSERT", "COMMIT_TXN"]
    assert transaction.event_id == metastore.current_event_id()
    assert metastore.get_partition("lake", "flights", JANUARY.values).location == JANUARY.location
    info = metastore.get_txn(1)
    assert (info.state, info.user, info.host, info.agent) == (TxnState.COMMITTED, "me", "here", "t1")


def fail_in(transaction: TableTransaction, instant: str | None = None) -> None:
    with transaction:
        transaction.add_partitions([JANUARY])
        if instant:
            transaction.record_instant(instant)
        raise ZeroDivisionError


def test_an_error_aborts(metastore: AnyMetastore) -> None:
    transaction = table_transaction(metastore, "lake", "flights")
    with pytest.raises(ZeroDivisionError):
        fail_in(transaction)
    assert types(metastore) == ["OPEN_TXN", "ALLOC_WRITE_ID", "ABORT_TXN"]
    assert metastore.get_partitions("lake", "flights") == []
    assert transaction.event_id is None


def test_an_error_after_an_instant_is_left_to_the_timeline(metastore: AnyMetastore) -> None:
    transaction = table_transaction(metastore, "lake", "flights")
    with pytest.raises(ZeroDivisionError):
        fail_in(transaction, "20250101000000000")
    assert metastore.get_txn(transaction.txn_id).state == TxnState.OPEN
    time.sleep(0.05)
    recovered = metastore.recover_timed_out(0.01, lambda write: write.instant == "20250101000000000")
    assert [(one.txn_id, one.committed) for one in recovered] == [(transaction.txn_id, True)]


def test_a_table_that_does_not_exist_costs_no_transaction(metastore: AnyMetastore) -> None:
    with (
        pytest.raises(NoSuchObjectError, match=r"lake\.trains"),
        table_transaction(metastore, "lake", "trains"),
    ):
        pytest.fail("must not be entered")
    assert types(metastore) == []


def test_a_joined_transaction_is_neither_opened_nor_ended(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("dag", "here", commit_on_recovery=False)
    with table_transaction(metastore, "lake", "flights", txn_id=txn_id) as transaction:
        assert (transaction.txn_id, transaction.write_id) == (txn_id, 1)
        transaction.add_partitions([JANUARY])
        transaction.add_insertions([Insertion([f"{JANUARY.location}/a.parquet"], JANUARY.values)])
    assert transaction.event_id is None
    with pytest.raises(ZeroDivisionError):
        fail_in(table_transaction(metastore, "lake", "flights", txn_id=txn_id))
    assert types(metastore) == ["OPEN_TXN", "ALLOC_WRITE_ID", "ADD_PARTITION", "INSERT"]
    assert metastore.get_txn(txn_id).state == TxnState.OPEN
    metastore.commit_txn(txn_id)
    with (
        pytest.raises(NoSuchTransactionError, match="is already committed"),
        table_transaction(metastore, "lake", "flights", txn_id=txn_id),
    ):
        pytest.fail("must not be entered")


def test_heartbeats_are_sent_while_the_block_runs(metastore: AnyMetastore) -> None:
    with table_transaction(metastore, "lake", "flights", heartbeat_interval=0.01) as transaction:
        first = metastore.get_txn(transaction.txn_id).heartbeat_at
        wait_until(lambda: metastore.get_txn(transaction.txn_id).heartbeat_at > first)
    last = metastore.get_txn(transaction.txn_id).heartbeat_at
    time.sleep(0.05)
    assert metastore.get_txn(transaction.txn_id).heartbeat_at == last


def test_a_joined_transaction_is_kept_alive_too(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("dag", "here")
    first = metastore.get_txn(txn_id).heartbeat_at
    with table_transaction(metastore, "lake", "flights", txn_id=txn_id, heartbeat_interval=0.01):
        wait_until(lambda: metastore.get_txn(txn_id).heartbeat_at > first)


def test_a_transaction_aborted_meanwhile_is_not_committed(metastore: AnyMetastore) -> None:
    transaction = table_transaction(metastore, "lake", "flights", heartbeat_interval=0.01)

    def noticed() -> bool:
        try:
            transaction.check()
        except TransactionAbortedError:
            return True
        return False

    def abort_inside() -> None:
        with transaction:
            transaction.add_partitions([JANUARY])
            metastore.abort_txn(transaction.txn_id)
            wait_until(noticed)

    with pytest.raises(TransactionAbortedError, match="Transaction txnid:1 already aborted"):
        abort_inside()
    assert metastore.get_partitions("lake", "flights") == []
    assert types(metastore) == [EventType.OPEN_TXN, EventType.ALLOC_WRITE_ID, EventType.ABORT_TXN]


def test_ids_are_unknown_before_it_is_entered(metastore: AnyMetastore) -> None:
    with pytest.raises(RuntimeError, match="once the transaction is entered"):
        _ = table_transaction(metastore, "lake", "flights").write_id

"""The end of a transaction in each of its tables: the notification events, and the undone writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog, WriteTransaction, begin_write
from airflow_provider.concurrency.conflicts import instants_of_open_transactions, mark_open_transaction
from airflow_provider.concurrency.log.log_entry import Rollback
from airflow_provider.concurrency.transactions.recovery import recover_transactions
from airflow_provider.concurrency.transactions.transactions import (
    _locations,
    abort_transaction,
    commit_transaction,
    insertions,
    settle_transactions,
)
from airflow_provider.exceptions import NoSuchTransactionError, TransactionAbortedError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.owner import describe_owner
from airflow_provider.metastore import (
    Column,
    EventType,
    Insertion,
    Metastore,
    TableWriteInfo,
    TxnState,
    open_metastore,
)
from airflow_provider.table import HudiTable

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
OPTIONS = {"auto_mkdir": True}


@pytest.fixture
def metastore(tmp_path: Path) -> Metastore:
    return open_metastore(f"sqlite:///{tmp_path}/metastore.db")


@pytest.fixture
def table(tmp_path: Path, metastore: Metastore) -> HudiTable:
    made = HudiTable.create(
        str(tmp_path / "trips"), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    partitions = [Column("city", "string")]
    columns = [Column("id", "bigint")]
    metastore.create_table(
        "default", "trips", location=made.location, schema=columns, partition_keys=partitions
    )
    return made


def opened(metastore: Metastore, operation_key: str = "task") -> int:
    txn_id = metastore.open_txn("me", "here", agent=describe_owner(operation_key))
    metastore.allocate_table_write_id(txn_id, "default", "trips")
    return txn_id


def insert(table: HudiTable, operation: str = "bulk_insert", **arguments: Any) -> str:
    rows = pa.table({"id": [1, 2], "city": ["sf", "la"]}, schema=SCHEMA)
    return str(ingest_arrow(table, rows, operation, **arguments)["instant"])


@pytest.fixture
def only_with_options(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fail when a table is opened without the caller's storage options."""
    opened: list[str] = []
    open_table = HudiTable.open

    def checked(location: str, storage_options: Any = None, **more: Any) -> HudiTable:
        assert storage_options == OPTIONS
        opened.append(location)
        return open_table(location, **more)

    monkeypatch.setattr(HudiTable, "open", staticmethod(checked))
    return opened


def test_each_table_is_opened_with_the_callers_storage_options(
    metastore: Metastore, table: HudiTable, only_with_options: list[str]
) -> None:
    committed, aborted, left_alone = opened(metastore), opened(metastore), opened(metastore)
    for txn_id in (committed, aborted, left_alone):
        with begin_write(
            table,
            operation="INSERT",
            transaction=WriteTransaction(txn_id, txn_goes_on=True),
            operation_key="task",
        ) as writer:
            writer.commit([])
        metastore.record_write(txn_id, "default", "trips", writer.instant)
    commit_transaction(metastore, committed, storage_options=OPTIONS)
    assert len(only_with_options) == 2, "to be told, and to be let go"
    abort_transaction(metastore, aborted, storage_options=OPTIONS)
    recover_transactions(metastore, timeout_seconds=0, storage_options=OPTIONS)
    assert len(only_with_options) >= 4
    assert instants_of_open_transactions(table.storage) == {}


def test_an_abort_rolls_back_what_is_pending_and_the_log_says_why(
    metastore: Metastore, table: HudiTable
) -> None:
    insert(table)
    txn_id = opened(metastore)
    writer = begin_write(table, operation="INSERT", transaction=WriteTransaction(txn_id, txn_goes_on=True))
    abort_transaction(metastore, txn_id)
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Rollback)
    assert (newest.rolls_back, newest.reason) == (writer.instant, f"transaction {txn_id} was aborted")
    writer.abort()


def test_a_transaction_that_nobody_here_knows_hides_no_other(
    metastore: Metastore, table: HudiTable, tmp_path: Path
) -> None:
    elsewhere = HudiTable.create(str(tmp_path / "other"), name="other", schema=SCHEMA, record_key=["id"])
    metastore.create_table("default", "other", location=elsewhere.location, schema=[Column("id", "bigint")])
    of_another_table = metastore.open_txn("me", "here")
    metastore.allocate_table_write_id(of_another_table, "default", "other")
    first, last = opened(metastore), opened(metastore)
    marks = [("20240101000000001", 0), ("20240101000000002", of_another_table)]
    marks += [("20240101000000003", first), ("20240101000000004", last)]
    for instant, txn_id in marks:
        mark_open_transaction(table.storage, instant, txn_id)
    metastore.abort_txn(of_another_table)
    settle_transactions(metastore, table)
    assert len(instants_of_open_transactions(table.storage)) == 4, "the others are open"
    metastore.abort_txn(last)
    settle_transactions(metastore, table)
    left = {"20240101000000001", "20240101000000002", "20240101000000003"}
    assert set(instants_of_open_transactions(table.storage)) == left


def test_what_a_commit_added_is_told_by_partition_and_whether_it_replaced(
    table: HudiTable, tmp_path: Path
) -> None:
    added = insertions(table, insert(table))
    assert [(each.values, each.replace) for each in added] == [(("la",), False), (("sf",), False)]
    replaced = insertions(table, insert(table, "insert_overwrite_table"))
    assert [(each.values, each.replace) for each in replaced] == [(("la",), True), (("sf",), True)]
    plain = HudiTable.create(str(tmp_path / "plain"), name="plain", schema=SCHEMA, record_key=["id"])
    (told,) = insertions(plain, insert(plain))
    (file,) = plain.view().all_base_files()
    assert told == Insertion([plain.storage.url(file.path)], None, False)
    assert insertions(plain, "20240101000000001") == []


def test_a_location_is_one_however_it_is_written() -> None:
    def write(location: str) -> TableWriteInfo:
        return TableWriteInfo(1, "default", "trips", location, 1, None)

    same = [write(each) for each in ("/lake/trips/", "file:///lake/trips", "/lake/trips")]
    assert _locations([*same, write("s3://lake/X/")]) == ["/lake/trips", "s3://lake/X"]


def test_two_that_wrote_the_same_partition_are_both_recovered(metastore: Metastore, table: HudiTable) -> None:
    txns = [opened(metastore, key) for key in ("first", "second")]
    for key in ("first", "second"):
        insert(table, operation_key=key)
    recovered = recover_transactions(metastore, timeout_seconds=0)
    assert [(each.txn_id, each.committed) for each in recovered] == [(txn_id, True) for txn_id in txns]
    found = metastore.get_partitions("default", "trips")
    assert {partition.values for partition in found} == {("sf",), ("la",)}


def test_what_is_recovered_is_told_by_partition_and_in_the_transaction(
    metastore: Metastore, table: HudiTable
) -> None:
    insert(table)
    opened(metastore)
    insert(table, "insert_overwrite_table", operation_key="task")
    (recovered,) = recover_transactions(metastore, timeout_seconds=0)
    assert recovered.committed
    told = [event for event in metastore.next_events(0) if event.event_type == EventType.INSERT]
    partitions = [json.loads(event.message["ptnObjJson"]) for event in told]
    assert [each["1"]["lst"][2:] for each in partitions] == [["la"], ["sf"]]
    assert [each["10"] for each in partitions] == [{"i64": 1}, {"i64": 1}], "the write id of its transaction"
    assert [event.message["replace"] for event in told] == ["true", "true"]


@pytest.mark.parametrize("ended", [NoSuchTransactionError, TransactionAbortedError])
def test_what_another_has_told_of_it_meanwhile_is_no_failure(
    metastore: Metastore, table: HudiTable, monkeypatch: pytest.MonkeyPatch, ended: type[Exception]
) -> None:
    txn_id = opened(metastore)
    insert(table, operation_key="task")

    def told(*args: object, **kwargs: object) -> None:
        raise ended("it has ended")

    monkeypatch.setattr(metastore, "fire_insert_event", told)
    (recovered,) = recover_transactions(metastore, timeout_seconds=0)
    assert (recovered.txn_id, recovered.committed) == (txn_id, True)
    assert metastore.get_txn(txn_id).state is TxnState.COMMITTED

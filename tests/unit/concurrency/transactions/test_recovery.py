"""Recovery ends a transaction of a dead owner as the timelines of its tables say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import HeartbeatSettings, WriteSettings, begin_write, pending_instants
from airflow_provider.concurrency.transactions.recovery import recover_transactions
from airflow_provider.locks.owner import describe_owner
from airflow_provider.metastore import Column, EventType, Metastore, TxnState, open_metastore
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.timeline.metadata import WriteStat

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


@pytest.fixture
def metastore(tmp_path: Path) -> Metastore:
    return open_metastore(f"sqlite:///{tmp_path}/metastore.db")


@pytest.fixture
def table(tmp_path: Path, metastore: Metastore) -> HudiTable:
    table = HudiTable.create(
        str(tmp_path / "trips"), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    metastore.create_table(
        "default",
        "trips",
        location=table.location,
        schema=[Column("id", "bigint")],
        partition_keys=[Column("city", "string")],
    )
    return table


def left_alone(metastore: Metastore, operation_key: str) -> int:
    txn_id = metastore.open_txn("me", "here", agent=describe_owner(operation_key))
    metastore.allocate_table_write_id(txn_id, "default", "trips")
    return txn_id


def write(table: HudiTable, operation_key: str, *, commit: bool) -> str:
    writer = begin_write(
        table,
        operation="INSERT",
        operation_key=operation_key,
        settings=WriteSettings(heartbeat=HeartbeatSettings(60)),
    )
    writer.plan([FileGroupId("city=sf", f"{operation_key}-0")])
    path = f"city=sf/{operation_key}-0_0-0-0_{writer.instant}.parquet"
    table.storage.put(path, b"rows")
    if commit:
        writer.commit([WriteStat(f"{operation_key}-0", "city=sf", path)])
    return writer.instant


def test_a_transaction_whose_instant_completed_is_committed(metastore: Metastore, table: HudiTable) -> None:
    txn_id = left_alone(metastore, "task")
    instant = write(table, "task", commit=True)
    (recovered,) = recover_transactions(metastore, timeout_seconds=0)
    assert (recovered.txn_id, recovered.committed) == (txn_id, True)
    assert metastore.get_txn(txn_id).state == TxnState.COMMITTED
    (partition,) = metastore.get_partitions("default", "trips")
    assert partition.values == ("sf",)
    [inserted] = [event for event in metastore.next_events(0) if event.event_type == EventType.INSERT]
    assert inserted.event_id < recovered.event_id
    assert inserted.message["files"] == [f"{partition.location}/task-0_0-0-0_{instant}.parquet"]


def test_a_transaction_whose_instant_is_pending_is_aborted_and_rolled_back(
    metastore: Metastore, table: HudiTable
) -> None:
    txn_id = left_alone(metastore, "task")
    instant = write(table, "task", commit=False)
    (recovered,) = recover_transactions(metastore, timeout_seconds=0)
    assert (recovered.txn_id, recovered.committed) == (txn_id, False)
    assert metastore.get_txn(txn_id).state == TxnState.ABORTED
    assert pending_instants(table) == []
    assert not [status for status in table.storage.list("city=sf") if instant in status.name]
    assert metastore.get_partitions("default", "trips") == []


def test_a_transaction_that_wrote_nothing_is_aborted(metastore: Metastore, table: HudiTable) -> None:
    txn_id = left_alone(metastore, "task")
    write(table, "another-task", commit=True)
    (recovered,) = recover_transactions(metastore, timeout_seconds=0)
    assert (recovered.txn_id, recovered.committed) == (txn_id, False)


def test_a_transaction_with_a_heartbeat_is_left_alone(metastore: Metastore, table: HudiTable) -> None:
    txn_id = left_alone(metastore, "task")
    assert recover_transactions(metastore, timeout_seconds=60) == []
    assert metastore.get_txn(txn_id).state == TxnState.OPEN


def test_a_table_that_is_gone_does_not_stand_in_the_way(
    metastore: Metastore, table: HudiTable, tmp_path: Path
) -> None:
    txn_id = left_alone(metastore, "task")
    (tmp_path / "trips").rename(tmp_path / "moved")
    (recovered,) = recover_transactions(metastore, timeout_seconds=0)
    assert (recovered.txn_id, recovered.committed) == (txn_id, False)


class TestFromAService:
    """A service that cannot reach every table's storage continues with the other transactions."""

    def test_what_it_does_not_find_is_left_to_others(
        self, metastore: Metastore, table: HudiTable, tmp_path: Path
    ) -> None:
        txn_id, nothing = left_alone(metastore, "task"), metastore.open_txn("me", "here")
        instant = write(table, "task", commit=True)
        (tmp_path / "trips").rename(tmp_path / "elsewhere")
        (recovered,) = recover_transactions(metastore, timeout_seconds=0, sees_all_tables=False)
        assert (recovered.txn_id, recovered.committed) == (nothing, False)
        assert metastore.get_txn(txn_id).state == TxnState.OPEN
        metastore.record_write(txn_id, "default", "trips", instant)
        assert recover_transactions(metastore, timeout_seconds=0, sees_all_tables=False) == []
        (tmp_path / "elsewhere").rename(tmp_path / "trips")
        (recovered,) = recover_transactions(metastore, timeout_seconds=0, sees_all_tables=False)
        assert (recovered.txn_id, recovered.committed) == (txn_id, True)

    @pytest.mark.parametrize("location", ["/nowhere", "abfs://container@account/orders"])
    def test_a_write_of_another_kind_is_aborted(self, metastore: Metastore, location: str) -> None:
        metastore.create_table(
            "default",
            "orders",
            location=location,
            schema=[Column("id", "bigint")],
            hive_fields={"7": {"rec": {"3": {"str": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"}}}},
        )
        txn_id = metastore.open_txn("trino", "there")
        metastore.allocate_table_write_id(txn_id, "default", "orders")
        (recovered,) = recover_transactions(metastore, timeout_seconds=0, sees_all_tables=False)
        assert (recovered.txn_id, recovered.committed) == (txn_id, False)

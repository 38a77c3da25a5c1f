"""An operator, with Spark and without, a Spark session and Arrow rows write a registered table alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from airflow_provider.exceptions import EnclosingTransactionError, InvalidInputError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Metastore, TxnState
from airflow_provider.metastore.model.hive_json import decode_partition
from airflow_provider.operators import CreateTableOperator
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.flights import COLUMNS, ingest, rows_of, write_rows

DIFFER = {"table", "location", "instant", "completion_time", "txn_id", "event_id"}
"""The fields in which the results of any two writes differ."""


@pytest.fixture
def new_table(metastore, tmp_path) -> Callable[[str], HudiTable]:
    def create(name: str) -> HudiTable:
        location = str(tmp_path / "lake" / name)
        CreateTableOperator(
            task_id="create",
            table=f"lake.{name}",
            location=location,
            schema=COLUMNS,
            record_key=["id"],
            partition_by=["day"],
        ).execute({})
        return HudiTable.open(location)

    return create


def told(metastore: Metastore, table: HudiTable, after: int) -> list[tuple]:
    """The later events, in order, with their content except names of files and transactions."""
    found = []
    for event in metastore.next_events(after):
        message = event.message
        if event.event_type == "INSERT":
            files = [path.removeprefix(table.location).rsplit("/", 1)[0] for path in message["files"]]
            values = decode_partition(message["ptnObjJson"]).values
            found.append((event.event_type, event.table, values, files, message.get("replace")))
        else:
            found.append((event.event_type, event.table))
    return [tuple("TABLE" if each == table.config.name else each for each in event) for event in found]


def state(
    metastore: Metastore, table: HudiTable, after: int, results: list[dict[str, Any]]
) -> dict[str, Any]:
    """The metastore's state after a write, and the write's result."""
    name = table.config.name
    transactions = [metastore.get_txn(result["txn_id"]) for result in results]
    writes = [metastore.writes_of(each.id) for each in transactions]
    return {
        "events": told(metastore, table, after),
        "transactions": [(each.state, each.commit_on_recovery) for each in transactions],
        "instants": [
            [write.instant for write in each] == [result["instant"]]
            for each, result in zip(writes, results, strict=True)
        ],
        "write ids": [metastore.valid_write_id_list("lake", name).is_valid(number) for number in (1, 2, 3)],
        "committed by": [
            metastore.get_txn(result["txn_id"]).event_id == result["event_id"] for result in results
        ],
        "partitions": {
            each.values: each.location.removeprefix(table.location)
            for each in metastore.get_partitions("lake", name)
        },
        "columns": [column.name for column in metastore.get_table("lake", name).schema],
        "results": [{key: value for key, value in result.items() if key not in DIFFER} for result in results],
        "tables": [result["table"] == f"lake.{name}" for result in results],
        "rows": rows_of(table),
    }


def test_three_ways_leave_the_same(metastore, new_table, tmp_path, spark_connect, spark_connect_port) -> None:
    from pyspark.sql import SparkSession

    from airflow_provider.spark import IngestJob
    from airflow_provider.spark import ingest as ingest_by_spark

    loads = []
    for number, rows in enumerate(
        ([(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)], [(2, "mon", 21.0), (4, "wed", 40.0)])
    ):
        loads.append(tmp_path / f"load{number}")
        loads[-1].mkdir()
        write_rows(loads[-1] / "rows.parquet", rows)
    # This process may be a client of Spark Connect; its children must not inherit that mode.
    client = {"SPARK_CONNECT_MODE_ENABLED": "1"}
    with patch.dict(os.environ, client):
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{spark_connect_port}").create()

    def by_operator(name: str, load: Path) -> dict[str, Any]:
        return ingest(load, table=name, spark_conn_id=spark_connect).execute({})

    def by_files(name: str, load: Path) -> dict[str, Any]:
        return ingest(load, table=name, engine="arrow").execute({})

    def by_spark(name: str, load: Path) -> dict[str, Any]:
        with patch.dict(os.environ, client):
            return ingest_by_spark(session, IngestJob.of(name, (f"{load}/*.parquet",)), metastore=metastore)

    def by_arrow(name: str, load: Path) -> dict[str, Any]:
        return ingest_arrow(name, pq.read_table(load / "rows.parquet"), metastore=metastore)

    left = {}
    for way in (by_operator, by_files, by_spark, by_arrow):
        table, before = new_table(way.__name__), metastore.current_event_id()
        results = [way(f"lake.{table.config.name}", load) for load in loads]
        left[way.__name__] = state(metastore, table, before, results)
    with patch.dict(os.environ, client):
        session.stop()
    for result, other in zip(left["by_operator"]["results"], left["by_files"]["results"], strict=True):
        assert abs(other.pop("bytes") - result["bytes"]) < 200  # of names and times
        other["bytes"] = result["bytes"]
    assert left["by_files"] == left["by_operator"]
    for way in ("by_spark", "by_arrow"):
        for result, operators in zip(left[way]["results"], left["by_operator"]["results"], strict=True):
            # An operator's error has fewer words.
            assert result.pop("already_committed") is False
            assert sorted(result.pop("partitions")) == (
                ["day=mon", "day=tue"] if operators["rows_inserted"] == 3 else ["day=mon", "day=wed"]
            )
            assert abs(result.pop("bytes_written") - operators["bytes"]) < 200  # of names and times
        assert left[way] == left["by_operator"] | {
            "results": [
                {k: v for k, v in each.items() if k != "bytes"} for each in left["by_operator"]["results"]
            ]
        }
    assert left["by_arrow"]["transactions"] == [(TxnState.COMMITTED, True)] * 2
    assert left["by_arrow"]["write ids"] == [True, True, False]
    assert left["by_arrow"]["instants"] == left["by_arrow"]["committed by"] == [True, True]
    assert [each[0] for each in left["by_arrow"]["events"]].count("INSERT") == 4


class TestByName:
    """Features that only a shell has: a retry by the operation's key, and mistakes in its arguments."""

    ROWS = [(1, "mon", 10.0)]

    def rows(self, tmp_path: Path):
        write_rows(tmp_path / "rows.parquet", self.ROWS)
        return pq.read_table(tmp_path / "rows.parquet")

    def test_a_repeated_call_commits_the_transaction_of_the_first(
        self, metastore, new_table, tmp_path, monkeypatch
    ):
        table, rows = new_table("flights"), self.rows(tmp_path)

        def gone(*_: Any, **__: Any) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(type(metastore), "commit_txn", gone)
            with pytest.raises(KeyboardInterrupt):
                ingest_arrow("lake.flights", rows, metastore=metastore, operation_key="k")
        assert len(table.timeline().commits()) == 1
        again = ingest_arrow("lake.flights", rows, metastore=metastore, operation_key="k")
        assert again["already_committed"]
        assert len(HudiTable.open(table.location).timeline().commits()) == 1
        assert metastore.get_txn(again["txn_id"]).event_id == again["event_id"]
        assert [each.values for each in metastore.get_partitions("lake", "flights")] == [("mon",)]

    def test_what_committed_after_its_transaction_was_aborted_is_written_again(
        self, metastore, new_table, tmp_path, monkeypatch
    ):
        table, rows = new_table("flights"), self.rows(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(type(metastore), "commit_txn", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                ingest_arrow("lake.flights", rows, metastore=metastore, operation_key="k")
        [first] = table.timeline().commits()
        txn_id = metastore.valid_txn_list().high_watermark
        metastore.abort_txn(txn_id)
        again = ingest_arrow("lake.flights", rows, metastore=metastore, operation_key="k")
        assert not again["already_committed"]
        assert (again["txn_id"] > txn_id, again["instant"] > first.requested_time) == (True, True)
        assert rows_of(HudiTable.open(table.location)) == self.ROWS

    def test_a_write_joins_a_transaction_that_goes_on(self, metastore, new_table, tmp_path):
        from airflow_provider.concurrency.transactions import commit_transaction

        new_table("flights")
        txn_id = metastore.open_txn("me", "here")
        joined = ingest_arrow("lake.flights", self.rows(tmp_path), metastore=metastore, txn_id=txn_id)
        assert (joined["txn_id"], joined["write_id"], joined["event_id"]) == (txn_id, 1, None)
        assert metastore.get_txn(txn_id).state is TxnState.OPEN
        with pytest.raises(WriteConflictError, match="transaction"):
            ingest_arrow("lake.flights", self.rows(tmp_path), metastore=metastore)
        commit_transaction(metastore, txn_id)
        with pytest.raises(EnclosingTransactionError, match="begin another transaction"):
            ingest_arrow("lake.flights", self.rows(tmp_path), metastore=metastore, txn_id=txn_id)

    def test_a_name_needs_a_metastore(self, tmp_path):
        with pytest.raises(InvalidInputError, match=r"'lake\.flights' is given by its name in a metastore"):
            ingest_arrow("lake.flights", self.rows(tmp_path))

"""``@task.ingest`` writes the rows of a function into the table, as an IngestOperator does. No Spark runs."""

from __future__ import annotations

from datetime import datetime

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.assets import table_asset
from airflow_provider.concurrency import pending_instants
from airflow_provider.concurrency.write import committing
from airflow_provider.decorators.ingest import IngestDecoratedOperator
from airflow_provider.exceptions import CommitError, InvalidInputError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import open_lock
from airflow_provider.metastore import TxnState
from airflow_provider.operators import CreateTableOperator
from airflow_provider.reports import who
from airflow_provider.table import HudiTable, snapshot
from dags_examples import flights as flights_table
from dags_examples import flights_delays as example
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS, assert_undone, in_thread, last_transaction, rows_of
from tests.airflow.ingestion.example_flights import KEY, some_flights
from tests.airflow.processes import until

ROWS = [(1, "mon", 10.0), (2, "tue", 20.0)]
DICTS = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]


def returns(function, **arguments) -> IngestDecoratedOperator:
    return IngestDecoratedOperator(
        task_id="ingest", python_callable=function, **{"table": "lake.flights", **arguments}
    )


def test_it_is_a_task_of_a_dag_as_any_other(run_dag, metastore, table):
    with DAG("fares", schedule=None, start_date=datetime(2024, 1, 1)) as dag:

        @task
        def days() -> list[str]:
            return ["mon", "tue"]

        @task.ingest(table="lake.flights", operation="insert")
        def fares(of: list[str], run_id=None) -> pa.Table:
            assert run_id
            return pa.Table.from_pylist([row for row in DICTS if row["day"] in of])

        loaded = fares(days())
    assert loaded.operator.outlets == [table_asset("lake.flights")]
    run = run_dag(dag)
    assert run.state == "success"
    assert rows_of(table) == ROWS
    result = xcom(run, "fares")
    assert (result["table"], result["rows_inserted"], result["write_id"]) == ("lake.flights", 2, 1)
    txn = metastore.get_txn(result["txn_id"])
    assert txn.event_id == result["event_id"]
    by = who(txn.agent)
    assert (by["dag"], by["task"], by["run"]) == ("fares", "fares", run.run_id)
    registered = metastore.get_partitions("lake", "flights")
    assert {partition.values[0] for partition in registered} == {"mon", "tue"}


@pytest.mark.parametrize(
    "rows",
    [
        pa.Table.from_pylist(DICTS),
        pa.RecordBatch.from_pylist(DICTS),
        pd.DataFrame(DICTS, index=["x", "y"]),
        DICTS,
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_rows_of_each_kind(table, rows):
    assert returns(lambda: rows).execute({})["rows_inserted"] == 2
    assert rows_of(table) == ROWS


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (None, "returns an Arrow table, .* not NoneType"),
        ([1, 2], "not list"),
        (pa.Table.from_pylist(DICTS).slice(0, 0), "holds no row"),
        (pa.table({"id": [1]}), "day"),
    ],
)
def test_what_is_no_row_is_refused_before_anything_is_written(metastore, table, rows, told):
    before = metastore.valid_txn_list().high_watermark
    with pytest.raises(AirflowFailException, match=told):
        returns(lambda: rows).execute({})
    assert metastore.valid_txn_list().high_watermark == before


@pytest.mark.parametrize("argument", ["source", "spark_conn_id", "source_options"])
def test_it_takes_no_source_and_no_spark(argument):
    with pytest.raises(InvalidInputError, match=f"leave out: {argument}"):
        returns(lambda: DICTS, **{argument: "x"})


def test_an_error_of_the_function_leaves_nothing(metastore, table):
    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        returns(fails).execute({})
    assert rows_of(table) == []


def dies(*_, **__):
    raise SystemExit


class Store(dict):
    def set(self, key, value):
        self[key] = value


def test_a_retry_finds_the_commit_of_the_try_before_and_does_not_call_the_function(
    metastore, table, monkeypatch
):
    """The worker dies after the commit, before it commits the metastore's transaction."""
    context = {"task_state_store": Store()}
    with monkeypatch.context() as dying:
        dying.setattr(type(metastore), "commit_txn", dies)
        with pytest.raises(SystemExit):
            returns(lambda: DICTS).execute(context)

    def is_not_called():
        raise AssertionError

    result = returns(is_not_called).execute(context)
    assert (result["rows_inserted"], rows_of(table)) == (2, ROWS)
    assert metastore.get_txn(result["txn_id"]).state is TxnState.COMMITTED


def test_a_lost_conflict_is_retryable_and_undone(metastore, table, monkeypatch):
    ingest_arrow(table.location, pa.Table.from_pylist(DICTS))
    commits = len(table.timeline().commits())
    commit = committing.Committing.run

    def late(self):
        monkeypatch.setattr(committing.Committing, "run", commit)
        ingest_arrow(table.location, pa.Table.from_pylist(DICTS[:1]))
        return commit(self)

    monkeypatch.setattr(committing.Committing, "run", late)
    with pytest.raises(WriteConflictError):
        returns(lambda: DICTS).execute({})
    assert len(table.timeline().commits()) == commits + 1
    assert last_transaction(metastore).state == TxnState.ABORTED


def test_killing_the_task_gives_the_write_up(metastore, table):
    running = returns(lambda: DICTS, heartbeat_interval=0.2, tolerable_misses=2)
    with open_lock({}, table.storage):
        thread, outcome = in_thread(lambda: running.execute({}))
        until(lambda: pending_instants(table))
        running.on_kill()
        until(lambda: all(pending.alive is False for pending in pending_instants(table)))
    thread.join()
    assert isinstance(outcome[0], CommitError), outcome
    assert_undone(metastore, table)


def test_the_example(run_dag, metastore, tmp_path, monkeypatch):
    flights = some_flights()
    monkeypatch.setenv("AIRFLOW_VAR_LAKE", str(tmp_path))
    CreateTableOperator(
        task_id="create",
        table="lake.flights",
        location=f"{tmp_path}/flights",
        schema=flights_table.COLUMNS,
        record_key=KEY,
    ).execute({})
    ingest_arrow("lake.flights", flights.select(flights_table.COLUMNS), "insert", metastore=metastore)
    assert run_dag(example.dag).state == "success"
    found = snapshot(HudiTable.open(f"{tmp_path}/delays")).to_table()
    arrived = flights.filter(pc.is_valid(flights["arr_delay"]))
    assert pc.sum(found["flights"]).as_py() == arrived.num_rows
    total = pc.sum(pc.multiply(found["flights"], found["delay"])).as_py()
    assert total == pytest.approx(pc.sum(arrived["arr_delay"]).as_py())

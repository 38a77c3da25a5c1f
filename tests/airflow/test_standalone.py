"""With Airflow's own scheduler, supervisor and triggerer: killing, clearing and deferring for real."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.concurrency import begin_write, pending_instants
from airflow_provider.locks import open_lock
from airflow_provider.metastore import Metastore, TxnState, open_metastore
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.processes import processes_of, session_of_writer, until
from tests.airflow.standalone import Airflow

DAGS = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider.operators import CreateTableOperator, IngestOperator
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor

with DAG("load", schedule=None, start_date=datetime(2024, 1, 1)):
    create = CreateTableOperator(
        task_id="create",
        table="lake.flights",
        location="{lake}/flights",
        schema={{"id": "bigint"}},
        record_key="id",
        if_not_exists=True,
    )
    ingest = IngestOperator(
        task_id="ingest", table="lake.flights", source="{lake}/in.parquet", operation="insert"
    )
    create >> ingest

params = {{"until": 0, "before": ""}}
with DAG("wait", schedule=None, start_date=datetime(2024, 1, 1), params=params):
    waiting = {{"deferrable": True, "poke_interval": 0.5, "timeout": 60}}
    NotificationLogCatchupSensor(task_id="caught_up", until="{{{{ params.until }}}}", **waiting)
    PriorCommitsFenceSensor(
        task_id="fence", table="lake.flights", before="{{{{ params.before }}}}", **waiting
    )
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    home = tmp_path_factory.mktemp("standalone")
    lake = home / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), lake / "in.parquet")
    running = Airflow(home, {"flights.py": DAGS.format(lake=lake)})
    try:
        running.start("load", "wait")
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def metastore(airflow) -> Metastore:
    return open_metastore(f"sqlite:///{airflow.home}/table_services/metastore.db")


@pytest.fixture(scope="module")
def loaded(airflow) -> str:
    """A run that has loaded three rows."""
    run = airflow.trigger("load")
    until(lambda: airflow.state(run, "ingest") in {"success", "failed"})
    assert airflow.state(run, "ingest") == "success", airflow.log(run, "ingest")
    return run


@pytest.fixture
def table(airflow, loaded) -> HudiTable:
    return HudiTable.open(f"{airflow.lake}/flights")


def test_the_result_the_log_and_the_state_of_a_load(airflow, loaded, metastore):
    result = airflow.result(loaded, "ingest")
    assert (result["rows_inserted"], result["write_id"]) == (3, 1)
    assert metastore.get_txn(result["txn_id"]).event_id == result["event_id"]
    log = airflow.log(loaded, "ingest")
    assert "Using Spark's default log4j profile" in log
    assert f"instant {result['instant']} completed at {result['completion_time']}: 3 rows inserted" in log
    # What the next try would go by is there for people too, in the task's tab "Storage".
    [kept] = airflow.call("GET", f"{loaded}/taskInstances/ingest/state-store")["task_state_store"]
    assert kept["value"]["txn_id"] == result["txn_id"]
    assert kept["value"]["key"].startswith("load.ingest/manual__")


def test_sensors_defer_to_the_triggerer_and_come_back(airflow, metastore, table):
    metastore.register_consumer("replica", if_not_exists=True)
    metastore.create_database("later")
    until_event = metastore.current_event_id()
    with begin_write(table, operation="UPSERT") as earlier:
        run = airflow.trigger("wait", until=until_event, before=str(int(earlier.instant) + 1))
        until(
            lambda: airflow.state(run, "caught_up") == airflow.state(run, "fence") == "deferred", seconds=60
        )
        metastore.advance_consumer("replica", until_event)
        until(lambda: airflow.state(run, "caught_up") == "success")
        assert airflow.state(run, "fence") == "deferred"
    until(lambda: airflow.state(run, "fence") == "success")
    assert airflow.result(run, "caught_up")["consumers"] == {"replica": until_event}
    assert f"waiting: commit {earlier.instant} (UPSERT) by " in airflow.log(run, "fence")
    metastore.unregister_consumer("replica")


def test_clearing_a_task_does_its_work_again(airflow, loaded, table):
    commits = len(table.timeline().commits())
    first = airflow.result(loaded, "ingest")
    dag = loaded.partition("/dagRuns/")
    airflow.call(
        "POST",
        f"{dag[0]}/clearTaskInstances",
        {"dry_run": False, "dag_run_id": dag[2], "task_ids": ["ingest"], "only_failed": False},
    )
    until(lambda: len(table.timeline().commits()) == commits + 1)
    until(lambda: airflow.state(loaded, "ingest") == "success")
    assert airflow.result(loaded, "ingest")["write_id"] == first["write_id"] + 1


def test_a_task_set_to_failed_in_the_ui_leaves_no_process_and_no_write(airflow, metastore, table):
    commits = table.timeline().commits()
    with open_lock({"lease_seconds": 5}, table.storage):
        run = airflow.trigger("load")
        session = until(lambda: session_of_writer(table))
        transaction = metastore.valid_txn_list().high_watermark
        assert len(processes_of(session)) >= 2
        airflow.call("PATCH", f"{run}/taskInstances/ingest", {"new_state": "failed"})
        until(lambda: processes_of(session) == [])
        until(lambda: pending_instants(table) == [], seconds=10)
    assert table.timeline().commits() == commits
    until(lambda: metastore.get_txn(transaction).state == TxnState.ABORTED, seconds=10)
    assert airflow.state(run, "ingest") == "failed"

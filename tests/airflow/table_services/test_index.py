"""Tasks that plan indexes, wait for them, build them by a Spark job, try again, and drop them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from airflow_provider.concurrency.commit import Moment
from airflow_provider.concurrency.heartbeats.heartbeat import HeartbeatInfo, heartbeat_path
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.indexing import index_status, pending_indexings, schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import (
    BuildIndexOperator,
    CreateTableOperator,
    DropIndexOperator,
    RunIndexOperator,
    ScheduleIndexOperator,
)
from airflow_provider.sensors import IndexReadySensor
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table.index_definitions import read_index_definitions
from tests.airflow.conftest import xcom
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}
TABLE = {"table": "lake.flights"}


@pytest.fixture
def flights(table: HudiTable) -> HudiTable:
    rows = [{"id": n, "day": day, "fare": float(n)} for n, day in enumerate(("mon", "tue") * 4)]
    ingest_arrow(table, pa.Table.from_pylist(rows, table.schema), "bulk_insert")
    return table


def test_a_dag_plans_builds_waits_and_drops(run_dag, flights, spark_connect, nowhere):
    with DAG("indexes", **START) as dag:
        plan = ScheduleIndexOperator(
            task_id="plan",
            **TABLE,
            indexes=["column_stats", "bloom_filters"],
            columns=["{{ params.c }}"],
            params={"c": "fare"},
        )
        run = RunIndexOperator(
            task_id="run",
            **TABLE,
            instant="{{ ti.xcom_pull('plan')['instant'] }}",
            spark_conn_id=spark_connect,
            engine="spark",
        )
        ready = IndexReadySensor(task_id="ready", **TABLE, indexes="column_stats", deferrable=True)
        again = BuildIndexOperator(task_id="again", **TABLE, indexes=["column_stats"], spark_conn_id=nowhere)
        drop = DropIndexOperator(task_id="drop", **TABLE, indexes=["bloom_filters"])
        plan >> run >> ready >> again >> drop
    finished = run_dag(dag)
    planned, ran = xcom(finished, "plan"), xcom(finished, "run")
    assert ran["instant"] == planned["instant"]
    assert ran["indexes"] == ["files", "column_stats", "bloom_filters"]
    assert (ran["table"], ran["action"], ran["txn_id"]) == ("lake.flights", "indexing", None)
    assert xcom(finished, "ready")["indexes"] == ["column_stats"]
    # `files` has both partitions and their list; each file has four columns and a bloom filter.
    assert ran["records"] == 3 + 2 * (4 + 1)
    assert xcom(finished, "again")["instant"] is None, "all of it is complete: no Spark is asked for"
    assert xcom(finished, "drop")["indexes"] == ["bloom_filters"]
    assert_indexes_equal_a_rebuild(flights, ["column_stats", "files"])


def test_the_example_s_dags(airflow_database):
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(Path(__file__).parents[3] / "dags_examples/flights_index.py", bundle_name="dags-folder")
    assert not bag.import_errors
    assert {name: list(dag.task_dict) for name, dag in bag.dags.items()} == {
        "flights_index": ["build", "ready"],
        "flights_index_anew": ["drop", "plan", "run"],
    }


class Store(dict):
    """Stands in for Airflow's task state store, for tries that the test makes itself."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


def try_of(store: Store) -> dict:
    ti = SimpleNamespace(dag_id="nightly", task_id="index", run_id="manual", map_index=-1, max_tries=1)
    return {"ti": ti, "task_state_store": store}


def test_a_retry_ends_what_its_last_try_left_and_minds_what_others_do(flights, spark_connect, monkeypatch):
    def operator(**arguments) -> BuildIndexOperator:
        return BuildIndexOperator(task_id="index", **TABLE, indexes="record_index", **arguments)

    store = Store()
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nowhere")  # no Spark starts
        patched.setenv("JAVA_HOME", "/nowhere")
        with pytest.raises(AirflowFailException, match="no Java found"):
            operator(engine="spark").execute(try_of(store))
    (instant,) = pending_indexings(flights)
    ((_, remembered),) = store.items()
    # The process of that try is gone, but its heartbeat is still fresh.
    info = HeartbeatInfo("a lost worker", "indexing", "INDEX", operation_key=remembered["key"])
    flights.storage.put(heartbeat_path(instant), info.to_json())
    with pytest.raises(WriteConflictError, match="carried out already by a lost worker"):
        operator(spark_conn_id=spark_connect).execute(try_of(Store()))
    built = operator(spark_conn_id=spark_connect).execute(try_of(store))
    assert (built["instant"], built["indexes"]) == (instant, ["files", "record_index"])
    assert_indexes_equal_a_rebuild(flights, ["files", "record_index"])


def test_a_retry_builds_at_once_what_its_killed_try_has_planned(flights, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt  # the plan exists, and so does its planner's heartbeat

    operator = BuildIndexOperator(task_id="index", **TABLE, indexes="record_index")
    store = Store()
    with monkeypatch.context() as patched:
        patched.setattr(Moment, "keep_requested", killed)
        with pytest.raises(KeyboardInterrupt):
            operator.execute(try_of(store))
    (instant,) = pending_indexings(flights)
    assert pending_indexings(flights, idle=True) == []
    built = operator.execute(try_of(store))
    assert (built["instant"], built["indexes"]) == (instant, ["files", "record_index"])


def test_input_that_cannot_work_is_not_tried_again(flights, nowhere):
    for operator in (
        BuildIndexOperator(task_id="index", **TABLE, indexes=["record_indx"], spark_conn_id=nowhere),
        RunIndexOperator(task_id="index", **TABLE, instant="20240101000000000", spark_conn_id=nowhere),
        DropIndexOperator(task_id="index", **TABLE, indexes=[]),
    ):
        with pytest.raises(AirflowFailException):
            operator.execute({})


def test_the_sensor_says_what_it_waits_for(flights, caplog):
    def waited(*indexes: str) -> str:
        sensor = IndexReadySensor(
            task_id="ready", **TABLE, indexes=indexes, timeout=0.1, poke_interval=0.05, mode="poke"
        )
        with pytest.raises(AirflowSensorTimeout, match=r"still waiting: (.+)") as timed_out:
            sensor.execute({})
        return str(timed_out.value).partition("still waiting: ")[2]

    assert waited("files") == "files is not planned"
    instant = schedule_index(flights, ["bloom_filters"])
    assert instant is not None
    assert waited("bloom_filters", "files") == (
        f"bloom_filters is planned by {instant}, and nobody builds it; "
        f"files is planned by {instant}, and nobody builds it"
    )
    info = HeartbeatInfo("worker 7", "indexing", progress="building from 2 files")
    flights.storage.put(heartbeat_path(instant), info.to_json())
    assert waited("bloom_filters") == "bloom_filters is built by worker 7: building from 2 files"


def test_hudi_s_options_say_which_indexes_and_of_which_columns(flights, nowhere):
    options = {
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.metadata.index.column.stats.column.list": "fare",
        "hoodie.metadata.index.partition.stats.enable": "{{ false }}",
    }
    operator = ScheduleIndexOperator(task_id="plan", **TABLE, hudi_options=options)
    operator.render_template_fields({})
    assert operator.execute({})["instant"] == pending_indexings(flights)[0]
    assert [each.index for each in index_status(flights)] == ["files", "column_stats"]
    assert read_index_definitions(flights.storage)["column_stats"].source_fields[-1] == "fare"
    with pytest.raises(AirflowFailException, match="no index is named"):
        BuildIndexOperator(task_id="build", **TABLE, indexes=[], spark_conn_id=nowhere).execute({})


def test_a_table_whose_options_enable_no_index_needs_none(flights, nowhere):
    built = BuildIndexOperator(task_id="build", **TABLE, spark_conn_id=nowhere).execute({})
    assert (built["instant"], built["indexes"]) == (None, [])
    assert ScheduleIndexOperator(task_id="plan", **TABLE).execute({})["instant"] is None
    assert index_status(flights) == []


def test_a_merge_on_read_table_gets_indexes(metastore, tmp_path):
    location = str(tmp_path / "lake" / "trips")
    CreateTableOperator(
        task_id="create",
        table="lake.trips",
        location=location,
        schema={"id": "bigint", "fare": "double"},
        record_key="id",
        table_type="merge_on_read",
    ).execute({})
    table = HudiTable.open(location)
    for fare in (1.0, 2.0):  # the second is in a log file
        rows = [{"id": n, "fare": fare} for n in range(5)]
        ingest_arrow(table, pa.Table.from_pylist(rows, table.schema), "upsert")
    done = BuildIndexOperator(task_id="build", table="lake.trips", indexes=["record_index"]).execute({})
    assert (done["indexes"], done["records"] > 0) == (["files", "record_index"], True)
    plan = ScheduleIndexOperator(task_id="plan", table="lake.trips", indexes=["column_stats"]).execute({})
    run = RunIndexOperator(task_id="run", table="lake.trips", instant=plan["instant"]).execute({})
    assert run["indexes"] == ["column_stats"]

"""Clustering as tasks: planned without Spark, executed by a Spark job, killed and tried again."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency import begin_planned
from airflow_provider.exceptions import JobFailedError, NoSuchInstantError, ServiceStoppedError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import ClusteringOperator, RunClusteringOperator, ScheduleClusteringOperator
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    pending_clusterings,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import State
from tests.airflow.conftest import xcom
from tests.airflow.flights import in_thread, rows_of
from tests.airflow.processes import until

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}
TABLE = {"table": "lake.flights"}


@pytest.fixture
def small_files(table: HudiTable) -> HudiTable:
    """Two partitions with three file groups each."""
    for number in range(3):
        rows = [
            {"id": 10 * number + n, "day": day, "fare": float(-n)} for day in ("mon", "tue") for n in range(4)
        ]
        ingest_arrow(table, pa.Table.from_pylist(rows, table.schema), "bulk_insert")
    return table


class Store(dict):
    """Stands in for Airflow's task state store, for tries that the test makes itself."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


def try_of(store: Store) -> dict:
    ti = SimpleNamespace(dag_id="tidy", task_id="cluster", run_id="manual", map_index=-1, max_tries=1)
    return {"ti": ti, "task_state_store": store}


def test_a_dag_plans_carries_out_and_does_both(run_dag, metastore, small_files, spark_connect, capfd):
    before, head = rows_of(small_files), metastore.current_event_id()
    spark = {"spark_conn_id": spark_connect}
    with DAG("tidy", **START) as dag:
        plan = ScheduleClusteringOperator(
            task_id="plan",
            **TABLE,
            partitions="day={{ params.day }}",
            sort_by=["fare"],
            params={"day": "mon"},
        )
        run = RunClusteringOperator(
            task_id="run", **TABLE, **spark, engine="spark", instant="{{ ti.xcom_pull('plan')['instant'] }}"
        )
        both = ClusteringOperator(task_id="both", **TABLE, **spark, sort_by=["fare"])
        plan >> run >> both >> ClusteringOperator(task_id="nothing", **TABLE, sort_by="fare")
    finished = run_dag(dag)
    planned, first, second = (xcom(finished, name) for name in ("plan", "run", "both"))
    assert (planned["groups"], planned["file_groups"], planned["action"]) == (1, 3, "clustering")
    assert (first["instant"], first["files_replaced"], first["files_written"]) == (planned["instant"], 3, 1)
    assert (first["rows"], first["groups_done"], first["txn_id"]) == (12, 1, None)
    assert second["groups_done"] == 1
    assert xcom(finished, "nothing")["instant"] is None
    assert rows_of(small_files) == before
    assert metastore.current_event_id() == head  # no row has changed, so there is no event
    for base_file in small_files.base_files():
        fares = read_base_file(small_files.storage, base_file.path, ["fare"])["fare"].to_pylist()
        assert fares == sorted(fares)
    told = "".join(capfd.readouterr())
    assert "; 1 of 1 groups done" in told
    assert "engine spark: as engine='spark' says" in told
    assert "engine arrow: 1 clustering groups, " in told


def test_the_example_s_dags(airflow_database):
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(Path(__file__).parents[3] / "dags_examples/flights_clustering.py", bundle_name="dags-folder")
    assert not bag.import_errors
    assert {name: list(dag.task_dict) for name, dag in bag.dags.items()} == {
        "flights_clustering": ["cluster"],
        "flights_packing": ["plan", "run"],
    }


def test_without_a_plan_no_spark_is_started(small_files, nowhere):
    operator = RunClusteringOperator(task_id="run", **TABLE, spark_conn_id=nowhere)
    operator.instant = "None"  # a template renders the missing plan to this text
    assert operator.execute({})["instant"] is None
    both = ClusteringOperator(task_id="both", **TABLE, spark_conn_id=nowhere, partitions=["day=sun"])
    assert both.execute({})["instant"] is None


def test_a_task_that_is_killed_leaves_nothing_and_its_retry_does_the_work(
    small_files, spark_connect, nowhere
):
    store, before = Store(), rows_of(small_files)
    operator = ClusteringOperator(task_id="cluster", **TABLE, engine="spark")
    thread, outcome = in_thread(lambda: operator.execute(try_of(store)))
    # The planner keeps a heartbeat, too, for a moment; only an executor makes the instant inflight.
    until(lambda: any(each.state is State.INFLIGHT for each in small_files.timeline().pending()))
    operator.on_kill()
    thread.join(300)
    assert isinstance(outcome[0], JobFailedError)
    assert pending_clusterings(small_files) == []
    assert len(small_files.base_files()) == 6
    retry = ClusteringOperator(task_id="cluster", **TABLE, spark_conn_id=spark_connect)
    result = retry.execute(try_of(store))
    assert (result["groups_done"], rows_of(small_files)) == (2, before)
    # A retry after the commit does nothing more, and starts no job.
    again = ClusteringOperator(task_id="cluster", **TABLE, spark_conn_id=nowhere).execute(try_of(store))
    assert again == result


def test_a_task_that_is_killed_before_its_job_begins_leaves_a_plan_for_its_retry(
    small_files, nowhere, monkeypatch
):
    store, before = Store(), rows_of(small_files)
    operator = ClusteringOperator(task_id="cluster", **TABLE, spark_conn_id=nowhere)
    monkeypatch.setattr(operator, "_choose", lambda *_: operator.on_kill() or "arrow")
    with pytest.raises(JobFailedError):
        operator.execute(try_of(store))
    assert len(pending_clusterings(small_files, idle=True)) == 1
    result = ClusteringOperator(task_id="cluster", **TABLE, spark_conn_id=nowhere).execute(try_of(store))
    assert (result["groups_done"], rows_of(small_files)) == (2, before)
    assert pending_clusterings(small_files) == []


def test_a_plan_that_others_have_carried_out_or_rolled_back(small_files, nowhere):
    instant = schedule_clustering(small_files, ClusteringSettings(partitions=("day=mon",)))
    done = cluster_in_process(small_files)
    operator = RunClusteringOperator(task_id="run", **TABLE, spark_conn_id=nowhere, instant=instant)
    assert operator.execute({})["completion_time"] == done["completion_time"]
    other = schedule_clustering(small_files, ClusteringSettings())
    begin_planned(small_files, other).abort("its executor was killed")
    told = f"no clustering plan {other}: it was rolled back when .* executed it .its executor was killed."
    with pytest.raises(AirflowFailException, match=told) as caught:
        RunClusteringOperator(task_id="run", **TABLE, spark_conn_id=nowhere, instant=other).execute({})
    assert isinstance(caught.value.__cause__, NoSuchInstantError)


def test_a_table_on_which_it_has_stopped_itself(small_files):
    for _ in range(2):
        begin_planned(small_files, schedule_clustering(small_files, ClusteringSettings())).abort("broken")
    with pytest.raises(AirflowFailException, match=r"failed 2 times in a row.*broken") as caught:
        ClusteringOperator(task_id="cluster", **TABLE, max_failures=2).execute({})
    assert isinstance(caught.value.__cause__, ServiceStoppedError)
    planned = ScheduleClusteringOperator(task_id="plan", **TABLE, max_failures=None).execute({})
    assert planned["groups"] == 2

"""Jobs whose driver runs on a cluster: a deferrable task leaves its job there, and holds no slot."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import datetime
from importlib import import_module

import pytest
from airflow.sdk import DAG, Connection
from airflow.sdk.exceptions import TaskDeferred

from airflow_provider.concurrency import pending_instants
from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.hooks import spark_cluster as managers
from airflow_provider.locks import open_lock
from airflow_provider.metastore import TxnState
from airflow_provider.operators import ClusteringOperator
from airflow_provider.operators._base.spark_job import shared_folder
from airflow_provider.spark.job_answer import JOBS_FOLDER
from airflow_provider.table.storage import Storage
from tests.airflow.conftest import xcom
from tests.airflow.flights import ingest, last_transaction, rows_of
from tests.airflow.ingestion.test_ingest_recovery import Store, try_of
from tests.airflow.on_spark.spark_cluster import spark_cluster
from tests.airflow.processes import has_written, until

SOAK = "SOAK" in os.environ  # each job is a driver and an executor: half a minute of processor time
SMALL = {"driver_memory": "512m", "executor_memory": "512m", "total_executor_cores": 1}

RM = json.dumps({"yarn_resourcemanager_webapp_address": "http://rm:8088"})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def on_cluster(connect, cluster, spark_on_this_machine) -> dict:
    """Arguments of an operator whose job runs on the cluster."""
    extra = {"deploy-mode": "cluster", "rest-port": cluster.rest_port}
    connect("spark", conn_type="spark", host="spark://127.0.0.1", port=cluster.port, extra=json.dumps(extra))
    python = dict.fromkeys(("spark.pyspark.python", "spark.pyspark.driver.python"), sys.executable)
    return {
        "spark_conn_id": "spark",
        "spark_conf": python,
        "spark_submit_options": SMALL,
        "engine": "spark",
        "deferrable": True,
    }


def deferred(task, context):
    """The trigger to which a task defers, as Airflow's database returns it."""
    with pytest.raises(TaskDeferred) as raised:
        task.execute(context)
    assert raised.value.method_name == "execute_after_job"
    path, arguments = raised.value.trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(**json.loads(json.dumps(arguments)))


def test_a_load_commits_once(run_dag, metastore, table, source, on_cluster):
    with DAG("on_a_cluster", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        load = ingest(source, **on_cluster)
        if SOAK:
            load >> ClusteringOperator(task_id="cluster", table="lake.flights", sort_by="fare", **on_cluster)
    run = run_dag(dag)
    assert run.state == "success"
    assert len(rows_of(table)) == 3
    results = [xcom(run, task_id) for task_id in dag.task_ids]
    instants = [each.requested_time for each in table.timeline().commits()]
    assert instants == sorted(each["instant"] for each in results)
    txn = metastore.get_txn(results[0]["txn_id"])
    assert (txn.state, txn.event_id) == (TxnState.COMMITTED, results[0]["event_id"])
    assert len(metastore.get_partitions("lake", "flights")) == 2
    assert table.storage.list(JOBS_FOLDER) == []


def test_another_try_finds_it_and_a_person_ends_it(metastore, table, source, cluster, on_cluster):
    store = Store()
    first = deferred(ingest(source, **on_cluster), try_of(store))
    with open_lock({"owner": "somebody"}, table.storage):
        until(lambda: has_written(table))
        # Airflow has lost the deferral: the next try starts no second job.
        again = deferred(ingest(source, **on_cluster), try_of(store))
        assert (again.job_id, again.submission) == (first.job_id, first.submission)
        asyncio.run(again.connect())
        [told] = again.look().blocking
        assert told == f"driver {first.submission} of job {first.job_id}: RUNNING"
        asyncio.run(again.on_kill())
    assert pending_instants(table) == []
    assert rows_of(table) == []
    assert last_transaction(metastore).state == TxnState.ABORTED
    until(lambda: cluster.state_of(first.submission) != "RUNNING")


def test_its_files_have_to_be_where_all_machines_see_them():
    with pytest.raises(
        InvalidConnectionError, match="each of its machines sees, and the table is at memory://t"
    ):
        shared_folder(Storage("memory://t"), "spark")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host": "spark://one:7077,two:7077"}, managers.StandaloneCluster),
        ({"host": "one", "port": 7077}, managers.StandaloneCluster),
        ({"host": "yarn", "extra": RM}, managers.YarnCluster),
        ({"host": "yarn"}, None),
        ({"host": "k8s://https://one", "port": 443}, None),
        ({"host": "local[2]"}, None),
    ],
)
def test_whose_manager_can_be_asked(fields, expected):
    found = managers.spark_cluster(Connection(conn_id="spark", conn_type="spark", **fields))
    assert type(found) is (expected or type(None))

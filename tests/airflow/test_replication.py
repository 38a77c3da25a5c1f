"""A replication between two metastores in DAGs: following the source, waiting for the target, failover."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.operators import FailoverOperator, ReplicateOperator
from airflow_provider.sensors import ReplicationLagSensor
from airflow_provider.table import HudiTable, snapshot
from dags_examples.flights_replication import hand_over, replication
from tests.airflow.conftest import xcom
from tests.unit.concurrency.transactions.transactional_lake import rows_of
from tests.unit.replication.pair import Pair

CONNECTIONS = {"source_metastore_conn_id": "here", "target_metastore_conn_id": "there"}


@pytest.fixture
def pair(tmp_path, monkeypatch):
    for conn_id, side in (("here", "source"), ("there", "target")):
        extra = {"url": f"sqlite:///{tmp_path}/{side}/metastore.db"}
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "table_metastore", "extra": extra})
        )
    made = Pair(tmp_path)
    made.lake.write("trips", {1: 10, 100: 5})
    return made


def what(pair, **more):
    where = {"databases": {"lake": "lake_copy"}, "locations": dict(pair.policy.locations)}
    return {"policy": "dr", **where, **CONNECTIONS, **more}


def test_a_replication_is_followed_waited_for_and_handed_over(run_dag, pair):
    txn = pair.source.next_events(0, event_types=["COMMIT_TXN"])[-1].message["txnid"]
    with DAG("replication", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        replicate = ReplicateOperator(
            task_id="replicate",
            **what(pair, policy="{{ params.policy }}"),
            follow_for="{{ params.seconds }}",
            poll_interval=0.1,
            deferrable=True,
            params={"policy": "dr", "seconds": 0.5},
        )
        arrived = ReplicationLagSensor(
            task_id="arrived", policy="dr", txn_id=txn, max_events=0, deferrable=True, **CONNECTIONS
        )
        hand_over = FailoverOperator(task_id="hand_over", mode="planned", **what(pair))
        replicate >> arrived >> hand_over
    run = run_dag(dag)
    done = xcom(run, "replicate")
    assert done["bootstrapped"] is True
    assert done["bytes_copied"] > 0
    assert xcom(run, "arrived")["events"] == 0
    assert xcom(run, "hand_over")["back"] == "dr-back"
    pair.check_equal()
    pair.target.alter_table("lake_copy", "trips", parameters={"takes": "writes"})


def test_a_pass_in_the_worker_and_what_is_not_there_yet(pair):
    sensor = ReplicationLagSensor(
        task_id="lag", policy="dr", max_seconds=0, txn_id={"txn_id": 1}, **CONNECTIONS
    )
    done = ReplicateOperator(task_id="replicate", **what(pair), follow_for=0.05, poll_interval=0.01).execute(
        {}
    )
    assert done["bootstrapped"] is True
    assert sensor.look().is_done
    pair.lake.write("trips", {1: 11})
    late = ReplicationLagSensor(task_id="late", policy="dr", max_events=0, txn_id=2, **CONNECTIONS).look()
    assert [line.split(" ")[0] for line in late.blocking] == ["dr", "transaction"]
    with pytest.raises(AirflowFailException, match="give planned, abort, promote or follow"):
        FailoverOperator(task_id="fail", mode="at once", **what(pair)).execute({})
    with pytest.raises(AirflowFailException, match=r"follows sqlite:.*another name"):
        ReplicateOperator(
            task_id="other", **what(pair, source_metastore_conn_id="there", target_metastore_conn_id="there")
        ).execute({})


def test_the_example_replicates_and_hands_over(run_dag, pair, monkeypatch):
    for name, conn_id in (("default", "here"), ("copy", "there")):
        described = os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"]
        monkeypatch.setenv(f"AIRFLOW_CONN_TABLE_METASTORE_{name.upper()}", described)
    monkeypatch.setenv("AIRFLOW_VAR_LAKE", f"{pair.root}/source")
    monkeypatch.setenv("AIRFLOW_VAR_LAKE_COPY", f"{pair.root}/target")
    assert xcom(run_dag(replication, run_conf={"minutes": 0}), "replicate")["bootstrapped"] is True
    pair.lake.write("trips", {1: 11})
    assert xcom(run_dag(hand_over), "fail_over")["back"] == "flights-back"
    found = HudiTable.open(pair.target.get_table("lake_copy", "trips").location)
    assert rows_of(snapshot(found).to_table()) == {1: 11, 100: 5}


@pytest.mark.parametrize("operator", [ReplicateOperator, FailoverOperator])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"policy": None}, "None cannot name a replication"),
        ({"databases": ["lake"]}, "databases must be a mapping, not ['lake']"),
        ({"databases": None}, "needs a database"),
        ({"databases": {"lake": 3}}, "databases must map texts to texts, not 'lake' to 3"),
        ({"locations": "/srv"}, "locations must be {source: target}, or pairs of both, not '/srv'"),
        ({"locations": None}, "locations must be {source: target}, or pairs of both, not None"),
        ({"locations": {"/srv": 3}}, "locations must map texts to texts, not '/srv' to 3"),
    ],
)
def test_what_names_no_replication_is_not_tried_again(pair, operator, arguments, said):
    head = pair.target.current_event_id()
    mode = {"mode": "planned"} if operator is FailoverOperator else {}
    with pytest.raises(AirflowFailException, match=re.escape(said)):
        operator(task_id="replicate", **what(pair) | arguments, **mode).execute({})
    assert pair.target.current_event_id() == head

"""Example DAGs on backfills and transactions, run as a person would run them, on a slice of the flights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi import HudiTableBuilder

from airflow_provider.concurrency import CommitLog
from airflow_provider.metastore import ValidTxnList, open_metastore
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.read import snapshot
from dags_examples.demo.flights import COLUMNS, land, read_flights
from tests.airflow.processes import until
from tests.airflow.standalone import Airflow

DAGS = Path(__file__).parents[2] / "dags_examples"
KEY = ["time_hour", "carrier", "flight"]


def some_flights() -> pa.Table:
    """A few hundred: of the first days of September, October and December."""
    flights = read_flights()
    wanted = pc.and_(
        pc.is_in(flights["month"], pa.array([9, 10, 12])), pc.less_equal(flights["day"], pa.scalar(2))
    )
    return flights.filter(pc.and_(wanted, pc.equal(flights["origin"], "JFK")))


def connection(port: int) -> str:
    session = {"session_id": str(uuid.uuid4())}
    described = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": port, "extra": session}
    return json.dumps(described)


def check_rows(location: Path, wanted: pa.Table) -> None:
    """Our reader and hudi-rs both find these flights, each once."""
    ours = snapshot(HudiTable.open(str(location))).to_table()
    theirs = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(location)).build().read())
    keys = [(name, "ascending") for name in KEY]
    wanted = wanted.select(COLUMNS).sort_by(keys).combine_chunks()
    for found in (ours, theirs):
        rows = found.select(COLUMNS).cast(wanted.schema).sort_by(keys).combine_chunks()
        assert rows.equals(wanted)


def test_history_beside_steady_ingestion(tmp_path, spark_connect_port):
    flights = some_flights()
    lake, landing, report = tmp_path / "lake", tmp_path / "landing", tmp_path / "runs.jsonl"
    lake.mkdir()
    days, _ = land(flights, landing)
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW_VAR_LAKE": str(lake),
        "AIRFLOW_VAR_FLIGHTS_LANDING": str(landing),
        "FLIGHTS_STEADY_SPARK_CONN_ID": "steady",
        "FLIGHTS_BACKFILL_SPARK_CONN_ID": "old",
        "AIRFLOW_CONN_STEADY": connection(spark_connect_port),
        "AIRFLOW_CONN_OLD": connection(spark_connect_port),
    }

    def start(dag: str, *dates: str) -> subprocess.Popen:
        with (tmp_path / f"{dag}.log").open("w") as log:
            command = [sys.executable, "-m", "dags_examples.demo.runs", dag, str(report), *dates]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def end(dag: str, running: subprocess.Popen) -> None:
        assert running.wait(300) == 0, (tmp_path / f"{dag}.log").read_text()[-5000:]

    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=environment, check=True)
    end("flights_table", start("flights_table", "2013-01-01"))
    both = {
        "flights_steady": start("flights_steady", *days),
        "flights_history": start("flights_history", "2013-12-01"),
    }
    for dag, running in both.items():
        end(dag, running)

    location = lake / "flights"
    check_rows(location, flights)
    table = HudiTable.open(str(location))
    entries = [entry for entry in CommitLog(table.storage).after(0) if entry.commits]
    assert [entry.priority for entry in entries].count(400) == len(days)
    windows = [
        table.timeline().commit_metadata(commit).extra_metadata.get("backfill_window")
        for commit in table.timeline().commits()
    ]
    assert [name for name in windows if name] == ["year=2013/month=10", "year=2013/month=9"]
    metastore = open_metastore(f"sqlite:///{tmp_path}/airflow/table_services/metastore.db")
    assert len(metastore.get_partitions("lake", "flights")) == 3
    log = (tmp_path / "flights_history.log").read_text()
    assert "; 2 of 2 windows done" in log


def test_two_tables_in_one_transaction(tmp_path, spark_connect_port):
    flights = some_flights()
    december = flights.filter(pc.equal(flights["month"], 12))
    lake, landing, report = tmp_path / "lake", tmp_path / "landing", tmp_path / "runs.jsonl"
    lake.mkdir()
    days, _ = land(december, landing)
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW_VAR_LAKE": str(lake),
        "AIRFLOW_VAR_FLIGHTS_LANDING": str(landing),
        "FLIGHTS_STEADY_SPARK_CONN_ID": "steady",
        "AIRFLOW_CONN_STEADY": connection(spark_connect_port),
    }

    def run(*command: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *command], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    run("airflow", "db", "migrate")
    run("dags_examples.demo.runs", "flights_table", str(report), "2013-01-01")
    run("dags_examples.demo.runs", "flights_two_layouts", str(report), *days)
    metastore = open_metastore(f"sqlite:///{tmp_path}/airflow/table_services/metastore.db")
    names = ("flights", "flights_by_carrier")
    for name in names:
        check_rows(lake / name, december)
    # At every list of transactions both tables show the same days.
    commits = [event for event in metastore.next_events(0) if event.event_type == "COMMIT_TXN"]
    counts = []
    for commit in commits:
        state = metastore.read_snapshot(
            [("lake", name) for name in names], valid_txns=ValidTxnList(commit.message["txnid"])
        )
        both = [
            snapshot(
                HudiTable.open(str(lake / name)), valid_write_ids=state.tables[f"lake.{name}"].write_ids
            ).count_rows()
            for name in names
        ]
        assert both[0] == both[1]
        counts.append(both[0])
    assert counts == sorted(counts)
    assert len(set(counts) - {0}) == len(days)
    assert len(metastore.get_partitions("lake", "flights_by_carrier")) == len(
        set(december["carrier"].to_pylist())
    )


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, spark_connect_port):
    home = tmp_path_factory.mktemp("standalone")
    names = ("flights.py", "flights_arrivals.py", "flights_reload.py")
    dags = {name: (DAGS / name).read_text() for name in names}
    running = Airflow(
        home,
        dags,
        AIRFLOW_VAR_LAKE=str(home / "lake"),
        AIRFLOW_VAR_FLIGHTS_LANDING=str(home / "landing"),
        FLIGHTS_STEADY_SPARK_CONN_ID="steady",
        AIRFLOW_CONN_STEADY=connection(spark_connect_port),
    )
    try:
        running.start("flights_table", "flights_reload", "flights_arrivals")
        yield running
    finally:
        running.stop()


def test_airflows_own_backfill_writes_with_the_priority_of_its_runs(airflow):
    flights = some_flights()
    december = flights.filter(pc.equal(flights["month"], 12))
    land(december, airflow.home / "landing")
    created = airflow.trigger("flights_table")
    until(lambda: airflow.state(created, "create") in {"success", "failed"})
    assert airflow.state(created, "create") == "success", airflow.log(created, "create")

    table = HudiTable.open(str(airflow.lake / "flights"))
    span = ["--from-date", "2013-12-01", "--to-date", "2013-12-01"]
    airflow.command("backfill", "create", "--dag-id", "flights_reload", *span)
    until(lambda: len(table.timeline().commits()) == 1)
    asked = {"logical_date": "2013-12-02T00:00:00Z", "conf": {"write_priority": 350}}
    airflow.call("POST", "/api/v2/dags/flights_reload/dagRuns", asked)
    until(lambda: len(table.timeline().commits()) == 2)
    priorities = [entry.priority for entry in CommitLog(table.storage).after(0) if entry.commits]
    assert priorities == [300, 350]
    check_rows(airflow.lake / "flights", december)
    check_arrivals(airflow, december.num_rows)


def check_arrivals(airflow, rows: int) -> None:
    """The DAG that waits for rows has seen each commit's, once, without anybody starting it."""
    metastore = open_metastore(f"sqlite:///{airflow.home}/table_services/metastore.db")
    # A commit is told of when its task ends, a moment after it is on the timeline.
    until(lambda: len(metastore.next_events(0, event_types=["COMMIT_TXN"])) == 2)
    inserted = [event.event_id for event in metastore.next_events(0, event_types=["INSERT"])]

    def results() -> list[dict]:
        runs = airflow.call("GET", "/api/v2/dags/flights_arrivals/dagRuns")["dag_runs"]
        started = [run["dag_run_id"] for run in sorted(runs, key=lambda run: run["run_after"])]
        paths = [f"/api/v2/dags/flights_arrivals/dagRuns/{run}" for run in started]
        return [airflow.result(path, "count") for path in paths if airflow.state(path, "count") == "success"]

    def seen() -> list[int]:
        return [event for result in results() for event in result["events"]]

    until(lambda: seen() == inserted, every=1)
    assert results()[-1]["flights"] == rows
    metastore.close()

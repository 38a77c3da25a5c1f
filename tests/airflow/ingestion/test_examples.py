"""The example DAGs on backfills and transactions, run as a person would, on a slice of the flights."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.metastore import ValidTxnList, open_metastore
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.snapshots import snapshot
from dags_examples.demo.flights import land
from tests.airflow.ingestion.example_flights import EXAMPLES, check_rows, connection, some_flights


@pytest.fixture
def run_dags(tmp_path, new_airflow_database, spark_connect_port):
    """Run DAGs in parallel processes, each with its own steps; return their output."""
    shutil.copy(new_airflow_database, tmp_path / "airflow.db")
    (tmp_path / "lake").mkdir()
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW_VAR_LAKE": str(tmp_path / "lake"),
        "AIRFLOW_VAR_FLIGHTS_LANDING": str(tmp_path / "landing"),
        "FLIGHTS_STEADY_SPARK_CONN_ID": "steady",
        "FLIGHTS_BACKFILL_SPARK_CONN_ID": "old",
        "AIRFLOW_CONN_STEADY": connection(spark_connect_port),
        "AIRFLOW_CONN_OLD": connection(spark_connect_port),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(tmp_path / "lineage.jsonl"), "append": True}
        ),
    }
    program = [sys.executable, "-m", "dags_examples.demo.runs", str(tmp_path / "runs.jsonl")]
    started: list[subprocess.Popen] = []

    def run(*processes: list[str]) -> list[str]:
        logs = [tmp_path / f"{steps[-1].partition('=')[0]}.log" for steps in processes]
        for steps, log in zip(processes, logs, strict=True):
            with log.open("w") as file:
                command = [*program, *steps]
                started.append(
                    subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
                )
        for process, log in zip(started, logs, strict=True):
            assert process.wait(300) == 0, log.read_text()[-5000:]
        return [log.read_text() for log in logs]

    yield run
    for process in started:
        process.kill()


def test_history_beside_steady_ingestion(tmp_path, run_dags):
    flights = some_flights()
    days, _ = land(flights, tmp_path / "landing")
    _, log = run_dags(
        ["flights_table=2013-01-01", f"flights_steady={','.join(days)}"],
        ["after=flights_table,1", "flights_history=2013-12-01"],
    )
    location = tmp_path / "lake" / "flights"
    check_rows(location, flights)
    table = HudiTable.open(str(location))
    entries = [entry for entry in CommitLog(table.storage).after(0) if isinstance(entry, Commit)]
    assert [entry.priority for entry in entries].count(400) == len(days)
    windows = [
        table.timeline().commit_metadata(commit).extra_metadata.get("backfill_window")
        for commit in table.timeline().commits()
    ]
    assert [name for name in windows if name] == ["year=2013/month=10", "year=2013/month=9"]
    metastore = open_metastore(f"sqlite:///{tmp_path}/airflow/table_services/metastore.db")
    assert len(metastore.get_partitions("lake", "flights")) == 3
    assert "; 2 of 2 windows done" in log
    check_lineage(tmp_path, table)
    check_asset_events(tmp_path / "airflow.db", table)


def check_asset_events(database: Path, table: HudiTable) -> None:
    """Check that each commit is an event of the table's asset, which starts DAGs that are scheduled by it."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        stored = connection.execute(
            "SELECT asset_event.extra FROM asset_event JOIN asset ON asset.id = asset_id WHERE uri = 'hudi://lake/flights'"
        ).fetchall()
    told = {json.loads(extra)["instant"] for (extra,) in stored}
    commits = table.timeline().commits()
    assert told <= {commit.requested_time for commit in commits}
    # A backfill has one event, for its newest window.
    assert len(told) == len(commits) - 1


def check_lineage(folder: Path, table: HudiTable) -> None:
    """Check the file of Airflow's OpenLineage provider: it names each load's source, and the table."""
    told = map(json.loads, (folder / "lineage.jsonl").read_text().splitlines())
    completed = [each for each in told if each["eventType"] == "COMPLETE" and each["outputs"]]
    steady = [each for each in completed if each["job"]["name"] == "flights_steady.ingest"]
    timeline = table.timeline()
    commits = {commit.requested_time: timeline.commit_metadata(commit) for commit in timeline.commits()}
    for each in steady:
        [source], [output] = each["inputs"], each["outputs"]
        assert source["namespace"] == "file"
        assert source["name"].startswith(f"{folder}/landing/day=2013-")
        assert (output["namespace"], output["name"]) == ("file", table.location)
        facets = output["facets"]
        written = commits[facets["version"]["datasetVersion"]].write_stats
        assert output["outputFacets"]["outputStatistics"]["fileCount"] == len(written)
        assert output["outputFacets"]["outputStatistics"]["rowCount"] > 0
        assert [column["name"] for column in facets["schema"]["fields"]] == table.schema.names
        assert facets["symlinks"]["identifiers"][0]["name"] == "lake.flights"
    assert steady
    assert "flights_history.history" in {each["job"]["name"] for each in completed}


def test_two_tables_in_one_transaction(tmp_path, run_dags):
    flights = some_flights()
    december = flights.filter(pc.equal(flights["month"], 12))
    days, _ = land(december, tmp_path / "landing")
    run_dags(["flights_table=2013-01-01", f"flights_two_layouts={','.join(days)}"])
    metastore = open_metastore(f"sqlite:///{tmp_path}/airflow/table_services/metastore.db")
    names = ("flights", "flights_by_carrier")
    tables = {name: HudiTable.open(str(tmp_path / "lake" / name)) for name in names}
    for table in tables.values():
        check_rows(Path(table.location), december)
    # With every list of transactions both tables show the same days.
    commits = [event for event in metastore.next_events(0) if event.event_type == "COMMIT_TXN"]
    counts = []
    for commit in commits:
        state = metastore.read_snapshot(
            [("lake", name) for name in names], valid_txns=ValidTxnList(commit.message["txnid"])
        )
        both = [
            snapshot(table, valid_write_ids=state.tables[f"lake.{name}"].write_ids).count_rows()
            for name, table in tables.items()
        ]
        assert both[0] == both[1]
        counts.append(both[0])
    assert counts == sorted(counts)
    assert len(set(counts) - {0}) == len(days)
    assert len(metastore.get_partitions("lake", "flights_by_carrier")) == len(
        set(december["carrier"].to_pylist())
    )

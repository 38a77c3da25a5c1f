"""Table services in a process that dies by SIGKILL: the retry of their task undoes or continues its work.

A process that dies while it schedules holds the table lock, so the retry waits for the end of the lease.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider import operators
from airflow_provider.concurrency import pending_instants
from airflow_provider.indexing import index_status
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import CreateTableOperator
from airflow_provider.table import HudiTable, snapshot

# The moments at which the process dies: it has a requested time and no plan; it has a plan and has claimed
# it; it has written all files of the plan, and not committed; it has opened a transaction, and not stored its
# id.
WORKER = """
import json, os, signal, sys
from types import SimpleNamespace
from airflow_provider import operators
from airflow_provider.concurrency.commit import Moment
from airflow_provider.concurrency.write.writer import Writer
from airflow_provider.metastore import Metastore

def dies(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def dies_after(call):
    def called(*given, **named):
        call(*given, **named)
        dies()
    return called

class Store(dict):
    def set(self, key, value):
        self[key] = value
        open(sys.argv[3], "w").write(json.dumps(self))

place, name, by = {
    "opened": (Metastore, "open_txn", dies_after(Metastore.open_txn)),
    "requested": (Moment, "request_instant", dies_after(Moment.request_instant)),
    "planned": (Moment, "keep_requested", dies),
    "written": (Writer, "commit", dies),
}[sys.argv[2]]
setattr(place, name, by)
kind, arguments = json.loads(sys.argv[1])
ti = SimpleNamespace(dag_id="services", task_id="it", run_id="manual", map_index=-1, max_tries=1)
getattr(operators, kind)(task_id="it", **arguments).execute({"ti": ti, "task_state_store": Store()})
"""


@pytest.fixture(autouse=True)
def _short_lease(connect):
    connect("table_lock_default", conn_type="table_lock", extra=json.dumps({"lease_seconds": 10}))


class Store(dict):
    """Stands in for Airflow's task state store, for tries that the test makes itself."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


def table_of(tmp_path: Path, table_type: str) -> HudiTable:
    """Two partitions with two file groups, or with log files."""
    location = str(tmp_path / "lake" / "trips")
    CreateTableOperator(
        task_id="create",
        table=location,
        schema={"id": "bigint", "day": "string", "fare": "double"},
        record_key=["id"],
        partition_by=["day"],
        table_type=table_type,
    ).execute({})
    table = HudiTable.open(location)
    operation = "bulk_insert" if table_type == "COPY_ON_WRITE" else "upsert"
    for number in range(3):
        first = 0 if operation == "upsert" else 10 * number
        rows = [
            {"id": first + n, "day": day, "fare": float(number)}
            for n, day in enumerate(("mon", "tue", "mon", "tue"))
        ]
        ingest_arrow(table, pa.Table.from_pylist(rows, table.schema), operation, small_file_limit=0)
    return table


def retried_after_death(kind: str, step: str, tmp_path: Path, arguments: dict) -> Any:
    """The result of a retry whose first try was a process that died at a step."""
    kept = tmp_path / "store.json"
    command = [sys.executable, "-c", WORKER, json.dumps([kind, arguments]), step, str(kept)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    store = Store(json.loads(kept.read_text()) if kept.exists() else {})
    ti = SimpleNamespace(dag_id="services", task_id="it", run_id="manual", map_index=-1, max_tries=1)
    operator = getattr(operators, kind)(task_id="it", **arguments)
    return operator.execute({"ti": ti, "task_state_store": store})


@pytest.mark.parametrize("step", ["requested", "planned"])
def test_clustering(tmp_path, step):
    table = table_of(tmp_path, "COPY_ON_WRITE")
    done = retried_after_death("ClusteringOperator", step, tmp_path, {"table": table.location})
    assert (done["groups_done"], done["files_replaced"], done["rows"]) == (2, 6, 12)
    assert pending_instants(table) == []
    assert snapshot(table).count_rows() == 12


def test_a_planned_clustering_is_executed_after_the_retry_of_its_planner(tmp_path):
    table = table_of(tmp_path, "COPY_ON_WRITE")
    planned = retried_after_death(
        "ScheduleClusteringOperator", "planned", tmp_path, {"table": table.location}
    )
    assert planned["groups"] == 2
    run = operators.RunClusteringOperator(task_id="run", table=table.location, instant=planned["instant"])
    assert run.execute({})["groups_done"] == 2
    assert pending_instants(table) == []


@pytest.mark.parametrize("step", ["planned", "written"])
@pytest.mark.parametrize("kind", ["table_compactions", "log_compactions"])
def test_compaction(tmp_path, step, kind):
    table = table_of(tmp_path, "MERGE_ON_READ")
    more = {"delta_commits": 1} if kind == "table_compactions" else {"log_blocks": 2}
    done = retried_after_death("CompactionOperator", step, tmp_path, {"table": table.location, **more})
    assert [each["file_groups"] for each in done[kind]] == [2]
    assert pending_instants(table) == []
    assert snapshot(table).to_table(columns=["fare"])["fare"].to_pylist() == [2.0] * 4


@pytest.mark.parametrize("step", ["requested", "planned"])
def test_a_planned_compaction_is_executed_after_the_retry_of_its_planner(tmp_path, step):
    table = table_of(tmp_path, "MERGE_ON_READ")
    arguments = {"table": table.location, "delta_commits": 1}
    planned = retried_after_death("ScheduleCompactionOperator", step, tmp_path, arguments)
    assert planned["file_groups"] == 2
    run = operators.RunCompactionOperator(task_id="run", table=table.location, instant=planned["instant"])
    assert run.execute({})["file_groups_done"] == 2
    assert pending_instants(table) == []


@pytest.mark.parametrize("kind", ["BuildIndexOperator", "ScheduleIndexOperator"])
def test_an_index(tmp_path, kind):
    table = table_of(tmp_path, "COPY_ON_WRITE")
    wanted = {"table": table.location, "indexes": "record_index"}
    done = retried_after_death(kind, "planned", tmp_path, wanted)
    if kind == "ScheduleIndexOperator":
        run = operators.RunIndexOperator(task_id="run", table=table.location, instant=done["instant"])
        done = run.execute({})
    assert done["indexes"] == ["files", "record_index"]
    assert {each.index: each.state for each in index_status(table)} == {
        "files": "complete",
        "record_index": "complete",
    }
    assert pending_instants(table) == []


def test_a_clean(tmp_path):
    table = table_of(tmp_path, "COPY_ON_WRITE")
    operators.ClusteringOperator(task_id="cluster", table=table.location).execute({})
    arguments = {"table": table.location, "policy": "KEEP_LATEST_FILE_VERSIONS", "retained": 1}
    done = retried_after_death("CleanOperator", "planned", tmp_path, arguments)
    assert done["files_deleted"] == 6
    assert snapshot(table).count_rows() == 12


def test_a_transaction(tmp_path, metastore):
    txn_id = retried_after_death("BeginTransactionOperator", "opened", tmp_path, {"timeout": 600})
    [begun] = metastore.valid_txn_list().exceptions
    assert begun == txn_id

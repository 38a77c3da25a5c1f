"""The reports about a table, its instants and its tasks, for a person on call."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES, CommitLog, Writer, WriteSettings, begin_write
from airflow_provider.concurrency.heartbeats import HeartbeatSettings
from airflow_provider.concurrency.undo import revert
from airflow_provider.exceptions import HigherPriorityWriteError
from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.owner import TaskRun
from airflow_provider.reports import (
    TableHistory,
    report_held_back,
    report_instant,
    report_table,
    report_task,
    report_timeline,
    report_upkeep,
)
from airflow_provider.services.clustering import ClusteringSettings, schedule_clustering
from airflow_provider.services.clustering.clustering import cluster_in_process
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.hudi_table import HudiTable

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])


@pytest.fixture
def table(tmp_path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])


@pytest.fixture
def as_task(monkeypatch):
    def become(dag: str, task: str, run: str) -> None:
        for name, value in (("DAG_ID", dag), ("TASK_ID", task), ("DAG_RUN_ID", run), ("TRY_NUMBER", "1")):
            monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)

    return become


def load(table: HudiTable, ids: range, **settings) -> dict:
    rows = pa.Table.from_pylist([{"id": each, "value": each} for each in ids], SCHEMA)
    return ingest_arrow(table, rows, "upsert", **settings)


def bars(table: HudiTable) -> dict[str, dict]:
    return {bar["instant"]: bar for bar in report_timeline(TableHistory(table), 100)}


def test_how_each_instant_ended_and_who_was_at_it(table, as_task):
    as_task("flights", "ingest", "one")
    first, second = load(table, range(5))["instant"], load(table, range(5, 9))["instant"]
    as_task("services", "cluster", "two")
    planned = schedule_clustering(table, ClusteringSettings(sort_by=("id",)))
    assert bars(table)[planned]["state"] == "planned"
    cluster_in_process(table, planned)
    reverted = revert(table, planned, reason="a test")
    as_task("backfill", "load", "three")
    dead = begin_write(table, operation="UPSERT", settings=WriteSettings(PRIORITIES["backfill"]))
    as_task("flights", "sweep", "four")
    running = begin_write(table, operation="UPSERT")
    found = bars(table)
    assert found[dead.instant]["state"] == found[running.instant]["state"] == "running"
    dead.abort("the test wants it")
    found = bars(table)
    assert [found[i]["state"] for i in (first, second, planned, dead.instant, running.instant)] == [
        "done",
        "done",
        "reverted",
        "rolled back",
        "running",
    ]
    assert found[first]["who"]["dag"] == "flights"
    assert (found[first]["rows_inserted"], found[first]["lane"]) == (5, "ingestion")
    assert found[planned]["undone_by"] == reverted.instant
    lost = found[dead.instant]
    assert (lost["who"]["dag"], lost["lane"], lost["operation"]) == ("backfill", "backfill", "UPSERT")
    assert lost["reason"] == "the test wants it"
    assert report_instant(TableHistory(table), dead.instant)["reason"] == "the test wants it"
    running.abort("over")


def test_a_writer_that_was_killed_is_named_by_who_finds_it(table, as_task):
    as_task("backfill", "load", "one")
    killed = begin_write(
        table, operation="UPSERT", settings=WriteSettings(heartbeat=HeartbeatSettings(0.01, 1))
    )
    killed.heartbeat.stop()
    path = os.path.join(table.location, ".hoodie/.heartbeat", killed.instant)  # noqa: PTH118
    os.utime(path, (0, 0))
    assert bars(table)[killed.instant]["state"] == "silent"
    as_task("flights", "ingest", "two")
    load(table, range(3))
    found = bars(table)[killed.instant]
    assert (found["state"], found["who"]["dag"]) == ("rolled back", "backfill")
    assert found["ender"]["dag"] == "flights"
    assert "no heartbeat for" in found["reason"]


def test_the_empty_commit_of_a_rollback_says_what_it_is(table, as_task):
    as_task("flights", "ingest", "one")
    begin_write(table, operation="UPSERT").abort("the test wants it")
    empty, lost, rollback = report_timeline(TableHistory(table), 100)
    assert [each["state"] for each in (empty, lost, rollback)] == ["done", "rolled back", "done"]
    assert [each["lane"] for each in (empty, lost, rollback)] == ["undoing", "ingestion", "undoing"]
    assert empty["about"].startswith("an empty commit")
    assert "about" not in rollback


def test_a_conflict_and_a_rebase_name_the_other_task(table, as_task, monkeypatch):
    load(table, range(5))
    group = next(iter(CommitLog(table.storage).newest().written))
    as_task("flights", "ingest", "one")
    steady = begin_write(table, operation="UPSERT")
    steady.plan([group])
    as_task("backfill", "load", "two")
    with pytest.raises(HigherPriorityWriteError, match="by DAG flights, task ingest, run one, try 1 on "):
        load(
            table, range(5), priority=PRIORITIES["backfill"], on_higher_priority="fail", on_conflict="rebase"
        )
    steady.abort("over")
    [lost] = [b for b in bars(table).values() if b["state"] == "rolled back" and b["lane"] == "backfill"]
    assert (lost["who"]["dag"], "gives way: UPSERT" in lost["reason"]) == ("backfill", True)


def test_a_rebase_tells_onto_whose_write(table, as_task, monkeypatch):
    load(table, range(5))
    commit, others = Writer.commit, []

    def later(self, *arguments, **more):
        if not others:  # another writer commits in between, once
            others.append("other")
            as_task("backfill", "load", "two")
            others.append(load(table, range(2, 3))["instant"])
        return commit(self, *arguments, **more)

    monkeypatch.setattr(Writer, "commit", later)
    as_task("flights", "ingest", "one")
    instant = load(table, range(5), on_conflict="rebase")["instant"]
    monkeypatch.undo()
    told = report_instant(TableHistory(table), instant)
    [onto] = told["rebased_onto"]
    assert (onto["instant"], onto["operation"], onto["who"]["dag"]) == (others[1], "UPSERT", "backfill")
    assert bars(table)[instant]["rebased_onto"] == told["rebased_onto"]


def test_a_row_and_a_second_look_that_reads_only_what_has_changed(table, as_task, monkeypatch):
    as_task("flights", "ingest", "one")
    load(table, range(5))
    history = TableHistory(table)
    first = report_table(history)
    assert (first["day"]["commits"], first["day"]["rows_inserted"]) == (1, 5)
    assert first["last_commit"]["who"]["task"] == "ingest"
    assert (first["files"], first["writers"], first["stopped"]) == (1, [], [])
    read = []
    before = type(table.storage).read
    monkeypatch.setattr(
        type(table.storage), "read", lambda self, path: read.append(path) or before(self, path)
    )
    assert report_table(history) == first
    assert not [path for path in read if ".hoodie/timeline" in path]
    load(table, range(5, 7))
    assert report_table(history)["day"]["rows_inserted"] == 7


def test_the_last_commit_is_the_one_that_completed_last(table, as_task):
    as_task("backfill", "load", "one")
    slow = begin_write(table, operation="UPSERT")
    as_task("flights", "ingest", "two")
    load(table, range(5))
    slow.plan(())
    slow.commit(())
    assert report_table(TableHistory(table))["last_commit"]["who"]["dag"] == "backfill"


def test_a_savepoint_names_who_made_it_and_not_the_commit_that_it_keeps(table, as_task):
    as_task("flights", "ingest", "one")
    load(table, range(5))
    as_task("audit", "keep", "two")
    create_savepoint(table, comments="before the audit")
    commit, kept = report_timeline(TableHistory(table), 100)
    assert (commit["who"]["dag"], commit["operation"], commit["lane"]) == ("flights", "UPSERT", "ingestion")
    assert (kept["who"]["dag"], kept["action"], kept["lane"]) == ("audit", "savepoint", "other")
    assert kept["operation"] == "SAVEPOINT"
    assert "rows_inserted" not in kept


def test_a_task_finds_its_instants_and_whom_it_waits_for(table, as_task):
    as_task("flights", "ingest", "one")
    done = load(table, range(5))["instant"]
    waiting = begin_write(table, operation="UPSERT", settings=WriteSettings(10))
    as_task("other", "ingest", "one")
    above = begin_write(table, operation="UPSERT", settings=WriteSettings(20))
    told = report_task(TableHistory(table), TaskRun("flights", "ingest", "one"))
    assert [each["instant"] for each in told["instants"]] == [done, waiting.instant]
    assert told["instants"][1]["phase"] == "looks for its keys"
    assert [each["instant"] for each in told["waits_for"]] == [above.instant]
    waiting.plan([FileGroupId("", "f")])
    told = report_task(TableHistory(table), TaskRun("flights", "ingest", "one"))
    assert told["instants"][1]["phase"] == "writes"
    waiting.abort("over")
    above.abort("over")
    assert report_task(TableHistory(table), TaskRun("flights", "other", "one"))["instants"] == []


def test_a_built_index_is_on_the_timeline_and_names_who_built_it(table, as_task):
    as_task("flights", "ingest", "one")
    load(table, range(5))
    as_task("services", "index", "two")
    planned = schedule_index(table, ["record_index"])
    assert {each["who"]["task"] for each in report_upkeep(TableHistory(table))["indexes"]} == {"index"}
    assert bars(table)[planned]["state"] == "planned"
    run_index(table, planned)
    bar = bars(table)[planned]
    assert (bar["state"], bar["operation"], bar["lane"]) == ("done", "INDEX", "table_service")
    assert bar["ended"] > bar["began"]
    built_by = [each["who"]["dag"] for each in report_upkeep(TableHistory(table))["indexes"]]
    assert built_by == ["services", "services"]
    told = report_instant(TableHistory(table), planned)
    assert (told["who"]["task"], told["state"], told["operation"]) == ("index", "completed", "INDEX")
    assert set(told["metadata"]["indexes"]) == {"files", "record_index"}


def test_upkeep_and_what_is_held_back(table):
    for number in range(4):
        load(table, range(5 * number, 5 * number + 5))
    told = report_upkeep(TableHistory(table))
    assert (told["record_key"], told["plans"], told["savepoints"]) == (["id"], [], [])
    assert told["options"]
    held = report_held_back(TableHistory(table))
    assert held["clean"]["held"] == []

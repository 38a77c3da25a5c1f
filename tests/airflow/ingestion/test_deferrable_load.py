"""A load that waits for its turn holds no slot: it defers before its job starts, and commits once."""

from __future__ import annotations

import asyncio
import json
import runpy
import time
from datetime import datetime
from importlib import import_module

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import TaskDeferred

from airflow_provider.concurrency import (
    PRIORITIES,
    WriteSettings,
    begin_write,
    find_operation,
    pending_instants,
)
from airflow_provider.exceptions import CommitError
from airflow_provider.locks import open_lock
from airflow_provider.operators import BackfillOperator, IngestOperator
from airflow_provider.operators import ingest as ingest_operator
from airflow_provider.operators._base import turn
from airflow_provider.triggers import TableTurnTrigger
from tests.airflow.conftest import xcom
from tests.airflow.flights import ingest, rows_of

MORE_IMPORTANT = WriteSettings(priority=PRIORITIES["ingestion"] + 1)


class Store(dict):
    """A task's state, as Airflow keeps it over its tries and deferrals."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


@pytest.fixture
def context():
    return {"task_state_store": Store()}


@pytest.fixture(autouse=True)
def defers_at_once(monkeypatch):
    monkeypatch.setattr(turn, "_SECONDS_IN_THE_WORKER", 0.0)
    monkeypatch.setattr(turn, "_LOOK_EVERY_SECONDS_DEFERRED", 0.1)


def deferred(task, context) -> TableTurnTrigger:
    """The trigger to which a task defers, as Airflow's database returns it."""
    with pytest.raises(TaskDeferred) as raised:
        task.execute(context)
    assert raised.value.method_name == "execute_complete"
    path, arguments = raised.value.trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(**json.loads(json.dumps(arguments)))


def event_of(trigger, *, within: float = 300.0) -> dict:
    return asyncio.run(asyncio.wait_for(anext(trigger.run()), within)).payload


def blocking(trigger) -> tuple[str, ...]:
    asyncio.run(trigger.connect())
    return trigger.look().blocking


def test_it_waits_for_a_writer_of_higher_priority_and_commits_once(
    run_dag, monkeypatch, source, spark_connect, table
):
    with begin_write(table, operation="UPSERT", settings=MORE_IMPORTANT) as other:

        def look(self) -> object:
            told = looked(self)
            if not other.ended:
                other.abort()
            return told

        looked = TableTurnTrigger.look
        monkeypatch.setattr(TableTurnTrigger, "look", look)
        with DAG("later", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
            ingest(source, deferrable=True, spark_conn_id=spark_connect)
        run = run_dag(dag)
    assert run.state == "success"
    assert len(rows_of(table)) == 3
    [commit] = [each for each in table.timeline().commits() if each.requested_time > other.instant]
    assert xcom(run, "ingest")["instant"] == commit.requested_time


def test_it_says_for_whom_it_waits(context, source, table):
    with begin_write(table, operation="UPSERT", settings=MORE_IMPORTANT) as other:
        trigger = deferred(ingest(source, deferrable=True), context)
        [told] = blocking(trigger)
        assert f"UPSERT {other.instant} by " in told
        assert "priority 401" in told
    assert event_of(trigger) == {"status": "success", "result": {}}


def test_it_waits_for_who_holds_the_lock(context, source, table):
    with open_lock({"owner": "somebody"}, table.storage):
        trigger = deferred(ingest(source, deferrable=True), context)
        assert blocking(trigger) == ("somebody, who holds the table lock",)
    assert event_of(trigger)["status"] == "success"


def test_a_backfill_waits_for_ingestion(context, source, table):
    task = BackfillOperator(task_id="history", table="lake.flights", source=str(source), deferrable=True)
    with begin_write(table, operation="UPSERT"):
        assert deferred(task, context).priority == PRIORITIES["backfill"]


def test_who_is_to_fail_rather_than_wait_does_not_wait_for_writers(context, source, table):
    task = ingest(source, deferrable=True, on_higher_priority="fail")
    with (
        begin_write(table, operation="UPSERT", settings=MORE_IMPORTANT),
        open_lock({"owner": "somebody"}, table.storage),
    ):
        assert blocking(deferred(task, context)) == ("somebody, who holds the table lock",)


def test_it_finds_the_job_that_an_earlier_try_left(context, source, table):
    """A worker dies, and its job goes on, on a cluster; the next try waits for it without a slot."""
    settled = IngestOperator(task_id="ingest", table="lake.flights", source=str(source), deferrable=True)
    operation = settled._operation(context)
    operation.remember(waits_for_writer=True)
    with begin_write(table, operation="UPSERT", operation_key=operation.key) as job:
        trigger = deferred(settled, context)
        [told] = blocking(trigger)
        assert told.startswith(f"instant {job.instant}, which the job of an earlier try still writes")
        job.plan([])
        committed = job.commit([])
    assert event_of(trigger)["status"] == "success"
    # The task then finds this commit, as a retry does.
    assert settled._operation(context).is_retry
    assert find_operation(table, operation.key).instant == committed.instant


def test_killing_the_deferred_task_ends_what_an_earlier_try_writes(context, source, table):
    task = ingest(source, deferrable=True)
    operation = task._operation(context)
    operation.remember(waits_for_writer=True)
    with begin_write(table, operation="UPSERT") as other:
        job = begin_write(table, operation="UPSERT", operation_key=operation.key)
        trigger = deferred(task, context)
        asyncio.run(trigger.on_kill())
        assert [each.instant for each in pending_instants(table)] == [other.instant]
        with pytest.raises(CommitError):
            job.check([])


def test_killing_it_undoes_nothing_that_has_committed(context, source, table):
    task = ingest(source, deferrable=True)
    operation = task._operation(context)
    operation.remember(waits_for_writer=True)
    with begin_write(table, operation="UPSERT", operation_key=operation.key) as job:
        trigger = deferred(task, context)
        job.plan([])
        committed = job.commit([])
    asyncio.run(trigger.on_kill())
    assert find_operation(table, operation.key).instant == committed.instant


def test_the_state_tells_a_deferral_from_a_retry(context, source, table):
    task = ingest(source, deferrable=True)
    with open_lock({}, table.storage):
        deferred(task, context)
        key = task._operation(context).key
        deferred(ingest(source, deferrable=True), context)
    again = task._operation(context)
    assert (again.key, again.is_retry) == (key, False)


def test_patience_ends_in_the_triggerer_too(context, source, table):
    with open_lock({"owner": "somebody"}, table.storage):
        trigger = deferred(ingest(source, deferrable=True, yield_timeout=1.0), context)
        assert trigger.deadline - time.time() <= 1.0
        assert event_of(trigger) == {"status": "timeout", "blocking": ["somebody, who holds the table lock"]}


def test_a_table_that_is_gone_is_told(context, source, table):
    with open_lock({}, table.storage):
        trigger = deferred(ingest(source, deferrable=True), context)
    trigger.location += "-gone"
    event = event_of(trigger)
    assert (event["status"], event["error"]["type"]) == ("error", "NotATableError")


@pytest.mark.parametrize("default", [True, False])
def test_airflows_own_default_is_respected(monkeypatch, default):
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", str(default))
    loaded_now = runpy.run_path(ingest_operator.__file__)["IngestOperator"]
    assert loaded_now(task_id="load", table="lake.flights", source="s").deferrable is default

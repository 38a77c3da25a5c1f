"""Both sensors, in a worker and in the triggerer, against a real metastore and a real table."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import datetime, timedelta
from importlib import import_module

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred

from airflow_provider.concurrency import begin_write, rollback_dead_writers
from airflow_provider.exceptions import (
    InvalidInputError,
    MetastoreUnavailableError,
    NoSuchObjectError,
    NotATableError,
)
from airflow_provider.metastore import Column
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.conftest import xcom

MODES = {
    "poke": {"mode": "poke"},
    "reschedule": {"mode": "reschedule"},
    "deferrable": {"deferrable": True},
}
every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def table(metastore, tmp_path) -> HudiTable:
    location = str(tmp_path / "flights")
    metastore.create_database("lake")
    metastore.create_table("lake", "flights", location=location, schema=[Column("id", "bigint")])
    return HudiTable.create(
        location, name="flights", schema=pa.schema([("id", pa.int64())]), record_key=["id"]
    )


def begin(table: HudiTable, **arguments):
    return begin_write(table, operation="UPSERT", **arguments)


def run_trigger(sensor, *, timeout: float = 10):
    """Defer, move the trigger through serialisation as Airflow does, run it, resume."""
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert json.loads(json.dumps(arguments)) == arguments
    module, _, name = path.rpartition(".")
    trigger = getattr(import_module(module), name)(**arguments)

    async def first_event():
        return await asyncio.wait_for(anext(aiter(trigger.run())), timeout)

    event = asyncio.run(first_event())
    assert json.loads(json.dumps(event.payload)) == event.payload
    return getattr(sensor, deferred.value.method_name)({}, event=event.payload)


class TestInADag:
    """Waiting for something that another task does only later; the sensors start first."""

    @every_mode
    def test_catching_up(self, run_dag, metastore, mode):
        metastore.register_consumer("replica")
        metastore.create_database("lake")
        until = metastore.current_event_id()

        with DAG(f"catchup_{mode}", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
            NotificationLogCatchupSensor(
                task_id="caught_up", until=f"{{{{ {until} }}}}", poke_interval=0.2, timeout=30, **MODES[mode]
            )
        later = threading.Timer(1.5, metastore.advance_consumer, ("replica", until))
        later.start()
        run = run_dag(dag)
        assert run.state == "success"
        assert xcom(run, "caught_up") == {"event_id": until, "consumers": {"replica": until}}
        later.join()

    @every_mode
    def test_the_fence(self, run_dag, table, mode):
        earlier = begin(table)
        later = begin(table)

        with DAG(f"fence_{mode}", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
            PriorCommitsFenceSensor(
                task_id="fence",
                table="lake.flights",
                before=later.instant,
                poke_interval=0.2,
                timeout=30,
                **MODES[mode],
            )
        started = time.monotonic()
        timer = threading.Timer(1.5, earlier.abort)
        timer.start()
        run = run_dag(dag)
        assert run.state == "success"
        assert time.monotonic() - started > 1.5
        assert xcom(run, "fence") == {"table": table.location, "before": later.instant}
        timer.join()
        later.abort()

    @every_mode
    def test_timing_out_fails_or_skips(self, run_dag, table, mode):
        with (
            begin(table) as writer,
            DAG(f"late_{mode}", schedule=None, start_date=datetime(2024, 1, 1)) as dag,
        ):
            for name, soft in (("hard", False), ("soft", True)):
                PriorCommitsFenceSensor(
                    task_id=name,
                    table=table.location,
                    before=_later(writer.instant),
                    poke_interval=0.2,
                    timeout=1,
                    soft_fail=soft,
                    **MODES[mode],
                )
            run = run_dag(dag)
        states = {ti.task_id: ti.state for ti in run.get_task_instances()}
        assert states == {"hard": "failed", "soft": "skipped"}

    @every_mode
    def test_a_missing_table_fails_and_is_not_skipped(self, run_dag, metastore, mode):
        with DAG(f"missing_{mode}", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
            PriorCommitsFenceSensor(
                task_id="fence",
                table="lake.nothing",
                before="20240101000000000",
                soft_fail=True,
                **MODES[mode],
            )
        run = run_dag(dag)
        assert [ti.state for ti in run.get_task_instances()] == ["failed"]


class TestNotificationLogCatchup:
    def test_all_registered_consumers_must_be_there_unless_named(self, metastore):
        metastore.register_consumer("replica")
        metastore.register_consumer("index")
        metastore.create_database("lake")
        until = metastore.current_event_id()
        metastore.advance_consumer("replica", until)

        progress = NotificationLogCatchupSensor(task_id="t", until=until).look()
        assert progress.blocking == (f"consumer 'index' is at event {until - 1}, 1 behind {until}",)
        named = NotificationLogCatchupSensor(task_id="t", until=str(until), consumers=["replica"]).look()
        assert named.is_done
        assert named.result == {"event_id": until, "consumers": {"replica": until}}

    def test_without_consumers_it_waits_for_the_log_itself(self, metastore):
        head = metastore.current_event_id()
        assert NotificationLogCatchupSensor(task_id="t", until=head).look().is_done
        blocking = NotificationLogCatchupSensor(task_id="t", until=head + 1).look().blocking
        assert blocking == (f"notification log is at event {head}, not yet at {head + 1}",)

    def test_a_consumer_that_is_not_registered_is_an_error_in_worker_and_triggerer(self, metastore):
        metastore.register_consumer("replica")
        sensor = NotificationLogCatchupSensor(task_id="t", until=10**6, consumers=["nobody"])
        with pytest.raises(NoSuchObjectError, match=r"'nobody' is not registered.*registered: replica"):
            sensor.execute({})

        waiting = NotificationLogCatchupSensor(
            task_id="t", until=10**6, consumers=["replica"], poke_interval=0.1, deferrable=True
        )
        gone = threading.Timer(0.5, metastore.unregister_consumer, ("replica",))
        gone.start()
        with pytest.raises(NoSuchObjectError, match="'replica' is not registered"):
            run_trigger(waiting)
        gone.join()

    @pytest.mark.parametrize("until", ["None", "", "-3", "12.5", "{{ x }}"])
    def test_what_is_no_event_id_is_refused(self, metastore, until):
        with pytest.raises(InvalidInputError, match="no event id"):
            NotificationLogCatchupSensor(task_id="t", until=until).look()

    @pytest.mark.parametrize("deferrable", [False, True])
    def test_an_unreachable_metastore_is_tried_again_a_few_times_and_then_an_error(
        self, connect, tmp_path, monkeypatch, deferrable
    ):
        pauses = []
        monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
        (tmp_path / "file").touch()
        url = f"sqlite:///{tmp_path}/file/metastore.db"
        connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
        sensor = NotificationLogCatchupSensor(task_id="t", until=1, deferrable=deferrable)
        with pytest.raises(MetastoreUnavailableError):
            sensor.execute({})
        assert len(pauses) == 4

    def test_a_metastore_that_comes_back_in_time_is_waited_for(
        self, connect, metastore, tmp_path, monkeypatch
    ):
        blocker = tmp_path / "blocker"
        blocker.touch()
        url = f"sqlite:///{blocker}/metastore.db"
        connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: blocker.unlink(missing_ok=True))
        sensor = NotificationLogCatchupSensor(task_id="t", until=0)
        assert sensor.execute({}) == {"event_id": 0, "consumers": {}}


class TestPriorCommitsFence:
    def test_writes_requested_before_block_and_are_described(self, table):
        with begin(table) as earlier, begin(table) as later:
            sensor = PriorCommitsFenceSensor(task_id="t", table="lake.flights", before=later.instant)
            [line] = sensor.look().blocking
            assert line.startswith(f"commit {earlier.instant} (UPSERT) by ")
            assert line.endswith(" s ago: alive")
            at_the_earlier = PriorCommitsFenceSensor(
                task_id="t", table=table.location, before=earlier.instant
            )
            assert at_the_earlier.look().is_done

    def test_completed_writes_are_over(self, table):
        with begin(table) as writer:
            writer.plan([], [])
            writer.commit([])
        assert (
            PriorCommitsFenceSensor(task_id="t", table="lake.flights", before=_later(writer.instant))
            .look()
            .is_done
        )

    def test_a_dead_writer_blocks_until_it_is_rolled_back(self, table):
        dead = begin(table, heartbeat_interval=0.1, tolerable_misses=2)
        dead._heartbeat.stop()
        time.sleep(0.5)
        sensor = PriorCommitsFenceSensor(task_id="t", table="lake.flights", before=_later(dead.instant))
        [line] = sensor.look().blocking
        assert line.endswith("dead; the table's next writer rolls it back")
        assert rollback_dead_writers(table) == [dead.instant]
        assert sensor.look().is_done

    def test_a_table_that_vanishes_while_the_triggerer_waits_is_an_error(self, table, tmp_path):
        with begin(table) as writer:
            sensor = PriorCommitsFenceSensor(
                task_id="t",
                table="lake.flights",
                before=_later(writer.instant),
                poke_interval=0.1,
                deferrable=True,
            )
            with pytest.raises(TaskDeferred) as deferred:
                sensor.execute({})
        arguments = deferred.value.trigger.serialize()[1] | {"location": str(tmp_path / "gone")}
        trigger = type(deferred.value.trigger)(**arguments)

        async def first_event():
            return await anext(aiter(trigger.run()))

        with pytest.raises(NotATableError, match="gone"):
            sensor.execute_complete({}, event=asyncio.run(first_event()).payload)

    def test_the_deadline_is_the_triggers_own(self, table):
        # dag.test knows no timeout of a deferral: without this the run would never end.
        with begin(table) as writer:
            sensor = PriorCommitsFenceSensor(
                task_id="t",
                table="lake.flights",
                before=_later(writer.instant),
                poke_interval=60,
                timeout=timedelta(seconds=1),
                deferrable=True,
            )
            with pytest.raises(AirflowSensorTimeout, match=f"still waiting: commit {writer.instant}"):
                run_trigger(sensor, timeout=5)

    @pytest.mark.parametrize("before", ["None", "", "yesterday", "2024"])
    def test_what_is_no_instant_is_refused(self, table, before):
        with pytest.raises(InvalidInputError, match="give the 'instant' of an ingestion's result"):
            PriorCommitsFenceSensor(task_id="t", table="lake.flights", before=before).look()


def _later(instant: str) -> str:
    return str(int(instant) + 1)

"""Both sensors in a DAG, and the fence of earlier commits, against a real metastore and a real table."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_provider.concurrency import (
    HeartbeatSettings,
    WriteSettings,
    begin_planned,
    begin_write,
    pending_instants,
    rollback_dead_writers,
)
from airflow_provider.concurrency.heartbeats.heartbeat import HeartbeatInfo, heartbeat_path
from airflow_provider.exceptions import (
    InvalidInputError,
    NotATableError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Column
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import schedule_clean
from airflow_provider.services.clustering.clustering import schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table import increment
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.conftest import xcom
from tests.airflow.sensors.deferral import run_trigger

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


class BeganLongAgo:
    """A task instance that has been rescheduled before."""

    def get_first_reschedule_date(self, context):
        return datetime.now(UTC) - timedelta(hours=1)


def begin(table: HudiTable, **arguments):
    return begin_write(table, operation="UPSERT", **arguments)


class TestInADag:
    """The sensors start first, and wait for a later task."""

    @every_mode
    def test_catching_up(self, run_dag, metastore, mode):
        metastore.register_consumer("replica")
        metastore.create_database("lake")
        until = metastore.current_event_id()

        with DAG(f"catchup_{mode}", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
            NotificationLogCatchupSensor(
                task_id="caught_up", until=f"{{{{ {until} }}}}", poke_interval=0.2, timeout=300, **MODES[mode]
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
                timeout=300,
                **MODES[mode],
            )
        started = time.monotonic()
        timer = threading.Timer(1.5, earlier.abort)
        timer.start()
        run = run_dag(dag)
        assert run.state == "success"
        assert time.monotonic() - started > 1.5
        told = {"table": "lake.flights", "location": table.location, "before": later.instant}
        assert xcom(run, "fence") == told
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
                retries=3,  # which would not help
                **MODES[mode],
            )
        run = run_dag(dag)
        assert [ti.state for ti in run.get_task_instances()] == ["failed"]


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

    def test_planned_services_hold_neither_the_sensor_nor_a_fenced_read(self, table):
        def load(operation: str, number: int) -> str:
            rows = pa.Table.from_pylist([{"id": number}], table.schema)
            return ingest_arrow(table, rows, operation)["instant"]

        for number in range(3):
            load("bulk_insert", number)
        for _ in range(2):
            load("upsert", 0)
        clean = schedule_clean(table, Retention(retained=1))
        clustering = schedule_clustering(table, ClusteringSettings())
        newest = load("bulk_insert", 3)
        sensor = PriorCommitsFenceSensor(task_id="t", table="lake.flights", before=_later(newest))
        # There is also a planner of a clustering that died before its instant was on the timeline.
        planner = _later(clustering)
        table.storage.put(heartbeat_path(planner), HeartbeatInfo("me", "clustering", "CLUSTER").to_json())

        assert {each.instant for each in pending_instants(table)} == {clean, clustering, planner}
        assert sensor.look().is_done
        fenced = increment(table, order="fenced")
        assert (fenced.end, fenced.held_by) == (newest, None)
        with begin_planned(table, clustering):  # a writer executes the plan
            assert sensor.look().is_done
            assert increment(table, order="fenced").held_by is None

    def test_a_dead_writer_blocks_until_it_is_rolled_back(self, table):
        dead = begin(table, settings=WriteSettings(heartbeat=HeartbeatSettings(0.1, tolerable_misses=2)))
        dead.heartbeat.stop()
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

    @pytest.mark.parametrize("mode", ["poke", "reschedule"])
    @pytest.mark.parametrize("ends", [AirflowSensorTimeout, AirflowSkipException])
    def test_a_timeout_names_what_blocks(self, table, mode, ends):
        with begin(table) as writer:
            sensor = PriorCommitsFenceSensor(
                task_id="t",
                table="lake.flights",
                before=_later(writer.instant),
                poke_interval=0.05,
                timeout=0.1,
                mode=mode,
                soft_fail=ends is AirflowSkipException,
            )
            with pytest.raises(ends, match=f"timed out after 0.1 s; still waiting: commit {writer.instant}"):
                sensor.execute({"ti": BeganLongAgo()})

    def test_the_deadline_is_the_triggers_own(self, table):
        # dag.test ignores the timeout of a deferral: without this the run would never end.
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
                run_trigger(sensor, timeout=300)

    @pytest.mark.parametrize("before", ["None", "", "yesterday", "2024"])
    def test_what_is_no_instant_is_refused(self, table, before):
        with pytest.raises(InvalidInputError, match="give the 'instant' of an ingestion's result"):
            PriorCommitsFenceSensor(task_id="t", table="lake.flights", before=before).look()


def _later(instant: str) -> str:
    return str(int(instant) + 1)

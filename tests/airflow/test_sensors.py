"""Both sensors, in a worker and in the triggerer, against a real metastore and a real table."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowFailException,
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
    ConsumerGoneError,
    InvalidInputError,
    MetastoreUnavailableError,
    NoSuchObjectError,
    NoSuchTransactionError,
    NotATableError,
    TransactionAbortedError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Column, open_metastore
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import schedule_clean
from airflow_provider.services.clustering.clustering import schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table import increment
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


class BeganLongAgo:
    """A task instance that has been rescheduled before."""

    def get_first_reschedule_date(self, context):
        return datetime.now(UTC) - timedelta(hours=1)


def begin(table: HudiTable, **arguments):
    return begin_write(table, operation="UPSERT", **arguments)


def run_trigger(sensor, *, timeout: float = 300, later=None):
    """Defer, move the trigger through serialisation as Airflow does, run it, resume.

    :param later: called a second after the deferral.
    """
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert json.loads(json.dumps(arguments)) == arguments
    module, _, name = path.rpartition(".")
    trigger = getattr(import_module(module), name)(**arguments)

    async def first_event():
        return await asyncio.wait_for(anext(aiter(trigger.run())), timeout)

    if later:
        threading.Timer(1, later).start()
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
        with pytest.raises(
            AirflowFailException,
            match=r"NoSuchObjectError: .*'nobody' is not registered.*registered: replica",
        ):
            sensor.execute({})

        waiting = NotificationLogCatchupSensor(
            task_id="t", until=10**6, consumers=["replica"], poke_interval=0.1, deferrable=True
        )
        with pytest.raises(NoSuchObjectError, match="'replica' is not registered"):
            run_trigger(waiting, later=lambda: metastore.unregister_consumer("replica"))

    @pytest.mark.parametrize("until", ["None", "", "-3", "12.5", "{{ x }}", {"event_id": None}])
    def test_what_is_no_event_id_is_refused(self, metastore, until):
        with pytest.raises(InvalidInputError, match="no event id"):
            NotificationLogCatchupSensor(task_id="t", until=until).look()

    def test_what_is_waited_for_is_one_thing(self, metastore):
        with pytest.raises(InvalidInputError, match="two things"):
            NotificationLogCatchupSensor(task_id="t", until=1, txn_id=1)
        with pytest.raises(InvalidInputError, match="'t' waits for nothing"):
            NotificationLogCatchupSensor(task_id="t")
        with pytest.raises(InvalidInputError, match="no txn id"):
            NotificationLogCatchupSensor(task_id="t", txn_id="soon").look()

    @pytest.mark.parametrize("deferrable", [False, True])
    def test_a_transaction_is_waited_for_until_it_has_ended_and_was_read(self, metastore, deferrable):
        metastore.register_consumer("replica")
        txn_id = metastore.open_txn("me", "here")
        sensor = NotificationLogCatchupSensor(
            task_id="t", txn_id=str(txn_id), poke_interval=0.1, timeout=300, deferrable=deferrable
        )
        assert sensor.look().blocking == (f"transaction {txn_id} is open",)

        def commit() -> None:
            committed.append(metastore.commit_txn(txn_id))
            time.sleep(0.3)
            metastore.advance_consumer("replica", committed[0])

        committed: list[int] = []
        if deferrable:
            result = run_trigger(sensor, later=commit)
        else:
            threading.Timer(0.3, commit).start()
            result = sensor.execute({})
        assert result == {"event_id": committed[0], "consumers": {"replica": committed[0]}}

    def test_a_transaction_that_was_aborted_or_never_opened_is_an_error(self, metastore):
        txn_id = metastore.open_txn("me", "here")
        metastore.abort_txn(txn_id)
        with pytest.raises(TransactionAbortedError, match=f"transaction {txn_id} was aborted"):
            NotificationLogCatchupSensor(task_id="t", txn_id=txn_id).look()
        with pytest.raises(NoSuchTransactionError):
            NotificationLogCatchupSensor(task_id="t", txn_id=99).look()

    def test_the_result_of_an_ingestion_says_both(self, metastore):
        txn_id = metastore.open_txn("me", "here")
        result = {"txn_id": txn_id, "event_id": metastore.commit_txn(txn_id), "rows_inserted": 3}
        metastore.register_consumer("replica")
        for argument in ("until", "txn_id"):
            found = NotificationLogCatchupSensor(task_id="t", **{argument: result}).execute({})
            assert found["event_id"] == result["event_id"]

    def test_the_log_says_how_far_each_is_and_at_what_rate_and_nothing_twice(self, metastore, capfd):
        metastore.register_consumer("replica")
        begin = metastore.current_event_id()
        for _ in range(8):
            metastore.open_txn("me", "here")
        until = begin + 8
        sensor = NotificationLogCatchupSensor(task_id="t", until=until)
        started = time.monotonic()

        def said() -> list[str]:
            sensor.poke({})
            return re.findall(r"waiting: (.*?) \[", capfd.readouterr().out)

        assert said() == [f"consumer 'replica' is at event {begin}, 8 behind {until}"]
        assert said() == []
        time.sleep(0.5)
        metastore.advance_consumer("replica", begin + 2)
        [line] = said()
        slowest = 2 / (time.monotonic() - started)
        where = f"consumer 'replica' is at event {begin + 2}, 6 behind {until}"
        form = rf"{where}, (\S+) events/s, 0:00:(\d\d) left at that rate"
        rate, left = map(float, re.fullmatch(form, line).groups())
        assert slowest * 0.99 <= rate <= 2 / 0.5
        assert abs(left - 6 / rate) <= 1
        assert said() == []
        metastore.restart_consumer("replica", event_id=begin)
        assert said() == [f"consumer 'replica' is at event {begin}, 8 behind {until}"]

    def test_the_triggerers_log_says_nothing_twice_either(self, metastore, capfd):
        metastore.register_consumer("replica")
        metastore.create_database("lake")
        until = metastore.current_event_id()
        sensor = NotificationLogCatchupSensor(
            task_id="t", until=until, poke_interval=0.05, timeout=300, deferrable=True
        )
        run_trigger(sensor, later=lambda: metastore.advance_consumer("replica", until))
        # The worker looked once, then the triggerer, often.
        assert len(re.findall("waiting: consumer 'replica'", capfd.readouterr().out)) == 2

    @pytest.mark.parametrize("deferrable", [False, True])
    def test_a_consumer_that_is_gone_is_an_error(self, metastore, tmp_path, deferrable):
        started = time.monotonic()
        metastore.register_consumer("replica")
        metastore.create_database("lake")
        sensor = NotificationLogCatchupSensor(
            task_id="t",
            until=metastore.current_event_id(),
            gone_after=timedelta(seconds=2),
            poke_interval=0.1,
            timeout=300,
            deferrable=deferrable,
        )
        wait = run_trigger if deferrable else NotificationLogCatchupSensor.execute
        arguments = {"timeout": 300} if deferrable else {"context": {}}
        with pytest.raises(ConsumerGoneError, match=r"'replica' is at event .* no sign of life for") as gone:
            wait(sensor, **arguments)
        assert time.monotonic() - started > 1
        assert "table-services metastore forget replica" in str(gone.value)

    def test_a_consumer_with_nothing_to_read_or_a_sign_of_life_is_not_gone(self, metastore, tmp_path):
        def silent(seconds: int, *, events: int) -> None:
            with closing(sqlite3.connect(tmp_path / "metastore.db")) as database, database:
                database.execute(
                    "UPDATE metastore_consumers SET updated_at = updated_at - ?", (seconds * 1000,)
                )
                database.execute(
                    "UPDATE metastore_notification_log SET event_time = event_time - ?", (events,)
                )

        metastore.register_consumer("replica")
        silent(1000, events=1000)
        metastore.create_database("lake")
        until = metastore.current_event_id()
        sensor = NotificationLogCatchupSensor(task_id="t", until=until)
        assert not sensor.look().is_done, "it was silent for long, because nothing happened"
        silent(1000, events=1000)
        with pytest.raises(ConsumerGoneError):
            sensor.look()
        metastore.advance_consumer("replica", until - 1)
        assert not sensor.look().is_done, "it works, slowly"
        ahead = NotificationLogCatchupSensor(task_id="t", until=until + 5)
        metastore.advance_consumer("replica", until)
        silent(1000, events=0)
        assert not ahead.look().is_done, "there is nothing to read"

    def test_a_consumer_that_fell_out_of_retention_cannot_come_there(self, metastore, tmp_path):
        metastore.register_consumer("replica", expiry_seconds=600)
        metastore.create_database("lake")
        metastore.create_database("sea")
        with closing(sqlite3.connect(tmp_path / "metastore.db")) as database, database:
            database.execute("UPDATE metastore_consumers SET updated_at = updated_at - 1000000")
            database.execute("UPDATE metastore_notification_log SET event_time = event_time - 1000000")
        metastore.purge_events(3600)
        sensor = NotificationLogCatchupSensor(task_id="t", until=metastore.current_event_id())
        with pytest.raises(
            ConsumerGoneError, match=r"it cannot come there: events .* were removed by retention"
        ):
            sensor.look()

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
        folder, aside = tmp_path / "disk", tmp_path / "aside"
        url = f"sqlite:///{folder}/metastore.db"
        open_metastore(url).close()
        folder.rename(aside)
        folder.touch()

        def comes_back(seconds):
            if aside.exists():
                folder.unlink()
                aside.rename(folder)

        connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
        monkeypatch.setattr("tenacity.nap.time.sleep", comes_back)
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
        # And a planner of a clustering that died before its instant was on the timeline.
        planner = _later(clustering)
        table.storage.put(heartbeat_path(planner), HeartbeatInfo("me", "clustering", "CLUSTER").to_json())

        assert {each.instant for each in pending_instants(table)} == {clean, clustering, planner}
        assert sensor.look().is_done
        fenced = increment(table, order="fenced")
        assert (fenced.end, fenced.held_by) == (newest, None)
        with begin_planned(table, clustering):  # somebody carries it out
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
                run_trigger(sensor, timeout=300)

    @pytest.mark.parametrize("before", ["None", "", "yesterday", "2024"])
    def test_what_is_no_instant_is_refused(self, table, before):
        with pytest.raises(InvalidInputError, match="give the 'instant' of an ingestion's result"):
            PriorCommitsFenceSensor(task_id="t", table="lake.flights", before=before).look()


def _later(instant: str) -> str:
    return str(int(instant) + 1)

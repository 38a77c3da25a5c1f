"""With Airflow's own scheduler, supervisor and triggerer: killing, clearing and deferring for real."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from airflow_provider.concurrency import CommitLog, WriteSettings, begin_write, pending_instants
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.locks import open_lock
from airflow_provider.metastore import Metastore, TxnState, open_metastore
from airflow_provider.table.hudi_table import HudiTable
from dags_examples.demo.flights import land
from tests.airflow.ingestion.example_flights import EXAMPLES, check_rows, connection, some_flights
from tests.airflow.processes import processes_of, session_of_writer, until
from tests.airflow.reports.statsd import StatsdServer, statsd_server
from tests.airflow.with_all_its_parts.standalone import Airflow
from tests.processes.servers import postgresql

DAGS = """
from datetime import datetime, timedelta
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_provider.assets import table_asset
from airflow_provider.operators import CreateTableOperator, IngestOperator
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor
from airflow_provider.triggers import NotificationLogEventTrigger

# Over Spark Connect, with a Spark that the job starts, and one that waits for its turn.
kinds = (("load", "steady", False), ("load_here", None, False), ("load_later", "steady", True))
for name, spark_conn_id, deferrable in kinds:
    with DAG(name, schedule=None, start_date=datetime(2024, 1, 1)):
        create = CreateTableOperator(
            task_id="create",
            table="lake.loads",
            location="{lake}/loads",
            schema={{"id": "bigint"}},
            record_key="id",
            if_not_exists=True,
        )
        ingest = IngestOperator(
            task_id="ingest",
            table="lake.loads",
            source="{lake}/in.parquet",
            operation="insert",
            spark_conn_id=spark_conn_id,
            engine="spark",
            deferrable=deferrable,
            retries=3 if deferrable else 0,  # apache/airflow#72716, as below
            retry_delay=timedelta(0),
        )
        create >> ingest

with DAG("loaded", schedule=[table_asset("lake.loads")], start_date=datetime(2024, 1, 1)):

    @task
    def rows_of_the_load(triggering_asset_events=None):
        [events] = triggering_asset_events.values()
        return [event.extra for event in events]

    rows_of_the_load()

params = {{"until": 0, "before": ""}}
with DAG("wait", schedule=None, start_date=datetime(2024, 1, 1), params=params):
    # Airflow 3.3 may fail a task that comes back before it has heard that it left (apache/airflow#72716).
    again = {{"retries": 3, "retry_delay": timedelta(0)}}
    waiting = {{"deferrable": True, "poke_interval": 0.5, "timeout": 3600, **again}}
    NotificationLogCatchupSensor(task_id="caught_up", until="{{{{ params.until }}}}", **waiting)
    PriorCommitsFenceSensor(
        task_id="fence", table="lake.loads", before="{{{{ params.before }}}}", **waiting
    )

inserts = NotificationLogEventTrigger(
    consumer="arrived", table="lake.loads", event_types=["INSERT"], start_event_id=0, poll_interval=0.5
)
arrivals = Asset("arrivals", watchers=[AssetWatcher(name="inserts", trigger=inserts)])
with DAG("arrived", schedule=[arrivals], start_date=datetime(2024, 1, 1)):

    @task
    def read(triggering_asset_events=None):
        payloads = [event.extra["payload"] for event in triggering_asset_events[arrivals]]
        return [event["event_id"] for payload in payloads for event in payload["events"]]

    read()
"""

# The first test of a worker waits for a whole Airflow: half a minute on an idle machine.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of the database with Airflow's own tables."""
    with postgresql() as server:
        yield server.url


@pytest.fixture(scope="module")
def statsd() -> Iterator[StatsdServer]:
    with statsd_server() as server:
        yield server


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, database, spark_connect_port, statsd):
    home = tmp_path_factory.mktemp("standalone")
    lake = home / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), lake / "in.parquet")
    examples = ("flights.py", "flights_arrivals.py", "flights_reload.py")
    dags = {name: (EXAMPLES / name).read_text() for name in examples}
    running = Airflow(
        home,
        database,
        {"loads.py": DAGS.format(lake=lake), **dags},
        AIRFLOW_VAR_LAKE=str(lake),
        AIRFLOW_VAR_FLIGHTS_LANDING=str(home / "landing"),
        FLIGHTS_STEADY_SPARK_CONN_ID="steady",
        AIRFLOW_CONN_STEADY=connection(spark_connect_port),
        AIRFLOW__METRICS__STATSD_ON="True",
        AIRFLOW__METRICS__STATSD_HOST="127.0.0.1",
        AIRFLOW__METRICS__STATSD_PORT=str(statsd.port),
        AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED="True",
        # The listener needs none of Airflow's own metrics, of which there are hundreds a second.
        AIRFLOW__METRICS__METRICS_ALLOW_LIST="^table_services",
    )
    try:
        running.start(
            "load",
            "load_later",
            "loaded",
            "wait",
            "arrived",
            "flights_table",
            "flights_reload",
            "flights_arrivals",
        )
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def metastore(airflow) -> Metastore:
    return open_metastore(f"sqlite:///{airflow.home}/table_services/metastore.db")


@pytest.fixture(scope="module")
def loaded(airflow) -> str:
    """A run that has loaded three rows."""
    run = airflow.trigger("load")
    until(lambda: airflow.state(run, "ingest") in {"success", "failed", "upstream_failed"}, every=0.5)
    assert airflow.state(run, "ingest") == "success", airflow.log(run, "ingest")
    return run


@pytest.fixture
def table(airflow, loaded) -> HudiTable:
    return HudiTable.open(f"{airflow.lake}/loads")


def test_the_result_the_log_and_the_state_of_a_load(airflow, loaded, metastore):
    result = airflow.result(loaded, "ingest")
    assert (result["rows_inserted"], result["write_id"]) == (3, 1)
    assert metastore.get_txn(result["txn_id"]).event_id == result["event_id"]
    log = airflow.log(loaded, "ingest")
    assert f"instant {result['instant']} completed at {result['completion_time']}: 3 rows inserted" in log
    # People see the facts for the next try, too, in the task's tab "Storage".
    [kept] = airflow.call("GET", f"{loaded}/taskInstances/ingest/state-store")["task_state_store"]
    assert kept["value"]["txn_id"] == result["txn_id"]
    assert kept["value"]["key"].startswith("load.ingest/manual__")


def test_the_metrics_of_a_load_come_to_a_statsd_server(loaded, statsd):
    about = {"table": "lake.loads", "action": "commit", "priority": "400"}
    assert (statsd.total("commits", **about), statsd.total("rows", **about)) == (1, 3)
    assert statsd.total("bytes", **about) > 0
    assert statsd.total("commit", "ms", **about) >= statsd.total("publish", "ms", **about) > 0
    assert statsd.total("timeline_length", "g", table="lake.loads") == 1


def test_a_load_starts_the_dag_whose_schedule_is_its_table(airflow, loaded):
    def told() -> list[dict]:
        runs = airflow.call("GET", "/api/v2/dags/loaded/dagRuns")["dag_runs"]
        paths = [
            f"/api/v2/dags/loaded/dagRuns/{run['dag_run_id']}" for run in runs if run["state"] == "success"
        ]
        return [event for path in paths for event in airflow.result(path, "rows_of_the_load")]

    [extra] = until(told, every=0.5)
    result = airflow.result(loaded, "ingest")
    assert (extra["instant"], extra["event_id"]) == (result["instant"], result["event_id"])
    assert extra["rows_inserted"] == 3


def test_sensors_defer_to_the_triggerer_and_come_back(airflow, metastore, table):
    metastore.register_consumer("replica", if_not_exists=True)
    metastore.create_database("later")
    until_event = metastore.current_event_id()
    with begin_write(table, operation="UPSERT") as earlier:
        run = airflow.trigger("wait", until=until_event, before=str(int(earlier.instant) + 1))
        until(
            lambda: airflow.state(run, "caught_up") == airflow.state(run, "fence") == "deferred",
            every=0.5,
        )
        metastore.advance_consumer("replica", until_event)
        until(lambda: airflow.state(run, "caught_up") == "success", every=0.5)
        assert airflow.state(run, "fence") == "deferred"
        assert f"waiting: commit {earlier.instant} (UPSERT) by " in airflow.log(run, "fence")
    until(lambda: airflow.state(run, "fence") == "success", every=0.5)
    assert airflow.result(run, "caught_up")["consumers"]["replica"] == until_event
    metastore.unregister_consumer("replica")


def test_a_load_waits_for_its_turn_in_the_triggerer_and_commits_once(airflow, table):
    more_important = WriteSettings(priority=500)
    with begin_write(table, operation="UPSERT", settings=more_important) as other:
        run = airflow.trigger("load_later")
        until(lambda: airflow.state(run, "ingest") == "deferred", every=0.5)
        assert f"waits in the triggerer for UPSERT {other.instant} by " in airflow.log(run, "ingest")
    before = table.timeline().commits()
    until(lambda: airflow.state(run, "ingest") in {"success", "failed"}, every=0.5)
    assert airflow.state(run, "ingest") == "success", airflow.log(run, "ingest")
    [commit] = table.timeline().commits()[len(before) :]
    assert airflow.result(run, "ingest")["instant"] == commit.requested_time


def test_a_load_that_is_set_to_failed_while_it_waits_leaves_nothing(airflow, metastore, table):
    commits = table.timeline().commits()
    transactions = metastore.valid_txn_list().high_watermark
    with begin_write(table, operation="UPSERT", settings=WriteSettings(priority=500)) as other:
        run = airflow.trigger("load_later")
        until(lambda: airflow.state(run, "ingest") == "deferred", every=0.5)
        airflow.call("PATCH", f"{run}/taskInstances/ingest", {"new_state": "failed"})
        assert [each.instant for each in pending_instants(table)] == [other.instant]
    assert airflow.state(run, "ingest") == "failed"
    assert table.timeline().commits() == commits
    assert metastore.valid_txn_list().high_watermark == transactions


def test_clearing_a_task_does_its_work_again(airflow, loaded, table):
    commits, before = len(table.timeline().commits()), airflow.result(loaded, "ingest")
    dag = loaded.partition("/dagRuns/")
    airflow.call(
        "POST",
        f"{dag[0]}/clearTaskInstances",
        {"dry_run": False, "dag_run_id": dag[2], "task_ids": ["ingest"], "only_failed": False},
    )
    until(lambda: len(table.timeline().commits()) == commits + 1)
    until(lambda: airflow.state(loaded, "ingest") == "success", every=0.5)
    # The number may not be the next one: a try that Airflow has begun twice, and ended, has taken a number as
    # well.
    assert airflow.result(loaded, "ingest")["write_id"] > before["write_id"]


def test_a_task_set_to_failed_in_the_ui_leaves_no_process_and_no_write(airflow, metastore, table):
    commits = table.timeline().commits()
    with open_lock({}, table.storage):
        run = airflow.trigger("load_here")
        session = until(lambda: session_of_writer(table))
        transaction = metastore.valid_txn_list().high_watermark
        assert len(processes_of(session)) >= 2  # the driver and its JVM
        airflow.call("PATCH", f"{run}/taskInstances/ingest", {"new_state": "failed"})
        until(lambda: processes_of(session) == [])
        until(lambda: pending_instants(table) == [])
    assert table.timeline().commits() == commits
    until(lambda: metastore.get_txn(transaction).state == TxnState.ABORTED)
    assert airflow.state(run, "ingest") == "failed"


def inserted(metastore, table: str = "loads") -> list[int]:
    """A table's INSERT events in the log."""
    return [event.event_id for event in metastore.next_events(0, event_types=["INSERT"], table=table)]


@pytest.fixture
def delivered(database) -> Iterator[Callable[[], list[int]]]:
    """The notification events in the asset's events, in the order in which Airflow stored them."""
    engine = create_engine(database)
    extras = text(
        "SELECT asset_event.extra FROM asset_event JOIN asset ON asset.id = asset_id "
        "WHERE name = 'arrivals' ORDER BY asset_event.id"
    )

    def events() -> list[int]:
        with engine.connect() as connection:
            stored = connection.scalars(extras).all()
        return [event["event_id"] for extra in stored for event in extra["payload"]["events"]]

    yield events
    engine.dispose()


def read_by_runs(airflow) -> set[int]:
    """The notification events that started runs of the DAG ``arrived``."""
    runs = airflow.call("GET", "/api/v2/dags/arrived/dagRuns?limit=1000")["dag_runs"]
    paths = [f"/api/v2/dags/arrived/dagRuns/{run['dag_run_id']}" for run in runs if run["state"] == "success"]
    return {event_id for path in paths for event_id in airflow.result(path, "read")}


def test_an_ingestion_starts_the_dag_that_waits_for_its_rows(airflow, loaded, metastore):
    result = airflow.result(loaded, "ingest")
    [told] = [event for event in inserted(metastore) if event == result["event_id"] - 1]
    until(lambda: told in read_by_runs(airflow), every=1)
    until(lambda: consumer(metastore, "arrived") >= result["event_id"])


def test_airflows_own_backfill_writes_with_the_priority_of_its_runs(airflow, metastore):
    flights = some_flights()
    december = flights.filter(pc.equal(flights["month"], 12))
    before = commits(metastore)
    land(december, airflow.home / "landing")
    created = airflow.trigger("flights_table")
    until(lambda: airflow.state(created, "create") in {"success", "failed"}, every=0.5)
    assert airflow.state(created, "create") == "success", airflow.log(created, "create")

    table = HudiTable.open(str(airflow.lake / "flights"))
    span = ["--from-date", "2013-12-01", "--to-date", "2013-12-01"]
    airflow.command("backfill", "create", "--dag-id", "flights_reload", *span)
    until(lambda: len(table.timeline().commits()) == 1)
    # The run has no logical date, as if a person had triggered it.
    asked = {"logical_date": None, "run_after": "2013-12-02T00:00:00Z", "conf": {"write_priority": 350}}
    airflow.call("POST", "/api/v2/dags/flights_reload/dagRuns", asked)
    until(lambda: len(table.timeline().commits()) == 2)
    priorities = [entry.priority for entry in CommitLog(table.storage).after(0) if isinstance(entry, Commit)]
    assert priorities == [300, 350]
    check_rows(airflow.lake / "flights", december)
    # The event of a commit comes when its task ends, a moment after the commit is on the timeline.
    until(lambda: commits(metastore) == before + 2)
    check_arrivals(airflow, metastore, december.num_rows)


def commits(metastore) -> int:
    return len(metastore.next_events(0, event_types=["COMMIT_TXN"]))


def check_arrivals(airflow, metastore, rows: int) -> None:
    """Check that the DAG that waits for rows has seen each commit's rows once, and nobody started it."""
    told = inserted(metastore, "flights")

    def results() -> list[dict]:
        runs = airflow.call("GET", "/api/v2/dags/flights_arrivals/dagRuns")["dag_runs"]
        started = [run["dag_run_id"] for run in sorted(runs, key=lambda run: run["run_after"])]
        paths = [f"/api/v2/dags/flights_arrivals/dagRuns/{run}" for run in started]
        return [airflow.result(path, "count") for path in paths if airflow.state(path, "count") == "success"]

    def seen() -> list[int]:
        return [event for result in results() for event in result["events"]]

    until(lambda: seen() == told, every=1)
    assert results()[-1]["flights"] == rows


def test_a_triggerer_that_is_killed_loses_no_event(airflow, loaded, metastore, delivered):
    def write() -> None:
        while not enough.wait(0.5):
            metastore.fire_insert_event("lake", "loads", ["/lake/loads/a.parquet"])

    before = len(inserted(metastore))
    enough = threading.Event()
    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    until(lambda: len(delivered()) > before + 3, every=1)
    airflow.kill_triggerer()
    killed_at = inserted(metastore)[-1]
    until(lambda: inserted(metastore)[-1] > killed_at)
    airflow.start_triggerer()
    until(lambda: max(delivered()) > killed_at, every=1)
    enough.set()
    writing.join()
    written = inserted(metastore)
    until(lambda: set(delivered()) == set(written), every=1)
    # Events arrive at least once, and in order, except for deliveries that the killed triggerer could not
    # record.
    assert list(dict.fromkeys(delivered())) == written


def consumer(metastore, name: str) -> int:
    return next(each.event_id for each in metastore.consumers() if each.name == name)

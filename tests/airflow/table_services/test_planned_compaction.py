"""Compaction as two tasks: planned without Spark, executed by a job, killed and tried again."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency import begin_planned
from airflow_provider.concurrency.plans import Service, failures
from airflow_provider.exceptions import JobFailedError, NoSuchInstantError, ServiceStoppedError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import (
    CompactionOperator,
    CreateTableOperator,
    RunCompactionOperator,
    ScheduleCompactionOperator,
)
from airflow_provider.services.table_compaction import (
    TableCompactionSettings,
    pending_table_compactions,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading import file_slices
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}
TABLE = {"table": "lake.trips"}
ALWAYS = TableCompactionSettings(delta_commits=1)


@pytest.fixture
def trips(metastore, tmp_path) -> HudiTable:
    """A merge-on-read table: two partitions with a base file and a log file each."""
    location = str(tmp_path / "lake" / "trips")
    CreateTableOperator(
        task_id="create",
        **TABLE,
        location=location,
        schema=COLUMNS,
        record_key=["id"],
        partition_by=["day"],
        table_type="merge_on_read",
    ).execute({})
    table = HudiTable.open(location)
    for fare in (1.0, 2.0):
        upsert(table, fare)
    return table


def upsert(table: HudiTable, fare: float) -> None:
    rows = [{"id": n, "day": day, "fare": fare} for n, day in enumerate(("mon", "tue"))]
    ingest_arrow(table, pa.Table.from_pylist(rows, table.schema), "upsert", small_file_limit=0)


def fares(table: HudiTable) -> list[float]:
    return snapshot(table).to_table(columns=["fare"])["fare"].to_pylist()


def logs(table: HudiTable) -> int:
    return sum(len(each.log_paths) for each in file_slices(table))


class Store(dict):
    """Stands in for Airflow's task state store, for tries that the test makes itself."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


def try_of(store: Store) -> dict:
    ti = SimpleNamespace(dag_id="small", task_id="run", run_id="manual", map_index=-1, max_tries=1)
    return {"ti": ti, "task_state_store": store}


def test_a_dag_plans_carries_out_and_does_both(run_dag, metastore, trips, capfd):
    head = metastore.current_event_id()
    with DAG("small", **START) as dag:
        plan = ScheduleCompactionOperator(
            task_id="plan",
            **TABLE,
            delta_commits="{{ params.most }}",
            partitions="day={{ params.day }}",
            params={"most": 2, "day": "mon"},
        )
        run = RunCompactionOperator(
            task_id="run", **TABLE, engine="arrow", instant="{{ ti.xcom_pull('plan')['instant'] }}"
        )
        again = ScheduleCompactionOperator(task_id="again", **TABLE)
        nothing = RunCompactionOperator(
            task_id="nothing", **TABLE, instant="{{ ti.xcom_pull('again')['instant'] }}"
        )
        plan >> run >> again >> nothing >> CompactionOperator(task_id="both", **TABLE, delta_commits=1)
    finished = run_dag(dag)
    planned, done, both = (xcom(finished, name) for name in ("plan", "run", "both"))
    assert (planned["file_groups"], planned["log_files"], planned["action"]) == (1, 1, "compaction")
    assert (done["instant"], done["action"], done["operation"]) == (planned["instant"], "commit", "compact")
    assert (done["file_groups_planned"], done["file_groups_done"], done["file_groups_left_out"]) == (1, 1, 0)
    assert (done["rows"], done["txn_id"]) == (1, None)
    assert done["bytes"] > 0
    assert xcom(finished, "again")["instant"] is None, "five delta commits"
    assert xcom(finished, "nothing") == dict.fromkeys(done) | TABLE
    assert both["table_compactions"] == [], "no delta commit since"
    assert logs(trips) == 1
    assert fares(trips) == [2.0, 2.0]
    assert metastore.current_event_id() == head  # no row has changed, so there is no event
    assert "engine arrow: as engine='arrow' says" in "".join(capfd.readouterr())


def test_a_plan_is_executed_on_spark(trips, spark_connect, capfd):
    schedule_table_compaction(trips, ALWAYS)
    run = RunCompactionOperator(task_id="run", **TABLE, spark_conn_id=spark_connect, arrow_max_bytes=1)
    assert run.execute({})["file_groups_done"] == 2
    assert (logs(trips), fares(trips)) == (0, [2.0, 2.0])
    assert "engine spark: 2 file groups, " in "".join(capfd.readouterr())


def test_the_trigger_says_when(trips):
    late = ScheduleCompactionOperator(
        task_id="plan", **TABLE, trigger="NUM_AND_TIME", delta_commits=1, delta_seconds=timedelta(days=1)
    )
    assert late.execute({})["instant"] is None
    early = ScheduleCompactionOperator(
        task_id="plan", **TABLE, trigger="{{ 'x' }}", delta_commits=1, delta_seconds=timedelta(days=1)
    )
    early.trigger = "NUM_OR_TIME"  # as a template renders it
    assert early.execute({})["file_groups"] == 2


def test_a_task_that_is_killed_leaves_a_plan_for_its_retry_and_commits_once(trips, nowhere, monkeypatch):
    store, instant = Store(), schedule_table_compaction(trips, ALWAYS)
    operator = RunCompactionOperator(task_id="run", **TABLE, spark_conn_id=nowhere, instant=instant)
    monkeypatch.setattr(operator, "_choose", lambda *_: operator.on_kill() or "arrow")
    with pytest.raises(JobFailedError):
        operator.execute(try_of(store))
    assert pending_table_compactions(trips, idle=True) == [instant]

    def retry() -> dict:
        return RunCompactionOperator(task_id="run", **TABLE, spark_conn_id=nowhere, instant=instant).execute(
            try_of(store)
        )

    done = retry()
    assert (done["instant"], done["file_groups_done"]) == (instant, 2)
    assert (logs(trips), fares(trips)) == (0, [2.0, 2.0])
    upsert(trips, 3.0)
    assert retry() == done  # a retry after the commit does nothing more


def test_a_plan_whose_planner_could_not_tell_of_it_is_found(trips):
    """The first try is killed after its plan: the second has nothing to plan, and the plan is run."""
    store = Store()
    plan = ScheduleCompactionOperator(task_id="plan", **TABLE, delta_commits=1)
    first, second = (plan.execute(try_of(store)) for _ in range(2))
    assert (first["file_groups"], second["instant"]) == (2, None)
    run = RunCompactionOperator(task_id="run", **TABLE, engine="arrow")
    run.instant = "None"  # as a template renders the second try's result
    assert run.execute({})["instant"] == first["instant"]


def test_a_plan_that_others_have_carried_out_or_rolled_back(trips, nowhere):
    instant = schedule_table_compaction(trips, ALWAYS)
    done = run_table_compaction(trips, instant)
    operator = RunCompactionOperator(task_id="run", **TABLE, spark_conn_id=nowhere, instant=instant)
    assert operator.execute({})["completion_time"] == done.completion_time
    upsert(trips, 3.0)
    other = schedule_table_compaction(trips, ALWAYS)
    begin_planned(trips, other).abort("its executor was killed")
    told = f"no compaction plan {other}.*: it was rolled back when .* executed it .its executor was killed."
    with pytest.raises(AirflowFailException, match=told) as caught:
        RunCompactionOperator(task_id="run", **TABLE, spark_conn_id=nowhere, instant=other).execute({})
    assert isinstance(caught.value.__cause__, NoSuchInstantError)


def test_a_plan_that_fails_again_and_again_is_not_made_any_more(trips):
    """Base files that nobody can read: every compaction fails."""
    plan = ScheduleCompactionOperator(task_id="plan", **TABLE, delta_commits=1, max_failures=2)
    for each in file_slices(trips):
        trips.storage.put(each.base_path, b"broken")
    for _ in range(2):
        instant = plan.execute({})["instant"]
        with pytest.raises(AirflowFailException, match="is not a Parquet file"):
            RunCompactionOperator(task_id="run", **TABLE, engine="arrow", instant=instant).execute({})
    assert len(failures(trips, Service.TABLE_COMPACTION)) == 2
    with pytest.raises(AirflowFailException, match="table-compaction has failed 2 times in a row") as caught:
        plan.execute({})
    assert isinstance(caught.value.__cause__, ServiceStoppedError)
    plan.max_failures = None
    assert plan.execute({})["file_groups"] == 2


@pytest.mark.parametrize(
    ("operator", "arguments", "told"),
    [
        (ScheduleCompactionOperator, {"trigger": "SOMETIMES"}, "trigger must be one of NUM_COMMITS, "),
        (ScheduleCompactionOperator, {"strategy": "Best"}, r"hoodie\.compaction\.strategy must be: .*'Best'"),
        (ScheduleCompactionOperator, {"delta_seconds": "soon"}, "delta_seconds must be 0 seconds or more"),
        (ScheduleCompactionOperator, {"min_log_bytes": "much"}, "min_log_bytes must be"),
        (ScheduleCompactionOperator, {"priority": "most"}, "priority"),
        (CompactionOperator, {"strategy": "Best"}, r"hoodie\.compaction\.strategy must be: .*'Best'"),
        (RunCompactionOperator, {"parallel_file_groups": 0}, "parallel_file_groups must be 1 or more, not 0"),
        (RunCompactionOperator, {"engine": "jvm"}, "engine must be one of auto, spark, arrow"),
        (RunCompactionOperator, {"instant": "20260101000000000"}, "no compaction plan 20260101000000000"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_planned(trips, operator, arguments, told):
    before = trips.timeline().instants
    with pytest.raises(AirflowFailException, match=told):
        operator(task_id="it", **TABLE, **arguments).execute({})
    assert trips.timeline().instants == before


def test_a_copy_on_write_table_has_nothing_to_plan(table):
    with pytest.raises(AirflowFailException, match="it has no log files to be compacted"):
        ScheduleCompactionOperator(task_id="plan", table="lake.flights").execute({})

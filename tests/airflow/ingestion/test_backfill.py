"""Backfills by real Spark jobs: window by window, killed and tried again, beside other writers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency import PRIORITIES, CommitLog, begin_write, pending_instants
from airflow_provider.exceptions import JobFailedError, MetastoreUnavailableError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import open_lock
from airflow_provider.metastore import TableTransaction, TxnState
from airflow_provider.operators import BackfillOperator
from airflow_provider.operators._base.priority import priority_of_run
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.conftest import xcom
from tests.airflow.flights import in_thread, rows_of, write_rows
from tests.airflow.processes import has_written, processes_of, until, writer_pid

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}
DAYS = ("fri", "mon", "thu", "tue", "wed")
ROWS = sorted((number * 10 + n, day, float(n)) for number, day in enumerate(DAYS) for n in range(3))


@pytest.fixture
def history(tmp_path) -> Path:
    """Five partitions of three rows, in one file."""
    folder = tmp_path / "history"
    folder.mkdir()
    write_rows(folder / "all.parquet", ROWS)
    return folder


def backfill(history: Path, /, **arguments) -> BackfillOperator:
    defaults = {"table": "lake.flights", "source": f"{history}/*.parquet", "operation": "insert"}
    return BackfillOperator(task_id="history", **{**defaults, **arguments})


def windows_of(table: HudiTable) -> list[str]:
    """The windows of the commits, in the order of their completion."""
    timeline = table.timeline()
    commits = sorted(timeline.commits(), key=lambda commit: str(commit.completion_time))
    return [timeline.commit_metadata(commit).extra_metadata["backfill_window"] for commit in commits]


class Store(dict):
    """Stands in for Airflow's task state store, for tries that the test makes itself."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


def try_of(store: Store, *, max_tries: int = 1) -> dict:
    ti = SimpleNamespace(dag_id="old", task_id="history", run_id="manual", map_index=-1, max_tries=max_tries)
    return {"ti": ti, "task_state_store": store}


class TestWindows:
    def test_each_partition_is_a_commit_in_a_transaction_of_its_own(
        self, run_dag, metastore, table, history, capfd
    ):
        with DAG("old", **START) as dag:
            backfill(history, order="{{ params.order }}", params={"order": "newest_first"})
        run = run_dag(dag)
        result = xcom(run, "history")
        assert rows_of(table) == ROWS
        assert windows_of(table) == [f"day={day}" for day in DAYS[::-1]]
        assert (result["rows_inserted"], result["windows_done"], result["windows_skipped"]) == (15, 5, 0)
        assert result["instants"] == [commit.requested_time for commit in table.timeline().commits()]
        # Windows become visible one by one: each has its own transaction, which registers its partition.
        events = metastore.next_events(0)
        kinds = [e.event_type for e in events if e.event_type in ("OPEN_TXN", "ADD_PARTITION", "COMMIT_TXN")]
        assert kinds == ["OPEN_TXN", "ADD_PARTITION", "COMMIT_TXN"] * 5
        assert [each.values for each in metastore.get_partitions("lake", "flights")] == [(d,) for d in DAYS]
        commits = table.timeline().commits()
        extra = [table.timeline().commit_metadata(commit).extra_metadata for commit in commits]
        assert [each["write_id"] for each in extra] == ["1", "2", "3", "4", "5"]
        assert {each["priority"] for each in extra} == {"300"}
        assert metastore.get_txn(result["txn_id"]).event_id == result["event_id"] == events[-1].event_id
        # One JVM writes all windows, and the log has the progress.
        printed = "".join(capfd.readouterr())
        assert len(re.findall(r"Spark \S+ is there after", printed)) == 1
        assert "; 2 of 5 windows done, 6 rows, " in printed
        assert "rows/s, time left 0:00:00" in printed

    def test_by_spark_submit(self, metastore, table, history, spark_on_this_machine):
        result = backfill(history, spark_conn_id=spark_on_this_machine).execute({})
        assert (result["windows_done"], rows_of(table)) == (5, ROWS)

    def test_a_table_given_by_its_path_and_a_list_of_partitions(
        self, metastore, table, history, spark_connect, caplog
    ):
        head = metastore.current_event_id()
        operator = backfill(
            history,
            table=table.location,
            partitions=["day=wed", "day=sun", "day=mon"],
            spark_conn_id=spark_connect,
        )
        with caplog.at_level("INFO"):
            result = operator.execute({})
        assert (result["windows_done"], result["windows_empty"], result["txn_id"]) == (2, 1, None)
        # The window without a row was none of an earlier try.
        assert "an earlier try" not in caplog.text
        assert {day for _, day, _ in rows_of(table)} == {"mon", "wed"}
        assert metastore.current_event_id() == head

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"partitions": ["day=mon"], "start": "2013-01-01"}, "in one way only, not by partitions and"),
            ({"time_column": "day"}, "windows of time need start, end and step"),
            ({"start": "2013", "end": "2014-01-01", "step": "day"}, "start '2013' is not an ISO date"),
            (
                {"time_column": "day", "start": "2013-01-01", "end": "2013-01-02", "step": "day"},
                "does not say when",
            ),
            (
                {"time_column": "day", "start": "2013-01-01", "end": "2013-01-01", "step": "day"},
                "start and end are both 2013-01-01, so there is no window",
            ),
            ({"partitions": ["day=mon"], "order": "random"}, "'random'"),
            ({"partitions": [{"week": 1}]}, "no column 'week'"),
            ({"partitions": ["day=mon"], "patience": -1}, "patience"),
            ({"partitions": ["day=mon"], "priority": "urgent"}, "'urgent' is not known"),
        ],
    )
    def test_wrong_arguments_fail_before_a_job_and_a_transaction(
        self, metastore, table, history, arguments, message
    ):
        head = metastore.current_event_id()
        with pytest.raises(AirflowFailException, match="InvalidInputError") as raised:
            backfill(history, **arguments).execute({})
        assert message in str(raised.value)
        assert metastore.current_event_id() == head
        assert table.timeline().instants == ()


class TestBesideOthers:
    def test_a_lost_conflict_is_made_up_for_within_the_task(
        self, metastore, table, history, tmp_path, spark_connect
    ):
        rows = pa.table({"id": [20], "day": ["thu"], "fare": [7.0]})
        ingest_arrow(table.location, rows)
        operator = backfill(history, partitions=["day=thu"], operation="upsert", spark_conn_id=spark_connect)
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: operator.execute({}))
            until(lambda: has_written(table))
            # This write does not take the table's lock, and goes into the same file group.
            lock = open_lock({"provider": "in_process"}, table.storage)
            more = pa.table({"id": [99], "day": ["thu"], "fare": [9.0]})
            ingest_arrow(HudiTable.open(table.location), more, lock=lock)
        thread.join(300)
        [result] = outcome
        assert result["rebases"] == 1
        thursday = [(id_, fare) for id_, day, fare in rows_of(table) if day == "thu"]
        assert thursday == [(20, 0.0), (21, 1.0), (22, 2.0), (99, 9.0)]

    def test_between_windows_it_makes_way_and_says_for_whom(
        self, metastore, table, history, spark_connect, capfd
    ):
        operator = backfill(history, spark_conn_id=spark_connect)
        with begin_write(table, operation="UPSERT") as ingestion:
            thread, outcome = in_thread(lambda: operator.execute({}))
            printed = ""

            def is_told() -> bool:
                nonlocal printed
                printed += "".join(capfd.readouterr())
                return "makes way, at most 60 s, for UPSERT" in printed

            until(is_told)
            assert [each.instant for each in pending_instants(table)] == [ingestion.instant]
        thread.join(300)
        assert outcome[0]["windows_done"] == 5
        assert outcome[0]["seconds_waited"] > 0


WORKER = """
import json, sys
from types import SimpleNamespace
from airflow_provider.operators import BackfillOperator

class Store(dict):
    def set(self, key, value):
        self[key] = value
        open(sys.argv[2], "w").write(json.dumps(self))

ti = SimpleNamespace(dag_id="old", task_id="history", run_id="manual", map_index=-1, max_tries=1)
operator = BackfillOperator(
    task_id="history", table="lake.flights", source=sys.argv[1], operation="insert", spark_conn_id="connect"
)
operator.execute({"ti": ti, "task_state_store": Store()})
"""


class TestKilled:
    @pytest.fixture
    def lock(self, table):
        """The table's lock. The test acquires it before the job begins, so each window waits for it."""
        lock = open_lock({}, table.storage)
        lock.acquire()
        return lock

    def let_commit(self, lock, table, number: int) -> None:
        """Let this many windows have the lock, one after the other; the next one has written, and waits."""
        for _ in range(number):
            until(lambda: has_written(table) and lock.waiters())
            lock.release()
            lock.acquire(300)  # in the line, behind the window
        until(lambda: has_written(table))

    def test_the_worker_dies_and_the_retry_writes_only_the_rest(
        self, metastore, table, history, tmp_path, spark_connect, lock
    ):
        kept, store = tmp_path / "store.json", Store()
        worker = subprocess.Popen([sys.executable, "-c", WORKER, f"{history}/*.parquet", str(kept)])
        try:
            self.let_commit(lock, table, 2)
            pid = writer_pid(table)
        finally:
            worker.kill()
            worker.wait()
        # The job ends with its task; the retry would find a window that commits before that.
        until(lambda: not Path(f"/proc/{pid}").exists())
        lock.release()
        done = windows_of(table)
        store.update(json.loads(kept.read_text()))
        [state] = store.values()
        assert metastore.get_txn(state["txn_id"]).state == TxnState.OPEN

        result = backfill(history, spark_conn_id=spark_connect).execute(try_of(store))
        assert windows_of(table) == [f"day={day}" for day in DAYS]
        assert rows_of(table) == ROWS
        assert (result["windows_done"], result["windows_skipped"]) == (5, len(done))
        assert result["rows_inserted"] == 15
        assert metastore.get_txn(state["txn_id"]).state == TxnState.ABORTED
        assert len(metastore.get_partitions("lake", "flights")) == 5
        assert pending_instants(table) == []

    @pytest.mark.parametrize("how", ["the job is killed", "on_kill"])
    def test_the_current_window_is_rolled_back_and_finished_ones_stay(
        self, metastore, table, history, spark_connect, lock, how
    ):
        store = Store()
        operator = backfill(history, spark_conn_id=spark_connect)
        thread, outcome = in_thread(lambda: operator.execute(try_of(store)))
        self.let_commit(lock, table, 1)
        pid = writer_pid(table)
        session = os.getsid(pid)
        if how == "on_kill":
            operator.on_kill()
        else:
            os.kill(pid, signal.SIGKILL)
        thread.join(300)
        lock.release()
        [error] = outcome
        assert isinstance(error, JobFailedError), error
        done = windows_of(table)
        assert len(done) == 1
        assert pending_instants(table) == []
        assert len(rows_of(table)) == 3 * len(done)
        assert len(metastore.get_partitions("lake", "flights")) == len(done)
        if how == "on_kill":
            until(lambda: processes_of(session) == [])
        # The task is cleared, not retried. Because it had failed, it continues with the next window.
        result = backfill(history, spark_conn_id=spark_connect).execute(try_of(store, max_tries=2))
        assert rows_of(table) == ROWS
        assert result["windows_skipped"] == len(done)


class TestAgain:
    def test_a_finished_backfill_that_is_cleared_is_done_again_unless_it_has_an_id(
        self, metastore, table, history, spark_connect
    ):
        store, arguments = Store(), {"spark_conn_id": spark_connect, "operation": "upsert"}
        first = backfill(history, **arguments).execute(try_of(store))
        again = backfill(history, **arguments).execute(try_of(store))
        assert again == {**first, "windows_skipped": 5}
        cleared = backfill(history, **arguments).execute(try_of(store, max_tries=2))
        assert (cleared["windows_skipped"], cleared["rows_updated"]) == (0, 15)
        assert len(table.timeline().commits()) == 10

        named = {**arguments, "backfill_id": "of 2013"}
        assert backfill(history, **named).execute({})["windows_skipped"] == 0
        assert backfill(history, **named).execute(try_of(Store(), max_tries=7))["windows_skipped"] == 5
        assert len(table.timeline().commits()) == 15

    def test_explicit_windows_that_are_done_need_no_spark(
        self, metastore, table, history, spark_connect, connect
    ):
        arguments = {"partitions": ["day=mon"], "backfill_id": "one"}
        backfill(history, spark_conn_id=spark_connect, **arguments).execute({})
        connect("gone", conn_type="spark_connect", host="sc://127.0.0.1", port=1)
        assert backfill(history, spark_conn_id="gone", **arguments).execute({})["windows_skipped"] == 1

    def test_a_commit_that_the_metastore_was_not_told_of_is_told_by_the_next_attempt(
        self, metastore, table, history, spark_connect
    ):
        """The metastore is away for a moment, right after the second window's commit on storage."""
        succeed, calls = TableTransaction._succeed, []

        def fails_once(transaction):
            calls.append(transaction.txn_id)
            if len(calls) == 2:
                raise MetastoreUnavailableError("the database is away")
            succeed(transaction)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TableTransaction, "_succeed", fails_once)
            result = backfill(history, spark_conn_id=spark_connect).execute({})
        assert rows_of(table) == ROWS
        assert result["windows_done"] == 5
        assert metastore.get_txn(calls[1]).state == TxnState.COMMITTED
        assert len(metastore.get_partitions("lake", "flights")) == 5


class TestPriority:
    @pytest.mark.parametrize(
        ("given", "run", "priority"),
        [
            (None, None, 400),
            ("auto", SimpleNamespace(run_type="scheduled", conf={}), 400),
            (None, SimpleNamespace(run_type="backfill", conf=None), 300),
            (None, SimpleNamespace(run_type="backfill", conf={"write_priority": "ingestion"}), 400),
            ("auto", SimpleNamespace(run_type="manual", conf={"write_priority": 350}), 350),
            ("cleaning", SimpleNamespace(run_type="backfill", conf={"write_priority": 350}), 100),
        ],
    )
    def test_what_the_task_says_wins_then_the_runs_conf_then_its_type(self, given, run, priority):
        assert priority_of_run(given, {"dag_run": run}, otherwise="ingestion") == priority

    def test_a_run_says_it_to_the_commits(self, run_dag, metastore, table, history, spark_connect):
        with DAG("asked", **START) as dag:
            backfill(history, partitions=["day=mon"], spark_conn_id=spark_connect)
        run_dag(dag, run_conf={"write_priority": "table_service"})
        [entry] = CommitLog(table.storage).after(0)
        assert entry.priority == PRIORITIES["table_service"]

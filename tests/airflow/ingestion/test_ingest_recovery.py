"""Ingestion that is killed, dies or is tried again: it leaves nothing behind, and loads nothing twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_provider.concurrency import pending_instants
from airflow_provider.exceptions import JobFailedError
from airflow_provider.locks import open_lock
from airflow_provider.metastore import TxnState
from airflow_provider.operators import IngestOperator
from airflow_provider.table import snapshot
from tests.airflow.conftest import xcom
from tests.airflow.flights import assert_undone, in_thread, ingest, last_transaction, rows_of
from tests.airflow.processes import has_written, processes_of, until, writer_pid

everywhere = pytest.mark.parametrize("where", [None, "spark_on_this_machine", "spark_connect_alone"])
# Airflow sends SIGKILL after five seconds, and this machine may be busy with other work. The job itself would
# wait for the lock that the test holds.
AT_ONCE = 5 + 100
START = {"schedule": None, "start_date": datetime(2024, 1, 1)}


class Store(dict):
    """Stands in for Airflow's task state store, for tries that the test makes itself."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


def try_of(store: Store, *, max_tries: int = 1) -> dict:
    ti = SimpleNamespace(
        dag_id="flights", task_id="ingest", run_id="manual", map_index=-1, max_tries=max_tries
    )
    return {"ti": ti, "task_state_store": store}


WORKER = """
import json, sys
from types import SimpleNamespace
from airflow_provider.operators import IngestOperator
from airflow_provider.table import snapshot

class Store(dict):
    def set(self, key, value):
        self[key] = value
        open(sys.argv[2], "w").write(json.dumps(self))

ti = SimpleNamespace(dag_id="flights", task_id="ingest", run_id="manual", map_index=-1, max_tries=1)
operator = IngestOperator(
    task_id="ingest", table="lake.flights", source=sys.argv[1], spark_conn_id="connect", engine="spark"
)
operator.execute({"ti": ti, "task_state_store": Store()})
"""


def dead_worker(source: Path, store: Store, when, tmp_path: Path) -> dict:
    """Run a try in a worker process that is killed at a moment; return the facts that it left in the store.

    The try's job has noticed the kill and ended when this returns: a job that still runs could commit.
    """
    kept = tmp_path / "store.json"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, f"{source}/*.parquet", str(kept)])
    try:
        until(when)
    finally:
        jobs = psutil.Process(worker.pid).children(recursive=True)
        worker.kill()
        worker.wait()
    assert psutil.wait_procs(jobs, timeout=300)[1] == []
    store.update(json.loads(kept.read_text()))
    [state] = store.values()
    return state


def until_all_is_written(table):
    """Wait until the job has written all files, and waits for the lock that a test holds.

    On a Spark Connect server a task outlives its driver for a moment, and may write a file meanwhile; the
    next clean deletes that file.
    """
    until(lambda: table.storage.list(".hoodie/commit_log/staged"))


class TestKill:
    @everywhere
    def test_on_kill_ends_every_process_and_undoes_the_write(self, metastore, table, source, request, where):
        operator = ingest(source, spark_conn_id=where and request.getfixturevalue(where))
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: operator.execute({}))
            pid = until(lambda: writer_pid(table))
            session = os.getsid(pid)
            assert session != os.getsid(0)
            # The driver, and its JVM when it has one.
            assert len(processes_of(session)) >= (1 if where == "spark_connect_alone" else 2)
            until_all_is_written(table)
            started = time.monotonic()
            operator.on_kill()
            thread.join(300)
            took = time.monotonic() - started
        [error] = outcome
        assert isinstance(error, JobFailedError)
        assert "killed with its task" in str(error) or "ended by SIGTERM" in str(error)
        until(lambda: processes_of(session) == [])
        assert_undone(metastore, table)
        assert took < AT_ONCE

    def test_a_timeout_of_the_task_ends_the_job_too(self, metastore, table, source, spark_connect):
        operator = ingest(source, spark_conn_id=spark_connect)
        fired_at: list[float] = []

        def fire():
            until_all_is_written(table)
            fired_at.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGUSR1)

        def interrupt(number, frame):
            raise AirflowTaskTimeout("too long")

        previous = signal.signal(signal.SIGUSR1, interrupt)
        try:
            with open_lock({}, table.storage):
                thread, _ = in_thread(fire)
                with pytest.raises(AirflowTaskTimeout):
                    operator.execute({})
                took = time.monotonic() - fired_at[0]
                thread.join()
        finally:
            signal.signal(signal.SIGUSR1, previous)
        assert took < AT_ONCE
        assert_undone(metastore, table)

    def test_a_kill_that_comes_after_the_commit_does_not_undo_it(self, metastore, table, source):
        operator = ingest(source)
        thread, _ = in_thread(lambda: operator.execute({}))
        until(lambda: table.timeline().commits())
        operator.on_kill()
        thread.join(300)
        assert len(rows_of(table)) == 3
        assert last_transaction(metastore).state == TxnState.COMMITTED
        assert len(metastore.get_partitions("lake", "flights")) == 2


class TestDeath:
    @everywhere
    def test_a_job_that_dies_is_cleaned_up_after_and_may_be_retried(
        self, metastore, table, source, request, where
    ):
        operator = ingest(source, spark_conn_id=where and request.getfixturevalue(where))
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: operator.execute({}))
            pid = until(lambda: writer_pid(table))
            until_all_is_written(table)
            os.kill(pid, signal.SIGKILL)
            thread.join(300)
        [error] = outcome
        assert isinstance(error, JobFailedError), error
        if where is None:
            assert "killed by SIGKILL" in str(error)
        assert_undone(metastore, table)


class TestRetry:
    def test_airflows_own_retry_finds_the_commit_of_the_try_before(
        self, run_dag, metastore, table, source, spark_connect
    ):
        class LosesItsVoice(IngestOperator):
            """An operator whose first try commits everything and dies before it can report that."""

            def _result(self, summary):
                result = super()._result(summary)
                if not (source / "spoken").exists():
                    (source / "spoken").touch()
                    raise OSError("the worker is gone")
                return result

        with DAG("retried", **START) as dag:
            LosesItsVoice(
                task_id="ingest",
                table="lake.flights",
                source=f"{source}/*.parquet",
                operation="insert",
                spark_conn_id=spark_connect,
                retries=1,
                retry_delay=timedelta(seconds=0.1),
            )
        run = run_dag(dag)
        [ti] = run.get_task_instances()
        assert (ti.state, ti.try_number) == ("success", 2)
        assert len(table.timeline().commits()) == 1
        result = xcom(run, "ingest")
        assert (result["rows_inserted"], result["files_written"], result["write_id"]) == (3, 2, 1)
        assert result["instant"] == table.timeline().commits()[0].requested_time
        assert metastore.get_txn(result["txn_id"]).event_id == result["event_id"]

    def test_what_a_dead_worker_committed_on_storage_only_is_finished_by_the_retry(
        self, metastore, table, source, tmp_path, spark_connect
    ):
        store = Store()

        def committed_on_storage() -> bool:
            # From here on the worker cannot end its transaction.
            if has_written(table) and not busy.in_transaction:
                busy.execute("BEGIN IMMEDIATE")
            return bool(table.timeline().commits())

        with closing(sqlite3.connect(tmp_path / "metastore.db", isolation_level=None)) as busy:
            first = dead_worker(source, store, committed_on_storage, tmp_path)
        assert metastore.get_txn(first["txn_id"]).state == TxnState.OPEN

        result = ingest(source, spark_conn_id=spark_connect).execute(try_of(store))
        assert len(table.timeline().commits()) == 1
        assert result["rows_inserted"] == 3
        assert result["txn_id"] == first["txn_id"]
        assert metastore.get_txn(result["txn_id"]).state == TxnState.COMMITTED
        assert metastore.get_txn(result["txn_id"]).event_id == result["event_id"]
        assert len(metastore.get_partitions("lake", "flights")) == 2

    def test_what_was_committed_after_its_transaction_had_timed_out_is_done_again(
        self, metastore, table, source, tmp_path, spark_connect
    ):
        store = Store()

        def committed_on_storage() -> bool:
            if has_written(table) and not busy.in_transaction:
                busy.execute("BEGIN IMMEDIATE")
            return bool(table.timeline().commits())

        with closing(sqlite3.connect(tmp_path / "metastore.db", isolation_level=None)) as busy:
            first = dead_worker(source, store, committed_on_storage, tmp_path)
        metastore.abort_txn(first["txn_id"])

        result = ingest(source, spark_conn_id=spark_connect).execute(try_of(store))
        [commit] = table.timeline().commits()
        assert result["instant"] == commit.requested_time
        assert result["txn_id"] > first["txn_id"]
        state = metastore.read_snapshot([("lake", "flights")])
        write_ids = state.tables["lake.flights"].write_ids
        assert snapshot(table, valid_write_ids=write_ids).count_rows() == len(rows_of(table)) == 3

    def test_what_a_dead_worker_did_not_commit_is_rolled_back_and_done_again(
        self, metastore, table, source, tmp_path, spark_connect
    ):
        store = Store()
        with open_lock({}, table.storage):
            first = dead_worker(source, store, lambda: has_written(table), tmp_path)
        result = ingest(source, spark_conn_id=spark_connect).execute(try_of(store))
        _, commit = table.timeline().commits()  # the first commit is empty: the rollback put it
        assert result["instant"] == commit.requested_time
        assert len(rows_of(table)) == 3
        assert metastore.get_txn(first["txn_id"]).state == TxnState.ABORTED
        assert result["txn_id"] > first["txn_id"]
        assert pending_instants(table) == []

    def test_a_cleared_task_does_its_work_again(self, metastore, table, source, spark_connect):
        store = Store()
        insert = {"operation": "insert", "spark_conn_id": spark_connect}
        ingest(source, **insert).execute(try_of(store, max_tries=1))
        again = ingest(source, **insert).execute(try_of(store, max_tries=2))
        assert again["write_id"] == 2
        assert len(table.timeline().commits()) == 2


class TestRecovery:
    def test_a_transaction_left_alone_is_ended_by_the_next_write(
        self, metastore, table, source, tmp_path, spark_connect
    ):
        left_alone = metastore.open_txn("someone", "a worker that is gone", agent="another task")
        metastore.allocate_table_write_id(left_alone, "lake", "flights")
        with closing(sqlite3.connect(tmp_path / "metastore.db")) as database, database:
            database.execute("UPDATE metastore_txns SET heartbeat_at = 0 WHERE id = ?", [left_alone])
        result = ingest(source, spark_conn_id=spark_connect).execute({})
        assert metastore.get_txn(left_alone).state == TxnState.ABORTED
        assert metastore.get_txn(result["txn_id"]).state == TxnState.COMMITTED
        assert str(metastore.valid_write_id_list("lake", "flights")).startswith("lake.flights:2:")

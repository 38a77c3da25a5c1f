"""Ingestion by real Spark jobs: what goes right, what goes wrong, and what is left behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout

from airflow_provider.concurrency import begin_write, pending_instants
from airflow_provider.exceptions import (
    InvalidConnectionError,
    InvalidInputError,
    InvalidRecordKeyError,
    JobFailedError,
    NotATableError,
    UnknownOperationError,
    UnreadableSourceError,
    WriteConflictError,
)
from airflow_provider.locks import open_lock
from airflow_provider.metastore import TxnInfo, TxnState
from airflow_provider.operators import CreateTableOperator, IngestOperator
from airflow_provider.operators.ingest import priority_number
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor
from airflow_provider.table.base_file import BaseFileWriter, read_base_file
from airflow_provider.table.file_groups import BaseFile, FileGroupId
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.read import snapshot
from tests.airflow.conftest import xcom
from tests.airflow.processes import has_written, processes_of, until, writer_pid

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}
COLUMNS = {"id": "bigint", "day": "string", "fare": "double"}


@pytest.fixture
def table(metastore, tmp_path) -> HudiTable:
    location = str(tmp_path / "lake" / "flights")
    CreateTableOperator(
        task_id="create",
        table="lake.flights",
        location=location,
        schema=COLUMNS,
        record_key=["id"],
        partition_by=["day"],
    ).execute({})
    return HudiTable.open(location)


@pytest.fixture
def source(tmp_path) -> Path:
    """Three rows in two partitions."""
    folder = tmp_path / "landing"
    folder.mkdir()
    rows = [(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)]
    write_rows(folder / "a.parquet", rows)
    return folder


def write_rows(path: Path, rows) -> None:
    columns = dict(zip(COLUMNS, (list(column) for column in zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), path)


def rows_of(table: HudiTable) -> list[tuple]:
    return sorted(tuple(row.values()) for row in snapshot(table).to_table().to_pylist())


def ingest(source, **arguments) -> IngestOperator:
    return IngestOperator(
        task_id="ingest", **{"table": "lake.flights", "source": f"{source}/*.parquet", **arguments}
    )


def states(run) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in run.get_task_instances()}


class Store(dict):
    """What Airflow's task state store is to an operator, for tries that the test makes itself."""

    def set(self, key, value):
        self[key] = json.loads(json.dumps(value))


def try_of(store: Store, *, max_tries: int = 1) -> dict:
    ti = SimpleNamespace(
        dag_id="flights", task_id="ingest", run_id="manual", map_index=-1, max_tries=max_tries
    )
    return {"ti": ti, "task_state_store": store}


def in_thread(call) -> tuple[threading.Thread, list]:
    outcome: list = []

    def run():
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def submit_to_this_machine(connect, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    connect("spark", conn_type="spark", host="local[1]", extra=json.dumps({"deploy-mode": "client"}))


def rewrite(table: HudiTable, base_file: BaseFile) -> None:
    """Commit the same rows again, past the table's lock."""
    lock = open_lock({"provider": "in_process"}, table.storage)
    group = FileGroupId(base_file.partition_path, base_file.file_id)
    with begin_write(table, operation="UPSERT", lock=lock) as writer:
        writer.plan([group], [group.partition_path])
        with BaseFileWriter(
            table.storage,
            partition_path=group.partition_path,
            file_id=group.file_id,
            write_token="0-0-0",
            instant=writer.instant,
            schema=table.schema,
        ) as file:
            file.write_preserved(read_base_file(table.storage, base_file.path))
            written = file.close()
        stat = WriteStat(group.file_id, group.partition_path, written.path, base_file.instant, written.rows)
        writer.commit([stat])


def last_transaction(metastore) -> TxnInfo:
    return metastore.get_txn(metastore.valid_txn_list().high_watermark)


def assert_undone(metastore, table: HudiTable) -> None:
    assert pending_instants(table) == []
    assert table.timeline().commits() == ()
    assert list(Path(table.location).rglob("*.parquet")) == []
    assert last_transaction(metastore).state == TxnState.ABORTED


WORKER = """
import json, sys
from types import SimpleNamespace
from airflow_provider.operators import IngestOperator

class Store(dict):
    def set(self, key, value):
        self[key] = value
        open(sys.argv[2], "w").write(json.dumps(self))

ti = SimpleNamespace(dag_id="flights", task_id="ingest", run_id="manual", map_index=-1, max_tries=1)
operator = IngestOperator(task_id="ingest", table="lake.flights", source=sys.argv[1])
operator.execute({"ti": ti, "task_state_store": Store()})
"""


def dead_worker(source: Path, store: Store, when, tmp_path: Path) -> dict:
    """A try in a worker process that is killed at a moment, with what it left in the store."""
    kept = tmp_path / "store.json"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, f"{source}/*.parquet", str(kept)])
    try:
        until(when)
    finally:
        worker.kill()
        worker.wait()
    store.update(json.loads(kept.read_text()))
    [state] = store.values()
    return state


class TestSuccess:
    def test_a_dag_creates_ingests_and_waits(self, run_dag, metastore, tmp_path, source, connect, capfd):
        secret = "geheim-4711-geheim"
        connect("storage", conn_type="generic", extra=json.dumps({"auto_mkdir": True, "secret": secret}))
        metastore.register_consumer("replica")
        with DAG("first_light", **START) as dag:
            create = CreateTableOperator(
                task_id="create",
                table="lake.flights",
                location=f"{tmp_path}/lake/flights",
                schema=COLUMNS,
                record_key="id",
                partition_by="day",
            )
            load = ingest(
                source,
                source="{{ params.landing }}/*.parquet",
                operation="{{ params.operation }}",
                priority="{{ params.priority }}",
                storage_conn_id="storage",
                params={"landing": str(source), "operation": "upsert", "priority": "backfill"},
            )
            caught_up = NotificationLogCatchupSensor(
                task_id="caught_up",
                until="{{ ti.xcom_pull('ingest')['event_id'] - 1 }}",
                consumers=[],
                deferrable=True,
            )
            fence = PriorCommitsFenceSensor(
                task_id="fence",
                table="lake.flights",
                before="{{ ti.xcom_pull('ingest')['instant'] }}",
                deferrable=True,
            )
            create >> load >> [caught_up, fence]
        run = run_dag(dag)
        assert states(run) == dict.fromkeys(["create", "ingest", "caught_up", "fence"], "success")

        table = HudiTable.open(f"{tmp_path}/lake/flights")
        assert rows_of(table) == [(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)]
        [instant] = table.timeline().commits()
        metadata = table.timeline().commit_metadata(instant)
        result = xcom(run, "ingest")
        [event] = [e for e in metastore.next_events(0) if e.event_type == "COMMIT_TXN"]
        assert result == {
            "table": "lake.flights",
            "instant": instant.requested_time,
            "completion_time": instant.completion_time,
            "action": "commit",
            "operation": "upsert",
            "rows_inserted": 3,
            "rows_updated": 0,
            "rows_deleted": 0,
            "files_written": 2,
            "bytes": sum(stat.total_write_bytes for stat in metadata.write_stats),
            "txn_id": event.message["txnid"],
            "write_id": 1,
            "event_id": event.event_id,
        }
        assert metadata.extra_metadata["txn_id"] == str(result["txn_id"])
        assert metadata.extra_metadata["write_id"] == "1"
        assert metadata.extra_metadata["priority"] == "300"
        assert metastore.valid_write_id_list("lake", "flights").is_valid(1)
        partitions = {p.values: p.location for p in metastore.get_partitions("lake", "flights")}
        assert partitions == {(day,): f"{table.location}/day={day}" for day in ("mon", "tue")}
        # The job's own lines are in the task's log, and the secret is nowhere.
        printed = "".join(capfd.readouterr())
        assert "airflow_provider.spark" in printed
        assert secret not in printed
        assert secret not in json.dumps(result)
        assert secret not in "".join(p.read_text() for p in Path(table.location).rglob("*.json"))

    def test_a_table_given_by_its_path_is_written_without_a_transaction(self, metastore, table, source):
        head = metastore.current_event_id()
        result = ingest(source, table=table.location).execute({})
        assert (result["txn_id"], result["write_id"], result["event_id"]) == (None, None, None)
        assert result["rows_inserted"] == 3
        assert metastore.current_event_id() == head

    def test_by_spark_submit(self, metastore, table, source, connect, monkeypatch, caplog):
        submit_to_this_machine(connect, monkeypatch)
        with caplog.at_level(logging.INFO):
            result = ingest(source, spark_conn_id="spark").execute({})
        assert result["rows_inserted"] == 3
        assert metastore.get_txn(result["txn_id"]).state == TxnState.COMMITTED
        assert len(rows_of(table)) == 3


class TestFailure:
    def test_a_lost_conflict_keeps_its_type_and_leaves_nothing(self, metastore, table, source):
        ingest(source).execute({})
        write_rows(source / "a.parquet", [(1, "mon", 11.0)])
        [file_group] = table.view().base_files("day=mon")
        operator = ingest(source)
        # The job stands before its commit, at the lock, while another writer commits first.
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: operator.execute({}))
            until(lambda: has_written(table))
            rewrite(table, file_group)
        thread.join(60)
        [error] = outcome
        assert isinstance(error, WriteConflictError), error
        assert error.retryable
        assert not isinstance(error, AirflowFailException)
        assert pending_instants(table) == []
        assert rows_of(table) == [(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)]
        assert last_transaction(metastore).state == TxnState.ABORTED

    def test_a_null_key_fails_without_a_retry(self, run_dag, metastore, table, source):
        write_rows(source / "b.parquet", [(None, "mon", 1.0)])
        with DAG("null_key", **START) as dag:
            ingest(source, retries=2, retry_delay=timedelta(seconds=1))
        run = run_dag(dag)
        [ti] = run.get_task_instances()
        assert (ti.state, ti.try_number) == ("failed", 1)
        assert table.timeline().instants == ()
        assert last_transaction(metastore).state == TxnState.ABORTED
        with pytest.raises(AirflowFailException, match=r"^InvalidRecordKeyError: ") as raised:
            ingest(source).execute({})
        assert isinstance(raised.value.__cause__, InvalidRecordKeyError)

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"operation": "merge"}, UnknownOperationError, "'merge'"),
            (
                {"priority": "urgent"},
                InvalidInputError,
                "'urgent' is not known; give a number or one of: ingestion",
            ),
            ({"table": "/nowhere"}, NotATableError, "/nowhere"),
            ({"spark_conn_id": "absent"}, InvalidConnectionError, "'absent' does not exist"),
            ({"lock_conn_id": "absent"}, InvalidConnectionError, "'absent' does not exist"),
            ({"spark_submit_options": {"executor_memory": "1g"}}, InvalidConnectionError, "executor_memory"),
            ({"heartbeat_interval": 0}, InvalidInputError, "heartbeat_interval"),
        ],
    )
    def test_wrong_arguments_fail_before_a_job_and_a_transaction(
        self, metastore, table, source, arguments, error, message
    ):
        head = metastore.current_event_id()
        with pytest.raises(AirflowFailException) as raised:
            ingest(source, **arguments).execute({})
        assert isinstance(raised.value.__cause__, error)
        assert message in str(raised.value)
        assert metastore.current_event_id() == head
        assert table.timeline().instants == ()

    def test_a_source_that_is_not_there_says_so(self, metastore, table, source):
        with pytest.raises(AirflowFailException, match="UnreadableSourceError") as raised:
            ingest(source, source=f"{source}/missing/*.parquet").execute({})
        assert isinstance(raised.value.__cause__, UnreadableSourceError)
        assert table.timeline().instants == ()

    @pytest.mark.parametrize("submitted", [False, True])
    def test_a_job_that_dies_is_cleaned_up_after_and_may_be_retried(
        self, metastore, table, source, connect, monkeypatch, submitted
    ):
        if submitted:
            submit_to_this_machine(connect, monkeypatch)
        operator = ingest(source, spark_conn_id="spark" if submitted else None)
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: operator.execute({}))
            pid = until(lambda: writer_pid(table))
            os.kill(pid, signal.SIGKILL)
            thread.join(60)
        [error] = outcome
        assert isinstance(error, JobFailedError), error
        if not submitted:
            assert "killed by SIGKILL" in str(error)
        assert_undone(metastore, table)


class TestKill:
    @pytest.mark.parametrize("submitted", [False, True])
    def test_on_kill_ends_every_process_and_undoes_the_write(
        self, metastore, table, source, connect, monkeypatch, submitted
    ):
        if submitted:
            submit_to_this_machine(connect, monkeypatch)
        operator = ingest(source, spark_conn_id="spark" if submitted else None)
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: operator.execute({}))
            pid = until(lambda: writer_pid(table))
            group = os.getpgid(pid)
            assert group != os.getpgid(0)
            assert len(processes_of(group)) >= 2  # the driver and its JVM
            started = time.monotonic()
            operator.on_kill()
            thread.join(30)
            took = time.monotonic() - started
        [error] = outcome
        assert isinstance(error, JobFailedError)
        until(lambda: processes_of(group) == [], seconds=5)
        assert_undone(metastore, table)
        # Airflow escalates to SIGKILL after five seconds.
        assert took < 5

    def test_a_timeout_of_the_task_ends_the_job_too(self, metastore, table, source):
        operator = ingest(source)

        def fire():
            until(lambda: writer_pid(table))
            os.kill(os.getpid(), signal.SIGUSR1)

        def interrupt(number, frame):
            raise AirflowTaskTimeout("too long")

        previous = signal.signal(signal.SIGUSR1, interrupt)
        try:
            with open_lock({}, table.storage):
                thread, _ = in_thread(fire)
                with pytest.raises(AirflowTaskTimeout):
                    operator.execute({})
                thread.join()
        finally:
            signal.signal(signal.SIGUSR1, previous)
        assert_undone(metastore, table)

    def test_a_kill_that_comes_after_the_commit_does_not_undo_it(self, metastore, table, source):
        operator = ingest(source)
        thread, _ = in_thread(lambda: operator.execute({}))
        until(lambda: table.timeline().commits(), seconds=60)
        operator.on_kill()
        thread.join(30)
        assert len(rows_of(table)) == 3
        assert last_transaction(metastore).state == TxnState.COMMITTED
        assert len(metastore.get_partitions("lake", "flights")) == 2


class TestRetry:
    def test_airflows_own_retry_finds_the_commit_of_the_try_before(self, run_dag, metastore, table, source):
        class LosesItsVoice(IngestOperator):
            """Its first try commits everything and dies before it can say so."""

            def _result(self, summary, **ids):
                result = super()._result(summary, **ids)
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
        self, metastore, table, source, tmp_path
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

        result = ingest(source).execute(try_of(store))
        assert len(table.timeline().commits()) == 1
        assert result["rows_inserted"] == 3
        assert result["txn_id"] == first["txn_id"]
        assert metastore.get_txn(result["txn_id"]).state == TxnState.COMMITTED
        assert metastore.get_txn(result["txn_id"]).event_id == result["event_id"]
        assert len(metastore.get_partitions("lake", "flights")) == 2

    def test_what_a_dead_worker_did_not_commit_is_rolled_back_and_done_again(
        self, metastore, table, source, tmp_path
    ):
        store = Store()
        with open_lock({}, table.storage):
            first = dead_worker(source, store, lambda: has_written(table), tmp_path)
        result = ingest(source).execute(try_of(store))
        [commit] = table.timeline().commits()
        assert result["instant"] == commit.requested_time
        assert len(rows_of(table)) == 3
        assert metastore.get_txn(first["txn_id"]).state == TxnState.ABORTED
        assert result["txn_id"] > first["txn_id"]
        assert pending_instants(table) == []

    def test_a_cleared_task_does_its_work_again(self, metastore, table, source):
        store = Store()
        insert = {"operation": "insert"}
        ingest(source, **insert).execute(try_of(store, max_tries=1))
        again = ingest(source, **insert).execute(try_of(store, max_tries=2))
        assert again["write_id"] == 2
        assert len(table.timeline().commits()) == 2


@pytest.mark.parametrize(
    ("given", "number"), [("ingestion", 400), ("cleaning", 100), (350, 350), ("350", 350), (" -1 ", -1)]
)
def test_a_priority_is_a_name_or_a_number(given, number):
    assert priority_number(given) == number


@pytest.mark.parametrize("given", ["", "high", "4.5", True, None])
def test_another_priority_is_refused(given):
    with pytest.raises(InvalidInputError, match="is not known"):
        priority_number(given)

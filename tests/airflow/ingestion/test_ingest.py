"""Ingestion by real Spark jobs: their results, their errors, and the state that they leave behind."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency import begin_write, pending_instants
from airflow_provider.exceptions import (
    InvalidConnectionError,
    InvalidInputError,
    InvalidRecordKeyError,
    MissingSourceError,
    NotATableError,
    UnknownOperationError,
    WriteConflictError,
)
from airflow_provider.locks import open_lock
from airflow_provider.metastore import TxnState
from airflow_provider.metastore.model.hive_json import decode_partition
from airflow_provider.operators import CreateTableOperator
from airflow_provider.operators._base.priority import priority_number
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor
from airflow_provider.table.file_groups.view import BaseFile, FileGroupId
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline.metadata import WriteStat
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS, in_thread, ingest, last_transaction, rows_of, write_rows
from tests.airflow.processes import has_written, until

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}


def states(run) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in run.get_task_instances()}


def rewrite(table: HudiTable, base_file: BaseFile) -> None:
    """Commit the same rows again, without the table's lock."""
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
            "rebases": 0,
            "schema_changes": [],
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
        told = metastore.next_events(0, event_types=["INSERT"])
        files = {decode_partition(one.message["ptnObjJson"]).values: one.message["files"] for one in told}
        assert files == {
            (stat.partition_path.removeprefix("day="),): [f"{table.location}/{stat.path}"]
            for stat in metadata.write_stats
        }
        assert all(one.event_id < event.event_id for one in told)
        # The job's own lines are in the task's log, and the secret is nowhere.
        printed = "".join(capfd.readouterr())
        assert "read: 1 file, " in printed
        assert "log4j" not in printed
        assert "FileNotFoundException" not in printed
        assert f"instant {result['instant']} completed at {result['completion_time']}: 3 rows" in printed
        assert secret not in printed
        assert secret not in json.dumps(result)
        assert secret not in "".join(p.read_text() for p in Path(table.location).rglob("*.json"))

    def test_a_table_given_by_its_path_is_written_without_a_transaction(
        self, metastore, table, source, spark_connect
    ):
        head = metastore.current_event_id()
        result = ingest(source, table=table.location, spark_conn_id=spark_connect).execute({})
        assert (result["txn_id"], result["write_id"], result["event_id"]) == (None, None, None)
        assert result["rows_inserted"] == 3
        assert metastore.current_event_id() == head

    def test_in_a_session_of_its_own_over_spark_connect(self, metastore, table, source, spark_connect_alone):
        result = ingest(source, spark_conn_id=spark_connect_alone).execute({})
        assert result["rows_inserted"] == 3
        assert metastore.get_txn(result["txn_id"]).state == TxnState.COMMITTED
        assert len(rows_of(table)) == 3


class TestFailure:
    def test_a_lost_conflict_keeps_its_type_and_leaves_nothing(self, metastore, table, source, spark_connect):
        operator = ingest(source, spark_conn_id=spark_connect)
        operator.execute({})
        write_rows(source / "a.parquet", [(1, "mon", 11.0)])
        [file_group] = table.view().base_files("day=mon")
        # The job waits for the lock before its commit, while another writer commits first.
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: operator.execute({}))
            until(lambda: has_written(table))
            rewrite(table, file_group)
        thread.join(300)
        [error] = outcome
        assert isinstance(error, WriteConflictError), error
        assert error.retryable
        assert not isinstance(error, AirflowFailException)
        assert pending_instants(table) == []
        assert rows_of(table) == [(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)]
        assert last_transaction(metastore).state == TxnState.ABORTED

    def test_a_null_key_fails_without_a_retry(self, run_dag, metastore, table, source, spark_connect):
        write_rows(source / "b.parquet", [(None, "mon", 1.0)])
        with DAG("null_key", **START) as dag:
            ingest(source, spark_conn_id=spark_connect, retries=2, retry_delay=timedelta(seconds=1))
        run = run_dag(dag)
        [ti] = run.get_task_instances()
        assert (ti.state, ti.try_number) == ("failed", 1)
        assert table.timeline().instants == ()
        assert last_transaction(metastore).state == TxnState.ABORTED
        with pytest.raises(AirflowFailException, match=r"^InvalidRecordKeyError: ") as raised:
            ingest(source, spark_conn_id=spark_connect).execute({})
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

    def test_a_source_that_is_not_there_says_so(self, metastore, table, source, spark_connect):
        operator = ingest(source, source=f"{source}/missing/*.parquet", spark_conn_id=spark_connect)
        with pytest.raises(AirflowFailException, match="MissingSourceError") as raised:
            operator.execute({})
        assert isinstance(raised.value.__cause__, MissingSourceError)
        assert table.timeline().instants == ()


@pytest.mark.parametrize(
    ("given", "number"), [("ingestion", 400), ("cleaning", 100), (350, 350), ("350", 350), (" -1 ", -1)]
)
def test_a_priority_is_a_name_or_a_number(given, number):
    assert priority_number(given) == number


@pytest.mark.parametrize("given", ["", "high", "4.5", True, None])
def test_another_priority_is_refused(given):
    with pytest.raises(InvalidInputError, match="is not known"):
        priority_number(given)

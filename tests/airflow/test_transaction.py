"""Transactions around several tasks of a DAG: all or nothing, also when a task fails, retries or dies."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency import pending_instants
from airflow_provider.concurrency.conflicts.open_transactions import instants_of_open_transactions
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.locks import open_lock
from airflow_provider.metastore import TxnState
from airflow_provider.operators import (
    AbortTransactionOperator,
    BackfillOperator,
    BeginTransactionOperator,
    CommitTransactionOperator,
    CreateTableOperator,
    IngestOperator,
    RollbackFailedWritesOperator,
)
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.snapshots import snapshot
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS, in_thread, rows_of, write_rows
from tests.airflow.ingestion.test_ingest_recovery import Store, try_of
from tests.airflow.processes import has_written, until
from tests.processes.servers import free_port

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}
ROWS = [(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)]


@pytest.fixture
def tables(metastore, table, tmp_path) -> dict[str, HudiTable]:
    """Two empty tables of flights, registered."""
    location = str(tmp_path / "lake" / "copies")
    CreateTableOperator(
        task_id="create_copies",
        table="lake.copies",
        location=location,
        schema=COLUMNS,
        record_key=["id"],
        partition_by=["day"],
    ).execute({})
    return {"flights": table, "copies": HudiTable.open(location)}


class LosesItsVoice(IngestOperator):
    """A load whose first try commits to the table and dies before it can report that."""

    silent = True

    def _result(self, summary):
        result = super()._result(summary)
        if LosesItsVoice.silent:
            LosesItsVoice.silent = False
            raise OSError("the worker is gone")
        return result


class CommitLosesItsVoice(CommitTransactionOperator):
    """A commit task whose first try commits and dies before it can report that."""

    silent = True

    def execute(self, context):
        result = super().execute(context)
        if CommitLosesItsVoice.silent:
            CommitLosesItsVoice.silent = False
            raise OSError("the worker is gone")
        return result


def two_tables(dag_id, sources, spark, *, ingest=IngestOperator, commit=CommitTransactionOperator) -> DAG:
    """A DAG with one load into each of two tables, in a transaction."""
    quickly = {"retries": 1, "retry_delay": timedelta(seconds=0.1)}
    with DAG(dag_id, default_args=quickly, **START) as dag:
        begin = BeginTransactionOperator(task_id="begin", timeout=600)
        loads = [
            operator(
                task_id=name,
                table=f"lake.{name}",
                source=f"{sources[name]}/*.parquet",
                operation="insert",
                txn_id=begin.output,
                spark_conn_id=spark,
                engine="spark",
            )
            for name, operator in (("flights", ingest), ("copies", IngestOperator))
        ]
        begin >> loads[0] >> loads[1] >> commit(task_id="commit", txn_id=begin.output)
        loads >> AbortTransactionOperator(task_id="abort", txn_id=begin.output)
    return dag


def seen(metastore, name: str, table: HudiTable, *, txn_id: int | None = None) -> list[tuple]:
    """The rows that a reader with a snapshot sees."""
    state = metastore.read_snapshot([("lake", name)], txn_id)
    found = snapshot(table, valid_write_ids=state.tables[f"lake.{name}"].write_ids).to_table()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def states(run) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in run.get_task_instances()}


class TestDagRun:
    def test_both_tables_change_in_one_step(self, run_dag, metastore, tables, source, spark_connect):
        dag = two_tables("both", dict.fromkeys(tables, source), spark_connect)
        run = run_dag(dag)
        assert states(run) == {
            **dict.fromkeys(["begin", "flights", "copies", "commit"], "success"),
            "abort": "skipped",
        }
        txn_id = xcom(run, "begin")
        events = metastore.next_events(0)
        [event] = [e for e in events if e.event_type == "COMMIT_TXN"]
        assert xcom(run, "commit") == {"txn_id": txn_id, "event_id": event.event_id}
        # Partitions and INSERT events come with the commit and not before it.
        before = [e.event_type for e in events if e.event_id < event.event_id]
        added = before.count("ADD_PARTITION")
        inserted = before.count("INSERT")
        assert inserted == sum(len(metastore.get_partitions("lake", name)) for name in tables)
        assert before[-added - inserted :] == ["ADD_PARTITION"] * added + ["INSERT"] * inserted
        for name, table in tables.items():
            assert seen(metastore, name, table) == rows_of(table) == ROWS
            told = xcom(run, name)
            assert (told["txn_id"], told["write_id"], told["event_id"]) == (txn_id, 1, None)
            assert len(metastore.get_partitions("lake", name)) == 2
            assert instants_of_open_transactions(table.storage) == {}

    def test_a_failure_in_the_middle_leaves_nothing(
        self, run_dag, metastore, tables, source, spark_connect, tmp_path
    ):
        broken = tmp_path / "broken"
        broken.mkdir()
        write_rows(broken / "a.parquet", [(None, "mon", 1.0)])
        dag = two_tables("middle", {"flights": source, "copies": broken}, spark_connect)
        run = run_dag(dag)
        assert states(run) == {
            "begin": "success",
            "flights": "success",
            "copies": "failed",
            "commit": "upstream_failed",
            "abort": "success",
        }
        assert run.state == "failed"
        assert metastore.get_txn(xcom(run, "begin")).state is TxnState.ABORTED
        for name, table in tables.items():
            assert seen(metastore, name, table) == rows_of(table) == []
            assert metastore.get_partitions("lake", name) == []
            assert pending_instants(table) == []
            assert instants_of_open_transactions(table.storage) == {}

    def test_retries_do_nothing_twice(self, run_dag, metastore, tables, source, spark_connect):
        LosesItsVoice.silent = CommitLosesItsVoice.silent = True
        dag = two_tables(
            "retried",
            dict.fromkeys(tables, source),
            spark_connect,
            ingest=LosesItsVoice,
            commit=CommitLosesItsVoice,
        )
        run = run_dag(dag)
        tries = {ti.task_id: ti.try_number for ti in run.get_task_instances() if ti.state == "success"}
        assert tries == {"begin": 1, "flights": 2, "copies": 1, "commit": 2}
        for name, table in tables.items():
            assert len(table.timeline().commits()) == 1
            assert seen(metastore, name, table) == ROWS
        assert metastore.get_txn(xcom(run, "begin")).event_id == xcom(run, "commit")["event_id"]


class TestBegin:
    def test_a_retry_gives_the_same_transaction_and_a_clear_another(self, metastore, tables, source):
        store = Store()
        begin = BeginTransactionOperator(task_id="begin", timeout="3600")
        first = begin.execute(try_of(store, max_tries=1))
        assert begin.execute(try_of(store, max_tries=1)) == first
        second = begin.execute(try_of(store, max_tries=2))
        assert second != first
        assert metastore.get_txn(first).state is TxnState.ABORTED
        assert metastore.get_txn(second).state is TxnState.OPEN
        # A retry does not return a transaction that has timed out.
        metastore.abort_txn(second)
        assert begin.execute(try_of(store, max_tries=2)) not in (first, second)

    @pytest.mark.parametrize("timeout", ["soon", 0, timedelta(0)])
    def test_a_timeout_that_cannot_be_one(self, metastore, timeout):
        with pytest.raises(AirflowFailException, match="timeout") as raised:
            BeginTransactionOperator(task_id="begin", timeout=timeout).execute({})
        assert isinstance(raised.value.__cause__, InvalidInputError)
        assert metastore.valid_txn_list().high_watermark == 0


class TestEnded:
    """A task that writes into a transaction that is no longer open."""

    def load(self, source, txn_id, spark, **arguments) -> IngestOperator:
        return IngestOperator(
            task_id="load",
            **{"table": "lake.flights", "source": f"{source}/*.parquet", **arguments},
            txn_id=txn_id,
            spark_conn_id=spark,
            engine="spark",
        )

    def test_it_fails_without_retries_before_it_starts_anything(self, metastore, tables, source, connect):
        nowhere = connect("nowhere", conn_type="spark_connect", host="127.0.0.1", port=free_port())
        txn_id = BeginTransactionOperator(task_id="begin").execute({})
        AbortTransactionOperator(task_id="abort", txn_id=txn_id).execute({})
        with pytest.raises(AirflowFailException, match=r"already aborted; .*clear the task that began it"):
            self.load(source, str(txn_id), nowhere).execute({})
        with pytest.raises(AirflowFailException, match="clear the task that began it"):
            CommitTransactionOperator(task_id="commit", txn_id=txn_id).execute({})
        assert tables["flights"].timeline().instants == ()

    def test_what_it_commits_after_the_abort_is_undone(self, metastore, tables, source, spark_connect):
        table = tables["flights"]
        txn_id = BeginTransactionOperator(task_id="begin").execute({})
        load = self.load(source, txn_id, spark_connect)
        with open_lock({}, table.storage):
            thread, outcome = in_thread(lambda: load.execute({}))
            until(lambda: has_written(table))
            # The metastore's own timeout does the same: it does not look at tables.
            metastore.abort_txn(txn_id)
        thread.join(300)
        [error] = outcome
        assert isinstance(error, AirflowFailException), error
        assert rows_of(table) == seen(metastore, "flights", table) == []
        assert instants_of_open_transactions(table.storage) == {}

    def test_a_transaction_left_alone_is_undone_by_whoever_tidies(
        self, metastore, tables, source, spark_connect
    ):
        txn_id = BeginTransactionOperator(task_id="begin", timeout=1.0).execute({})
        self.load(source, txn_id, spark_connect).execute({})
        assert rows_of(tables["flights"]) == ROWS
        until(lambda: txn_id in metastore.timed_out(300))
        RollbackFailedWritesOperator(task_id="tidy", table="lake.flights").execute({})
        assert rows_of(tables["flights"]) == []
        assert metastore.get_txn(txn_id).state is TxnState.ABORTED

    def test_where_it_cannot_be(self, metastore, tables, source):
        with pytest.raises(AirflowFailException, match="is given by its location"):
            self.load(source, 1, None, table=tables["flights"].location).execute({})
        with pytest.raises(AirflowFailException, match="'soon' is no transaction"):
            self.load(source, "soon", None).execute({})
        backfill = BackfillOperator(task_id="old", table="lake.flights", source=str(source), txn_id=1)
        with pytest.raises(AirflowFailException, match="window by window"):
            backfill.execute({"ti": SimpleNamespace(dag_id="d", task_id="t", run_id="r", max_tries=0)})

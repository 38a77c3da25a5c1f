"""Loads without Spark: small sources, missing or empty sources, and tasks that are killed."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    JobFailedError,
    MissingSourceError,
    SourceNotThereYetError,
    SparkNeededError,
)
from airflow_provider.operators import IngestOperator
from airflow_provider.spark.job_answer import JOBS_FOLDER
from airflow_provider.table.reading.snapshots import snapshot
from tests.airflow.conftest import xcom
from tests.airflow.flights import assert_undone, in_thread, ingest, last_transaction, rows_of
from tests.airflow.ingestion.test_ingest_recovery import Store, try_of
from tests.airflow.processes import has_written, processes_of, session_of_writer, until

START = {"schedule": None, "start_date": datetime(2024, 1, 1)}


@pytest.fixture
def no_java(monkeypatch):
    """A machine on which no Spark starts."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


def test_a_small_load_starts_no_spark(run_dag, metastore, table, source, no_java, capfd):
    with DAG("small", **START) as dag:
        IngestOperator(
            task_id="ingest",
            table="lake.flights",
            source="{{ params.landing }}/*.parquet",
            engine="{{ params.engine }}",
            params={"landing": str(source), "engine": "auto"},
        )
    run = run_dag(dag)
    assert run.state == "success"
    result = xcom(run, "ingest")
    assert (result["rows_inserted"], result["write_id"]) == (3, 1)
    assert metastore.get_txn(result["txn_id"]).event_id == result["event_id"]
    assert rows_of(table) == [(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)]
    told = "".join(capfd.readouterr())
    for expected in (
        "engine arrow: 1 file of format parquet, ",
        "read: 1 file, ",
        f"instant {result['instant']} begun, operation upsert, priority 400",
        "3 rows of 2 partitions go to 2 file groups, 2 of them new",
        "2 of 2 file groups written, 2 files",
        f"instant {result['instant']} committed at {result['completion_time']}",
    ):
        assert expected in told


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_retry_finds_what_its_last_try_did(metastore, table, source, no_java, deferrable):
    store, how = Store(), {"engine": "auto", "deferrable": deferrable}
    first = ingest(source, **how).execute(try_of(store))
    # The try had committed, but its worker died before it could report that.
    (source / "a.parquet").unlink()
    assert ingest(source, **how).execute(try_of(store)) == first
    assert len(table.timeline().commits()) == 1
    with pytest.raises(AirflowFailException, match="MissingSourceError"):
        ingest(source, engine="auto").execute(try_of(store, max_tries=2))  # cleared: it loads again


def test_what_spark_reads_in_another_way_goes_to_spark(metastore, table, tmp_path, spark_connect, caplog):
    (tmp_path / "a.csv").write_text("id,day,fare\n+1,mon,1e1\n")
    source = {"source": f"{tmp_path}/a.csv", "source_format": "csv", "source_options": {"header": "true"}}
    with pytest.raises(AirflowFailException, match="'id' has a text") as raised:
        ingest(tmp_path, **source, engine="arrow").execute({})
    assert isinstance(raised.value.__cause__, SparkNeededError)
    assert_undone(metastore, table)
    aborted = last_transaction(metastore).id
    result = ingest(tmp_path, **source, engine="auto", spark_conn_id=spark_connect).execute({})
    assert rows_of(table) == [(1, "mon", 10.0)]
    assert result["txn_id"] == aborted + 1 == last_transaction(metastore).id, (
        "one transaction, of both engines"
    )


@pytest.mark.parametrize(
    ("path", "argument", "error"),
    [("missing/*.parquet", "missing_source", MissingSourceError), ("empty", "on_empty", EmptySourceError)],
)
def test_a_source_that_is_missing_or_empty(metastore, table, source, path, argument, error, no_java):
    (source / "empty").mkdir()
    pq.write_table(
        pa.schema({"id": pa.int64(), "day": pa.string(), "fare": pa.float64()}).empty_table(),
        source / "empty" / "a.parquet",
    )
    where = {"source": f"{source}/{path}", "engine": "auto"}
    with pytest.raises(AirflowFailException) as raised:
        ingest(source, **where).execute({})
    assert type(raised.value.__cause__) is error
    with pytest.raises(AirflowSkipException, match=path.partition("/")[0]):
        ingest(source, **where, **{argument: "skip"}).execute({})
    if error is MissingSourceError:
        with pytest.raises(SourceNotThereYetError):
            ingest(source, **where, missing_source="retry").execute({})
    with pytest.raises(AirflowFailException, match=f"{argument} must be one of") as raised:
        ingest(source, **where, **{argument: "wait"}).execute({})
    assert isinstance(raised.value.__cause__, InvalidInputError)
    assert table.timeline().instants == ()


@pytest.mark.parametrize("source_path", ["missing/*.parquet", "s3://not-to-be-reached/a.parquet"])
def test_a_source_that_cannot_be_listed_is_refused_before_anything_is_written(
    metastore, table, source, source_path, monkeypatch
):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # no credentials anywhere
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    where = source_path if "://" in source_path else f"{source}/{source_path}"
    before = sorted(Path(table.location).rglob("*"))
    with pytest.raises(AirflowFailException, match=r"MissingSourceError|UnreadableSourceError"):
        ingest(source, source=where, engine="arrow").execute({})
    assert sorted(Path(table.location).rglob("*")) == before
    assert metastore.valid_txn_list().high_watermark == 0


def test_a_jobs_answer_does_not_stay(metastore, table, source):
    ingest(source, engine="arrow").execute({})
    assert table.storage.list(JOBS_FOLDER) == []


@pytest.mark.parametrize(
    ("by_the_system", "said"), [(False, "was killed with its task"), (True, "a smaller arrow_max_bytes")]
)
def test_a_task_that_is_killed_leaves_nothing(metastore, table, tmp_path, by_the_system, said):
    many = pa.table({"id": range(2_000_000), "day": ["mon", "tue"] * 1_000_000, "fare": [1.0] * 2_000_000})
    pq.write_table(many, tmp_path / "many.parquet")
    operator = ingest(tmp_path, engine="arrow")
    thread, outcome = in_thread(lambda: operator.execute({}))
    until(lambda: has_written(table))
    session = session_of_writer(table)
    if by_the_system:
        os.kill(session, signal.SIGKILL)
    else:
        operator.on_kill()
    thread.join(300)
    [error] = outcome
    assert isinstance(error, JobFailedError)
    assert said in str(error)
    assert processes_of(session) == []
    assert_undone(metastore, table)
    assert snapshot(table).count_rows() == 0

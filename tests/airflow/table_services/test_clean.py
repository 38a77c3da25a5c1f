"""Cleaning by a DAG, without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.concurrency.readers import register_consumer
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import CleanOperator
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS, rows_of


def load(table, delay: float) -> None:
    row = dict(zip(COLUMNS, (1, "mon", delay), strict=True))
    ingest_arrow(table.location, pa.Table.from_pylist([row]))


def files_of(table) -> set[Path]:
    return set(Path(table.location).rglob("*.parquet"))


@pytest.fixture
def written(table):
    for delay in (1.0, 2.0, 3.0):
        load(table, delay)
    return table


def test_what_would_go_is_told_and_then_goes(run_dag, written, caplog):
    register_consumer(written, "billing", written.timeline().commits()[0].completion_time)
    load(written, 4.0)
    with DAG("clean", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        keep = {"policy": "KEEP_LATEST_FILE_VERSIONS", "retained": "{{ params.versions }}"}
        told = CleanOperator(task_id="told", table="lake.flights", dry_run="{{ params.only_tell }}", **keep)
        done = CleanOperator(task_id="done", table="lake.flights", reverted_after=timedelta(hours=1), **keep)
        told >> done
        dag.params = {"versions": 1, "only_tell": True}
    ran = run_dag(dag)
    expected, result = xcom(ran, "told"), xcom(ran, "done")
    held = [{"by": "consumer billing", "files": 3, "bytes": expected["held"][0]["bytes"]}]
    assert (expected["dry_run"], expected["instant"], expected["files_deleted"]) == (True, None, 0)
    assert expected["held"] == result["held"] == held
    assert (result["dry_run"], result["instant"], result["action"]) == (False, None, "clean")
    assert len(files_of(written)) == 4


def test_a_clean(written):
    result = CleanOperator(task_id="clean", table="lake.flights", retained=1).execute({})
    [clean] = [i for i in written.timeline().completed() if i.action == "clean"]
    assert (result["instant"], result["completion_time"]) == (clean.requested_time, clean.completion_time)
    assert (result["files_deleted"], result["files_failed"], len(files_of(written))) == (1, 0, 2)
    assert result["bytes"] > 0
    assert result["earliest_commit_to_retain"] == written.timeline().commits()[-1].requested_time
    assert rows_of(written) == [(1, "mon", 3.0)]


@pytest.mark.parametrize(
    "wrong", [{"policy": "KEEP_ALL"}, {"retained": "many"}, {"retained": 0}, {"dry_run": "perhaps"}]
)
def test_what_no_retry_can_make_work(table, wrong):
    with pytest.raises(AirflowFailException) as failure:
        CleanOperator(task_id="clean", table="lake.flights", **wrong).execute({})
    assert isinstance(failure.value.__cause__, InvalidInputError)

"""A long-running job that answers one request after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import WriteTransaction
from airflow_provider.exceptions import EmptySourceError
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.windows import Window
from airflow_provider.spark.job_answer import JOBS_FOLDER, result_of_answer, take_answer
from airflow_provider.spark.job_request import JobRequest, put_request, request_id, serve
from airflow_provider.table.hudi_table import HudiTable
from tests.spark.lake import SparkLake

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string()})
SECRET = "geheim-4711"


@pytest.fixture
def job(tmp_path: Path) -> IngestJob:
    location = str(tmp_path / "t")
    HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"])
    source = tmp_path / "in.parquet"
    pa.parquet.write_table(pa.table({"id": [1, 2, 3], "part": ["a", "b", "b"]}, SCHEMA), source)
    options = {"auto_mkdir": True, "secret": SECRET}
    return IngestJob.of(location, (str(source),), operation_key="k", storage_options=options, job_id="j")


def test_it_serves_until_it_is_told_that_there_is_no_more(lake: SparkLake, job: IngestJob) -> None:
    table = HudiTable.open(job.location)
    part = Window("part=b", {"part": "b"}, rows=2)
    requests = [
        JobRequest(windows_of=(), order="newest_first"),
        JobRequest(window=part, transaction=WriteTransaction(7, 8)),
        JobRequest(window=Window("part=z", {"part": "z"})),
        JobRequest(),
        JobRequest(window=Window("part=a", {"part": "a"})),
    ]
    for number, request in enumerate(requests, start=1):
        put_request(table.storage, "j", number, request)
    asked = "".join(path.read_text() for path in Path(job.location, JOBS_FOLDER).iterdir())
    assert SECRET not in asked
    opened: list[int] = []

    def session() -> Any:
        opened.append(1)
        return lake.spark

    assert serve(job, session, is_alive=lambda: True) == {"served": 3}
    assert opened == [1]
    found, written, empty, nothing = (take_answer(table.storage, request_id("j", n)) for n in (1, 2, 3, 4))
    assert found is not None
    assert written is not None
    assert empty is not None
    windows = [Window(**each) for each in result_of_answer(found)["windows"]]
    assert windows == [part, Window("part=a", {"part": "a"}, rows=1)]
    result = result_of_answer(written)
    assert (result["rows_inserted"], result["txn_id"], result["write_id"]) == (2, 7, 8)
    # The job reported its failure, and continued.
    with pytest.raises(EmptySourceError):
        result_of_answer(empty)
    assert nothing is None
    assert [entry.name for entry in table.storage.list(JOBS_FOLDER)] == ["j-5.request"]


def test_it_ends_when_nobody_asks(job: IngestJob) -> None:
    def session() -> Any:
        raise AssertionError("no session is needed to wait")

    assert serve(job, session, is_alive=lambda: True, idle_seconds=0.5) == {"served": 0}

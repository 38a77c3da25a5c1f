"""Jobs as data."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    UnknownOperationError,
    from_dict,
)
from airflow_provider.indexing import IndexJob, pending_indexings, schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.ingestion.ingest_job import OPERATIONS, IngestJob
from airflow_provider.jobs import ARROW
from airflow_provider.locks.hudi.filesystem import HudiFilesystemLockProvider
from airflow_provider.spark.job_answer import JOBS_FOLDER, failure, read_answer, success, write_answer
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage.storage import Storage


def test_a_job_survives_its_text() -> None:
    job = IngestJob.of(
        location="s3://lake/t",
        source=("a", "b"),
        source_options={"header": "true"},
        operation="delete",
        storage_options={"key": "k"},
        lock={"provider": "filesystem"},
        txn_id=3,
        extra_metadata={"who": "me"},
    )
    assert IngestJob.from_json(job.to_json()) == job
    read = IngestJob.from_json('{"job": "ingestion", "location": "/t", "source": {"paths": ["/one"]}}')
    assert read == dataclasses.replace(IngestJob.of("/t", "/one"), job_id=read.job_id)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"job": "ingestion", "location": "/t", "colour": "red"}',
        "null",
        '"x"',
        '{"job": "ingestion"}',
    ],
)
def test_other_text_is_no_job(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not the description of a job of kind 'ingestion'"):
        IngestJob.from_json(text)


def test_a_part_that_came_over_the_border_is_checked_again() -> None:
    text = IngestJob("/t").to_json().replace('"tolerable_misses": 6', '"tolerable_misses": 0')
    with pytest.raises(InvalidInputError, match="tolerable_misses at least 1"):
        IngestJob.from_json(text)


def test_an_unknown_setting_names_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"no setting 'on_conflicts'; known: .*on_conflict, "):
        IngestJob.of("/t", on_conflicts="rebase")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priority": "high"}, "priority must be a whole number, not 'high'"),
        ({"priority": True}, "priority"),
        ({"on_conflict": "merge"}, "on_conflict must be 'raise' or 'rebase', not 'merge'"),
        ({"on_rewrite": "raise"}, "on_rewrite must be 'rebase' or 'revert', not 'raise'"),
        ({"on_higher_priority": ""}, "on_higher_priority must be 'wait' or 'fail', not ''"),
        ({"max_rebases": -1}, "max_rebases must be 0 or more, not -1"),
        ({"max_rebases": "3"}, "max_rebases must be a whole number, not '3'"),
        ({"yield_timeout": -0.1}, "yield_timeout must be 0 seconds or more, not -0.1"),
        ({"yield_timeout": "an hour"}, "yield_timeout must be a number of seconds, not 'an hour'"),
        ({"target_file_size": 0}, "target_file_size must be above 0"),
        ({"target_file_size": 10, "small_file_limit": 11}, "small_file_limit must be between 0 and"),
        ({"small_file_limit": -1}, "small_file_limit"),
        ({"heartbeat_interval": 0}, "heartbeat_interval must be above 0"),
        ({"tolerable_misses": 0}, "tolerable_misses at least 1"),
        ({"target_file_size": "100MB"}, "target_file_size must be a whole number of bytes, not '100MB'"),
        ({"source": None}, "source must be a path, URL or pattern, or several, not None"),
        ({"source": [3]}, "source must be paths, URLs or patterns, not 3"),
        ({"source": [""]}, "source must be paths"),
        ({"extra_metadata": {"a": 1}}, "extra_metadata must map texts to texts, not 'a' to 1"),
    ],
)
def test_numbers_that_cannot_work(changes: dict[str, Any], message: str) -> None:
    IngestJob.of(location="/t")
    with pytest.raises(InvalidInputError, match=message):
        IngestJob.of(location="/t", **changes)


def test_an_unknown_operation_names_the_known_ones() -> None:
    with pytest.raises(UnknownOperationError) as caught:
        dataclasses.replace(IngestJob.of(location="/t"), operation="UPSERT")
    assert all(known in str(caught.value) for known in OPERATIONS)


def test_outcomes_come_back_as_they_were(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    assert read_answer(storage, "j") is None
    write_answer(storage, "j", success({}))
    assert list(tmp_path.iterdir()) == [], "nothing is left where there is no table"
    HudiTable.create(str(tmp_path), name="t", schema=pa.schema({"id": pa.int64()}), record_key=["id"])
    write_answer(storage, "j", success({"instant": "1"}))
    assert read_answer(storage, "j") == {"status": "success", "result": {"instant": "1"}}
    write_answer(storage, "j", failure(EmptySourceError("no row", source=["x"])))
    answer = read_answer(storage, "j")
    assert answer is not None
    error = from_dict(answer["error"])
    assert isinstance(error, EmptySourceError)
    assert (str(error), error.details) == ("no row", {"source": ["x"]})


def test_old_outcomes_are_removed(tmp_path: Path) -> None:
    import os

    storage = Storage(str(tmp_path))
    HudiTable.create(str(tmp_path), name="t", schema=pa.schema({"id": pa.int64()}), record_key=["id"])
    for job in ("old", "new"):
        write_answer(storage, job, success({}))
    os.utime(tmp_path / JOBS_FOLDER / "old.json", (0, 0))
    write_answer(storage, "another", success({}))
    assert read_answer(storage, "old") is None
    assert read_answer(storage, "new") is not None


def test_an_index_job_takes_the_tables_own_lock_as_other_jobs_do(tmp_path: Path) -> None:
    own = {"hoodie.write.lock.provider": "FileSystemBasedLockProvider"}
    schema = pa.schema([("id", pa.int64())])
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=schema, record_key=["id"], hudi_options=own
    )
    ingest_arrow(table, pa.table({"id": [1]}, schema), "insert")
    instant = schedule_index(table, ["files"])
    job = IndexJob.of(table.location, instant=instant, engine=ARROW)
    assert isinstance(job.open_lock(table), HudiFilesystemLockProvider)
    specification = tmp_path / "job.json"
    specification.write_text(job.to_json())
    run([sys.executable, "-m", "airflow_provider.spark.job", str(specification)], check=True)
    assert pending_indexings(table) == []
    assert not list(table.storage.names(".hoodie/locks")), "the lock of tables without such options"


def test_naming_a_job_costs_no_pyspark() -> None:
    code = "import sys, airflow_provider.spark as s; s.IngestJob; print(json.dumps('pyspark' in sys.modules))"
    shown = run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) is False

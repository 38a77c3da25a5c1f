"""A job in a process of its own: its answers, and its ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tenacity

from airflow_provider.exceptions import InvalidRecordKeyError, from_dict
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.locks import open_lock
from airflow_provider.spark.job_answer import RESULT_PREFIX, read_answer
from airflow_provider.spark.session import spark_log_file
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_names import parse_base_file_name

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
JOB = f"test-{os.getpid()}"


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "table"), name="t", schema=SCHEMA, record_key=["id"])


def specification(tmp_path: Path, table: HudiTable, source: Path | str, **job: Any) -> Path:
    file = tmp_path / "job.json"
    conf = {"spark.master": "local[1]"}
    described = IngestJob.of(table.location, (str(source),), job_id=JOB, spark_conf=conf, **job)
    file.write_text(described.to_json())
    return file


def source_of(tmp_path: Path, ids: list[int | None]) -> Path:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"id": ids, "v": [0] * len(ids)}, SCHEMA), path)
    return path


def command(specification_: Path) -> list[str]:
    return [sys.executable, "-m", "airflow_provider.spark.job", str(specification_)]


def told(output: str) -> dict[str, Any]:
    (line,) = [line for line in output.splitlines() if line.startswith(RESULT_PREFIX)]
    answer: dict[str, Any] = json.loads(line.removeprefix(RESULT_PREFIX))
    return answer


def run(specification_: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(specification_), capture_output=True, text=True, timeout=240)


def test_a_job_tells_what_it_did_in_two_ways(table: HudiTable, tmp_path: Path) -> None:
    ended = run(specification(tmp_path, table, source_of(tmp_path, [1, 2]), operation_key="k"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    answer = told(ended.stdout)
    assert answer == read_answer(table.storage, JOB)
    assert answer["status"] == "success"
    assert answer["result"]["rows_inserted"] == 2
    assert snapshot(table).count_rows() == 2
    for step in (
        "Spark 4",
        "read: 1 file, ",
        "begun, operation",
        "1 of 1 file groups written",
        "committed at",
    ):
        assert step in ended.stderr
    assert "\tat " not in ended.stderr, "a stack trace of Java's is for who asks for it"
    assert not spark_log_file(JOB).exists()
    again = run(specification(tmp_path, table, source_of(tmp_path, [3]), operation_key="k"))
    assert told(again.stdout)["result"] == answer["result"] | {"already_committed": True}
    assert "JVM" not in again.stderr, "no Spark session is needed to see that the work is done"
    assert snapshot(table).count_rows() == 2


def test_a_job_that_fails_tells_why(table: HudiTable, tmp_path: Path) -> None:
    ended = run(specification(tmp_path, table, source_of(tmp_path, [None])))
    assert ended.returncode == 1
    answer = told(ended.stdout)
    assert answer == read_answer(table.storage, JOB)
    error = from_dict(answer["error"])
    assert isinstance(error, InvalidRecordKeyError)
    assert error.details["columns"] == ["id"]
    spark_log = spark_log_file(JOB)
    assert f"the job failed; Spark's own log is {spark_log}" in ended.stderr
    assert "Running Spark version" in spark_log.read_text()
    assert spark_log.stat().st_mode & 0o077 == 0
    spark_log.unlink()
    assert table.timeline().instants == ()


def test_a_file_that_is_no_job(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text("{}")
    ended = run(file)
    assert ended.returncode == 1
    assert "InvalidInputError" in ended.stderr
    assert subprocess.run(command(file)[:-1], capture_output=True, timeout=60).returncode == 2


def test_garbage_is_collected_once_the_modules_are_loaded() -> None:
    program = (
        "import atexit, gc, runpy; atexit.register(lambda: print(gc.isenabled())); "
        "runpy.run_module('airflow_provider.spark.job', run_name='__main__')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stdout) == (2, "True\n"), ended.stderr


# --- ending in the middle -----------------------------------------------------------------

SLOW_ROWS = 2_000_000


@pytest.fixture
def slow_source(tmp_path: Path) -> Path:
    """Rows that take a job seconds to write."""
    path = tmp_path / "slow.parquet"
    rows = np.arange(SLOW_ROWS)
    pa.parquet.write_table(pa.table({"id": rows, "v": rows}, SCHEMA), path)
    return path


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


def _is_writing(table: HudiTable) -> None:
    assert any(parse_base_file_name(status.name) for status in table.storage.list(""))


def _is_gone(table: HudiTable) -> None:
    timeline = table.timeline()
    assert [instant.action for instant in timeline.instants] == ["commit", "rollback"]
    assert timeline.pending() == ()
    left = [s.path for s in table.storage.list("") if parse_base_file_name(s.name)]
    assert left == []
    assert table.storage.list(".hoodie/.heartbeat") == []


_eventually = tenacity.retry(
    retry=tenacity.retry_if_exception_type(AssertionError),
    wait=tenacity.wait_fixed(0.05),
    stop=tenacity.stop_after_delay(500),
    reraise=True,
)


def test_sigterm_rolls_back(
    table: HudiTable, tmp_path: Path, slow_source: Path, children: list[subprocess.Popen[str]]
) -> None:
    file = specification(tmp_path, table, slow_source, operation="bulk_insert")
    with open_lock({}, table.storage):  # however late the signal comes, the job has not committed
        job = subprocess.Popen(command(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.append(job)
        _eventually(_is_writing)(table)
        job.send_signal(signal.SIGTERM)
    output, _ = job.communicate(timeout=240)
    assert job.returncode == 1
    assert "SIGTERM" in told(output)["error"]["message"]
    _eventually(_is_gone)(table)


PARENT = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); sys.stdin.read()"


def test_a_job_ends_with_its_parent(
    table: HudiTable, tmp_path: Path, slow_source: Path, children: list[subprocess.Popen[str]]
) -> None:
    file = specification(tmp_path, table, slow_source, operation="bulk_insert")
    with open_lock({}, table.storage):  # however long that takes, the job does not commit
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, *command(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        children.append(parent)
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        _eventually(_is_writing)(table)
        parent.kill()
        parent.communicate()

        def ended() -> None:
            assert not Path(f"/proc/{pid}").exists() or "zombie" in Path(f"/proc/{pid}/status").read_text()

        try:
            _eventually(ended)()
        finally:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
    _eventually(_is_gone)(table)

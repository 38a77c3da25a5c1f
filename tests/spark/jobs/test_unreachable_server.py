"""A Spark Connect server that does not exist, or listens without answering."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from airflow_provider.concurrency import pending_instants
from airflow_provider.exceptions import SparkUnavailableError, from_dict
from airflow_provider.table import HudiTable
from dags_examples.demo.spark_server import spark_connect_server
from tests.processes.servers import free_port, interrupt_other_threads
from tests.spark.jobs.test_job import PARENT, SCHEMA, _eventually, command, source_of, specification, told


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        yield server


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "table"), name="t", schema=SCHEMA, record_key=["id"])


def job(table: HudiTable, tmp_path: Path, timeout: float) -> list[str]:
    return command(specification(tmp_path, table, source_of(tmp_path, [1]), connect_timeout=timeout))


def remote(port: int) -> dict[str, str]:
    return os.environ | {"SPARK_REMOTE": f"sc://127.0.0.1:{port}/;token=geheim-4711"}


def test_it_is_told_in_the_time_that_the_job_says(
    table: HudiTable, tmp_path: Path, silent: socket.socket
) -> None:
    for port, why in ((free_port(), "Connection refused"), (silent.getsockname()[1], "does not speak gRPC")):
        ended = subprocess.run(
            job(table, tmp_path, 1.0), env=remote(port), capture_output=True, text=True, timeout=240
        )
        error = from_dict(told(ended.stdout)["error"])
        assert isinstance(error, SparkUnavailableError)
        assert error.retryable
        assert f"server 127.0.0.1:{port} was not reached in 1 s: " in str(error)
        assert why in str(error)
        assert f"connecting to the Spark Connect server 127.0.0.1:{port}" in ended.stderr
        assert "geheim" not in ended.stdout + ended.stderr
    assert table.timeline().instants == ()


def _has_ended(process: psutil.Process) -> None:
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    "end",
    [psutil.Process.terminate, interrupt_other_threads, lambda job: job.parent().kill()],
    ids=["told to end", "told to end in another thread", "parent killed"],
)
def test_a_job_that_waits_for_it_leaves_nothing(
    table: HudiTable, tmp_path: Path, silent: socket.socket, end: Callable[[psutil.Process], None]
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *job(table, tmp_path, 600)],
        env=remote(silent.getsockname()[1]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert parent.stdout is not None
        waiting = psutil.Process(int(parent.stdout.readline()))
        connection, _ = silent.accept()
        with connection:
            end(waiting)
            _eventually(_has_ended)(waiting)
    finally:
        parent.kill()
        parent.communicate()


def test_one_that_dies_during_the_job_is_told_too(table: HudiTable, tmp_path: Path) -> None:
    with spark_connect_server(tmp_path / "server.log", cores=1) as port:
        [server] = [each for each in psutil.Process().children() if str(port) in _command(each)]
        server_url = f"sc://127.0.0.1:{port}"
        running = subprocess.Popen(
            job(table, tmp_path, 20.0),  # the server exists: a slow machine reaches it, too
            env=os.environ | {"SPARK_REMOTE": server_url},
            stdout=subprocess.PIPE,
            text=True,
        )
        _eventually(lambda: _has_begun(table))()
        server.kill()
        said, _ = running.communicate(timeout=240)
    error = from_dict(told(said)["error"])
    assert isinstance(error, SparkUnavailableError)
    assert error.retryable
    assert f"server {server_url} does not answer any more" in str(error)
    assert pending_instants(table) == []
    assert list(Path(table.location).rglob("*.parquet")) == []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.ZombieProcess:  # of another test
        return ""


def _has_begun(table: HudiTable) -> None:
    assert pending_instants(table)

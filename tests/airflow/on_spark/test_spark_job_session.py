"""A job on the worker: its lines are the task's, and it ends with all its processes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import psutil

from airflow_provider.operators._base.spark_job import _end_session, relay

LEADER = """
import os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print(worker.pid, flush=True)
worker.wait()
"""


def test_a_line_of_the_job_has_its_level_and_no_second_time(caplog) -> None:
    with caplog.at_level(logging.INFO):
        for line in (
            "2026-11-27 00:55:13,263 INFO airflow_provider.ingestion.ingestion: instant 1: committing, 100 %",
            "2026-11-27 00:55:13,263 WARNING grpc: no route",
            "Traceback: 100 % of it",
        ):
            relay(logging.getLogger("task"), line)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "instant 1: committing, 100 %"),
        ("WARNING", "grpc: no route"),
        ("INFO", "Traceback: 100 % of it"),
    ]


def test_a_worker_with_a_group_of_its_own_has_ended_too() -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", LEADER], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert job.stdout is not None
    worker = psutil.Process(int(job.stdout.readline()))
    assert os.getpgid(worker.pid) != job.pid
    _end_session(job)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    job.wait()
    job.stdout.close()

"""A job ends with all its processes: Spark's Python workers have process groups of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from airflow_provider.operators._base.spark_job import _end_session

LEADER = """
import os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print(worker.pid, flush=True)
worker.wait()
"""


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

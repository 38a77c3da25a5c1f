"""The blocks of README and docs run as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow.docs.blocks import PAGES, blocks
from tests.airflow.docs.reader import Reader, needs_spark, variables_of


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and not needs_spark(page)])
def test_a_page(page, tmp_path, metastore, run_dag, monkeypatch):
    for name, value in variables_of(tmp_path).items():
        monkeypatch.setenv(name, value)
    Reader(page, tmp_path, metastore, run_dag).follow()


@pytest.mark.timeout(1800)  # five pages, a minute on an idle machine
def test_the_pages_with_spark():
    """These pages run in a process of their own, because the Spark session that they open stays in it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTEST"))}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            Path(__file__).parent / "with_spark.py",
        ],
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]

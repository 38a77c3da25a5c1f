"""``make demo``, as a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(3600)  # a minute on an idle machine
def test_demo(tmp_path: Path) -> None:
    home = tmp_path / "demo-home"
    # The demo runs without the Airflow of the other tests, and without their Spark Connect.
    others = ("AIRFLOW", "SPARK_", "TABLE_SERVICES")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(
        [sys.executable, "-m", "dags_examples.demo"],
        env=environment | {"DEMO_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    logs = [f"{log.name}: ...{log.read_text()[-3000:]}" for log in home.glob("*.log")]
    assert done.returncode == 0, "\n\n".join([done.stdout, *logs])
    for reader in ("airflow_provider", "hudi-rs"):
        assert f"read by {reader}: 336,776 rows, equal to the source" in done.stdout

"""A test run that is stopped by any signal leaves no server and no temporary file behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import in_memory
from tests.airflow.processes import until
from tests.reaper import MARK, marked

ROOT = Path(__file__).parents[2]
RUN = Path(__file__).with_name("with_servers.py")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_that_is_stopped_leaves_nothing(number: signal.Signals, workers: int, tmp_path: Path) -> None:
    shutil.copy(RUN, tmp_path / "test_with_servers.py")
    command = [sys.executable, "-m", "pytest", "-p", "tests.reaper", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), "-n", str(workers), str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop("TMPDIR", None)
    with (tmp_path / "run.log").open("w") as log:
        run = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A shell starts its background processes with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    told = tmp_path / "mark"
    try:
        until(lambda: told.exists() or run.poll() is not None)
        assert run.poll() is None, (tmp_path / "run.log").read_text()[-3000:]
        mark = told.read_text()
        assert mark != os.environ[MARK]
        titles = "\n".join(" ".join(process.cmdline()) for process in marked(mark))
        assert all(server in titles for server in ("QuorumPeerMain", "bin/postgres", "a title of its own")), (
            titles
        )
        run.send_signal(number)
        run.wait(300)
    finally:
        run.kill()
        run.wait()
    until(lambda: not list(marked(mark)) and not in_memory.folder_of(mark).exists())

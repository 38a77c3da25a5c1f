"""A test that runs a server of each kind when it is stopped; ``test_reaper.py`` runs a copy of this file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes.servers import postgresql, zookeeper
from tests.reaper import MARK

# Like Airflow's server: a child does the work, outlives the server, and changes its process title.
CHILD = """
import setproctitle, time
setproctitle.setproctitle("a title of its own" * 100)
time.sleep(600)
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_with_servers() -> None:
    folder = Path(__file__).parent
    subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True)
    with zookeeper(folder / "zookeeper"), postgresql():
        (folder / "mark.new").write_text(os.environ[MARK])
        (folder / "mark.new").rename(folder / "mark")
        signal.pause()

"""All processes of a test run end with the run, also after Ctrl-C, SIGTERM or SIGKILL.

Servers run in sessions of their own, because an interrupt of a test must not end them, and PostgreSQL is a
daemon. Every process of a run inherits a mark in its environment. The reaper waits until pytest has ended,
ends every process that still has the mark, and removes the run's temporary files.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import uuid
from collections.abc import Iterator

import psutil

from tests import in_memory

MARK = "TABLE_SERVICES_TEST_RUN"
ENDING_SECONDS = 5.0
GRACE_SECONDS = 10.0
"""Seconds for which servers may remove their files after SIGTERM; then the reaper kills them."""


def pytest_configure() -> None:
    """Mark the run, and start its reaper. The workers of pytest-xdist belong to the run already."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    # The signal acts like Ctrl-C: fixtures stop their servers and remove their folders.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ[MARK] = uuid.uuid4().hex
    in_memory.put_in_memory(os.environ[MARK])
    os.environ["SPT_NOENV"] = "1"  # processes that change their title (Airflow's, workers) keep the mark
    os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, __file__, str(os.getpid())])


def marked(mark: str) -> Iterator[psutil.Process]:
    """The processes of a run, except the caller's own."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                yield process
        except psutil.Error:
            continue  # the process has ended, or belongs to another user


def reap(run: int, mark: str) -> None:
    """Wait for the end of a run, and end its remaining processes.

    :param run: the process of pytest.
    :param mark: the mark in the environment of the run's processes.
    """
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(run)], [], [])  # readable when the process has ended
    # Processes that wait for the end of their parent, such as servers of `multiprocessing`, end now.
    psutil.wait_procs(list(marked(mark)), ENDING_SECONDS)
    stop = psutil.Process.terminate
    while left := list(marked(mark)):
        for process in left:
            try:
                print(
                    f"left by the tests: {process.pid} {' '.join(process.cmdline())[:200]}", file=sys.stderr
                )
                stop(process)
            except psutil.Error:
                continue
        psutil.wait_procs(left, GRACE_SECONDS)
        stop = psutil.Process.kill
    in_memory.remove(mark)


if __name__ == "__main__":
    os.setsid()  # an interrupt of the run must not end the reaper
    reap(int(sys.argv[1]), os.environ[MARK])

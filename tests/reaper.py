"""What a test run has started ends with the run, however that ends: Ctrl-C, SIGTERM, SIGKILL.

Servers are in sessions of their own, because what interrupts a test is not to be their end, and PostgreSQL is
a daemon. Every process of a run inherits a mark in its environment. The reaper waits until pytest has ended,
and ends every process that still bears the mark.
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

MARK = "TABLE_SERVICES_TEST_RUN"
ENDING_SECONDS = 5.0
GRACE_SECONDS = 10.0
"""For which servers may remove their files after SIGTERM; then they are killed."""


def pytest_configure() -> None:
    """Mark the run, and start its reaper. The workers of pytest-xdist belong to the run already."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    # As Ctrl-C: fixtures stop their servers and remove their folders.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ[MARK] = uuid.uuid4().hex
    os.environ["SPT_NOENV"] = "1"  # processes that change their title (Airflow's, workers) keep the mark
    os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, __file__, str(os.getpid())])


def marked(mark: str) -> Iterator[psutil.Process]:
    """The processes of a run, but for the caller's."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                yield process
        except psutil.Error:
            continue  # it has ended, or is somebody else's


def reap(run: int, mark: str) -> None:
    """Wait for the end of a run, and end what it has left.

    :param run: the process of pytest.
    :param mark: what its processes have in their environment.
    """
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(run)], [], [])  # readable when the process has ended
    # What waits for the end of its parent, as the servers of `multiprocessing`, ends now.
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


if __name__ == "__main__":
    os.setsid()  # what interrupts the run is not to be its end
    reap(int(sys.argv[1]), os.environ[MARK])

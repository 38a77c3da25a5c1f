"""Several processes at one table, one call at a time, until the power fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from greenlet import getcurrent, greenlet

from airflow_provider.exceptions import TableServiceError
from tests.unit.concurrency.simulation.scheduler import NoLock
from tests.unit.power.disk import ForgetfulDisk, PowerCut
from tests.unit.power.operations import History, Rows

Operation = Callable[[History, Random], None]


class Process:
    """One process, with storage objects of its own.

    :param history: the table, and the commits that were reported to this process.
    :param operations: its operations, one after the other; one that loses to another process is not reported.
    """

    def __init__(self, history: History, operations: Sequence[Operation], random: Random) -> None:
        history.lock = NoLock()
        self.history = history
        self.at = ""
        self._scheduler = getcurrent()

        def run() -> None:
            try:
                self.wait_for_turn("start")
                for operation in operations:
                    try:
                        operation(history, random)
                    except TableServiceError:
                        history.coming = history.rows
            except PowerCut:
                pass

        self.greenlet = greenlet(run)

    def wait_for_turn(self, at: str) -> None:
        """Wait for this process's turn; the disk calls this before each call of the process.

        :param at: the call and its path.
        """
        if getcurrent() is self.greenlet:
            self.at = at
            self._scheduler.switch()

    def go_on(self) -> None:
        """Make the call before which it waits."""
        self.greenlet.switch()

    def go_on_to(self, call: str) -> None:
        """Go on until the process is about to make a call.

        :param call: a pattern of its name and path.
        """
        while not re.search(call, self.at):
            self.go_on()
            assert not self.greenlet.dead, f"it has ended before any {call}"

    def end(self) -> None:
        """Go on to the end."""
        while not self.greenlet.dead:
            self.go_on()


def together(disk: ForgetfulDisk, processes: Sequence[Process]) -> None:
    """Let processes take turns before each call.

    :param disk: the disk on which they work.
    :param processes: all processes.
    """

    def before_step(call: str, path: str) -> None:
        for process in processes:
            process.wait_for_turn(f"{call} {path}")

    disk.before_step = before_step


def run(disk: ForgetfulDisk, processes: Sequence[Process], random: Random, cut_after: int) -> None:
    """Let each process do its next call, in any order, until the power fails or all have ended.

    :param disk: the disk on which they work.
    :param processes: the processes that take turns.
    :param random: draws the turns.
    :param cut_after: the number of calls until the power fails.
    """
    together(disk, processes)
    with disk.running(cut_after):
        while running := [process for process in processes if not process.greenlet.dead]:
            process = random.choice(running)
            for _ in range(random.choice((1, 1, 3, 20, 100))):  # calls in a row
                if not process.greenlet.dead:
                    process.go_on()


def rows_after(processes: Sequence[Process], found: Rows) -> bool:
    """Whether the rows are those of the reported commits, perhaps with one that was about to be reported.

    :param processes: the processes, which write to different partitions.
    :param found: all rows.
    """
    written = [process.history for process in processes if process.history.keys]
    left = dict(found)
    for history in written:
        partitions = {partition for partition, _ in history.keys}
        own = {key: left.pop(key) for key in list(left) if key[0] in partitions}
        if not history.is_expected(own):
            return False
    return not left

"""Processes that are killed, or paused, before one of their storage operations."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import tenacity

from airflow_provider.concurrency import rollback
from airflow_provider.exceptions import TableServiceError
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER
from tests.processes.table import services
from tests.processes.table.faults import with_faults
from tests.processes.table.services import Rows

OWN: Rows = {"k1": (1, "p"), "k6": (1, "p"), "both": (1, "p"), "own": (1, "q")}

CHANGING = ("put_if_absent", "move_if_absent", "link_if_absent", "put", "delete", "create")
"""Operations that change the storage."""


@dataclass(frozen=True)
class Step:
    """A storage operation of a victim.

    :param operation: the operation and its path, without the parts that differ in each run.
    :param occurrence: the number of this occurrence of the same operation and path.
    """

    operation: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.operation} #{self.occurrence}"


def _ingest(table: HudiTable, ready: Callable[[], None]) -> None:
    ready()
    services.upsert(table, "victim", OWN)


def _ingest_under_the_lock(table: HudiTable, ready: Callable[[], None]) -> None:
    ready()
    services.upsert(table, "victim", OWN, lock=services.SharedLock(table.storage, **services.LOCK))


def _ingest_across_clustering(table: HudiTable, ready: Callable[[], None], on_rewrite: str) -> None:
    # Requested before the ingestion: with a later request, a write to a table with a record index would begin
    # again.
    planned = services.plan_clustering(HudiTable.open(table.location), "part=p")
    assert planned is not None

    def other() -> None:
        services.carry_out_clustering(HudiTable.open(table.location), planned)
        ready()

    services.upsert_across(table, "victim", OWN, other, on_rewrite=on_rewrite)


def _roll_back(table: HudiTable, ready: Callable[[], None]) -> None:
    dead = min(each.requested_time for each in table.timeline().pending())
    ready()
    rollback(table, dead)


def _at_once(work: Callable[[HudiTable], object]) -> Callable[[HudiTable, Callable[[], None]], None]:
    def act(table: HudiTable, ready: Callable[[], None]) -> None:
        ready()
        work(table)

    return act


VICTIMS: dict[str, Callable[[HudiTable, Callable[[], None]], None]] = {
    "ingestion": _ingest,
    "ingestion under the lock": _ingest_under_the_lock,
    "ingestion that rebases": lambda *a: _ingest_across_clustering(*a, "rebase"),
    "ingestion that reverts": lambda *a: _ingest_across_clustering(*a, "revert"),
    "clustering": _at_once(lambda table: services.cluster(table, "part=p")),
    "cleaning": _at_once(services.clean),
    "rollback": _roll_back,
    "index build": _at_once(services.build_index),
    "index drop": _at_once(services.drop),
    "compaction": _at_once(services.compact_all),
    "archival": _at_once(services.archive_most),
    "savepoint": _at_once(services.keep_newest),
    "restore": _at_once(services.go_back),
}
"""The actions of the victims; the test counts operations from the call of ``ready`` on."""


class Victim:
    """The test's end of such a process.

    :param what: a key of :data:`VICTIMS`.
    :param at: the step before which the process gets the signal; None to record all steps.
    """

    def __init__(
        self,
        processes: ForkServerContext,
        what: str,
        location: str,
        at: Step | None = None,
        signal_number: signal.Signals = signal.SIGKILL,
    ) -> None:
        self._signal = signal_number
        self._pipe, far = processes.Pipe()
        self._process = processes.Process(target=_be_a_victim, args=(far, what, location, at, signal_number))
        self._process.start()
        far.close()

    def wait_for_step(self) -> None:
        """Wait until the process is dead or paused."""
        told = self.answer()
        assert told == ("reached", None), told
        if self._signal is signal.SIGKILL:
            self._process.join(300)
        else:
            self._is_still()

    def go_on(self) -> None:
        os.kill(self._process.pid or 0, signal.SIGCONT)

    def answer(self, timeout: float = 300.0) -> tuple[str, Any]:
        """The answer: ``reached`` its step, ``done`` with all steps, or ``failed`` with an error type."""
        assert self._pipe.poll(timeout), f"no answer in {timeout} s"
        told: tuple[str, Any] = self._pipe.recv()
        return told

    def end(self) -> None:
        self._process.kill()
        self._process.join()

    @tenacity.retry(
        retry=tenacity.retry_if_result(lambda still: not still),
        wait=tenacity.wait_fixed(0.005),
        stop=tenacity.stop_after_delay(300),
    )
    def _is_still(self) -> bool:
        status = Path(f"/proc/{self._process.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "T"


def _be_a_victim(
    pipe: Connection, what: str, location: str, at: Step | None, signal_number: signal.Signals
) -> None:
    seen: Counter[str] = Counter()
    steps: list[Step] = []
    victim = threading.current_thread()
    is_ready = threading.Event()

    def before(operation: str, path: str) -> None:
        # Heartbeats and renewals come at any time; the test counts only operations of the victim's own
        # thread.
        if not is_ready.is_set() or threading.current_thread() is not victim:
            return
        if path.startswith(METADATA_FOLDER):
            return  # killed there by tests/unit/indexing/test_killed.py
        described = f"{operation} {_NAMES.sub('*', path)}"
        seen[described] += 1
        steps.append(Step(described, seen[described]))
        if steps[-1] == at:
            pipe.send(("reached", None))
            os.kill(os.getpid(), signal_number)

    try:
        VICTIMS[what](with_faults(location, before), is_ready.set)
    except TableServiceError as error:
        pipe.send(("failed", type(error).__name__))
    else:
        pipe.send(("done", steps))


# The parts that differ in each run: instants, file ids and write tokens, random names, places in a line.
_NAMES = re.compile(r"[0-9a-f]{32}|[0-9a-f-]{36}-\d_\d+-\d+-\d+_|\d{8,}|(?<=lock)\d+|(?<=waiter)\d+")

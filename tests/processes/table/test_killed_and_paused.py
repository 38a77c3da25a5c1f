"""Every writer and service is killed, or paused, before its storage operations.

Meanwhile another writer commits on the same file groups. Then the heartbeats and leases of the victim expire,
the next writer begins, and a paused victim wakes up.

``SOAK=1`` tries all operations. Otherwise the test tries operations that change something, and a push tries a
share of these (``tests/sweep.py``).
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from airflow_provider.table import HudiTable
from tests.processes.table import services
from tests.processes.table.agreement import agree, by_log, check, committed, recover, silence
from tests.processes.table.services import UNLOCKED_SECONDS, Rows
from tests.processes.table.victims import CHANGING, OWN, VICTIMS, Step, Victim
from tests.sweep import share_of

AT_ONCE = 8  # this many victims wait together for the end of their leases

RIVAL: Rows = {"k1": (2, "p"), "k7": (2, "p"), "both": (2, "p"), "rival": (2, "q")}
NEXT: Rows = {"k2": (3, "p"), "k6": (3, "p"), "next": (3, "p")}
FIRST: dict[str, Rows] = {
    "p-0": {f"k{n}": (0, "p") for n in range(5)},
    "p-1": {f"k{n}": (0, "p") for n in range(5, 10)},
    "q-0": {"q0": (0, "q")},
    "q-1": {"q1": (0, "q")},
    "again": {f"k{n}": (-1, "p") for n in range(3, 7)},
}
WRITES = FIRST | {"victim": OWN, "rival": RIVAL, "next": NEXT}

LOST = {"InstantRolledBackError", "HeartbeatExpiredError", "WriteConflictError", "NoSuchInstantError"}
"""Errors that tell a process that another one has overtaken it."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a table with two file groups in ``p``, and superseded and replaced files for the cleaner."""
    table = services.create(str(tmp_path_factory.mktemp("start") / "t"))
    for name, rows in FIRST.items():
        services.upsert(table, name, rows, operation="upsert" if name == "again" else "bulk_insert")
    assert services.build_index(table, *services.INDEXES)
    assert services.cluster(table, "part=q")  # logs to the indexes, so that there is something to compact
    return Path(table.location)


@pytest.fixture(scope="module")
def start_with_a_dead_writer(start: Path, processes: ForkServerContext) -> Path:
    """Create the same table with the instant of a writer that was killed after its last data file."""
    table = HudiTable.open(str(shutil.copytree(start, start.parent / "with-a-dead-writer")))
    at = Step("put .hoodie/commit_log/staged/*.avro", 1)
    victim = Victim(processes, "ingestion", table.location, at, signal.SIGKILL)
    victim.wait_for_step()
    victim.end()
    silence(table)
    return Path(table.location)


class Case:
    """One victim and its table."""

    def __init__(self, location: Path, what: str, at: Step, signal_number: signal.Signals) -> None:
        self.table = HudiTable.open(str(location))
        self.what, self.at, self.signal = what, at, signal_number
        self.acknowledged = set(FIRST)

    def begin(self, processes: ForkServerContext) -> None:
        self.victim = Victim(processes, self.what, self.table.location, self.at, self.signal)

    def meet_a_rival(self, on_rewrite: str) -> None:
        """Let other processes read and write while the victim is paused or dead."""
        services.upsert(self.table, "rival", RIVAL, on_rewrite=on_rewrite, **services.PATIENT)
        self.acknowledged.add("rival")
        agree(self.table, by_log(self.table, WRITES))

    def let_the_next_come(self) -> None:
        """Let the next writer begin, once the victim has been silent for too long."""
        silence(self.table)
        services.upsert(self.table, "next", NEXT, **services.PATIENT)
        self.acknowledged.add("next")
        agree(self.table, by_log(self.table, WRITES))

    def wake_up(self) -> None:
        """Wake the victim up. It has committed before, or finds that it is too late, or has not begun yet."""
        self.victim.go_on()
        told, what = self.victim.answer()
        if told == "failed":
            assert what in LOST
        elif self.what.startswith("ingestion"):
            self.acknowledged.add("victim")
        else:
            assert told == "done"

    def check(self) -> None:
        recover(self.table)
        check(self.table, WRITES, self.acknowledged)
        written = {operation_key for _, operation_key in committed(self.table)}
        if self.signal is signal.SIGSTOP and self.what.startswith("ingestion"):
            assert ("victim" in written) == ("victim" in self.acknowledged)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])
@pytest.mark.parametrize(
    ("what", "rival"),
    [(what, "rebase") for what in VICTIMS] + [("clustering", "revert")],
    ids=[*VICTIMS, "clustering that is reverted"],
)
def test_before_each_operation(
    what: str,
    rival: str,
    signal_number: signal.Signals,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    processes: ForkServerContext,
) -> None:
    start: Path = request.getfixturevalue("start_with_a_dead_writer" if what == "rollback" else "start")
    probe = Victim(processes, what, str(shutil.copytree(start, tmp_path / "probe")))
    told, steps = probe.answer()
    assert told == "done"
    probe.end()
    remaining = [step for step in steps if os.environ.get("SOAK") or _is_named(step)]
    assert len(remaining) > 5
    remaining = share_of(remaining)
    while remaining:
        batch, remaining = remaining[:AT_ONCE], remaining[AT_ONCE:]
        cases = []
        for at in batch:
            copy = shutil.copytree(start, tmp_path / f"t{steps.index(at)}")
            cases.append(Case(copy, what, at, signal_number))
        _run(processes, cases, rival)


def _is_named(step: Step) -> bool:
    operation, _, path = step.operation.partition(" ")
    is_aside = (path.startswith(".hoodie/locks/") and operation == "delete") or path.endswith("_metadata")
    return operation in CHANGING and step.occurrence == 1 and not is_aside


def _run(processes: ForkServerContext, cases: list[Case], rival: str) -> None:
    case = cases[0]
    try:
        for case in cases:
            case.begin(processes)
        for case in cases:
            case.victim.wait_for_step()
        for case in cases:
            case.meet_a_rival(rival)
        time.sleep(UNLOCKED_SECONDS)
        for case in cases:
            case.let_the_next_come()
            if case.signal is signal.SIGSTOP:
                case.wake_up()
            case.check()
    except BaseException as error:
        error.add_note(f"{case.what}, {case.signal.name} before {case.at}, in {case.table.location}")
        raise
    finally:
        for case in cases:
            case.victim.end()

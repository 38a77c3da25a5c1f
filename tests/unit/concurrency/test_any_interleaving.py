"""Whoever begins, goes on, stands still or dies at whatever storage operation: the invariants hold.

``INTERLEAVINGS`` says how many are tried. A counterexample is printed as the calls that lead to it; what
is learnt from one becomes a test with a name in ``test_interleavings.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_provider.concurrency import PRIORITIES, ConflictPolicy

from .actors import (
    FAIL,
    REBASE,
    REVERT,
    add_archiver,
    add_cleaner,
    add_clusterer,
    add_executor,
    add_leased_reader,
    add_reader,
    add_sweeper,
    add_writer,
)
from .invariants import check
from .simulation import Actor, Simulation

KEYS = ("a", "b", "c", "new")
SHARES = 4  # so that several processes can work on it
INGESTION, BACKFILL = PRIORITIES["ingestion"], PRIORITIES["backfill"]
SERVICES: dict[str, Callable[[Simulation, str], None]] = {
    "archiver": add_archiver,
    "clusterer": add_clusterer,
    "executor": add_executor,
    "cleaner": add_cleaner,
    "sweeper": add_sweeper,
    "reader": add_reader,
    "leased reader": add_leased_reader,
}


class Interleaving(RuleBasedStateMachine):
    """Three writers, two of each service and two readers on one table, one storage operation at a time.

    Some writers are in transactions, which are aborted when their writes have completed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation()
        self._count = dict.fromkeys(("writer", *SERVICES), 0)

    @initialize()
    def a_table(self) -> None:
        for keys in ("a", "b", "c"):
            add_writer(self.simulation, f"first-{keys}", keys)
            self.simulation.run([])

    @precondition(lambda self: self._count["writer"] < 3)
    @rule(
        keys=st.sets(st.sampled_from(KEYS), min_size=1),
        policy=st.sampled_from([FAIL, REBASE, REVERT]),
        priority=st.sampled_from([INGESTION, INGESTION, BACKFILL, (INGESTION + BACKFILL) // 2]),
        aborted=st.sampled_from([False, False, True]),
    )
    def upsert_begins(self, keys: set[str], policy: ConflictPolicy, priority: int, aborted: bool) -> None:
        name = self._named("writer")
        txn_id = self._count["writer"] if aborted else None
        add_writer(self.simulation, name, sorted(keys), policy=policy, priority=priority, aborted_txn=txn_id)

    @rule(service=st.sampled_from(sorted(SERVICES)))
    def service_begins(self, service: str) -> None:
        if self._count[service] < 2:
            SERVICES[service](self.simulation, self._named(service))

    # No precondition: how many are still running depends on the clock, and what is drawn must not.
    @rule(number=st.integers(0, 9), operations=st.integers(1, 40))
    def goes_on(self, number: int, operations: int) -> None:
        for actor in self._chosen(number):
            for _ in range(operations):
                if not actor.done:
                    self.simulation.step(actor)

    @rule(number=st.integers(0, 9))
    def is_killed(self, number: int) -> None:
        for actor in self._chosen(number):
            self.simulation.kill(actor)

    @rule()
    def heartbeats_expire(self) -> None:
        self.simulation.expire_heartbeats()

    def teardown(self) -> None:
        self.simulation.run([])
        check(self.simulation)

    def _chosen(self, number: int) -> list[Actor]:
        """One of those that are running, if anybody is."""
        running = self.simulation.running()
        return running and [running[number % len(running)]]

    def _named(self, kind: str) -> str:
        self._count[kind] += 1
        return f"{kind}{self._count[kind]}"


@pytest.mark.parametrize("share", range(SHARES))
def test_any_interleaving_keeps_the_invariants(share: int) -> None:
    examples = max(1, int(os.environ.get("INTERLEAVINGS", "40")) // SHARES)
    run_state_machine_as_test(Interleaving, settings=settings(max_examples=examples, stateful_step_count=60))  # type: ignore[no-untyped-call]

"""A compaction of a merge-on-read table, killed, doubled or overtaken before each storage operation."""

from __future__ import annotations

from functools import cache

import pytest

from airflow_provider.services.table_compaction.table_compaction import compact_table
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    EVERY_COMMIT,
    REBASE,
    add_table_compaction_executor,
    add_table_compactor,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check, recover
from tests.unit.concurrency.simulation.rows import PARTITION, read_snapshot
from tests.unit.concurrency.simulation.scheduler import NoLock, Simulation

SEEN = {"a": ["w0", "w1", "w2"], "b": ["w0"], "c": ["w0", "w2"]}


def written() -> Simulation:
    """A table with two file groups, and log files in both."""
    return _written().copy()


@cache
def _written() -> Simulation:
    simulation = Simulation(merge_on_read=True)
    for name, keys in (("w0", "ab"), ("w0", "c"), ("w1", "a"), ("w2", "ac")):
        add_writer(simulation, name, keys)
        simulation.run([])
    return simulation


@cache
def operations() -> int:
    simulation = written()
    before = len(simulation.trace)
    add_table_compactor(simulation, "compactor")
    simulation.run([])
    assert not logs(simulation)
    return len(simulation.trace) - before


def seen(simulation: Simulation) -> dict[str, list[str]]:
    table = simulation.table()
    return read_snapshot(table.storage, table.view())


def logs(simulation: Simulation) -> list[str]:
    return [each.path for each in simulation.table().view().log_files(PARTITION)]


@pytest.mark.parametrize("killed_at", share_of(range(operations())))
def test_a_killed_compaction_is_undone_or_done_and_the_next_one_goes_on(killed_at: int) -> None:
    simulation = written()
    add_table_compactor(simulation, "compactor")
    simulation.run([0] * killed_at + [900])
    assert seen(simulation) == SEEN
    recover(simulation)
    # The real task cannot write the schema of simulated rows, so an actor executes the plan.
    add_table_compactor(simulation, "next")
    add_table_compaction_executor(simulation, "executor")
    simulation.run([])
    assert logs(simulation) == []
    assert seen(simulation) == SEEN
    check(simulation)
    assert compact_table(simulation.table(), EVERY_COMMIT, lock=NoLock()) == []


@pytest.mark.parametrize("overtaken_at", share_of(range(0, operations(), 2)))
def test_two_compactors_complete_a_plan_once(overtaken_at: int) -> None:
    simulation = written()
    add_table_compactor(simulation, "compactor")
    add_table_compaction_executor(simulation, "executor")
    simulation.run([0] * overtaken_at + [1] * 500)
    assert seen(simulation) == SEEN
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(operations())))
def test_an_upsert_that_overtakes_a_compaction_loses_nothing_and_waits_for_nobody(overtaken_at: int) -> None:
    simulation = written()
    add_table_compactor(simulation, "compactor")
    add_writer(simulation, "w3", "ab", policy=REBASE)
    simulation.run([0] * overtaken_at + [1] * 500)
    assert "w3" in simulation.committed()
    assert seen(simulation) == {**SEEN, "a": [*SEEN["a"], "w3"], "b": [*SEEN["b"], "w3"]}
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(0, 40, 2)))
def test_a_compaction_that_overtakes_an_upsert_loses_nothing_and_waits_for_nobody(overtaken_at: int) -> None:
    simulation = written()
    add_writer(simulation, "w3", "ab")
    add_table_compactor(simulation, "compactor")
    simulation.run([0] * overtaken_at + [1] * 500)
    assert "w3" in simulation.committed()
    assert seen(simulation) == {**SEEN, "a": [*SEEN["a"], "w3"], "b": [*SEEN["b"], "w3"]}
    check(simulation)

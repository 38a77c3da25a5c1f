"""A compaction of a merge-on-read table, killed, doubled or overtaken before each storage operation."""

from __future__ import annotations

from functools import cache

import pytest

from airflow_provider.services.table_compaction.table_compaction import compact_table
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    EVERY_COMMIT,
    REBASE,
    add_appender,
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


# --- with non-blocking concurrency ------------------------------------------------------------

ONES = {"a": ["n0", "n1", "n2"], "b": ["n0"]}
TWOS = {"nw": ["n0", "n2"]}
"""The keys of the two buckets: a bucket is the length of its keys."""
ALL = {**ONES, **TWOS}
AFTER = {**ALL, "a": [*ALL["a"], "n3"], "c": ["n3"], "nw": [*ALL["nw"], "n3"]}


def appended() -> Simulation:
    """A non-blocking table with two buckets: one has a base file and log files, the other only log files."""
    return _appended().copy()


@cache
def _appended() -> Simulation:
    simulation = Simulation(non_blocking=True)
    add_appender(simulation, "n0", ["a", "b"])
    simulation.run([])
    add_table_compactor(simulation, "first")
    simulation.run([])
    for name, keys in (("n1", ["a"]), ("n0", ["nw"]), ("n2", ["a", "nw"])):
        add_appender(simulation, name, keys)
        simulation.run([])
    assert seen(simulation) == ALL
    return simulation


@cache
def operations_on_buckets() -> int:
    simulation = appended()
    before = len(simulation.trace)
    add_table_compactor(simulation, "compactor")
    simulation.run([])
    assert not logs(simulation)
    return len(simulation.trace) - before


@pytest.mark.parametrize("killed_at", share_of(range(operations_on_buckets())))
def test_a_killed_compaction_of_buckets_is_undone_or_done_and_the_next_one_goes_on(killed_at: int) -> None:
    simulation = appended()
    add_table_compactor(simulation, "compactor")
    simulation.run([0] * killed_at + [900])
    assert seen(simulation) == ALL
    # Whatever is left of it, a writer appends to the same buckets before anybody has recovered.
    add_appender(simulation, "n3", ["a", "c", "nw"])
    simulation.run([])
    assert seen(simulation) == AFTER
    recover(simulation)
    for name in ("next", "after it"):  # what was appended after the plan belongs to the next plan
        add_table_compactor(simulation, name)
        add_table_compaction_executor(simulation, f"{name}, an executor")
        simulation.run([])
    assert logs(simulation) == []
    assert seen(simulation) == AFTER
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(0, operations_on_buckets(), 2)))
def test_two_compactors_of_buckets_complete_a_plan_once(overtaken_at: int) -> None:
    simulation = appended()
    add_table_compactor(simulation, "compactor")
    add_table_compaction_executor(simulation, "executor")
    simulation.run([0] * overtaken_at + [1] * 500)
    assert seen(simulation) == ALL
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(operations_on_buckets())))
def test_an_appending_writer_that_overtakes_a_compaction_neither_conflicts_nor_waits(
    overtaken_at: int,
) -> None:
    simulation = appended()
    add_table_compactor(simulation, "compactor")
    add_appender(simulation, "n3", ["a", "c", "nw"])
    simulation.run([0] * overtaken_at + [1] * 500)
    assert simulation.committed() == {"n0", "n1", "n2", "n3"}
    assert seen(simulation) == AFTER
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(0, 40, 2)))
def test_a_compaction_that_overtakes_an_appending_writer_neither_conflicts_nor_waits(
    overtaken_at: int,
) -> None:
    simulation = appended()
    add_appender(simulation, "n3", ["a", "c", "nw"])
    add_table_compactor(simulation, "compactor")
    simulation.run([0] * overtaken_at + [1] * 500)
    assert simulation.committed() == {"n0", "n1", "n2", "n3"}
    assert seen(simulation) == AFTER
    check(simulation)

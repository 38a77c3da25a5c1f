"""A rewrite is reverted beside a planner, whose listed instant vanishes before it is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from airflow_provider.concurrency.log.log_entry import Revert
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    REVERT,
    add_cleaner,
    add_clusterer,
    add_keeper,
    add_restorer,
    add_sweeper,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.reading_actors import add_reader
from tests.unit.concurrency.simulation.scheduler import Actor, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with

ENTRY = "put_if_absent .hoodie/commit_log/0"

LOOKERS: dict[str, Callable[[Simulation, str], None]] = {
    "writer": partial(add_writer, keys="c"),
    "reverts too": partial(add_writer, keys="b", policy=REVERT),
    "clusterer": add_clusterer,
    "cleaner": add_cleaner,
    "sweeper": add_sweeper,
    "restorer": add_restorer,
    "keeper": add_keeper,
    "reader": add_reader,
}


def about_to_be_reverted(*others: Callable[[Simulation], None]) -> tuple[Simulation, Actor]:
    """Complete a clustering on the file groups of an upsert that is about to commit.

    :param others: called before the upsert begins.
    """
    simulation = table_with("a", "b", "c")
    add_clusterer(simulation, "clusterer")
    clusterer = simulation.actors[-1]
    simulation.go_on_to(clusterer, ".inflight")
    for other in others:
        other(simulation)
    simulation.go_on_to(clusterer, ENTRY)
    add_writer(simulation, "upsert", "a", policy=REVERT)
    upsert = simulation.actors[-1]
    simulation.go_on_to(upsert, ENTRY)
    simulation.go_on(clusterer)
    return simulation, upsert


def is_reverted(simulation: Simulation) -> bool:
    return any(isinstance(entry, Revert) for entry in simulation.entries())


@pytest.mark.parametrize("at", share_of(range(0, 100)))
@pytest.mark.parametrize("looker", LOOKERS)
def test_a_rewrite_is_reverted_in_the_moment_in_which_it_is_looked_at(looker: str, at: int) -> None:
    simulation, upsert = about_to_be_reverted()
    LOOKERS[looker](simulation, looker)
    simulation.go_on(simulation.actors[-1], at)
    simulation.go_on(upsert)
    in_the_way = looker in ("clusterer", "reverts too")  # by what it has written
    assert in_the_way or is_reverted(simulation)
    simulation.run([])
    check(simulation)


@pytest.mark.parametrize("at", share_of(range(0, 60)))
def test_and_looked_at_by_who_undoes_an_aborted_transaction(at: int) -> None:
    def committed(simulation: Simulation) -> None:
        add_writer(simulation, "aborted", "c", aborted_txn=7)
        simulation.go_on_to(simulation.actors[-1], "link_if_absent .hoodie/timeline")

    simulation, upsert = about_to_be_reverted(committed)
    (aborted,) = (each for each in simulation.running() if each is not upsert)
    simulation.go_on(aborted, at)
    simulation.go_on(upsert)
    assert is_reverted(simulation)
    simulation.run([])
    check(simulation)

"""An archiver beside readers and planners: it archives instants that they have listed, not read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider.services.cleaning.cleaning import run_clean, schedule_clean
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline.archived_timeline import find_archived
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    EVERYTHING,
    add_archiver,
    add_cleaner,
    add_clusterer,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.reading_actors import add_leased_reader, add_reader
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with

LOOKERS: list[Callable[[Simulation, str], None]] = [
    add_cleaner,
    add_clusterer,
    add_reader,
    add_leased_reader,
    lambda simulation, name: add_writer(simulation, name, "ax"),
]


@pytest.mark.parametrize("at", share_of(range(0, 40)))
@pytest.mark.parametrize("add", LOOKERS, ids=["cleaner", "clusterer", "reader", "leased reader", "writer"])
def test_a_replacecommit_is_archived_in_the_moment_in_which_it_is_looked_at(
    add: Callable[[Simulation, str], None], at: int
) -> None:
    simulation = table_with("a", "b")
    for name, service in (("packer", add_clusterer), ("sweep", add_cleaner)):
        service(simulation, name)
        simulation.run([])
    for key in "cd":
        add_writer(simulation, f"later-{key}", key)
        simulation.run([])
    add(simulation, "who looks")
    add_archiver(simulation, "archiver")
    looks, archiver = simulation.actors[-2:]
    simulation.go_on(looks, at)
    simulation.go_on(archiver)
    simulation.run([])
    check(simulation)


@pytest.mark.parametrize("archived_to", [".clean.requested", ".clean.inflight", "_", None])
@pytest.mark.parametrize("at", share_of(range(0, 60)))
def test_a_clean_is_carried_out_and_archived_by_others_while_somebody_carries_it_out(
    at: int, archived_to: str | None
) -> None:
    simulation = table_with("a", "b")
    add_writer(simulation, "again", "ab")
    simulation.run([])
    instant = schedule_clean(simulation.table(), EVERYTHING, lock=NoLock())
    assert instant is not None
    told: list[int] = []

    def carries_out(table: HudiTable, actor: Actor) -> None:
        told.append(run_clean(table, instant, lock=NoLock()).deleted)

    simulation.add("slow", carries_out)
    slow = simulation.actors[-1]
    simulation.go_on(slow, at)
    simulation.add("fast", carries_out)
    simulation.go_on(simulation.actors[-1])
    for key in "cd":
        add_writer(simulation, f"later-{key}", key)
        simulation.go_on(simulation.actors[-1])
    add_archiver(simulation, "archiver")
    archiver = simulation.actors[-1]
    if archived_to is None:
        simulation.go_on(archiver)
    else:
        simulation.go_on_to(archiver, f"delete .hoodie/timeline/{instant}{archived_to}")
    assert find_archived(simulation.table().storage, instant) is not None
    simulation.go_on(slow)
    simulation.go_on(archiver)
    assert told == [2, 2]
    check(simulation)

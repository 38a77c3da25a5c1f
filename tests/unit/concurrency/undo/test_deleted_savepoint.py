"""A deleted savepoint does not come back when its publisher was paused or killed."""

from __future__ import annotations

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit import publish_head
from airflow_provider.services.savepoint import delete_savepoint, savepoints
from airflow_provider.table.hudi_table import HudiTable
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import add_keeper
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.scheduler import Actor, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with

STEPS = range(20, 40)  # from before the savepoint's entry to the end of its publication


def publish_and_delete(simulation: Simulation) -> None:
    table = simulation.table()
    publish_head(table.storage, CommitLog(table.storage))
    for savepoint in savepoints(table):
        simulation.let_go.add(savepoint.instant)
        delete_savepoint(table, savepoint.instant)


@pytest.mark.parametrize("moves_atomically", [True, False], ids=["disk", "object-store"])
@pytest.mark.parametrize("at", share_of(STEPS))
def test_its_publisher_stands_still(at: int, moves_atomically: bool) -> None:
    simulation = table_with("a", "b")
    simulation.moves_atomically = moves_atomically
    add_keeper(simulation, "keeper")
    keeper = simulation.actors[-1]
    simulation.go_on(keeper, at)
    publish_and_delete(simulation)
    has_deleted = bool(simulation.let_go)
    simulation.go_on(keeper)
    assert bool(savepoints(simulation.table())) is not has_deleted
    check(simulation)


def test_its_publisher_has_read_it_on_an_object_store_and_puts_it_after_its_deletion() -> None:
    simulation = table_with("a", "b")
    simulation.moves_atomically = False
    add_keeper(simulation, "keeper")
    keeper = simulation.actors[-1]
    simulation.go_on_to(keeper, "put_if_absent .hoodie/timeline/2")
    publish_and_delete(simulation)
    assert simulation.let_go
    simulation.go_on(keeper)
    assert not savepoints(simulation.table())
    check(simulation)


@pytest.mark.parametrize("moves_atomically", [True, False], ids=["disk", "object-store"])
@pytest.mark.parametrize("at", share_of(STEPS))
def test_its_publisher_is_killed(at: int, moves_atomically: bool) -> None:
    simulation = table_with("a", "b")
    simulation.moves_atomically = moves_atomically
    add_keeper(simulation, "keeper")
    keeper = simulation.actors[-1]
    simulation.go_on(keeper, at)
    simulation.kill(keeper)
    publish_and_delete(simulation)
    publish_and_delete(simulation)
    assert not savepoints(simulation.table())
    check(simulation)


@pytest.mark.parametrize("operations", share_of(range(1, 24)))
def test_two_publish_it_on_an_object_store(operations: int) -> None:
    """Neither publisher mistakes the other one's publication for a deletion."""
    simulation = table_with("a", "b")
    simulation.moves_atomically = False
    add_keeper(simulation, "keeper")
    keeper = simulation.actors[-1]
    simulation.go_on_to(keeper, "put_if_absent .hoodie/timeline/2")

    def helps(table: HudiTable, _: Actor) -> None:
        publish_head(table.storage, CommitLog(table.storage))

    simulation.add("helper", helps)
    helper = simulation.actors[-1]
    simulation.go_on(helper, operations)
    simulation.go_on(keeper)
    simulation.go_on(helper)
    assert len(savepoints(simulation.table())) == 1
    check(simulation)

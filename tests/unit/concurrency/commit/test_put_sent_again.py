"""An object store's client sends a put-if-absent again when no answer comes.

The second request finds the file that the first one has put, and reports that somebody else was there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider.concurrency import ConflictPolicy
from tests.unit.concurrency.simulation.actors import (
    FAIL,
    REBASE,
    add_cleaner,
    add_clusterer,
    add_keeper,
    add_sweeper,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.scheduler import Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with

PUTS = (".hoodie/.heartbeat/", ".commit.requested", ".inflight", "commit_log/0", "_20")
SERVICES: dict[str, Callable[[Simulation, str], None]] = {
    "clusterer": add_clusterer,
    "cleaner": add_cleaner,
    "keeper": add_keeper,
    "sweeper": add_sweeper,
}


def on_an_object_store(*groups: str) -> Simulation:
    simulation = table_with(*groups)
    simulation.moves_atomically = False
    return simulation


def check_that_others_go_on(simulation: Simulation) -> None:
    simulation.expire_heartbeats()
    add_writer(simulation, "last", "a", policy=REBASE)
    simulation.go_on(simulation.actors[-1])
    check(simulation)
    assert "last" in simulation.committed()


@pytest.mark.parametrize("policy", [FAIL, REBASE], ids=["raise", "rebase"])
@pytest.mark.parametrize("put", PUTS)
def test_a_write_is_committed_once_and_reported(put: str, policy: ConflictPolicy) -> None:
    simulation = on_an_object_store("a", "b")
    add_writer(simulation, "writer", "abn", policy=policy)
    writer = simulation.actors[-1]
    while not (writer.at.startswith("put_if_absent") and put in writer.at):
        simulation.step(writer)
    writer.sends_put_again = True
    simulation.go_on(writer)
    assert not writer.sends_put_again
    assert "writer" in simulation.committed()
    check_that_others_go_on(simulation)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_in_nobodys_way(service: str, number: int) -> None:
    simulation = on_an_object_store("a", "b", "c")
    add_writer(simulation, "dead", "a")
    simulation.go_on_to(simulation.actors[-1], "put_if_absent .hoodie/commit_log/0")
    simulation.kill(simulation.actors[-1])
    simulation.bury()
    SERVICES[service](simulation, service)
    actor = simulation.actors[-1]
    while not actor.done and (number or not actor.at.startswith("put_if_absent")):
        number -= actor.at.startswith("put_if_absent")
        simulation.step(actor)
    actor.sends_put_again = True
    simulation.go_on(actor)
    check_that_others_go_on(simulation)

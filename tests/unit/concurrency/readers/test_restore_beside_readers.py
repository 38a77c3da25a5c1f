"""A restore hides commits one after the other; a reader sees all files of a commit, or none."""

from __future__ import annotations

import pytest

from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    add_cleaner,
    add_clusterer,
    add_keeper,
    add_restorer,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.reading_actors import add_reader
from tests.unit.concurrency.simulation.test_interleavings import table_with


@pytest.mark.parametrize("at", share_of(range(0, 100)))
def test_a_file_that_was_cleaned_since_is_missed_by_no_snapshot(at: int) -> None:
    simulation = table_with("a", "b", "c")
    add_keeper(simulation, "keeps the newest but one")
    simulation.run([])
    add_writer(simulation, "later", "a")
    simulation.run([])
    for name, service in (("packer", add_clusterer), ("sweep", add_cleaner)):
        service(simulation, name)
        simulation.run([])
    add_restorer(simulation, "restorer", undone=3)
    simulation.go_on(simulation.actors[-1], at)
    add_reader(simulation, "reader")
    simulation.go_on(simulation.actors[-1])
    simulation.run([])
    assert simulation.restored
    check(simulation)

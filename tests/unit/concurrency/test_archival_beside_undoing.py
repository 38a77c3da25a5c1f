"""An archiver that has lost its lock, beside a restore, a savepoint and a revert, at every operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider.exceptions import NoSuchInstantError, TableError
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, savepoints
from airflow_provider.table.archived_timeline import archived_instants
from airflow_provider.table.hudi_table import HudiTable

from .actors import REVERT, add_archiver, add_clusterer, add_writer
from .invariants import check
from .rows import read_snapshot
from .simulation import Actor, NoLock, Simulation
from .test_interleavings import table_with

COMMITS = 5
ARCHIVERS_STEPS = range(80)
STEPS = range(60)


def table_of_commits() -> tuple[Simulation, list[str]]:
    """All but the newest commit are due."""
    simulation = table_with(*"abcde")
    return simulation, [each.requested_time for each in simulation.table().timeline().commits()]


def run(simulation: Simulation, actor: Actor, steps: int | None = None) -> None:
    """Let one actor move, to its end when None."""
    while not actor.done and steps != 0:
        simulation.step(actor)
        steps = None if steps is None else steps - 1
    if actor.failure is not None:
        raise actor.failure


def run_to(simulation: Simulation, actor: Actor, operation: str) -> None:
    """Let one actor move until it stands before an operation."""
    while operation not in actor.at:
        simulation.step(actor)


class Undoing:
    """Who comes beside an archiver, and what became of it."""

    def __init__(self, simulation: Simulation, undo: Callable[[HudiTable], object]) -> None:
        self.refused: TableError | None = None

        def work(table: HudiTable, actor: Actor) -> None:
            try:
                undo(table)
            except (TableError, NoSuchInstantError) as error:
                self.refused = error

        simulation.add("undoing", work)
        add_archiver(simulation, "archiver")
        self.actor, self.archiver = simulation.actors[-2:]


def beside_an_archiver(
    undo: Callable[[HudiTable], object], simulation: Simulation, order: str, at: int
) -> Undoing:
    """One stands still before an operation of its while the other one does all that it does."""
    undoing = Undoing(simulation, undo)
    first, second = undoing.archiver, undoing.actor
    if order == "it stands still":
        first, second = second, first
    run(simulation, first, at)
    run(simulation, second)
    run(simulation, first)
    return undoing


CASES = [
    *(("the archiver stands still", at) for at in ARCHIVERS_STEPS),
    *(("it stands still", at) for at in STEPS),
]


@pytest.mark.parametrize(("order", "at"), CASES)
def test_a_restore(order: str, at: int) -> None:
    simulation, commits = table_of_commits()
    undoing = beside_an_archiver(
        lambda table: restore(table, commits[1], lock=NoLock()), simulation, order, at
    )
    table = simulation.table()
    archived = {each.requested_time for each in archived_instants(table.storage)}
    left = {each.requested_time for each in table.timeline().commits()}
    rows = read_snapshot(table.storage, table.view())
    if undoing.refused is None:
        assert not archived & set(commits[2:]), "the archive keeps what was undone"
        assert sorted(rows) == ["a", "b"]
        assert archived | left == set(commits[:2])
        assert commits[1] in left
    else:
        assert commits[1] in str(undoing.refused)
        assert sorted(rows) == list("abcde")
        assert archived == set(commits[:-1])
        assert left == set(commits[-1:])


@pytest.mark.parametrize(("order", "at"), CASES)
def test_a_savepoint(order: str, at: int) -> None:
    simulation, commits = table_of_commits()
    undoing = beside_an_archiver(
        lambda table: create_savepoint(table, commits[1], lock=NoLock()), simulation, order, at
    )
    table = simulation.table()
    archived = {each.requested_time for each in archived_instants(table.storage)}
    if undoing.refused is None:
        assert [each.instant for each in savepoints(table)] == [commits[1]], "the savepoint is gone"
        assert sorted(read_snapshot(table.storage, table.view(commits[1]))) == ["a", "b"]
        assert archived == set(commits[:1])
    else:
        assert commits[1] in str(undoing.refused)
        assert savepoints(table) == []
        assert archived == set(commits[:-1])
    check(simulation)


@pytest.mark.parametrize("at", ARCHIVERS_STEPS)
def test_a_revert_of_the_only_commit_that_stays(at: int) -> None:
    # Without a commit before it, its files, which stay for readers, would show as those of an archived one.
    simulation = table_with("a", "b", "c")
    add_clusterer(simulation, "clusterer")
    clusterer = simulation.actors[-1]
    run_to(simulation, clusterer, ".inflight")
    run_to(simulation, clusterer, "put_if_absent .hoodie/commit_log")
    add_writer(simulation, "upsert", "a", policy=REVERT)
    upsert = simulation.actors[-1]
    run_to(simulation, upsert, "put_if_absent .hoodie/commit_log")
    run(simulation, clusterer)
    add_archiver(simulation, "archiver")
    archiver = simulation.actors[-1]
    run(simulation, archiver, at)
    run(simulation, upsert)
    while not archiver.done:
        simulation.step(archiver)
        table = simulation.table()
        assert sorted(read_snapshot(table.storage, table.view())) == ["a", "b", "c"]
    check(simulation)

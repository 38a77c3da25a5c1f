"""Readers beside the undoing of a commit: they see it whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.concurrency.undo import revert, revert_rewrite
from airflow_provider.services.restore import restore
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups import BaseFile
from tests.unit.concurrency.simulation.actors import add_clusterer, add_writer
from tests.unit.concurrency.simulation.rows import read_rows, read_snapshot
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with
from tests.unit.services.compaction.test_compaction_interleavings import check_index, indexed

Undo = Callable[[HudiTable], object]
Rows = dict[str, list[str]]


def clustered(first: Simulation) -> Simulation:
    """A table with a file group to each of three keys, and a clustering of them."""
    simulation = first.copy()
    add_clusterer(simulation, "clusterer")
    simulation.run([])
    return simulation


def upserted(first: Simulation) -> Simulation:
    """A table with an upsert of three file groups."""
    simulation = first.copy()
    add_writer(simulation, "upserts", "abc")
    simulation.run([])
    return simulation


def newest(table: HudiTable) -> str:
    return table.timeline().commits()[-1].requested_time


def for_a_writer_of_higher_priority(table: HudiTable) -> None:
    rewrite = CommitLog(table.storage).newest()
    assert isinstance(rewrite, Commit)
    assert revert_rewrite(table.storage, rewrite) is None


def for_an_aborted_transaction(table: HudiTable) -> None:
    assert revert(table, newest(table), reason="its transaction was aborted")


def to_the_commit_before(table: HudiTable) -> None:
    restore(table, table.timeline().commits()[-2].requested_time, lock=NoLock())


@pytest.fixture(
    params=[
        pytest.param((clustered, for_a_writer_of_higher_priority), id="a clustering, for a writer"),
        pytest.param((clustered, to_the_commit_before), id="a clustering, by a restore"),
        pytest.param((upserted, for_an_aborted_transaction), id="an upsert of an aborted transaction"),
        pytest.param((upserted, to_the_commit_before), id="an upsert, by a restore"),
    ]
)
def undone(request: pytest.FixtureRequest, first: Simulation) -> tuple[Simulation, Undo]:
    """A table, and what undoes its newest commit."""
    made, undo = request.param
    return made(first), undo


@pytest.fixture(params=["files", "no index"])
def first(request: pytest.FixtureRequest) -> Simulation:
    return indexed() if request.param == "files" else table_with("a", "b", "c")


def rows_of(simulation: Simulation) -> Rows:
    storage = simulation.table().storage
    return read_snapshot(storage, HudiTable.at(storage).readable_view())


def undoing(made: Simulation, undo: Undo) -> tuple[Simulation, Actor]:
    simulation = made.copy()
    simulation.add("undoes", lambda table, actor: undo(HudiTable.at(table.storage)))
    return simulation, simulation.actors[-1]


def test_a_reader_that_begins_at_any_step(undone: tuple[Simulation, Undo]) -> None:
    simulation, undoer = undoing(*undone)
    seen = []
    while not undoer.done:
        seen.append(rows_of(simulation))
        simulation.go_on(undoer, 1)
    assert undoer.failure is None
    after = rows_of(simulation)
    turn = seen.index(after)
    assert seen == [seen[0]] * turn + [after] * (len(seen) - turn)
    if HudiTable.at(simulation.table().storage).config.metadata_partitions:
        check_index(simulation)


def test_a_reader_that_stands_still_at_any_step(undone: tuple[Simulation, Undo]) -> None:
    """The undoing runs through meanwhile. Only a data file may be missing then, and the reader says so."""
    before = rows_of(undone[0])
    stands_still_at = 0
    while True:
        simulation, undoer = undoing(*undone)
        seen: list[Rows] = []

        def read(table: HudiTable, actor: Actor, seen: list[Rows] = seen) -> None:
            files = HudiTable.at(table.storage).base_files()
            seen.append(dict(row for each in files for row in rows_in(table, each)))

        simulation.add("reader", read)
        reader = simulation.actors[-1]
        simulation.go_on(reader, stands_still_at)
        if reader.done:
            break
        simulation.go_on(undoer)
        simulation.go_on(reader)
        if not isinstance(reader.failure, FileNotFoundError):
            assert reader.failure is None
            assert seen[0] in (before, rows_of(simulation)), f"it stood still after {stands_still_at} steps"
        stands_still_at += 1
    assert stands_still_at > 5


def rows_in(table: HudiTable, file: BaseFile) -> Iterator[tuple[str, list[str]]]:
    for key, row in read_rows(table.storage, file.path).items():
        yield key, list(row.history)

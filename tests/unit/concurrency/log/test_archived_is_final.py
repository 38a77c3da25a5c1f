"""An actor that was paused for longer than an archival continues: archived instants stay as they are."""

from __future__ import annotations

import pytest

from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import schedule_clustering
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline.archived_timeline import newest_archived
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    EVERYTHING,
    PACK_IN_PAIRS,
    REBASE,
    add_cleaner,
    add_executor,
    add_keeper,
    add_restorer,
    add_sweeper,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.reading_actors import add_reader
from tests.unit.concurrency.simulation.rows import read_snapshot
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with


def life_goes_on(simulation: Simulation) -> None:
    """Let other actors commit, clean, and archive as much as they can."""
    for key in "xyz":
        add_writer(simulation, f"later-{key}", key)
        simulation.go_on(simulation.actors[-1])
    clean_and_archive(simulation)


def clean_and_archive(simulation: Simulation) -> None:
    def work(table: HudiTable, _: Actor) -> None:
        clean(table, EVERYTHING, lock=NoLock())
        archive(table, keep_min=1, keep_max=2, dead_writer_seconds=0, lock=NoLock())

    simulation.add("sweeps", work)
    simulation.go_on(simulation.actors[-1])


def rows(simulation: Simulation) -> dict[str, list[str]]:
    table = simulation.table()
    return read_snapshot(table.storage, table.view())


def check_that_nothing_is_lost(simulation: Simulation, before: dict[str, list[str]]) -> None:
    """Let the next processes roll dead writers back, write, clean and archive, and check the rows."""
    simulation.expire_heartbeats()
    add_sweeper(simulation)
    simulation.go_on(simulation.actors[-1])
    assert rows(simulation) == before
    add_writer(simulation, "last", "w")
    simulation.go_on(simulation.actors[-1])
    clean_and_archive(simulation)
    assert rows(simulation) == {**before, "w": ["last"]}
    check(simulation)


@pytest.mark.parametrize("is_killed", [True, False])
def test_who_claims_an_archived_clustering_does_not_get_it_rolled_back(is_killed: bool) -> None:
    simulation = table_with("a", "b")
    plan = schedule_clustering(simulation.table(), PACK_IN_PAIRS, lock=NoLock())
    assert plan is not None
    add_executor(simulation, "slow")
    slow = simulation.actors[-1]
    simulation.go_on_to(slow, f"put_if_absent .hoodie/.heartbeat/{plan}")
    add_executor(simulation, "quick")
    simulation.go_on(simulation.actors[-1])
    life_goes_on(simulation)
    assert newest_archived(simulation.table().storage) > plan
    before = rows(simulation)
    simulation.step(slow)  # the paused executor has claimed a plan that is archived
    if is_killed:
        simulation.kill(slow)
    else:
        simulation.go_on(slow)
    check_that_nothing_is_lost(simulation, before)


STORAGES = pytest.mark.parametrize("moves_atomically", [True, False], ids=["disk", "object-store"])


def rebased_after_its_entry(moves_atomically: bool = True) -> tuple[Simulation, Actor]:
    """An upsert that lost a file group, replaced it, and has put its entry, of which nothing is published."""
    simulation = table_with("a", "b")
    simulation.moves_atomically = moves_atomically
    add_writer(simulation, "victim", "ab", policy=REBASE)
    victim = simulation.actors[-1]
    simulation.go_on_to(victim, "put_if_absent .hoodie/commit_log/0")
    add_writer(simulation, "rival", "a")
    simulation.go_on(simulation.actors[-1])
    simulation.step(victim)
    simulation.go_on_to(victim, "put_if_absent .hoodie/commit_log/0")
    simulation.step(victim)
    return simulation, victim


@STORAGES
@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("at", share_of(range(0, 24)))
def test_who_publishes_what_is_archived_brings_nothing_back(
    at: int, is_killed: bool, moves_atomically: bool
) -> None:
    """The publisher continues, or is killed right after its next operation, such as a late put."""
    simulation, victim = rebased_after_its_entry(moves_atomically)
    simulation.go_on(victim, at)
    life_goes_on(simulation)
    before = rows(simulation)
    assert before["a"] == ["first-a", "rival", "victim"]
    if not victim.done:
        simulation.step(victim)
    if is_killed and not victim.done:
        simulation.kill(victim)
    simulation.go_on(victim)
    if not is_killed:
        assert not archived_and_on_the_timeline(simulation)
    check_that_nothing_is_lost(simulation, before)


def archived_and_on_the_timeline(simulation: Simulation) -> list[str]:
    """Files of archived instants on the active timeline. A reader that knows only Hudi sees them."""
    storage = simulation.table().storage
    upto = newest_archived(storage)
    return [name for name in storage.names(".hoodie/timeline") if name[:17].isdigit() and name[:17] <= upto]


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("at", share_of(range(0, 60)))
def test_who_helps_to_publish_what_is_archived_brings_nothing_back(at: int, is_killed: bool) -> None:
    simulation, victim = rebased_after_its_entry()
    simulation.kill(victim)
    add_writer(simulation, "helper", "q")
    helper = simulation.actors[-1]
    simulation.go_on(helper, at)
    life_goes_on(simulation)
    if not helper.done:
        simulation.step(helper)
    if is_killed and not helper.done:
        simulation.kill(helper)
    simulation.go_on(helper)
    before = rows(simulation)
    assert before["a"] == ["first-a", "rival", "victim"]
    check_that_nothing_is_lost(simulation, before)


def test_a_commit_that_is_archived_is_kept_by_nobody_who_stood_still() -> None:
    """The savepoint's maker is paused before its put, while the log is trimmed past that place."""
    simulation = table_with("a", "b", "c")
    add_keeper(simulation, "keeper")
    keeper = simulation.actors[-1]
    simulation.go_on_to(keeper, "put_if_absent .hoodie/commit_log/0")
    life_goes_on(simulation)
    simulation.go_on(keeper)
    assert simulation.kept == set()
    assert simulation.table().timeline().savepoints() == ()
    check_that_nothing_is_lost(simulation, rows(simulation))


@pytest.mark.parametrize("at", share_of(range(0, 60)))
def test_a_restore_is_archived_in_the_moment_in_which_a_cleaner_looks_at_it(at: int) -> None:
    simulation = table_with("a", "b", "c")
    add_restorer(simulation, "restorer", undone=1)
    simulation.go_on(simulation.actors[-1])
    add_cleaner(simulation, "cleaner")
    cleaner = simulation.actors[-1]
    simulation.go_on(cleaner, at)
    life_goes_on(simulation)
    simulation.go_on(cleaner)
    check_that_nothing_is_lost(simulation, rows(simulation))


@pytest.mark.parametrize("at", share_of(range(0, 40)))
def test_a_cleaner_has_listed_what_was_undone_and_archived_since(at: int) -> None:
    simulation = table_with("a", "b")
    add_writer(simulation, "aborted", "a", aborted_txn=1)
    aborted = simulation.actors[-1]
    simulation.go_on_to(aborted, f"put_if_absent .hoodie/commit_log/{4:020}")  # its revert
    add_cleaner(simulation, "cleaner")
    cleaner = simulation.actors[-1]
    simulation.go_on(cleaner, at)
    simulation.step(aborted)
    life_goes_on(simulation)
    before = rows(simulation)
    simulation.go_on(cleaner)
    simulation.go_on(aborted)
    assert rows(simulation) == before
    check_that_nothing_is_lost(simulation, before)


@pytest.mark.parametrize("at", range(0, 12))
def test_a_reader_has_listed_what_was_archived_since_on_an_object_store(at: int) -> None:
    simulation = table_with("a", "b")
    simulation.moves_atomically = False
    add_reader(simulation, times=1)
    reader = simulation.actors[-1]
    simulation.go_on(reader, at)
    life_goes_on(simulation)
    simulation.go_on(reader)
    assert reader.failure is None
    (read,) = simulation.observed["reader"]
    assert read.rows.keys() >= {"a", "b"}


@pytest.mark.parametrize("at", range(20, 40))
def test_a_writer_whose_rollback_is_archived_is_told_that_it_was_rolled_back(at: int) -> None:
    """The error is not that a file is missing."""
    simulation = table_with("a", "b")
    add_writer(simulation, "slow", "abn")
    slow = simulation.actors[-1]
    simulation.go_on(slow, at)
    simulation.expire_heartbeats()
    life_goes_on(simulation)
    simulation.go_on(slow)
    assert slow.failure is None  # or an error of its own, such as InstantRolledBackError

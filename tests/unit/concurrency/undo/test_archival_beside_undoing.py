"""An archiver that has lost its lock, beside restores, savepoints and reverts, at any operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.log.log_entry import Archival
from airflow_provider.concurrency.plans.service_failures import log_head
from airflow_provider.exceptions import NoSuchInstantError, TableError
from airflow_provider.services.archival import archive
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, savepoints
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline.archived_timeline import archived_instants
from airflow_provider.table.timeline.instant import Action
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    REVERT,
    add_archiver,
    add_clusterer,
    add_restorer,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.rows import read_snapshot
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with

AN_ARCHIVERS_STEPS = range(0, 120, 2)
CASES = [
    *(("the archiver", at) for at in share_of(AN_ARCHIVERS_STEPS)),
    *(("the other one", at) for at in share_of(range(0, 80, 2))),
]
ENTRY = "put_if_absent .hoodie/commit_log/0"


def table_of_commits() -> tuple[Simulation, list[str]]:
    """A table of which all commits but the newest are due for archival."""
    simulation = table_with(*"abcde")
    return simulation, [each.requested_time for each in simulation.table().timeline().commits()]


def archived(simulation: Simulation) -> set[str]:
    return {each.requested_time for each in archived_instants(simulation.table().storage)}


def on_timeline(simulation: Simulation) -> set[str]:
    return {each.requested_time for each in simulation.table().timeline().commits()}


def rows(simulation: Simulation, instant: str | None = None) -> str:
    table = simulation.table()
    return "".join(sorted(read_snapshot(table.storage, table.view(instant))))


def beside_an_archiver(
    simulation: Simulation, work: Callable[[HudiTable], object], stands_still: str, at: int
) -> TableError | None:
    """Pause one of the two before an operation, while the other does all its work.

    :return: the reason why the work was refused.
    """
    refused: list[TableError] = []

    def tried(table: HudiTable, actor: Actor) -> None:
        try:
            work(table)
        except TableError as error:
            refused.append(error)

    simulation.add("the other one", tried)
    add_archiver(simulation, "the archiver")
    first, second = sorted(simulation.actors[-2:], key=lambda actor: actor.name != stands_still)
    simulation.go_on(first, at)
    assert first.done or at < max(last for who, last in CASES if who == stands_still), "it takes more steps"
    simulation.go_on(second)
    simulation.go_on(first)
    check(simulation)
    return refused[0] if refused else None


@pytest.mark.parametrize(("stands_still", "at"), CASES)
def test_a_restore(stands_still: str, at: int) -> None:
    simulation, commits = table_of_commits()
    back_to = commits[1]
    refused = beside_an_archiver(simulation, lambda t: restore(t, back_to, lock=NoLock()), stands_still, at)
    if refused is None:
        assert rows(simulation) == "ab"
        assert archived(simulation) <= {commits[0]}, "what was undone is none of the archive's"
        assert back_to in on_timeline(simulation)
    else:
        assert back_to in str(refused)
        assert rows(simulation) == "abcde"
        assert (archived(simulation), on_timeline(simulation)) == (set(commits[:-1]), {commits[-1]})


@pytest.mark.parametrize(("stands_still", "at"), CASES)
def test_a_savepoint(stands_still: str, at: int) -> None:
    simulation, commits = table_of_commits()
    kept = commits[1]
    refused = beside_an_archiver(
        simulation, lambda table: create_savepoint(table, kept, lock=NoLock()), stands_still, at
    )
    if refused is None:
        assert [each.instant for each in savepoints(simulation.table())] == [kept]
        assert rows(simulation, kept) == "ab"
        assert archived(simulation) == {commits[0]}
    else:
        assert kept in str(refused)
        assert savepoints(simulation.table()) == []
        assert archived(simulation) == set(commits[:-1])


@pytest.mark.parametrize("at", share_of(AN_ARCHIVERS_STEPS))
def test_a_revert_of_the_only_commit_that_stays(at: int) -> None:
    # Its files are left to readers: with no commit before them they would show as an archived one's.
    simulation = table_with("a", "b", "c")
    add_clusterer(simulation, "clusterer")
    add_writer(simulation, "upsert", "a", policy=REVERT)
    clusterer, upsert = simulation.actors[-2:]
    simulation.go_on_to(clusterer, ".inflight")
    simulation.go_on_to(clusterer, ENTRY)
    simulation.go_on_to(upsert, ENTRY)
    simulation.go_on(clusterer)
    add_archiver(simulation, "archiver")
    archiver = simulation.actors[-1]
    simulation.go_on(archiver, at)
    simulation.go_on(upsert)
    while not archiver.done:
        simulation.step(archiver)
        assert rows(simulation) == "abc"
    check(simulation)
    assert {"upsert"} <= simulation.committed()


def test_a_restore_that_would_undo_the_oldest_commit() -> None:
    # Its files would be older than the timeline, and be taken for an archived commit's until they are gone.
    simulation = Simulation()
    for name, keys in (("slow", "ab"), ("fast", "c")):
        add_writer(simulation, name, keys)
    slow, fast = simulation.actors
    simulation.go_on_to(slow, ENTRY)
    simulation.go_on(fast)
    simulation.go_on(slow)
    back_to, undone = (each.requested_time for each in simulation.table().timeline().commits())
    with pytest.raises(TableError, match=f"commit {undone}, which completed later, is its oldest"):
        restore(simulation.table(), back_to, lock=NoLock())
    assert rows(simulation) == "abc"


class TestWhoDiesAfterItsEntry:
    """An archiver that dies after its entry: the next archival continues up to the same instant."""

    @pytest.fixture
    def simulation(self) -> Simulation:
        """An archiver has died right after its entry, and a writer has committed since."""
        simulation, _ = table_of_commits()
        add_archiver(simulation, "archiver")
        archiver = simulation.actors[-1]
        simulation.go_on_to(archiver, ENTRY)
        simulation.step(archiver)
        simulation.kill(archiver)
        add_writer(simulation, "later", "f")
        simulation.run([])
        return simulation

    def test_nothing_of_what_it_was_to_take_off_is_undone_or_kept(self, simulation: Simulation) -> None:
        table = simulation.table()
        *leaving, _, _ = (each.requested_time for each in table.timeline().commits())
        for instant in leaving:
            with pytest.raises(NoSuchInstantError, match=f"{instant}.* just being archived"):
                restore(table, instant, lock=NoLock())
            with pytest.raises(NoSuchInstantError, match=f"{instant}.* just being archived"):
                create_savepoint(table, instant, lock=NoLock())
        assert rows(simulation) == "abcdef"

    def test_what_stays_is(self, simulation: Simulation) -> None:
        table = simulation.table()
        *leaving, stays, undone = (each.requested_time for each in table.timeline().commits())
        create_savepoint(table, stays, lock=NoLock())
        assert restore(table, stays, lock=NoLock()).plan.undone[0].requested_time == undone
        assert rows(simulation) == "abcde"
        archive(table, lock=NoLock())
        assert (archived(simulation), on_timeline(simulation)) == (set(leaving), {stays})
        check(simulation)

    def test_the_next_one_goes_on_there_whatever_is_due_for_it(self, simulation: Simulation) -> None:
        *leaving, stays, later = (each.requested_time for each in simulation.table().timeline().commits())
        head = CommitLog(simulation.table().storage).head()
        archive(simulation.table(), lock=NoLock())
        assert CommitLog(simulation.table().storage).head() == head
        assert (archived(simulation), on_timeline(simulation)) == (set(leaving), {stays, later})
        check(simulation)


def test_who_died_before_there_were_entries() -> None:
    """An archiver of an earlier version has written the history, and removed no instant."""
    simulation, commits = table_of_commits()
    add_archiver(simulation, "archiver")
    archiver = simulation.actors[-1]
    simulation.go_on_to(archiver, "delete .hoodie/timeline/2")
    simulation.kill(archiver)
    entry = simulation.entries()[-1]
    assert entry.action is Action.ARCHIVE
    simulation.table().storage.delete(f".hoodie/commit_log/{entry.sequence:020d}.json")
    table = simulation.copy().table()
    with pytest.raises(NoSuchInstantError, match="just being archived"):
        restore(table, commits[1], lock=NoLock())
    with pytest.raises(NoSuchInstantError, match="just being archived"):
        create_savepoint(table, commits[1], lock=NoLock())


class TestACommitThatWasRequestedEarlyAndCompletedLate:
    """Once such a commit is archived every view shows it, also that of a commit that completed before."""

    @pytest.fixture
    def simulation(self) -> Simulation:
        simulation = table_with("a")
        for name, keys in (("slow", "b"), ("fast", "c")):
            add_writer(simulation, name, keys)
        slow, fast = simulation.actors[-2:]
        simulation.go_on_to(slow, ENTRY)
        simulation.go_on(fast)
        simulation.go_on(slow)
        add_writer(simulation, "last", "d")
        simulation.run([])
        return simulation

    @pytest.fixture
    def fast_and_slow(self, simulation: Simulation) -> list[str]:
        found = [each.requested_time for each in simulation.table().timeline().commits()[1:3]]
        assert found[0] > found[1]
        return found

    @pytest.mark.parametrize("dies", [True, False], ids=["being-archived", "archived"])
    def test_the_one_before_it_is_neither_gone_back_to_nor_kept(
        self, simulation: Simulation, fast_and_slow: list[str], dies: bool
    ) -> None:
        def keeps_two(table: HudiTable, _: Actor) -> None:
            archive(table, keep_min=2, keep_max=3, lock=NoLock())

        fast, slow = fast_and_slow
        simulation.add("archiver", keeps_two)
        archiver = simulation.actors[-1]
        simulation.go_on_to(archiver, ENTRY)
        simulation.step(archiver)
        assert simulation.entries()[-1].archived == slow
        if dies:
            simulation.kill(archiver)
        simulation.go_on(archiver)
        for undo in (restore, create_savepoint):
            with pytest.raises(TableError, match=f"{slow}, which completed later, was archived"):
                undo(simulation.table(), fast, lock=NoLock())

    def test_the_snapshot_of_the_one_before_it_is_not_told_with_it(
        self, simulation: Simulation, fast_and_slow: list[str]
    ) -> None:
        fast, slow = fast_and_slow
        table = simulation.table()
        before = table.base_files(fast)
        archive(table, keep_min=2, keep_max=3, lock=NoLock())
        assert slow not in on_timeline(simulation)
        assert table.base_files(fast) == before
        last = table.timeline().commits()[-1].requested_time
        assert {each.path for each in before} < {each.path for each in table.base_files(last)}
        # Completion times may be ahead of the clock here, where a commit takes less than they have to differ.
        assert table.base_files(table.timeline().newest_completion) == table.base_files()

    def test_it_stays_with_a_savepoint_of_the_one_before_it(
        self, simulation: Simulation, fast_and_slow: list[str]
    ) -> None:
        fast, slow = fast_and_slow
        create_savepoint(simulation.table(), fast, lock=NoLock())
        plan = archive(simulation.table(), keep_min=1, keep_max=2, lock=NoLock())
        assert plan.held_by == f"savepoint {fast} keeps it"
        assert slow in on_timeline(simulation)
        assert rows(simulation, fast) == "ac"
        restore(simulation.table(), fast, lock=NoLock())
        assert rows(simulation) == "ac"


def test_who_stood_still_before_its_entry_until_the_log_was_trimmed_archives_nothing() -> None:
    # What it has planned may have been undone since.
    simulation, commits = table_of_commits()
    add_archiver(simulation, "asleep")
    asleep = simulation.actors[-1]
    simulation.go_on_to(asleep, ENTRY)
    add_restorer(simulation, "restorer", undone=3)
    simulation.go_on(simulation.actors[-1])
    for keys in "xyz":
        add_writer(simulation, f"later-{keys}", keys)
        simulation.go_on(simulation.actors[-1])
    archive(simulation.table(), keep_min=1, keep_max=2, dead_writer_seconds=0, lock=NoLock())
    assert CommitLog(simulation.table().storage).trimmed() > len(commits)
    assert archived(simulation) >= set(commits[:2])
    simulation.go_on(asleep)
    assert not archived(simulation) & set(commits[2:])
    check(simulation)


def test_an_archival_is_no_change_of_the_table() -> None:
    simulation, _ = table_of_commits()
    table = simulation.table()
    base, before = Moment.now(table.storage), log_head(table)
    archive(table, keep_min=1, keep_max=2, lock=NoLock())
    moment = Moment.now(table.storage)
    assert (moment.changes_since(base), moment.sequence) == ([], base.sequence + 1)
    assert isinstance(moment.newest, Archival)
    assert not moment.newest.shown_or_hidden
    assert log_head(table) != before
    assert log_head(table).endswith(moment.newest.completion_time)

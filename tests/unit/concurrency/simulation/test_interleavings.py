"""Interleavings with a name: promises at each point, and mistakes of the past."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider.concurrency import CommitLog, ConflictPolicy
from airflow_provider.concurrency.log.log_entry import Revert
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    FAIL,
    REBASE,
    REVERT,
    add_cleaner,
    add_clusterer,
    add_sweeper,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.reading_actors import add_leased_reader, add_reader
from tests.unit.concurrency.simulation.rows import PARTITION, read_snapshot
from tests.unit.concurrency.simulation.scheduler import Simulation


def table_with(*groups: str) -> Simulation:
    """A table with one file group for each group of keys."""
    simulation = Simulation()
    for keys in groups:
        add_writer(simulation, f"first-{keys}", keys)
        simulation.run([])
    return simulation


def two_writers(one: str, other: str, schedule: list[int], policy: ConflictPolicy = FAIL) -> Simulation:
    simulation = table_with("a", "b")
    add_writer(simulation, "w0", one, policy=policy)
    add_writer(simulation, "w1", other, policy=policy)
    simulation.run(schedule)
    check(simulation)
    return simulation


TURNS = [0, 1] * 200
TOGETHER = [0] * 12 + [1] * 200  # w0 has planned when w1 begins and commits


def test_a_writer_alone_commits() -> None:
    simulation = Simulation()
    add_writer(simulation, "w0", "ab")
    simulation.run([])
    check(simulation)
    assert simulation.committed() == {"w0"}


def test_of_two_writers_of_one_file_group_one_wins() -> None:
    assert len(two_writers("a", "a", TOGETHER).committed() & {"w0", "w1"}) == 1


@pytest.mark.parametrize("schedule", [TURNS, TOGETHER], ids=["turns", "together"])
def test_of_two_writers_of_one_file_group_the_second_rebases(schedule: list[int]) -> None:
    assert {"w0", "w1"} <= two_writers("a", "a", schedule, REBASE).committed()


def test_writers_of_different_file_groups_both_commit() -> None:
    assert {"w0", "w1"} <= two_writers("a", "b", TURNS).committed()


@pytest.mark.parametrize("policy", [FAIL, REBASE], ids=["raise", "rebase"])
def test_the_same_new_key_in_two_new_file_groups_is_a_conflict(policy: ConflictPolicy) -> None:
    simulation = two_writers("n", "n", TOGETHER, policy)
    assert len(simulation.committed() & {"w0", "w1"}) == (2 if policy is REBASE else 1)


@pytest.mark.parametrize("lost_again_at", share_of(range(0, 60, 2)))
def test_a_rebase_that_loses_again(lost_again_at: int) -> None:
    # w0 was requested first. After it has lost against w1 its merge goes into a new file group, because w1's
    # slice would hide it. Then w0 loses the file group that it replaced to w2.
    simulation = table_with("a")
    for name in ("w0", "w1", "w2"):
        add_writer(simulation, name, "a", policy=REBASE)
    simulation.run([0] * 12 + [1] * 60 + [0] * lost_again_at + [1] * 60)
    check(simulation)
    assert {"w0", "w1", "w2"} <= simulation.committed()


@pytest.mark.parametrize("committed_at", share_of(range(0, 90, 2)))
@pytest.mark.parametrize("policy", [REBASE, REVERT], ids=["rebase", "revert"])
def test_an_upsert_at_every_point_of_a_clustering_s_life(policy: ConflictPolicy, committed_at: int) -> None:
    # Whether the clustering has planned, runs or has completed: the upsert of higher priority commits.
    simulation = table_with("a", "b")
    add_writer(simulation, "upsert", "a", policy=policy)
    add_clusterer(simulation, "clusterer")
    simulation.run([0] * 12 + [1] * committed_at + [0] * 80)
    check(simulation)
    assert "upsert" in simulation.committed()


def test_a_completed_clustering_is_reverted_by_an_upsert_that_asks_for_it() -> None:
    simulation = table_with("a", "b")
    add_writer(simulation, "upsert", "a", policy=REVERT)
    add_clusterer(simulation, "clusterer")
    simulation.run([0] * 12 + [1] * 200)
    check(simulation)
    assert any(isinstance(entry, Revert) for entry in CommitLog(simulation.table().storage).after(0))
    assert {base.file_id[:5] for base in simulation.table().view().base_files(PARTITION)} == {"first"}


def test_a_clean_keeps_what_a_reverted_clustering_has_written_for_a_writer_that_is_based_on_it() -> None:
    simulation = table_with("a", "b")
    add_writer(simulation, "reverts", "a", policy=REVERT)
    reverts = simulation.actors[-1]
    simulation.go_on_to(reverts, ".inflight")
    add_clusterer(simulation, "clusterer")
    simulation.go_on(simulation.actors[-1])
    add_writer(simulation, "upserts", "a")
    upserts = simulation.actors[-1]
    simulation.go_on_to(upserts, f"list {PARTITION}")  # it knows the timeline, but not yet the files
    while not any(isinstance(entry, Revert) for entry in simulation.entries()):
        simulation.step(reverts)
    for add, name in ((add_writer, "publishes"), (add_cleaner, "sweeps")):
        add(simulation, name, *(("b",) if add is add_writer else ()))
        simulation.go_on(simulation.actors[-1])
    simulation.go_on(upserts)
    simulation.run([])
    check(simulation)
    # Without the file it found no row with the key, and put one into a second file group.
    assert "upserts" not in simulation.committed()


def test_who_helps_a_plan_and_wakes_up_when_it_is_carried_out() -> None:
    # Nobody mistakes the commit's staged file for the plan, which was moved long ago.
    simulation = table_with("a", "b")
    add_clusterer(simulation, "clusterer")
    add_leased_reader(simulation, "helper")
    clusterer, helper = simulation.actors[-2:]
    for actor, stands_before in [
        (clusterer, ".clustering.requested"),
        (helper, "link_if_absent"),
        (clusterer, "put_if_absent .hoodie/commit_log"),
    ]:
        simulation.go_on_to(actor, stands_before)
    simulation.step(helper)
    simulation.run([])
    check(simulation)
    assert not simulation.table().timeline().pending()


def test_a_clustering_that_was_written_to_is_not_reverted() -> None:
    simulation = table_with("a", "b")
    add_writer(simulation, "upsert", "a", policy=REVERT)
    add_clusterer(simulation, "clusterer")
    add_writer(simulation, "other", "b")
    simulation.run([0] * 12 + [1] * 200 + [1] * 200)
    check(simulation)
    assert {"upsert", "other"} <= simulation.committed()
    assert not any(isinstance(entry, Revert) for entry in CommitLog(simulation.table().storage).after(0))


@pytest.mark.parametrize("began_at", share_of(range(0, 60, 2)))
@pytest.mark.parametrize("policy", [FAIL, REBASE], ids=["raise", "rebase"])
@pytest.mark.parametrize("keys", ["a", "ab", "n"], ids=["same-group", "two-groups", "new-key"])
def test_an_upsert_at_every_point_of_a_transaction_that_is_aborted(
    keys: str, policy: ConflictPolicy, began_at: int
) -> None:
    # Whatever the upsert does, it has no row of the transaction, and loses nothing by the abort.
    simulation = table_with("a", "b")
    add_writer(simulation, "txn", "an", aborted_txn=7)
    add_writer(simulation, "upsert", keys, policy=policy)
    add_reader(simulation)
    simulation.run([0] * began_at + [1] * 80 + [2] * 80)
    check(simulation)
    assert "txn" not in simulation.committed()


@pytest.mark.parametrize("stands_at", share_of(range(0, 60, 2)))
@pytest.mark.parametrize("policy", [FAIL, REBASE], ids=["raise", "rebase"])
@pytest.mark.parametrize("keys", ["a", "n"], ids=["same-group", "same-new-key"])
def test_an_upsert_under_way_is_not_rebased_onto_a_transaction(
    keys: str, policy: ConflictPolicy, stands_at: int
) -> None:
    # The upsert has planned; the transaction writes, and stands before or in the middle of its abort.
    simulation = table_with("a", "b")
    add_writer(simulation, "txn", "an", aborted_txn=7)
    add_writer(simulation, "upsert", keys, policy=policy)
    simulation.run([1] * 12 + [0] * stands_at + [1] * 80)
    check(simulation)
    assert "txn" not in simulation.committed()


def moment(at: str, *, of: Callable[[Simulation], None]) -> int:
    """The number of operations after which an actor that runs alone stands before a certain operation."""
    simulation = table_with("a", "b")
    before = len(simulation.trace)
    of(simulation)
    simulation.run([])
    return next(number for number, step in enumerate(simulation.trace[before:]) if at in step)


def count_operations(of: Callable[[Simulation], None]) -> int:
    """The number of operations of an actor that runs alone."""
    simulation = table_with("a", "b")
    before = len(simulation.trace)
    of(simulation)
    simulation.run([])
    return len(simulation.trace) - before


def w0(simulation: Simulation) -> None:
    add_writer(simulation, "w0", "ab")


def w0_of_one_group(simulation: Simulation) -> None:
    add_writer(simulation, "w0", "a")


ALL = count_operations(w0)
OF_ONE_GROUP = count_operations(w0_of_one_group)
BEGUN = moment("put_if_absent .hoodie/.heartbeat", of=w0) + 4  # and has read the log again
COMMITTED = moment("put_if_absent .hoodie/commit_log", of=w0) + 1


@pytest.mark.parametrize("killed_at", share_of(range(ALL)))
def test_killed_at_every_operation(killed_at: int) -> None:
    simulation = two_writers("ab", "b", [0] * killed_at + [900])
    assert "w1" in simulation.committed()


@pytest.mark.parametrize("killed_at", share_of(range(OF_ONE_GROUP)))
@pytest.mark.parametrize("other_at", [9, 12, 16])
def test_killed_at_every_operation_beside_a_writer_under_way(killed_at: int, other_at: int) -> None:
    # w1 has begun already, so that only its own commit can find what w0 left unpublished.
    simulation = two_writers("a", "b", [1] * other_at + [0] * killed_at + [900] + [0] * 80)
    assert "w1" in simulation.committed()


@pytest.mark.parametrize("paused_at", share_of(range(ALL)))
@pytest.mark.parametrize("other", ["ab", "new"], ids=["same-groups", "other-group"])
def test_paused_past_its_heartbeat_at_every_operation(paused_at: int, other: str) -> None:
    # w0 stands still after `paused_at` operations; its heartbeat expires; w1 comes, rolls it
    # back and commits; then w0 wakes up and has to lose, whatever the groups are.
    simulation = two_writers("ab", other, [0] * paused_at + [950] + [1] * 150)
    committed = simulation.committed()
    assert "w1" in committed
    if BEGUN <= paused_at < COMMITTED:
        assert "w0" not in committed
    else:
        assert "w0" in committed


@pytest.mark.parametrize("paused_at", share_of(range(BEGUN, COMMITTED + 1)))
@pytest.mark.parametrize("swept", range(1, 24))
def test_a_rollback_races_a_commit(paused_at: int, swept: int) -> None:
    # w0 wakes up in the middle of its rollback, before and after the rollback's log entry:
    # its data files may be gone only if it can no more commit.
    two_writers("a", "a", [0] * paused_at + [950] + [1] * swept + [0] * 60)


def test_a_late_writer_loses_an_answer_while_it_deletes_what_its_rollback_did_not_find() -> None:
    """Nobody else would find the other file, and readers would show it once the timeline starts later."""
    simulation = table_with("a", "b")
    add_writer(simulation, "late", "ab")
    late = simulation.actors[-1]
    simulation.go_on_to(late, "put p/")
    simulation.expire_heartbeats()
    add_sweeper(simulation)
    simulation.go_on(simulation.actors[-1])
    simulation.go_on_to(late, "delete p/")
    late.loses_answer = True
    simulation.run([])
    assert late.has_lost_answer
    check(simulation)


@pytest.mark.parametrize("at", range(0, 30))
def test_a_moment_names_one_commit(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider.concurrency.log.instant_time.now", lambda _: "20261122123000000")
    simulation = table_with("a", "b")
    add_writer(simulation, "w0", "a")
    add_writer(simulation, "w1", "b")
    first, second = simulation.actors[-2:]
    for actor, steps in ((first, at), (second, 15), (first, None), (second, None)):
        simulation.go_on(actor, steps)
    check(simulation)
    table = simulation.table()
    commits = table.timeline().commits()
    times = [time for each in commits for time in (each.requested_time, each.completion_time)]
    assert len(commits) == 4
    assert len(set(times)) == 2 * len(commits)
    shown: set[str] = set()
    for commit in commits:
        shown.add(simulation.writes[commit.requested_time].writer)
        for moment in (commit.requested_time, commit.completion_time):
            rows = read_snapshot(table.storage, table.view(moment))
            assert set().union(*rows.values()) == shown


def test_a_time_of_two_of_another_writers_commits_is_that_of_the_request() -> None:
    times = [f"2026112212300000{number}" for number in range(1, 4)]
    earlier = Instant(times[0], Action.COMMIT, State.COMPLETED, times[1])
    later = Instant(times[1], Action.COMMIT, State.COMPLETED, times[2])
    assert Timeline(Simulation().table().storage, [earlier, later]).bound(times[1]) == times[2]

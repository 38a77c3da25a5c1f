"""A clean, a savepoint and a restore, killed or overtaken before every one of their storage operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from airflow_provider.concurrency import CommitLog, ConflictPolicy, rollback_dead_writers
from airflow_provider.concurrency.commit.publish import publish_head
from airflow_provider.concurrency.log.log_entry import Plan, Restore
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.services.cleaning.cleaning import clean, pending_cleans
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint, savepoints
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.incremental import Order, increment
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.metadata import decode
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import (
    EVERYTHING,
    FAIL,
    REBASE,
    add_cleaner,
    add_clusterer,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import recover
from tests.unit.concurrency.simulation.rows import PARTITION, read_snapshot
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation

Snapshot = dict[str, list[str]]


def written() -> tuple[Simulation, list[str], list[Snapshot]]:
    """A table, its commits (insert, update, clustering, update), and its rows after each."""
    made, commits, snapshots = _written()
    return made.copy(), list(commits), list(snapshots)


@cache
def _written() -> tuple[Simulation, list[str], list[Snapshot]]:
    simulation = Simulation()
    snapshots = []
    for name, keys in (("w0", "ab"), ("w1", "ad"), ("", ""), ("w2", "bc")):
        if name:
            add_writer(simulation, name, keys)
        else:
            add_clusterer(simulation, "clusterer")
        simulation.run([])
        snapshots.append(seen(simulation))
    commits = simulation.table().timeline().commits()
    return simulation, [commit.requested_time for commit in commits], snapshots


def seen(simulation: Simulation) -> Snapshot:
    table = simulation.table()
    return read_snapshot(table.storage, table.view())


def count_operations(of: Callable[[Simulation, list[str]], None]) -> int:
    simulation, commits, _ = written()
    before = len(simulation.trace)
    of(simulation, commits)
    simulation.run([])
    return len(simulation.trace) - before


def add_clean(simulation: Simulation, commits: list[str]) -> None:
    add_cleaner(simulation, "cleaner")


def add_savepoint(simulation: Simulation, commits: list[str]) -> None:
    def work(table: HudiTable, actor: Actor) -> None:
        create_savepoint(table, commits[1], comments="before the month's end", lock=NoLock())

    simulation.add("savepoint", work)


def add_restore(simulation: Simulation, commits: list[str]) -> None:
    def work(table: HudiTable, actor: Actor) -> None:
        restore(table, commits[1], lock=NoLock())

    simulation.add("restore", work)


@pytest.mark.parametrize("killed_at", share_of(range(count_operations(add_clean))))
def test_a_killed_clean_is_finished_by_the_next_by_the_same_plan(killed_at: int) -> None:
    simulation, commits, snapshots = written()
    add_clean(simulation, commits)
    simulation.run([0] * killed_at + [900])
    simulation.expire_heartbeats()
    assert seen(simulation) == snapshots[-1]
    table = simulation.table()
    publish_head(table.storage, CommitLog(table.storage))
    rollback_dead_writers(table)
    begun = [i.requested_time for i in table.timeline().instants if i.action is Action.CLEAN]
    clean(table, EVERYTHING, lock=NoLock())
    assert pending_cleans(table) == []
    done = [i for i in table.timeline().completed() if i.action is Action.CLEAN]
    assert [i.requested_time for i in done] == (begun or [i.requested_time for i in done])
    assert len(done) == 1
    deleted = decode(table.timeline().read(done[0]))["partitionMetadata"][PARTITION]["successDeleteFiles"]
    left = {status.name for status in table.storage.list(PARTITION) if status.name.endswith(".parquet")}
    assert len(deleted) == 4
    assert left == {base.path.rpartition("/")[2] for base in table.view().base_files(PARTITION)}
    assert seen(simulation) == snapshots[-1]


@pytest.mark.parametrize("overtaken_at", share_of(range(0, count_operations(add_clean), 2)))
def test_two_cleaners_complete_a_plan_once(overtaken_at: int) -> None:
    simulation, commits, snapshots = written()
    add_clean(simulation, commits)
    add_clean(simulation, commits)
    simulation.run([0] * overtaken_at + [1] * 200)
    assert not [actor.failure for actor in simulation.actors if actor.failure]
    completed = [
        e.instant for e in recover(simulation) if e.action is Action.CLEAN and not isinstance(e, Plan)
    ]
    assert len(completed) == len(set(completed)) >= 1
    assert pending_cleans(simulation.table()) == []
    assert seen(simulation) == snapshots[-1]


@pytest.mark.parametrize("killed_at", share_of(range(count_operations(add_savepoint))))
def test_a_killed_savepoint_is_there_or_not(killed_at: int) -> None:
    simulation, commits, snapshots = written()
    add_savepoint(simulation, commits)
    simulation.run([0] * killed_at + [900])
    table = simulation.table()
    publish_head(table.storage, CommitLog(table.storage))
    kept = [savepoint.instant for savepoint in savepoints(table)]
    assert kept in ([], [commits[1]])
    clean(table, EVERYTHING, lock=NoLock())
    if kept:
        assert read_snapshot(table.storage, table.view(commits[1])) == snapshots[1]
        restore(table, commits[1], lock=NoLock())
        assert seen(simulation) == snapshots[1]


@pytest.mark.parametrize("overtaken_at", share_of(range(count_operations(add_savepoint))))
@pytest.mark.parametrize("for_so_long", [20, 40, 200])
def test_a_savepoint_comes_before_a_clean_or_is_refused(overtaken_at: int, for_so_long: int) -> None:
    simulation, commits, snapshots = written()
    add_savepoint(simulation, commits)
    add_clean(simulation, commits)
    simulation.run([0] * overtaken_at + [1] * for_so_long + [0] * 100)
    savepoint, cleaner = simulation.actors[-2:]
    assert cleaner.failure is None
    table = simulation.table()
    if savepoint.failure is None:
        assert read_snapshot(table.storage, table.view(commits[1])) == snapshots[1]
    else:
        assert "took" in str(savepoint.failure)
        assert savepoints(table) == []


def test_a_deleted_savepoint_does_not_come_back() -> None:
    simulation, commits, snapshots = written()
    add_savepoint(simulation, commits)
    simulation.run([])
    table = simulation.table()
    delete_savepoint(table, commits[1])
    publish_head(table.storage, CommitLog(table.storage))
    assert savepoints(table) == []
    assert create_savepoint(table, commits[1], lock=NoLock()).files == len(
        table.view(commits[1]).base_files(PARTITION)
    )
    assert seen(simulation) == snapshots[-1]


@pytest.mark.parametrize("killed_at", share_of(range(count_operations(add_restore))))
def test_a_killed_restore_is_done_or_finished_by_the_next_writer(killed_at: int) -> None:
    simulation, commits, snapshots = written()
    add_restore(simulation, commits)
    simulation.run([0] * killed_at + [900])
    assert seen(simulation) in (snapshots[1], snapshots[-1]), "what is in between may have been cleaned"
    simulation.expire_heartbeats()
    add_writer(simulation, "next", "c")
    simulation.run([])
    table = simulation.table()
    undone = any(isinstance(entry, Restore) for entry in CommitLog(table.storage).backwards())
    found = snapshots[1] if undone else snapshots[-1]
    assert seen(simulation) == {**found, "c": [*found.get("c", []), "next"]}
    actions = [i.action for i in table.timeline().completed() if i.action is Action.RESTORE]
    assert actions == [Action.RESTORE] * undone
    if undone:
        parsed = {status.name.rpartition("_")[2] for status in table.storage.list(PARTITION)}
        assert not {f"{commit}.parquet" for commit in commits[2:]} & parsed
    # A process that dies between the two steps of a move leaves a file that is already moved; archival
    # deletes it.
    completed = {instant.requested_time for instant in table.timeline().completed()}
    staged = (path.rpartition("/")[2] for path in simulation.files if "staged" in path)
    assert {name.partition(".")[0] for name in staged} <= completed


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("killed_at", share_of(range(count_operations(add_restore))))
def test_a_consumer_sees_all_or_none_of_what_a_restore_undoes(killed_at: int, order: Order) -> None:
    simulation, commits, _ = written()
    add_restore(simulation, commits)
    simulation.run([0] * killed_at + [900])
    found = increment(simulation.table(), order=order)
    assert [commit.requested_time for commit in found.commits] in (commits, commits[:2])


@pytest.mark.parametrize("policy", [FAIL, REBASE], ids=["raise", "rebase"])
@pytest.mark.parametrize("restore_at", share_of(range(0, count_operations(add_restore), 2)))
@pytest.mark.parametrize("writer_at", [6, 12, 20, 200])
def test_a_writer_that_begins_within_a_restore(
    writer_at: int, restore_at: int, policy: ConflictPolicy
) -> None:
    # The write commits before the restore and is undone, or loses, or is based on the restored snapshot.
    simulation, commits, snapshots = written()
    add_restore(simulation, commits)
    add_writer(simulation, "upsert", "a", policy=policy)
    simulation.run([0] * restore_at + [1] * writer_at + [0] * 200)
    assert not [actor.failure for actor in simulation.actors if actor.failure]
    entries = recover(simulation)
    lasting = [entry.instant for entry in entries if entry.instant in simulation.acknowledged]
    restored = next((number for number, entry in enumerate(entries) if isinstance(entry, Restore)), None)
    before = snapshots[-1] if restored is None else snapshots[1]
    came_after = {entry.instant for entry in entries[restored or 0 :]}
    is_there = any(simulation.writes[i].writer == "upsert" for i in lasting if i in came_after)
    assert seen(simulation) == ({**before, "a": [*before["a"], "upsert"]} if is_there else before)


@pytest.mark.parametrize("restore_at", share_of(range(0, count_operations(add_restore), 2)))
def test_a_clustering_that_begins_within_a_restore_brings_nothing_back(restore_at: int) -> None:
    # A clustering could commit without a part, but not after a restore: the rows that it has read may be
    # undone.
    simulation = Simulation()
    for key in "abcd":
        add_writer(simulation, f"first-{key}", key)
        simulation.run([])
    commits = [commit.requested_time for commit in simulation.table().timeline().commits()]
    before = simulation.copy()
    for clusterer_at in range(66, 86, 4):
        simulation = before.copy()
        add_restore(simulation, commits)
        add_clusterer(simulation, "clusterer")
        simulation.run([0] * restore_at + [1] * clusterer_at + [0] * 200)
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        is_restored = any(isinstance(entry, Restore) for entry in recover(simulation))
        assert seen(simulation) == {key: [f"first-{key}"] for key in ("ab" if is_restored else "abcd")}


def test_a_writer_that_lives_is_in_the_way_of_a_restore() -> None:
    simulation, commits, snapshots = written()
    add_writer(simulation, "upsert", "a")
    simulation.step(simulation.actors[-1])
    for _ in range(12):
        simulation.step(simulation.actors[-1])
    with pytest.raises(WriteConflictError, match="is under way; stop it"):
        restore(simulation.table(), commits[1], lock=NoLock())
    simulation.expire_heartbeats()
    restore(simulation.table(), commits[1], lock=NoLock())
    simulation.run([])
    assert seen(simulation) == snapshots[1]
    assert "upsert" not in simulation.committed()


@pytest.mark.parametrize("overtaken_at", share_of(range(0, count_operations(add_restore), 2)))
def test_two_restores_to_one_commit(overtaken_at: int) -> None:
    simulation, commits, snapshots = written()
    add_restore(simulation, commits)
    add_restore(simulation, commits)
    simulation.run([0] * overtaken_at + [1] * 200)
    for actor in simulation.actors[-2:]:
        assert actor.failure is None or "is under way" in str(actor.failure)
    recover(simulation)
    assert seen(simulation) == snapshots[1]


@pytest.mark.parametrize("overtaken_at", share_of(range(0, count_operations(add_restore), 2)))
def test_a_clean_and_a_restore(overtaken_at: int) -> None:
    # Either the clean took files that the restore needs, and the restore is refused, or the snapshot is
    # whole.
    simulation, commits, snapshots = written()
    add_restore(simulation, commits)
    add_clean(simulation, commits)
    simulation.run([0] * overtaken_at + [1] * 60 + [0] * 60)
    restorer, cleaner = simulation.actors[-2:]
    assert cleaner.failure is None
    recover(simulation)
    clean(simulation.table(), EVERYTHING, lock=NoLock())
    assert seen(simulation) == (snapshots[-1] if restorer.failure else snapshots[1])
    if restorer.failure:
        assert "needs" in str(restorer.failure) or "is under way" in str(restorer.failure)


@pytest.mark.parametrize("overtaken_at", share_of(range(count_operations(add_savepoint))))
def test_two_savepoints_of_one_commit_are_one(overtaken_at: int) -> None:
    simulation, commits, _ = written()
    add_savepoint(simulation, commits)
    add_savepoint(simulation, commits)
    simulation.run([0] * overtaken_at + [1] * 100)
    assert not [actor.failure for actor in simulation.actors if actor.failure]
    table = simulation.table()
    assert [savepoint.instant for savepoint in savepoints(table)] == [commits[1]]
    delete_savepoint(table, commits[1])
    publish_head(table.storage, CommitLog(table.storage))
    assert savepoints(table) == [], "it does not come back"
    assert not [path for path in simulation.files if "staged" in path]

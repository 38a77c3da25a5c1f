"""Reverting a completed rewrite: every guard, and the state of the table afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_provider.concurrency import (
    PRIORITIES,
    CommitLog,
    CommitResult,
    ServicePlan,
    begin_planned,
    find_operation,
    schedule,
)
from airflow_provider.concurrency.commit import commit as put_entry
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER, HeartbeatInfo
from airflow_provider.concurrency.log.log_entry import Archival, Commit, Revert
from airflow_provider.concurrency.readers import READERS_FOLDER
from airflow_provider.concurrency.undo.reverts import _obstacle, obstacle
from airflow_provider.services.orphans.orphans import delete_reverted_files
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after
from tests.unit.concurrency.simulation.actors import (
    REVERT,
    add_clusterer,
    add_restorer,
    add_table_compactor,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.rows import PARTITION, group_of, read_rows, write_rows
from tests.unit.concurrency.simulation.scheduler import NoLock, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with


def clustered() -> Simulation:
    simulation = table_with("a", "b", "c")
    add_clusterer(simulation, "clusterer")
    simulation.run([])
    return simulation


def rewrite_of(simulation: Simulation) -> Commit:
    entries = CommitLog(simulation.table().storage).after(0)
    return next(entry for entry in entries if entry.operation == "CLUSTER" and isinstance(entry, Commit))


def written_to(simulation: Simulation) -> None:
    add_writer(simulation, "later", "a")
    simulation.run([])


def being_cleaned(simulation: Simulation) -> None:
    plan_clean(simulation, rewrite_of(simulation).replaced)


def plan_clean(simulation: Simulation, groups: frozenset[FileGroupId]) -> None:
    plan = ServicePlan(groups, b"plan")
    assert schedule(
        simulation.table(),
        lambda view, taken: plan,
        action=Action.CLEAN,
        operation="CLEAN",
        priority=PRIORITIES["cleaning"],
        lock=NoLock(),
    )


def saved(simulation: Simulation) -> None:
    later = after(simulation.table().timeline().newest_completion)
    savepoint = Instant(later, Action.SAVEPOINT, State.COMPLETED, after(later))
    simulation.table().storage.put(instant_path(savepoint), b"")


def archived_up_to_it(simulation: Simulation) -> None:
    storage = simulation.table().storage
    for instant in Timeline.load(storage).commits():
        if instant.requested_time < rewrite_of(simulation).instant:
            storage.delete(instant_path(instant))


def being_archived(simulation: Simulation) -> None:
    """The archiver has died after its entry: the archived instants are still on the timeline."""
    storage, rewrite = simulation.table().storage, rewrite_of(simulation)
    before = [each.requested_time for each in Timeline.load(storage).commits()]
    bound = max(time for time in before if time < rewrite.instant)
    assert put_entry(storage, lambda moment: Archival(priority=0, archived=bound))


def cleaned(simulation: Simulation) -> None:
    storage = simulation.table().storage
    file_ids = [group.file_id for group in rewrite_of(simulation).replaced]
    for status in storage.list(PARTITION):
        if status.name.partition("_")[0] in file_ids:
            storage.delete(status.path)


def restored(simulation: Simulation) -> None:
    add_restorer(simulation, "restorer", undone=1)
    simulation.run([])


def test_nothing_is_in_the_way_of_a_fresh_rewrite() -> None:
    simulation = clustered()
    storage = simulation.table().storage
    assert obstacle(storage, CommitLog(storage), rewrite_of(simulation)) is None


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (written_to, "has written to its file groups since"),
        (being_cleaned, "takes files that it replaced"),
        (saved, "a savepoint holds it"),
        (archived_up_to_it, "it is the oldest commit of the active timeline"),
        (being_archived, "it is the oldest commit of the active timeline"),
        (cleaned, "which it replaced, are gone"),
        (restored, "it was undone since, or archived"),
    ],
)
def test_a_guard(happened: Callable[[Simulation], None], told: str) -> None:
    simulation = clustered()
    happened(simulation)
    storage = simulation.table().storage
    found = obstacle(storage, CommitLog(storage), rewrite_of(simulation))
    assert found is not None
    assert told in found
    assert told == found or not told.startswith(("it is", "it was", "a savepoint"))


def test_a_clean_of_other_files_is_in_no_reverts_way() -> None:
    simulation = clustered()
    plan_clean(simulation, frozenset({group_of("another-0")}))
    storage = simulation.table().storage
    assert obstacle(storage, CommitLog(storage), rewrite_of(simulation)) is None


@pytest.mark.parametrize("happened", [None, "planned", "deleted"])
def test_a_compaction_replaces_slices_of_its_own_file_groups(happened: str | None) -> None:
    simulation = Simulation(merge_on_read=True)
    for name in ("first", "second"):
        add_writer(simulation, name, "a")
        simulation.run([])
    add_table_compactor(simulation, "compactor")
    simulation.run([])
    storage = simulation.table().storage
    compaction = CommitLog(storage).newest()
    assert isinstance(compaction, Commit)
    assert (compaction.operation, compaction.replaced) == ("COMPACT", frozenset())
    if happened == "planned":
        plan_clean(simulation, compaction.written)
    for status in storage.list(PARTITION) if happened == "deleted" else ():
        if compaction.instant not in status.name:
            storage.delete(status.path)
    found = str(obstacle(storage, CommitLog(storage), compaction))
    assert {None: "None", "planned": "takes files that it", "deleted": "are gone"}[happened] in found


def test_what_is_no_rewrite_of_this_package_is_not_reverted() -> None:
    simulation = clustered()
    storage = simulation.table().storage
    upsert = next(CommitLog(storage).after(0))
    for entry in (upsert, replace(rewrite_of(simulation), sequence=0)):  # so another's stands
        assert isinstance(entry, Commit)
        assert obstacle(storage, CommitLog(storage), entry) == "it is no rewrite that this package made"


def test_storage_that_cannot_move_in_one_step_reverts_nothing() -> None:
    simulation = clustered()
    simulation.moves_atomically = False
    storage = simulation.table().storage
    told = "the storage cannot move a file in one step, so that a late publisher could bring it back"
    assert obstacle(storage, CommitLog(storage), rewrite_of(simulation)) == told


def reverted() -> tuple[Simulation, str]:
    """A clustering that an upsert, begun before it, has reverted; and the clustering's instant."""
    simulation = table_with("a", "b")
    add_writer(simulation, "upsert", "a", policy=REVERT)
    simulation.add("cluster", lambda table, actor: carry_out(simulation))
    simulation.run([0] * 12 + [1] * 20)
    check(simulation)
    revert = next(e for e in CommitLog(simulation.table().storage).backwards() if isinstance(e, Revert))
    return simulation, revert.rolls_back


def carry_out(simulation: Simulation) -> None:
    table = simulation.table()
    live = table.view().base_files(PARTITION)
    plan = ServicePlan(frozenset(base.file_group for base in live), b"plan")
    instant = schedule(
        table,
        lambda view, taken: plan,
        action=Action.CLUSTERING,
        operation="CLUSTER",
        priority=PRIORITIES["table_service"],
        lock=NoLock(),
    )
    assert instant is not None
    with begin_planned(table, instant, lock=NoLock(), operation_key="nightly") as writer:
        rows = {key: row for base in live for key, row in read_rows(table.storage, base.path).items()}
        stat = write_rows(table.storage, "packed-0", instant, rows)
        writer.commit([stat], replaced={PARTITION: [base.file_id for base in live]})
    assert isinstance(find_operation(table, "nightly"), CommitResult)


def test_a_reverted_commit_is_not_what_became_of_an_operation() -> None:
    simulation, _ = reverted()
    assert find_operation(simulation.table(), "nightly") is None


def files_of(storage: Storage, instant: str) -> list[str]:
    return [status.path for status in storage.list(PARTITION) if instant in status.name]


def test_files_of_a_reverted_rewrite_stay_for_readers_and_go_later() -> None:
    simulation, instant = reverted()
    table = simulation.table()
    files = files_of(table.storage, instant)
    assert files
    assert delete_reverted_files(table) == []
    assert delete_reverted_files(table, after_seconds=0.0) == files
    assert files_of(table.storage, instant) == []


@pytest.mark.parametrize("folder", [HEARTBEAT_FOLDER, READERS_FOLDER], ids=["writer", "reader with a lease"])
def test_they_stay_while_one_is_based_on_a_moment_before_the_revert(folder: str) -> None:
    simulation, instant = reverted()
    table = simulation.table()
    revert = next(entry for entry in CommitLog(table.storage).backwards() if isinstance(entry, Revert))
    earlier, later = f"{folder}/1", f"{folder}/2"
    table.storage.put(earlier, HeartbeatInfo(base=revert.sequence - 1).to_json())
    assert delete_reverted_files(table, after_seconds=0.0) == []
    table.storage.delete(earlier)
    table.storage.put(later, HeartbeatInfo(base=revert.sequence).to_json())
    assert delete_reverted_files(table, after_seconds=0.0)
    assert files_of(table.storage, instant) == []


MINE = Commit(
    instant="2",
    action=Action.DELTA_COMMIT,
    operation="UPSERT",
    priority=0,
    completion_time="3",
    written=frozenset({group_of("a-0"), group_of("b-0")}),
    appended=frozenset({group_of("a-0")}),
)
"""A write that has appended to one file group, and written a base file into another."""


@pytest.mark.parametrize(
    ("later", "in_any_order", "is_in_the_way"),
    [
        ({"written": "a"}, False, True),
        ({"written": "a", "appended": "a"}, False, True),
        ({"written": "a", "appended": "a"}, True, False),
        ({"written": "a"}, True, True),
        ({"written": "b", "appended": "b"}, True, True),
        ({"written": "c"}, False, False),
        ({"written": "a", "operation": "COMPACT"}, False, False),
        ({"written": "a", "operation": "COMPACT"}, True, False),
        ({"written": "b", "operation": "COMPACT"}, True, True),
        ({"written": "ab", "appended": "b", "operation": "COMPACT"}, True, True),
    ],
)
def test_what_came_later_is_in_the_way_where_it_rests_on_what_is_undone(
    later: dict[str, str], in_any_order: bool, is_in_the_way: bool
) -> None:
    simulation = Simulation()
    storage = simulation.table().storage
    commit_log = CommitLog(storage)
    groups = {
        name: frozenset(group_of(f"{each}-0") for each in later.get(name, ""))
        for name in ("written", "appended")
    }
    operation = later.get("operation", "UPSERT")
    entries = (MINE, replace(MINE, instant="4", completion_time="5", operation=operation, **groups))
    for sequence, entry in enumerate(entries, 1):
        assert commit_log.append(sequence, entry)
    first = commit_log.read(1)
    assert isinstance(first, Commit)
    found = _obstacle(storage, commit_log, first, in_any_order=in_any_order)
    told = f"{operation} 4 has written to its file groups since"
    assert found == (told if is_in_the_way else None)
    if not in_any_order:
        assert _obstacle(storage, commit_log, first) == found


@pytest.mark.parametrize(
    ("moment", "told"), [("4", "a savepoint holds it"), ("3", "a savepoint holds it"), ("2", None)]
)
def test_a_savepoint_at_the_moment_of_a_commit_holds_it(moment: str, told: str | None) -> None:
    simulation = clustered()
    rewrite, storage = rewrite_of(simulation), simulation.table().storage
    at = {"2": rewrite.instant, "3": rewrite.completion_time, "4": after(rewrite.completion_time)}[moment]
    commits = simulation.table().timeline().commits()
    kept = next(each for each in commits if each.requested_time == rewrite.instant)
    earlier = commits[commits.index(kept) - 1]
    of = earlier if moment == "2" else kept
    savepoint = Instant(of.requested_time, Action.SAVEPOINT, State.COMPLETED, after(at))
    storage.put(instant_path(savepoint), b"")
    assert obstacle(storage, CommitLog(storage), rewrite) == told

"""A schedule, a run and a drop: killed, overtaken, or without an answer, at each storage operation."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from airflow_provider.concurrency import HeartbeatSettings
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import IndexRunSettings, pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.archival import archive
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER
from airflow_provider.table.timeline.instant import Action, State
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import add_clusterer, add_restorer, add_writer
from tests.unit.concurrency.simulation.memory_storage import MemoryStorage
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

INDEXES = ["files", "record_index"]
OF_MERGE_ON_READ = ["files", "column_stats", "record_index"]
FEW_FILE_GROUPS = {"hoodie.metadata.record.index.min.filegroup.count": 2}
AGES = 3600.0  # no heartbeat is renewed in a simulation
SOAK = int(os.environ.get("EXAMPLES", "25")) > 25

Work = Callable[[HudiTable], object]


def indexes_of(table: HudiTable) -> list[str]:
    return OF_MERGE_ON_READ if table.is_merge_on_read else INDEXES


def schedules(table: HudiTable) -> str | None:
    return schedule_index(table, indexes_of(table), options=FEW_FILE_GROUPS, lock=NoLock())


def runs(table: HudiTable) -> None:
    run_index(table, lock=NoLock(), settings=IndexRunSettings(heartbeat=HeartbeatSettings(AGES)))


def drops(table: HudiTable) -> None:
    drop_index(table, indexes_of(table)[1:], lock=NoLock())


def drops_all(table: HudiTable) -> None:
    drop_index(table, ["files"], lock=NoLock())


BEFORE: dict[Work, tuple[Work, ...]] = {
    schedules: (),
    runs: (schedules,),
    drops: (schedules, runs),
    drops_all: (schedules, runs),
}
"""The steps before one of them begins."""


def written(before: tuple[Work, ...]) -> Simulation:
    """A table with two commits, the steps on its indexes, and a commit after each step."""
    return _written(before).copy()


@cache
def _written(before: tuple[Work, ...]) -> Simulation:
    simulation = Simulation()
    for number, keys in enumerate(("abcd", "ae", *"f" * len(before))):
        if number >= 2:
            before[number - 2](simulation.table())
        add_writer(simulation, f"w{number}", keys)
        simulation.run([])
    return simulation


def add(simulation: Simulation, work: Work) -> None:
    def act(table: HudiTable, actor: Actor) -> None:
        work(table)

    simulation.add(work.__name__, act)


def begins(simulation: Simulation, work: Work, operations: int) -> Actor:
    """An actor that does this many storage operations, and pauses."""
    add(simulation, work)
    actor = simulation.actors[-1]
    simulation.go_on(actor, operations)
    return actor


@cache
def count_operations(work: Work) -> int:
    simulation = written(BEFORE[work])
    before = len(simulation.trace)
    add(simulation, work)
    simulation.run([])
    assert not simulation.actors[-1].failure
    return len(simulation.trace) - before


def moments(work: Work, every: int = 2) -> list[int]:
    """The operations before which the test acts; in `make soak` each operation."""
    every_so_many = range(0, count_operations(work), 1 if SOAK else every)
    return share_of(every_so_many) if every <= 2 else list(every_so_many)


def complete(simulation: Simulation) -> HudiTable:
    """Run a writer, and a process that builds the indexes, after a kill."""
    simulation.expire_heartbeats()
    add_writer(simulation, "next", "ag")
    simulation.run([])
    assert not [actor.failure for actor in simulation.actors if actor.failure]
    table = HudiTable.at(simulation.table().storage)
    assert_indexes_equal_a_rebuild(table)
    schedules(table)
    add_writer(simulation, "another", "bh")
    simulation.run([])
    while pending_indexings(table):
        runs(table)
    assert_indexes_equal_a_rebuild(table, indexes_of(table))
    return table


def left_over(simulation: Simulation) -> list[str]:
    return [path for path in simulation.files if "/staged/" in path or "/.heartbeat/" in path]


@pytest.mark.parametrize("work", list(BEFORE), ids=lambda work: work.__name__)
def test_who_is_killed_leaves_nothing_that_others_mind(work: Work) -> None:
    for killed_at in moments(work):
        simulation = written(BEFORE[work])
        add(simulation, work)
        simulation.run([0] * killed_at + [900])
        table = complete(simulation)
        assert not left_over(simulation), f"killed at {killed_at}: {simulation.trace[-1]}"
        plans = [i for i in table.timeline().pending() if i.action is Action.INDEXING]
        assert not plans
        for path in simulation.files:
            assert not path.startswith(f"{METADATA_FOLDER}/record_index") or "-0002-0" not in path


@pytest.mark.parametrize("work", [schedules, runs], ids=lambda work: work.__name__)
def test_who_is_killed_leaves_nothing_of_an_index_that_is_dropped_before_anybody_knows(work: Work) -> None:
    for killed_at in moments(work):
        simulation = written(BEFORE[work])
        killed = begins(simulation, work, killed_at)
        simulation.kill(killed)
        drops_all(HudiTable.at(simulation.table().storage))  # its heartbeat is fresh
        table = complete(simulation)
        assert not left_over(simulation), f"killed before {killed.at}"
        assert not [i for i in table.timeline().pending() if i.action is Action.INDEXING]


class LosesAnAnswer(MemoryStorage):
    """A storage that does every operation, but loses the answer to one change."""

    def __init__(self, simulation: Simulation, lost_at: int) -> None:
        super().__init__(simulation.files, simulation.clock)
        self.left = lost_at

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("put_if_absent", "put", "move_if_absent", "delete"):
            return found

        def operate(*arguments: Any) -> Any:
            answer = found(*arguments)
            self.left -= 1
            if self.left == -1:
                raise OSError(f"the answer to {name} {arguments[0]} is lost")
            return answer

        return operate


@pytest.mark.parametrize("work", list(BEFORE), ids=lambda work: work.__name__)
def test_an_answer_that_is_lost_leaves_nothing_that_others_mind(work: Work) -> None:
    lost_at = 0
    while True:
        simulation = written(BEFORE[work])
        storage = LosesAnAnswer(simulation, lost_at)
        with suppress(OSError):
            work(HudiTable(storage, simulation.config))
        if storage.left >= 0:
            break
        table = complete(simulation)
        assert not left_over(simulation), f"lost at {lost_at}"
        assert not [i for i in table.timeline().pending() if i.action is Action.INDEXING]
        lost_at += 1 if SOAK else 5
    assert lost_at > 5


@pytest.mark.parametrize("work", list(BEFORE), ids=lambda work: work.__name__)
def test_a_writer_comes_in_between(work: Work) -> None:
    for overtaken_at in moments(work, 9):
        simulation = written(BEFORE[work])
        add(simulation, work)
        add_writer(simulation, "between", "abx")
        simulation.run([0] * overtaken_at + [1] * 200)
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        assert "between" in simulation.committed()
        assert_indexes_equal_a_rebuild(HudiTable.at(simulation.table().storage))
        complete(simulation)


@pytest.mark.parametrize("other", ["clusterer", "dropper"])
def test_a_build_looks_at_one_moment(other: str) -> None:
    # Between any two operations a writer moves keys, and logs that, or a process drops the index.
    for stands_still_at in moments(runs, 1):
        simulation = written(BEFORE[runs])
        builder = begins(simulation, runs, stands_still_at)
        add_clusterer(simulation, other) if other == "clusterer" else add(simulation, drops)
        simulation.go_on(simulation.actors[-1])
        simulation.run([])
        if other == "dropper" and builder.failure is not None:
            assert isinstance(builder.failure, NoSuchInstantError)
            builder.failure = None
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        assert_indexes_equal_a_rebuild(HudiTable.at(simulation.table().storage))


@pytest.mark.parametrize("work", list(BEFORE), ids=lambda work: work.__name__)
def test_it_comes_in_between_of_a_writer(work: Work) -> None:
    # The writer has staged for other indexes than those that exist when it commits (RFC-45, 3b, 3c).
    for writer_at in range(1, 60, 1 if SOAK else 7):
        simulation = written(BEFORE[work])
        add_writer(simulation, "slow", "abx")
        add(simulation, work)
        simulation.run([0] * writer_at + [1] * 600)
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        assert_indexes_equal_a_rebuild(HudiTable.at(simulation.table().storage))
        complete(simulation)


@pytest.mark.parametrize("work", list(BEFORE), ids=lambda work: work.__name__)
def test_two_at_once(work: Work) -> None:
    for overtaken_at in moments(work, 9):
        simulation = written(BEFORE[work])
        add(simulation, work)
        add(simulation, work)
        simulation.run([0] * overtaken_at + [1] * 600)
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        complete(simulation)


def test_a_run_that_others_took_for_dead_is_done_by_another_and_changes_nothing() -> None:
    for stands_still_at in moments(runs, 9):
        simulation = written(BEFORE[runs])
        begins(simulation, runs, stands_still_at)
        simulation.expire_heartbeats()
        table = HudiTable.at(simulation.table().storage)
        runs(table)
        add_writer(simulation, "since", "ay")
        simulation.go_on(simulation.actors[-1], 200)
        simulation.run([])
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        assert_indexes_equal_a_rebuild(table, INDEXES)
        complete(simulation)


def test_all_is_dropped_while_a_plan_is_published() -> None:
    for stands_still_at in moments(schedules, 1):
        simulation = written(())
        planner = begins(simulation, schedules, stands_still_at)
        drops_all(HudiTable.at(simulation.table().storage))
        simulation.run([])
        assert planner.failure is None
        complete(simulation)


def test_what_is_planned_while_a_drop_stands_still_is_no_part_of_it() -> None:
    planned = []
    for stands_still_at in moments(drops, 1):
        simulation = written(BEFORE[drops])
        begins(simulation, drops, stands_still_at)
        table = HudiTable.at(simulation.table().storage)
        instant = schedules(table)
        add_writer(simulation, "since", "ay")
        simulation.run([1] * 200)  # the writer, then the drop
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        if instant is not None:
            planned.append(instant)
            assert instant in [each.requested_time for each in table.timeline().pending()]
            runs(table)
            assert_indexes_equal_a_rebuild(table, INDEXES)
    assert planned


def test_an_index_is_dropped_and_made_anew_while_it_is_built() -> None:
    for stands_still_at in moments(runs, 9):
        simulation = written(BEFORE[runs])
        begins(simulation, runs, stands_still_at)
        table = HudiTable.at(simulation.table().storage)
        drops(table)
        schedules(table)
        simulation.run([])
        failure = simulation.actors[-1].failure
        assert failure is None or isinstance(failure, NoSuchInstantError)
        simulation.actors[-1].failure = None
        complete(simulation)


@pytest.mark.parametrize("is_dropped_first", [False, True], ids=["same plan", "later plan"])
def test_a_run_that_stood_still_deletes_nothing_that_another_run_has_built(is_dropped_first: bool) -> None:
    """The run pauses at each look at the metadata table's files, and before each deletion there."""
    for number in itertools.count():
        simulation = written(BEFORE[runs])
        killed = begins(simulation, runs, 0)
        simulation.go_on_to(killed, "put .hoodie/commit_log/staged/")  # its base files exist
        simulation.kill(killed)
        simulation.expire_heartbeats()
        sleeper = begins(simulation, runs, 0)
        for _ in range(number):
            simulation.step(sleeper)
            simulation.go_on_to_any(sleeper, "list .hoodie/metadata/", "delete .hoodie/metadata/")
        if sleeper.done:
            break
        simulation.expire_heartbeats()
        table = HudiTable.at(simulation.table().storage)
        if is_dropped_first:
            drops_all(table)
            schedules(table)
        runs(table)
        assert_indexes_equal_a_rebuild(table, INDEXES)
        simulation.go_on(sleeper)
        assert sleeper.failure is None or isinstance(sleeper.failure, NoSuchInstantError)
        assert_indexes_equal_a_rebuild(HudiTable.at(simulation.table().storage), INDEXES)


@pytest.mark.parametrize("at", range(24, 36, 2))
def test_a_plan_that_was_built_and_trimmed_meanwhile_is_not_taken_for_another_hudi_writers(at: int) -> None:
    simulation = written(BEFORE[runs])
    sleeper = begins(simulation, runs, at)
    simulation.expire_heartbeats()
    runs(simulation.table())
    for name in "xyz":
        add_writer(simulation, name, name)
        simulation.go_on(simulation.actors[-1])
        compact(simulation.table(), CompactionSettings(max_delta_commits=1), lock=NoLock())
    archive(simulation.table(), keep_min=1, keep_max=2, lock=NoLock())
    simulation.go_on(sleeper)
    assert sleeper.failure is None or isinstance(sleeper.failure, NoSuchInstantError)
    assert_indexes_equal_a_rebuild(HudiTable.at(simulation.table().storage), INDEXES)


def test_who_stood_still_begins_no_run_of_a_plan_that_was_dropped() -> None:
    begun = 0
    for stands_still_at in moments(runs, 1):
        simulation = written(BEFORE[runs])
        runner = begins(simulation, runs, stands_still_at)
        table = HudiTable.at(simulation.table().storage)
        begun += any(each.state is State.INFLIGHT for each in table.timeline().pending())
        drops_all(table)
        simulation.go_on(runner, 1)
        simulation.kill(runner)
        assert table.timeline().pending() == ()
    assert begun


def test_two_restores_at_once() -> None:
    # Each logs to the indexes the files that it undoes, which the other one deletes.
    stands_still_at, undone = 0, 0
    while True:
        simulation = written((schedules, runs))
        add_writer(simulation, "of old keys", "abc")
        simulation.run([])
        for name in ("one", "other"):
            add_restorer(simulation, name, undone=1)
        one, other = simulation.running()
        # It has seen that no writer is in flight.
        simulation.go_on_to(other, f"put_if_absent {HEARTBEAT_FOLDER}")
        simulation.go_on(one, stands_still_at)
        if one.done:
            break
        simulation.go_on(other)
        simulation.run([])
        assert not [actor.failure for actor in simulation.actors if actor.failure]
        undone += len(simulation.restored)
        assert_indexes_equal_a_rebuild(HudiTable.at(simulation.table().storage))
        stands_still_at += 1
    assert undone >= stands_still_at > 20

"""Writers of this package beside another engine, such as JVM Hudi, which does not know the commit log.

Both share a lock, and no writer of this package keeps it: a paused writer has lost it, and the other engine
acquires it. The number of runs is a quarter of ``INTERLEAVINGS``.
"""

from __future__ import annotations

import os
from functools import cache

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_provider.concurrency import HeartbeatSettings
from airflow_provider.indexing.run import IndexRunSettings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.table.file_groups.view import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.archived_timeline import newest_archived
from airflow_provider.table.timeline.instant import State
from tests.unit.concurrency.other_hudi_writers.another_engine import AnotherEngine, SharedLock
from tests.unit.concurrency.simulation.actors import FAIL, REBASE, add_cleaner, add_clusterer, add_writer
from tests.unit.concurrency.simulation.rows import PARTITION, read_snapshot
from tests.unit.concurrency.simulation.scheduler import Simulation
from tests.unit.concurrency.simulation.test_any_interleaving import PLACES
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

KEYS = ("a", "b", "c")
OPERATIONS_TO_A_PLACE = 200
"""More than a writer needs: a writer that waits for the other engine reaches no place."""


def _build_files(table: HudiTable) -> None:
    schedule_index(table, [MetadataPartition.FILES], lock=SharedLock())
    run_index(table, lock=SharedLock(), settings=IndexRunSettings(heartbeat=HeartbeatSettings(3600.0)))


@cache
def _written(has_metadata_table: bool) -> Simulation:
    """A table with one file group for each key."""
    simulation = Simulation()
    for keys in KEYS:
        add_writer(simulation, f"first-{keys}", keys, lock=SharedLock())
        simulation.run([])
    if has_metadata_table:
        simulation.add("indexer", lambda table, _: _build_files(table))
        simulation.run([])
    assert [actor.failure for actor in simulation.actors if actor.failure] == []
    return simulation


class BesideAnotherEngine(RuleBasedStateMachine):
    @initialize(has_metadata_table=st.booleans())
    def a_table(self, has_metadata_table: bool) -> None:
        self.simulation = _written(has_metadata_table).copy()
        self._has_metadata_table = has_metadata_table
        self.other = AnotherEngine(self.simulation)
        self._count = self._ours = self._cleans = 0

    # The number of running actors depends on the clock, and the draws must not.
    @precondition(lambda self: self._ours < 5)
    @rule(
        keys=st.sets(st.sampled_from([*KEYS, "new", "newer"]), min_size=1),
        rebases=st.booleans(),
        goes=st.integers(0, 40),
    )
    def ours_begins(self, keys: set[str], rebases: bool, goes: int) -> None:
        self._count += 1
        self._ours += 1
        policy = REBASE if rebases else FAIL
        add_writer(self.simulation, f"ours{self._count}", keys, policy=policy, lock=SharedLock())
        self.simulation.go_on(self.simulation.actors[-1], goes)

    @precondition(lambda self: self._cleans < 2)
    @rule(goes=st.integers(0, 60))
    def ours_cleans(self, goes: int) -> None:
        self._cleans += 1
        add_cleaner(self.simulation, f"cleaner{self._cleans}", lock=SharedLock())
        self.simulation.go_on(self.simulation.actors[-1], goes)

    @rule(number=st.integers(0, 5), goes=st.integers(1, 40))
    def ours_goes_on(self, number: int, goes: int) -> None:
        if running := self.simulation.running():
            self.simulation.go_on(running[number % len(running)], goes)

    @rule(number=st.integers(0, 5), place=st.sampled_from(PLACES))
    def stands_still(self, number: int, place: str) -> None:
        """One of our writers goes on to a place, and pauses there for as long as no rule moves it."""
        if running := self.simulation.running():
            actor = running[number % len(running)]
            self.simulation.step(actor)
            for _ in range(OPERATIONS_TO_A_PLACE):
                if actor.done or place in actor.at:
                    return
                self.simulation.step(actor)

    @rule(number=st.integers(0, 5))
    def ours_is_killed(self, number: int) -> None:
        if running := self.simulation.running():
            self.simulation.kill(running[number % len(running)])

    @rule()
    def heartbeats_expire(self) -> None:
        self.simulation.expire_heartbeats()

    @rule(keys=st.sets(st.sampled_from(KEYS), min_size=1))
    def other_begins(self, keys: set[str]) -> None:
        if self.other.sees_what_is_undone():
            return
        self._count += 1
        self.other.begin(f"other{self._count}", frozenset(keys))

    @rule(keys=st.sets(st.sampled_from(["a", "new", "newer"]), min_size=1))
    def other_inserts(self, keys: set[str]) -> None:
        """In one step, because the other engine does not look for keys that were added since its base."""
        if not self.other.sees_what_is_undone() and not self.other.builds_on_what_it_may_undo():
            self._count += 1
            self.other.begin(f"other{self._count}", frozenset(keys))
            self.other.commit(self.other.begun[-1])

    @rule(number=st.integers(0, 5))
    def other_commits(self, number: int) -> None:
        if self.other.begun:
            self.other.commit(self.other.begun[number % len(self.other.begun)])

    @rule()
    def other_archives(self) -> None:
        if not self.other.sees_what_is_undone():
            self.other.archive()

    @rule()
    def other_plans_a_clustering(self) -> None:
        if not self.other.sees_what_is_undone():
            self.other.plan_clustering()

    @rule()
    def other_clusters(self) -> None:
        if self.other.planned:
            self.other.cluster(min(self.other.planned))

    def teardown(self) -> None:
        self.simulation.run([])
        for write in list(self.other.begun):
            self.other.commit(write)
        for instant in list(self.other.planned):
            self.other.cluster(instant)
        self.simulation.expire_heartbeats()
        for name in ("next", "last"):  # the next process finishes, or rolls back, what was left
            add_writer(self.simulation, name, KEYS, policy=REBASE, lock=SharedLock())
            self.simulation.run([])
        # Until a killed clean is finished, the index names files that it has deleted.
        add_cleaner(self.simulation, "finishes", lock=SharedLock())
        self.simulation.run([])
        failures = [actor.failure for actor in self.simulation.actors if actor.failure is not None]
        if failures:
            raise failures[0]
        self._check()

    def _check(self) -> None:
        simulation = self.simulation
        storage = simulation.table().storage
        found = read_snapshot(storage, FileSystemView(storage, Timeline.load(storage)))
        if self._has_metadata_table:
            assert_indexes_equal_a_rebuild(HudiTable.at(storage), [MetadataPartition.FILES])
        acknowledged = [
            (simulation.writes[each].writer, simulation.writes[each].keys) for each in simulation.acknowledged
        ]
        for name, keys in (*acknowledged, *self.other.done):
            missing = {key for key in keys if found.get(key, []).count(name) != 1}
            assert not missing, f"{name} was acknowledged, and {missing} have not seen it: {found}"
        names = {name for name, _ in (*acknowledged, *self.other.done)}
        for write in simulation.writes.values():
            seen = {key for key in write.keys if write.writer in found.get(key, [])}
            if write.writer not in names:
                assert seen in (set(), set(write.keys)), (
                    f"{write.writer} was done in part: {seen} of {write.keys}"
                )
        for name in self.other.failed:
            assert not [key for key, history in found.items() if name in history], f"{name} has failed"


def test_nothing_acknowledged_by_either_engine_is_lost() -> None:
    examples = max(10, int(os.environ.get("INTERLEAVINGS", "200")) // 4)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        BesideAnotherEngine, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None)
    )


def test_what_is_merged_again_after_the_lock_was_lost_is_logged_anew() -> None:
    """A write has staged its records under the lock; another write takes its place in the log."""
    simulation = Simulation()
    add_writer(simulation, "first", KEYS, lock=SharedLock())
    simulation.run([])
    simulation.add("indexer", lambda table, _: _build_files(table))
    simulation.run([])
    for name in ("slow", "fast"):
        add_writer(simulation, name, KEYS, policy=REBASE, lock=SharedLock())
    slow, fast = simulation.actors[-2:]
    simulation.go_on_to(slow, "put_if_absent .hoodie/commit_log/0")
    simulation.go_on(fast)
    simulation.run([])
    assert [actor.failure for actor in simulation.actors] == [None] * 4
    table = HudiTable.at(simulation.table().storage)
    assert_indexes_equal_a_rebuild(table, [MetadataPartition.FILES])
    shown = read_snapshot(table.storage, table.view())
    assert shown == {key: ["first", "fast", "slow"] for key in KEYS}


def test_index_records_that_another_engine_rolls_back_as_they_are_begun_are_logged_anew() -> None:
    """Their writer is paused between the requested and the inflight file of its deltacommit."""
    simulation = _written(has_metadata_table=True).copy()
    other = AnotherEngine(simulation)
    other.begin("other", frozenset("a"))
    add_writer(simulation, "ours", {"b"}, lock=SharedLock())
    ours = simulation.actors[-1]
    simulation.go_on_to(ours, "put_if_absent .hoodie/timeline/")
    begun = ours.at.rpartition("/")[2].partition(".")[0]
    while ours.at != f"put_if_absent .hoodie/metadata/.hoodie/timeline/{begun}.deltacommit.inflight":
        simulation.step(ours)
    other.commit(other.begun[-1])
    simulation.run([])
    assert [actor.failure for actor in simulation.actors] == [None] * len(simulation.actors)
    table = HudiTable.at(simulation.table().storage)
    assert_indexes_equal_a_rebuild(table, [MetadataPartition.FILES])
    shown = read_snapshot(table.storage, table.view())
    assert shown == {"a": ["first-a", "other"], "b": ["first-b", "ours"], "c": ["first-c"]}


def test_a_commit_while_a_planner_has_lost_the_lock_is_not_clustered_away() -> None:
    """The plan names the slice before that commit, although the commit completes before the plan."""
    simulation = _written(has_metadata_table=False).copy()
    other = AnotherEngine(simulation)
    add_clusterer(simulation, "clusterer", lock=SharedLock())
    simulation.go_on_to(simulation.actors[-1], "list .hoodie/.transactions")
    other.begin("other", frozenset("a"))
    other.commit(other.begun[-1])
    simulation.run([])
    assert other.done == [("other", frozenset("a"))]
    storage = simulation.table().storage
    assert read_snapshot(storage, simulation.table().view())["a"] == ["first-a", "other"]


def test_a_writer_begins_later_than_what_another_engine_has_archived() -> None:
    """It was paused before its requested instant, so that the archival passed its requested time."""
    simulation = _written(has_metadata_table=False).copy()
    other = AnotherEngine(simulation)
    add_writer(simulation, "ours", KEYS, policy=REBASE, lock=SharedLock())
    ours = simulation.actors[-1]
    simulation.go_on_to(ours, "put_if_absent .hoodie/timeline/")
    for number in range(3):
        other.begin(f"other{number}", frozenset("a"))
        other.commit(other.begun[-1])
    other.archive()
    table = simulation.table()
    archived = newest_archived(table.storage)
    assert archived > ours.at.rpartition("/")[2].partition(".")[0]
    simulation.run([])
    assert ours.failure is None
    assert table.timeline().commits()[-1].requested_time > archived
    shown = read_snapshot(table.storage, table.view())
    assert shown["a"] == ["first-a", "other0", "other1", "other2", "ours"]


def test_a_write_that_another_engine_rolls_back_before_it_compares_its_keys() -> None:
    """Its own files are gone by then: it is told why."""
    simulation = _written(has_metadata_table=False).copy()
    other = AnotherEngine(simulation)
    add_writer(simulation, "ours", {"new"}, lock=SharedLock())
    ours = simulation.actors[-1]
    simulation.go_on_to(ours, "put .hoodie/commit_log/staged/")
    other.begin("other", frozenset({"new"}))
    other.commit(other.begun[-1])
    simulation.go_on_to(ours, f"read {PARTITION}/")
    simulation.expire_heartbeats()
    other.begin("later", frozenset("a"))
    simulation.run([])
    assert ours.done
    assert ours.failure is None  # a CommitError is none


def test_a_clean_whose_index_records_another_engine_has_rolled_back_is_logged_by_the_next_commit() -> None:
    """The cleaner has lost the lock between its index records and its entry."""
    simulation = _written(has_metadata_table=True).copy()
    other = AnotherEngine(simulation)
    for name in ("before", "another"):
        other.begin(name, frozenset("a"))
        other.commit(other.begun[-1])
    add_writer(simulation, "notes", KEYS, policy=REBASE, lock=SharedLock())
    simulation.run([])
    add_cleaner(simulation, "cleaner", lock=SharedLock())
    cleaner = simulation.actors[-1]
    simulation.go_on_to(cleaner, f"delete {PARTITION}/")
    simulation.go_on_to(cleaner, "put_if_absent .hoodie/commit_log/0")
    other.begin("other", frozenset("b"))
    other.commit(other.begun[-1])
    simulation.run([])
    add_writer(simulation, "next", KEYS, policy=REBASE, lock=SharedLock())
    simulation.run([])
    assert [actor.failure for actor in simulation.actors] == [None] * len(simulation.actors)
    table = HudiTable.at(simulation.table().storage)
    assert_indexes_equal_a_rebuild(table, [MetadataPartition.FILES])


def test_a_commit_that_a_helper_has_shown_and_hidden_again_is_not_acknowledged() -> None:
    """Another engine rolls it back while its writer and a helper are about to publish it."""
    simulation = _written(has_metadata_table=False).copy()
    other = AnotherEngine(simulation)
    for name in ("ours", "helper"):
        add_writer(simulation, name, {"new"} if name == "ours" else {"a"}, lock=SharedLock())
        simulation.go_on_to(simulation.actors[-1], "link_if_absent .hoodie/timeline/")
    ours, helper = simulation.actors[-2:]
    simulation.expire_heartbeats()
    other.begin("other", frozenset("b"))
    simulation.go_on_to(helper, "delete .hoodie/timeline/")
    simulation.step(helper)
    simulation.go_on(ours)
    assert ours.done
    assert "ours" not in simulation.committed()
    simulation.run([])
    assert (ours.failure, helper.failure) == (None, None)


def test_no_reader_sees_a_lost_commit_while_its_files_are_deleted() -> None:
    """Readers take files without an instant for committed if the timeline starts later."""
    simulation = _written(has_metadata_table=False).copy()
    other = AnotherEngine(simulation)
    add_writer(simulation, "ours", {"a", "new"}, lock=SharedLock())
    ours = simulation.actors[-1]
    simulation.go_on_to(ours, "link_if_absent .hoodie/timeline/")
    for name in ("one", "two"):
        other.begin(name, frozenset("a"))
        other.commit(other.begun[-1])
    other.archive()
    table = simulation.table()
    assert [each.state for each in table.timeline().instants[:1]] == [State.INFLIGHT]
    simulation.go_on_to(ours, "list .hoodie/timeline")  # it has put its completed instant
    simulation.step(ours)
    while not ours.done:
        shown = read_snapshot(table.storage, table.view())
        if ours.at.startswith(f"delete {PARTITION}/"):
            assert shown["a"] == ["first-a", "one", "two"]
            assert "new" not in shown
        simulation.step(ours)
    assert "ours" not in simulation.committed()

"""Commits of a Hudi writer without the commit log, such as the JVM's, under the shared lock.

Hand-written instants stand for the JVM's. They appear when a JVM's would: while it holds the table lock,
right before the writer under test acquires the lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency import begin_planned, begin_write, rollback
from airflow_provider.concurrency.conflicts import wait_for_clustering
from airflow_provider.concurrency.conflicts.foreign_writers import planned_clusterings
from airflow_provider.concurrency.heartbeats import heartbeat_path
from airflow_provider.concurrency.instant_report import describe_table
from airflow_provider.concurrency.write import committing
from airflow_provider.exceptions import InstantRolledBackError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.in_process import InProcessLockProvider
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    pending_clusterings,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.instant import Action, Instant, State, after, now
from tests.ingestion_contract.interleaving import MeetingLock
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import (
    SCHEMA,
    Jvm,
    SharedLock,
    create_trips,
    fares,
    ingest,
    only_file,
    rows,
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


def test_a_commit_of_the_same_file_group_is_a_conflict(table: HudiTable) -> None:
    jvm = Jvm(table)
    with pytest.raises(WriteConflictError, match=f"UPSERT {jvm.instant} by another Hudi writer"):
        ingest(table, {1: 10.0}, lambda: jvm.upsert({1: 5.0}, into=only_file(table)))
    assert fares(table) == {1: 5.0, 2: 2.0}


def test_a_lost_conflict_is_rebased_onto_it(table: HudiTable) -> None:
    jvm = Jvm(table)
    ingest(table, {1: 10.0}, lambda: jvm.upsert({2: 5.0}, into=only_file(table)), on_conflict="rebase")
    assert fares(table) == {1: 10.0, 2: 5.0}


def test_a_commit_of_another_file_group_is_none(table: HudiTable) -> None:
    ingest(table, {1: 10.0}, lambda: Jvm(table).upsert({7: 7.0}))
    assert fares(table) == {1: 10.0, 2: 2.0, 7: 7.0}


def test_a_requested_time_that_another_writer_took_first(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = now()
    path = Path(table.location, f".hoodie/timeline/{taken}.commit.requested")

    def now_taken(_: tzinfo) -> str:
        path.write_bytes(b"")
        path.with_name(f"{taken}_{after(taken)}.commit").write_bytes(b"")
        return taken

    monkeypatch.setattr("airflow_provider.concurrency.log.instant_time.now", now_taken)
    writer = begin_write(table, operation="UPSERT")
    assert writer.instant > taken
    assert [path.name for path in Path(table.location, ".hoodie/.heartbeat").iterdir()] == [writer.instant]
    writer.abort()
    assert path.exists()


@pytest.mark.parametrize("policy", ["raise", "rebase"])
def test_the_same_new_key_is_a_conflict(table: HudiTable, policy: str) -> None:
    settings = {"on_conflict": policy, "small_file_limit": 0}
    jvm = Jvm(table)
    if policy == "raise":
        with pytest.raises(WriteConflictError, match="added the same new record key 7"):
            ingest(table, {7: 70.0}, lambda: jvm.upsert({7: 7.0}), **settings)
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 7.0}
    else:
        ingest(table, {7: 70.0}, lambda: jvm.upsert({7: 7.0}), **settings)
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 70.0}


@pytest.mark.parametrize("requested", ["earlier", "later"])
def test_a_clustering_is_rebased_onto_by_default(table: HudiTable, requested: str) -> None:
    earlier = Jvm(table)

    def cluster() -> None:
        jvm = earlier if requested == "earlier" else Jvm(table)
        jvm.cluster(table.view().base_files("city=sf"))

    ingest(table, {1: 10.0, 9: 9.0}, cluster)
    assert fares(table) == {1: 10.0, 2: 2.0, 9: 9.0}


def test_a_clustering_of_another_writer_is_not_reverted(table: HudiTable) -> None:
    jvm = Jvm(table)
    ingest(table, {1: 10.0}, lambda: jvm.cluster([only_file(table)]), on_rewrite="revert")
    assert fares(table) == {1: 10.0, 2: 2.0}
    assert table.timeline().find(jvm.instant) is not None


def test_a_commit_completes_later_than_one_from_a_clock_that_is_ahead(table: HudiTable) -> None:
    jvm = Jvm(table)
    jvm.completion_time = f"{int(now()[:4]) + 1}0101000000000"
    result = ingest(table, {1: 10.0}, lambda: jvm.upsert({7: 7.0}))
    assert result["completion_time"] > jvm.completion_time
    assert ingest_arrow(table, rows({2: 20.0}))["instant"] > jvm.completion_time
    assert fares(table) == {1: 10.0, 2: 20.0, 7: 7.0}


def test_a_write_whose_rollback_another_writer_has_begun_is_dead(table: HudiTable) -> None:
    jvm = Jvm(table)
    writer = begin_write(table, operation="UPSERT", lock=InProcessLockProvider(table.location))
    assert writer.view.base_files("city=sf")
    writer.plan([])
    jvm.begin_rollback_of(writer.instant)
    with pytest.raises(InstantRolledBackError, match="another Hudi writer"):
        writer.commit([])


def test_a_write_whose_rollback_is_archived_is_dead(table: HudiTable) -> None:
    """The other writer undoes it before its inflight file stands, and then archives the rollback."""
    jvm = Jvm(table)
    writer = begin_write(table, operation="UPSERT", lock=SharedLock(table, lambda: None))
    jvm.roll_back(writer.instant)
    writer.plan([])
    Jvm(table).upsert({7: 7.0})
    jvm.archive([each for each in table.timeline().completed() if each.action is Action.ROLLBACK])
    with pytest.raises(InstantRolledBackError, match="another Hudi writer"):
        writer.commit([])


def test_a_write_that_archival_has_passed_is_dead(table: HudiTable) -> None:
    """The other engine takes every instant up to the last archived one for completed."""
    writer = begin_write(table, operation="UPSERT", lock=SharedLock(table, lambda: None))
    jvm = Jvm(table)
    jvm.upsert({7: 7.0})
    jvm.archive(table.timeline().commits()[-1:])
    writer.plan([])
    Jvm(table).upsert({8: 8.0})
    with pytest.raises(InstantRolledBackError, match="archived the later"):
        writer.commit([])


def test_a_write_that_has_looked_at_nothing_is_dead_then_too(table: HudiTable) -> None:
    jvm = Jvm(table)
    writer = begin_write(table, operation="BULK_INSERT", lock=SharedLock(table, lambda: None))
    writer.plan([])
    jvm.begin_rollback_of(writer.instant)
    with pytest.raises(InstantRolledBackError, match="another Hudi writer"):
        writer.commit([])


@pytest.mark.parametrize("policy", ["raise", "rebase"])
def test_a_restore_that_another_writer_has_begun_is_a_conflict(table: HudiTable, policy: str) -> None:
    jvm = Jvm(table)
    (first,) = table.timeline().commits()
    with pytest.raises(WriteConflictError, match=r"another Hudi writer.* took the table back"):
        ingest(table, {1: 10.0}, lambda: jvm.begin_restore_of(first.requested_time), on_conflict=policy)


def test_a_commit_that_we_keep_is_still_another_writers(table: HudiTable) -> None:
    jvm = Jvm(table)

    def commit() -> None:
        jvm.upsert({1: 5.0}, into=only_file(table))
        create_savepoint(table, jvm.instant)

    with pytest.raises(WriteConflictError, match=f"UPSERT {jvm.instant} by another Hudi writer"):
        ingest(table, {1: 10.0}, commit)
    assert fares(table) == {1: 5.0, 2: 2.0}


def test_who_comes_without_a_common_lock_is_warned_of_by_name(
    table: HudiTable, caplog: pytest.LogCaptureFixture
) -> None:
    jvm = Jvm(table)
    lock = MeetingLock(lambda: jvm.upsert({7: 7.0}))
    ingest_arrow(table, rows({1: 10.0}), lock=lock)
    (told,) = (each.getMessage() for each in caplog.records if "same lock" in each.getMessage())
    assert f"UPSERT {jvm.instant} of another Hudi writer" in told
    assert "MeetingLock does not keep it out" in told
    caplog.clear()
    ingest(table, {1: 11.0}, lambda: Jvm(table).upsert({8: 8.0}))
    assert not [each for each in caplog.records if "same lock" in each.getMessage()]


class TestWarnedOfBetweenWrites:
    """Another Hudi writer without a common lock commits while no write of this package is under way."""

    @pytest.fixture
    def told(self, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
        """The warnings since the last call."""

        def warnings() -> list[str]:
            found = [each.getMessage() for each in caplog.records if "same lock" in each.getMessage()]
            caplog.clear()
            return found

        return warnings

    def test_each_of_its_commits_is_named_once(self, table: HudiTable, told: Callable[[], list[str]]) -> None:
        first = Jvm(table)
        first.upsert({7: 7.0})
        one = begin_write(table, operation="UPSERT")
        (warning,) = told()
        another = begin_write(HudiTable.open(table.location), operation="UPSERT")
        assert told() == []
        assert f"has completed commit {first.instant} since the newest entry of the commit log" in warning
        assert "FilesystemLockProvider does not keep it out" in warning
        assert "hoodie.write.lock.provider; docs/connections.md" in warning
        one.abort()
        another.abort()
        second = Jvm(table)
        second.upsert({8: 8.0})
        opened_anew = HudiTable.open(table.location)
        ingest_arrow(opened_anew, rows({1: 10.0}))
        (warning,) = told()
        assert f"completed commit {second.instant} since" in warning
        ingest_arrow(opened_anew, rows({1: 11.0}))
        assert told() == []

    def test_one_that_came_before_the_rollback_of_a_dead_writer_is_named(
        self, table: HudiTable, told: Callable[[], list[str]]
    ) -> None:
        dead = begin_write(table, operation="UPSERT")
        dead.heartbeat.stop()
        table.storage.put(heartbeat_path(dead.instant), b"")
        os.utime(Path(table.location, heartbeat_path(dead.instant)), (0, 0))
        jvm = Jvm(table)
        jvm.upsert({7: 7.0})
        ingest_arrow(table, rows({1: 10.0}))
        assert table.timeline().find(dead.instant) is None
        (warning,) = told()
        assert f"commit {jvm.instant}" in warning

    def test_a_table_service_names_them_when_it_plans(
        self, table: HudiTable, told: Callable[[], list[str]]
    ) -> None:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        jvm = Jvm(table)
        jvm.upsert({7: 7.0})
        assert schedule_clustering(table, ClusteringSettings()) is not None
        (warning,) = told()
        assert jvm.instant in warning

    def test_many_are_one_warning_with_the_newest(
        self, table: HudiTable, told: Callable[[], list[str]]
    ) -> None:
        jvms = [Jvm(table) for _ in range(7)]
        for jvm in jvms:
            jvm.upsert({7: 7.0})
        ingest_arrow(table, rows({1: 10.0}))
        (warning,) = told()
        assert ", ".join(f"commit {jvm.instant}" for jvm in jvms[2:]) + " and 2 earlier instants" in warning

    def test_there_is_no_warning_under_a_common_lock_nor_of_commits_before_our_first(
        self, table: HudiTable, told: Callable[[], list[str]]
    ) -> None:
        Jvm(table).upsert({7: 7.0})
        ingest(table, {1: 10.0}, lambda: None)
        theirs = HudiTable.create(
            f"{table.location}-theirs", name="t", schema=SCHEMA, record_key=["id"], partition_by=["city"]
        )
        Jvm(theirs).upsert({7: 7.0})
        ingest_arrow(theirs, rows({1: 10.0}))
        assert told() == []

    def test_the_table_tells_that_there_is_one(self, table: HudiTable) -> None:
        assert not describe_table(table)["other_writers"]
        Jvm(table).upsert({7: 7.0})
        ingest_arrow(table, rows({1: 10.0}))
        assert describe_table(table)["other_writers"]


class TestPlannedClustering:
    def test_nothing_is_written_to_its_file_groups(self, table: HudiTable) -> None:
        jvm = Jvm(table)
        jvm.plan_clustering([only_file(table)])
        for operation in ("upsert", "delete", "insert_overwrite_table"):
            with pytest.raises(WriteConflictError, match=f"CLUSTER {jvm.instant} by another Hudi writer"):
                ingest_arrow(table, rows({1: 10.0}), operation)
        assert table.timeline().find(jvm.instant) is not None
        assert fares(table) == {1: 1.0, 2: 2.0}

    def test_other_file_groups_are_written(self, table: HudiTable) -> None:
        Jvm(table).plan_clustering([only_file(table)])
        ingest_arrow(table, rows({7: 7.0}), small_file_limit=0)
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 7.0}

    def test_one_that_is_planned_while_the_write_is_under_way(self, table: HudiTable) -> None:
        jvm = Jvm(table)
        with pytest.raises(WriteConflictError, match=f"CLUSTER {jvm.instant} by another Hudi writer"):
            ingest(table, {1: 10.0}, lambda: jvm.plan_clustering([only_file(table)]))
        jvm.cluster([only_file(table)])
        assert fares(table) == {1: 1.0, 2: 2.0}

    @pytest.mark.parametrize("when", ["before the write", "while it is under way"])
    def test_a_write_that_waits_is_rebased_onto_it(
        self, table: HudiTable, when: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jvm, inputs = Jvm(table), [only_file(table)]

        def cluster(*_: object) -> bool:
            jvm.cluster(inputs)
            return True

        monkeypatch.setattr(committing, "wait_for_clustering", cluster)
        if when == "before the write":
            jvm.plan_clustering(inputs)
        ingest(
            table,
            {1: 10.0},
            (lambda: None) if when == "before the write" else (lambda: jvm.plan_clustering(inputs)),
            on_pending_clustering="wait",
            on_conflict="rebase",
        )
        assert fares(table) == {1: 10.0, 2: 2.0}

    def test_the_wait_ends_when_it_was_carried_out_or_rolled_back(self, table: HudiTable) -> None:
        jvm, gone = Jvm(table), Jvm(table).instant
        jvm.plan_clustering([only_file(table)])
        assert not wait_for_clustering(table, jvm.instant, 0.0)
        assert wait_for_clustering(table, gone, 0.0), "one that is on no timeline was rolled back"
        jvm.cluster([only_file(table)])
        assert wait_for_clustering(table, jvm.instant, 0.0)

    def test_one_of_ours_is_no_obstacle_until_another_writer_carries_it_out(self, table: HudiTable) -> None:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        instant = schedule_clustering(table, ClusteringSettings())
        ingest_arrow(table, rows({1: 10.0}))
        table.storage.put(f".hoodie/timeline/{instant}.clustering.inflight", b"")
        with pytest.raises(WriteConflictError, match=f"CLUSTER {instant} by another Hudi writer"):
            ingest_arrow(table, rows({1: 11.0}))

    def test_one_of_ours_that_ends_between_the_looks_is_none_of_another_writer(
        self, table: HudiTable
    ) -> None:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        instant = schedule_clustering(table, ClusteringSettings())
        assert instant is not None
        seen = Timeline(table.storage, [Instant(instant, Action.CLUSTERING, State.INFLIGHT)])
        assert [each.instant for each in planned_clusterings(table.storage, seen)] == [instant]
        cluster_in_process(table)
        assert planned_clusterings(table.storage, seen) == []
        theirs = Jvm(table)
        theirs.plan_clustering([only_file(table)])
        both = Timeline(table.storage, [*seen.instants, *table.timeline().pending()])
        assert [each.instant for each in planned_clusterings(table.storage, both)] == [theirs.instant]

    def test_one_of_ours_hides_none_of_another_writer(self, table: HudiTable) -> None:
        its = only_file(table)
        for key in (3, 4):
            ingest_arrow(table, rows({key: 1.0}), "bulk_insert")
        assert schedule_clustering(table, ClusteringSettings()) is not None
        theirs = Jvm(table)
        theirs.plan_clustering([its])
        found = planned_clusterings(table.storage, table.timeline())
        assert [each.instant for each in found] == [theirs.instant]


class TestPlanOfOurs:
    """Another engine executes a plan of this package with the plan's slices, and ignores later writes."""

    def plan(self, table: HudiTable) -> str:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        instant = schedule_clustering(table, ClusteringSettings())
        assert instant is not None
        return instant

    @pytest.mark.parametrize("when", ["before the plan", "before the write", "while it is under way"])
    def test_a_write_into_it_withdraws_it_where_there_are_other_writers(
        self, table: HudiTable, when: str
    ) -> None:
        if when == "before the plan":
            Jvm(table).upsert({7: 7.0})
        instant = self.plan(table)
        if when == "before the write":
            Jvm(table).upsert({7: 7.0})
        jvm = Jvm(table)
        came: Callable[[], object] = (lambda: jvm.upsert({7: 7.0})) if "way" in when else (lambda: None)
        ingest(table, {1: 10.0}, came)
        assert pending_clusterings(table) == []
        assert table.timeline().find(instant) is None
        assert fares(table) == {1: 10.0, 2: 2.0, 3: 3.0, 7: 7.0}
        assert schedule_clustering(table, ClusteringSettings()) is not None

    def test_an_executor_of_ours_loses_it(self, table: HudiTable) -> None:
        Jvm(table).upsert({7: 7.0})
        instant = self.plan(table)
        writer = begin_planned(table, instant)
        ingest(table, {1: 10.0}, lambda: None)
        with pytest.raises(InstantRolledBackError):
            writer.check([])
        writer.abort()
        assert fares(table) == {1: 10.0, 2: 2.0, 3: 3.0, 7: 7.0}

    def test_it_stays_where_nobody_else_writes_or_nothing_of_it_is_written(self, table: HudiTable) -> None:
        instant = self.plan(table)
        ingest(table, {1: 10.0}, lambda: None)
        assert pending_clusterings(table) == [instant]
        Jvm(table).upsert({7: 7.0})
        ingest_arrow(table, rows({8: 8.0}), "bulk_insert", lock=SharedLock(table, lambda: None))
        assert pending_clusterings(table) == [instant]

    @pytest.mark.parametrize("executor", ["has completed it", "has lost it"])
    def test_a_plan_that_ends_in_that_moment_is_in_nobodys_way(
        self, table: HudiTable, executor: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Jvm(table).upsert({7: 7.0})
        self.plan(table)

        def late(table: HudiTable, instant: str, **settings: Any) -> object:
            if executor == "has completed it":
                cluster_in_process(table, instant)
            else:
                rollback(table, instant)
            return rollback(table, instant, **settings)

        monkeypatch.setattr(committing, "rollback", late)
        ingest(table, {1: 10.0}, lambda: None, on_conflict="rebase")
        assert pending_clusterings(table) == []
        assert fares(table) == {1: 10.0, 2: 2.0, 3: 3.0, 7: 7.0}

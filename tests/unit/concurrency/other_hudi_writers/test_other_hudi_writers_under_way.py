"""A pending write of another Hudi writer: planners and committers of this package wait for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider.concurrency import begin_write, rollback
from airflow_provider.concurrency.conflicts.pending_writes import others_writing
from airflow_provider.concurrency.heartbeats import heartbeat_path
from airflow_provider.concurrency.plans import scheduling as plans
from airflow_provider.concurrency.write import committing
from airflow_provider.exceptions import UnfinishedWriteError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import (
    ClusteringJob,
    cluster_in_process,
    pending_clusterings,
    pending_plan,
    run_clustering,
    schedule_clustering,
    write_group,
)
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.table_compaction import (
    LogCompactionSettings,
    TableCompactionSettings,
    compact_logs,
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.instant import after
from tests.ingestion_contract.interleaving import MeetingLock
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import (
    SCHEMA,
    Jvm,
    SharedLock,
    create_trips,
    fares,
    ingest,
    only_file,
    pending_heartbeats,
    rows,
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


class TestWriteUnderWay:
    """The JVM gives a write up if a clustering plan names one of its file groups."""

    def test_what_it_rewrites_is_not_planned_to_be_clustered(self, table: HudiTable) -> None:
        its = only_file(table)
        for fare in (3.0, 4.0):
            ingest_arrow(table, rows({int(fare): fare}), "bulk_insert")
        jvm = Jvm(table)
        jvm.begin(beats=True, into=its)
        instant = schedule_clustering(table, ClusteringSettings())
        assert instant is not None
        planned = pending_plan(table, instant).file_groups
        assert len(planned) == 2
        assert its.file_group not in planned

    def test_who_beats_and_is_no_such_write_hides_none_that_is(self, table: HudiTable) -> None:
        its = only_file(table)
        with begin_write(table, operation="UPSERT") as ours:
            completed = Jvm(table, requested=after(ours.instant))
            clusters = Jvm(table, requested=after(completed.instant))
            writes = Jvm(table, requested=after(clusters.instant))
            for jvm in (completed, clusters):
                table.storage.put(heartbeat_path(jvm.instant), b"")
            completed.upsert({7: 7.0})
            clusters.plan_clustering([its])
            writes.begin(beats=True, into=its)
            assert others_writing(table.storage).keys() == {writes.instant}

    def test_nothing_is_planned_until_it_tells_what_it_rewrites(self, table: HudiTable) -> None:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        its = table.view().all_base_files()
        jvm = Jvm(table)
        jvm.begin(beats=True, tells=False)
        with ThreadPoolExecutor() as pool:
            planner = pool.submit(schedule_clustering, table, ClusteringSettings())
            with pytest.raises(TimeoutError):
                planner.result(timeout=1.0)
            jvm.tell(next(iter(its)))
            assert planner.result() is None, "one file group is left: there is nothing to pack"
        jvm.end()
        rollback(table, jvm.instant)
        assert schedule_clustering(table, ClusteringSettings()) is not None

    def test_nothing_is_planned_beside_one_that_does_not_tell_in_time(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(plans, "SECONDS_FOR_ANOTHER_ENGINE", 0.1)
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        jvm = Jvm(table)
        jvm.begin(beats=True, tells=False)
        assert schedule_clustering(table, ClusteringSettings()) is None
        assert f"no CLUSTER is planned: {jvm.instant} of another Hudi writer" in caplog.text


class TestUnfinishedWrite:
    @pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
    def test_nothing_is_committed_after_one_that_keeps_no_heartbeat(
        self, table: HudiTable, operation: str
    ) -> None:
        jvm = Jvm(table)
        jvm.begin()
        told = f"commit {jvm.instant} of another Hudi writer is pending"
        with pytest.raises(WriteConflictError, match=told) as error:
            ingest_arrow(table, rows({7: 7.0}), operation)
        assert error.value.details["instant"] == jvm.instant
        assert table.timeline().pending()[0].requested_time == jvm.instant

    def test_no_clustering_is_planned_after_one(self, table: HudiTable) -> None:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        jvm = Jvm(table)
        jvm.begin()
        with pytest.raises(UnfinishedWriteError, match=f"commit {jvm.instant} of another Hudi writer"):
            schedule_clustering(table, ClusteringSettings())
        assert pending_heartbeats(table) == []
        assert [each.requested_time for each in table.timeline().pending()] == [jvm.instant]
        lock = SharedLock(table, lambda: None)
        assert schedule_clustering(table, ClusteringSettings(), lock=lock) is not None

    @pytest.mark.parametrize(
        "compact",
        [
            lambda table: compact_table(table, TableCompactionSettings(delta_commits=1)),
            lambda table: compact_logs(table, LogCompactionSettings(2)),
        ],
        ids=["compaction", "log compaction"],
    )
    def test_no_compaction_is_planned_after_one(
        self, tmp_path: Path, compact: Callable[[HudiTable], object]
    ) -> None:
        columns = {"schema": SCHEMA, "record_key": ["id"], "partition_by": ["city"]}
        table = HudiTable.create(str(tmp_path / "t"), name="trips", table_type="merge_on_read", **columns)
        for fare in (1.0, 2.0, 3.0):
            ingest_arrow(table, rows({1: fare}))
        jvm = Jvm(table)
        jvm.begin()
        with pytest.raises(UnfinishedWriteError, match=jvm.instant):
            compact(table)
        assert [each.requested_time for each in table.timeline().pending()] == [jvm.instant]
        rollback(table, jvm.instant)
        assert compact(table)

    @pytest.mark.parametrize("named", [True, False])
    def test_no_clustering_is_executed_after_one(self, table: HudiTable, named: bool) -> None:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        jvm = Jvm(table)
        instant = schedule_clustering(table, ClusteringSettings())
        jvm.begin()
        with pytest.raises(UnfinishedWriteError, match=jvm.instant):
            cluster_in_process(table, instant if named else None)
        assert pending_clusterings(table, idle=True) == [instant]
        rollback(table, jvm.instant)
        assert cluster_in_process(table, instant if named else None)

    def test_no_table_compaction_is_executed_after_one(self, tmp_path: Path) -> None:
        columns = {"schema": SCHEMA, "record_key": ["id"], "partition_by": ["city"]}
        table = HudiTable.create(str(tmp_path / "t"), name="trips", table_type="merge_on_read", **columns)
        for fare in (1.0, 2.0):
            ingest_arrow(table, rows({1: fare}))
        jvm = Jvm(table)
        instant = schedule_table_compaction(table, TableCompactionSettings(delta_commits=1))
        jvm.begin()
        with pytest.raises(UnfinishedWriteError, match=jvm.instant):
            run_table_compaction(table)
        rollback(table, jvm.instant)
        assert run_table_compaction(table, instant)

    @pytest.mark.parametrize("meets", ["nobody else", "a conflict"])
    def test_one_that_was_requested_before_a_load_and_shows_after_its_begin_fails_the_load(
        self, table: HudiTable, meets: str
    ) -> None:
        """Another engine takes its requested time, and puts the requested instant a moment later."""
        jvm, third = Jvm(table), Jvm(table)

        def shows() -> None:
            jvm.begin()
            if meets == "a conflict":
                third.upsert({2: 5.0}, into=only_file(table))

        with pytest.raises(UnfinishedWriteError, match=jvm.instant):
            ingest_arrow(table, rows({1: 10.0}), lock=MeetingLock(shows), on_conflict="rebase")
        assert [each.requested_time for each in table.timeline().pending()] == [jvm.instant]
        assert fares(table) == {1: 1.0, 2: 2.0 if meets == "nobody else" else 5.0}

    def test_one_that_was_requested_before_a_clustering_and_shows_after_its_begin_fails_it(
        self, table: HudiTable
    ) -> None:
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        jvm = Jvm(table)
        schedule_clustering(table, ClusteringSettings())
        job = ClusteringJob.of(table.location)
        with pytest.raises(UnfinishedWriteError, match=jvm.instant):
            run_clustering(job, table, write_group, lock=MeetingLock(jvm.begin))
        assert [each.requested_time for each in table.timeline().pending()] == [jvm.instant]

    def test_one_that_was_requested_after_a_write_is_no_obstacle_to_it(self, table: HudiTable) -> None:
        """Hudi refuses to roll it back after a commit that was requested later, and only then."""
        ingest_arrow(table, rows({1: 10.0}), lock=MeetingLock(lambda: Jvm(table).begin()))
        assert fares(table) == {1: 10.0, 2: 2.0}

    def test_one_that_was_requested_after_a_plan_is_no_obstacle_to_its_execution(
        self, table: HudiTable
    ) -> None:
        """The JVM refuses a write into what is planned, and leaves such an instant behind."""
        ingest_arrow(table, rows({3: 3.0}), "bulk_insert")
        instant = schedule_clustering(table, ClusteringSettings())
        jvm = Jvm(table)
        jvm.begin()
        assert cluster_in_process(table, instant)
        assert [each.requested_time for each in table.timeline().pending()] == [jvm.instant]

    def test_it_is_rolled_back_on_demand(self, table: HudiTable) -> None:
        jvm = Jvm(table)
        jvm.begin()
        rollback(table, jvm.instant)
        ingest_arrow(table, rows({7: 7.0}))
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 7.0}

    def test_one_that_beats_is_no_obstacle(self, table: HudiTable) -> None:
        Jvm(table).begin(beats=True)
        ingest_arrow(table, rows({7: 7.0}))
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 7.0}

    def test_with_a_common_lock_it_is_one_that_failed_and_the_other_engine_rolls_it_back(
        self, table: HudiTable
    ) -> None:
        Jvm(table).begin()
        ingest(table, {7: 7.0}, lambda: None)
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 7.0}


class TestAWriteUnderWay:
    """A write of another engine with a heartbeat, on the file group that this package writes to."""

    @pytest.fixture
    def waited_for(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The instants that this package waits for; each ends during the wait, as :attr:`ends` says."""
        found: list[str] = []

        def wait(_: HudiTable, instant: str, timeout: float) -> bool:
            assert timeout > 0
            found.append(instant)
            self.ends()
            return True

        monkeypatch.setattr(committing, "wait_for_instant", wait)
        return found

    def ends(self) -> None: ...

    @pytest.mark.parametrize("commits", [True, False])
    def test_it_is_let_finish_once(self, table: HudiTable, waited_for: list[str], commits: bool) -> None:
        jvm, later, file = Jvm(table), Jvm(table), only_file(table)
        jvm.begin(beats=True, into=file)

        def ends() -> None:
            if commits:
                jvm.upsert({2: 5.0}, into=file)
            jvm.end()
            later.begin(beats=True, into=file)  # a writer that always comes back takes turns with this one

        self.ends = ends  # type: ignore[method-assign]
        ingest(table, {1: 10.0}, lambda: None, on_conflict="rebase")
        assert waited_for == [jvm.instant]
        assert fares(table) == {1: 10.0, 2: 5.0 if commits else 2.0}

    def test_one_that_has_not_said_what_it_writes_is_let_finish(
        self, table: HudiTable, waited_for: list[str]
    ) -> None:
        jvm = Jvm(table)
        jvm.begin(beats=True, tells=False)
        self.ends = lambda: jvm.tell(None)  # type: ignore[method-assign]
        ingest(table, {1: 10.0}, lambda: None)
        assert waited_for == [jvm.instant]

    def test_one_that_was_requested_earlier_and_is_seen_later_does_not_build_on_this_write(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A JVM holds the lock for a while from its requested time on, and reads the table after that.

        If it builds on a slice that was requested later, readers consider the JVM's slice the older one.
        """
        jvm = Jvm(table)

        def looks_at_the_table(*_: object) -> bool:
            jvm.upsert({2: 5.0}, into=only_file(table))
            jvm.end()
            return True

        monkeypatch.setattr(committing, "wait_for_others_to_tell", looks_at_the_table)
        ingest(table, {1: 10.0}, lambda: jvm.begin(beats=True, tells=False), on_conflict="rebase")
        if jvm.instant in pending_heartbeats(table):
            looks_at_the_table()
        assert fares(table) == {1: 10.0, 2: 5.0}

    def test_one_that_never_tells_is_waited_for_no_longer_than_said(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(committing, "SECONDS_FOR_ANOTHER_ENGINE", 0.5)
        jvm = Jvm(table)
        ingest(table, {1: 10.0}, lambda: jvm.begin(beats=True, tells=False))
        assert fares(table) == {1: 10.0, 2: 2.0}

    def test_another_file_group_is_not_waited_for(self, table: HudiTable, waited_for: list[str]) -> None:
        first = only_file(table)
        Jvm(table).upsert({7: 7.0})
        [other] = [each for each in table.view().base_files("city=sf") if each.file_id != first.file_id]
        Jvm(table).begin(beats=True, into=other)
        ingest(table, {1: 10.0}, lambda: None)
        assert waited_for == []

    def test_one_that_has_not_beaten_for_longer_than_a_jvm_does_is_not(
        self, table: HudiTable, waited_for: list[str]
    ) -> None:
        jvm = Jvm(table)
        jvm.begin(beats=True, into=only_file(table))
        long_ago = time.time() - 90.0
        os.utime(Path(table.location, f".hoodie/.heartbeat/{jvm.instant}"), (long_ago, long_ago))
        ingest(table, {1: 10.0}, lambda: None)
        assert waited_for == []

    def test_without_a_common_lock_nobody_waits(self, table: HudiTable, waited_for: list[str]) -> None:
        Jvm(table).begin(beats=True, into=only_file(table))
        ingest_arrow(table, rows({1: 10.0}))
        assert waited_for == []

"""RFC-45's error cases, each by its name there; its instant tables are in test_instant_tables.py, and case 5,
a data timeline with holes, in test_timeline_with_holes.py.

After each of them the indexes equal a rebuild (C6). "Writer" is a writer of this package in cases about the
records that a writer logs, and another Hudi's in cases about a writer that may not have logged.
"""

from __future__ import annotations

import os
import threading

import pytest

from airflow_provider.concurrency import (
    CommitLog,
    rollback_dead_writers,
)
from airflow_provider.exceptions import (
    InstantRolledBackError,
    InvalidInputError,
    WriteConflictError,
)
from airflow_provider.indexing.base_files import IndexBuild, build_in_process
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import LockHolder
from airflow_provider.locks.in_process import InProcessLockProvider
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, MetadataTable, metadata_storage
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.concurrency.simulation.scheduler import NoLock
from tests.unit.indexing.jvm import JvmWrite, SharedLock, rows
from tests.unit.indexing.under_shared_lock import ALL, begun, indexed_keys, run, schedule, used, written
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

# --- case 1: writer fails while indexer is inflight ---------------------------------------------


def test_case_1_our_writer_fails_while_the_indexer_is_inflight(table: HudiTable) -> None:
    instant = schedule(table)
    failed: list[str] = []

    def build(planned: IndexBuild) -> list[WriteStat]:
        writer, _ = written(table, [7])
        failed.append(writer.instant)
        writer.abort("disk full")
        return build_in_process(planned)

    run(table, instant, build=build)
    assert_indexes_equal_a_rebuild(table, ALL)
    metadata_table = Timeline.load(metadata_storage(table.storage))
    assert metadata_table.find(failed[0]) is None, "nothing of it is left in the metadata table"


def test_case_1_our_writer_dies_after_it_has_staged_for_the_index(table: HudiTable) -> None:
    instant = schedule(table)
    writer, stat = written(table, [7])
    writer.heartbeat.stop()
    storage = table.storage
    rolled_back = HudiTable.open(table.location)

    class DiesError(Exception): ...

    class DyingLock(InProcessLockProvider):
        def holder(self) -> LockHolder | None:
            raise DiesError  # the writer stages the records before it asks for the lock

    writer.lock = DyingLock(table.location)
    writer._give_up = lambda error: None  # type: ignore[method-assign]  # killed: it does not clean up
    with pytest.raises(DiesError):
        writer.commit([stat])
    assert Timeline.load(metadata_storage(storage)).find(writer.instant) is not None
    run(table, instant)
    assert_indexes_equal_a_rebuild(table, ALL)
    age(table, f".hoodie/.heartbeat/{writer.instant}")
    assert rollback_dead_writers(rolled_back) == [writer.instant]
    assert_indexes_equal_a_rebuild(table, ALL)
    assert Timeline.load(metadata_storage(storage)).find(writer.instant) is None
    assert indexed_keys(table) == {1, 2, 3}


def test_case_1_another_hudi_writer_dies_and_is_ignored(table: HudiTable) -> None:
    jvm = JvmWrite(table).begin()
    jvm.beat()
    instant = schedule(table)
    jvm.beat(seconds_ago=3600)
    run(table, instant)
    assert_indexes_equal_a_rebuild(table, ALL)


# --- case 2: indexer fails while writer is inflight ---------------------------------------------


def test_case_2_the_indexer_fails_while_a_writer_is_inflight(table: HudiTable) -> None:
    instant = schedule(table)
    commit = begun(table, [4])

    def dies(planned: IndexBuild) -> list[WriteStat]:
        raise MemoryError("out of memory")

    with pytest.raises(MemoryError):
        run(table, instant, build=dies)
    commit()
    config = HudiTable.open(table.location).config
    assert config.metadata_partitions == config.inflight_metadata_partitions == ()
    run(table, instant)
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4}


def test_case_2_the_indexer_is_run_again_and_skips_what_is_complete(table: HudiTable) -> None:
    instant = schedule(table)
    first = run(table, instant)

    def builds_again(planned: IndexBuild) -> list[WriteStat]:
        raise AssertionError("it is complete")

    again = run(table, instant, build=builds_again)
    assert again.already_completed
    assert again.to_dict() == {**first.to_dict(), "already_completed": True}
    assert schedule_index(table, ALL) is None
    assert_indexes_equal_a_rebuild(table, ALL)


# --- case 3: race conditions --------------------------------------------------------------------


def test_case_3a_a_writer_went_inflight_after_the_request_before_the_run(table: HudiTable) -> None:
    instant = schedule(table)
    commit = begun(table, [4])
    commit()
    assert Timeline.load(metadata_storage(table.storage)).instants, "it logged before anything was built"
    run(table, instant)
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4}


def test_case_3a_and_it_commits_after_the_run_has_begun(table: HudiTable) -> None:
    instant = schedule(table)
    commit = begun(table, [4])

    def build(planned: IndexBuild) -> list[WriteStat]:
        stats = build_in_process(planned)
        commit()
        return stats

    run(table, instant, build=build)
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4}


def test_case_3b_a_writer_is_about_to_commit_and_the_indexing_completes_before_that(table: HudiTable) -> None:
    instant = schedule(table)
    commit = begun(table, [4])
    run(table, instant)
    assert used(table) == set(ALL)
    commit()
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4}


def test_case_3b_the_writer_had_begun_before_there_was_a_plan(table: HudiTable) -> None:
    commit = begun(table, [4])  # the writer has seen no index at all
    instant = schedule(table)
    run(table, instant)
    commit()
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4}


def test_case_3b_another_hudi_writer_begins_during_the_build_and_completes_after_it(table: HudiTable) -> None:
    instant = schedule(table)
    writes: list[JvmWrite] = []

    def build(planned: IndexBuild) -> list[WriteStat]:
        writes.append(JvmWrite(table).begin())  # after the plan: the run does not wait for it
        return build_in_process(planned)

    run(table, instant, build=build)
    writes[0].upsert([4])
    # The other writer did not log. The next commit does, before its own records.
    ingest_arrow(HudiTable.open(table.location), rows([5]), lock=SharedLock(table.location))
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4, 5}


def test_case_3b_and_what_it_merged_on_is_cleaned_before_it_is_logged(table: HudiTable) -> None:
    """Even then the next commit of this package logs the JVM's commit."""
    run(table, schedule(table))
    table = HudiTable.open(table.location)
    [old, *_] = table.base_files()
    JvmWrite(table).begin().upsert([1, 50], into=old)
    JvmWrite(table, Action.CLEAN).begin().clean(old)
    ingest_arrow(table, rows([60]), lock=SharedLock(table.location))
    assert_indexes_equal_a_rebuild(table, ALL)


def test_case_3b_and_it_shares_no_lock_with_us(table: HudiTable) -> None:
    run(table, schedule(table))
    for key in (4, 5):
        JvmWrite(table).begin().upsert([key])
    ingest_arrow(HudiTable.open(table.location), rows([6]), "bulk_insert")  # looks no key up
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4, 5, 6}


def test_case_3c_a_writer_is_about_to_commit_while_the_file_groups_are_made(table: HudiTable) -> None:
    class CommitsMeanwhile(SharedLock):
        """A writer that waits for the lock while the plan's file groups are made."""

        def __exit__(self, *error: object) -> None:
            slices = MetadataTable(metadata_storage(table.storage)).file_slices("record_index")
            assert len(slices) == 10, "no file group is missing when somebody else gets the lock"
            super().__exit__(*error)  # type: ignore[arg-type]

    commit = begun(table, [4])
    instant = schedule_index(table, ALL, lock=CommitsMeanwhile(table.location))
    commit()
    assert instant is not None
    run(table, instant)
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 4}


# --- case 4: async table services ---------------------------------------------------------------


def test_case_4_table_services_go_on_and_leave_the_index_alone_while_it_is_built(table: HudiTable) -> None:
    for fare in (2.0, 3.0, 4.0):
        ingest_arrow(table, rows([1, 2], fare))
    instant = schedule(table)

    def build(planned: IndexBuild) -> list[WriteStat]:
        stats = build_in_process(planned)
        retention = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)
        assert clean(HudiTable.open(table.location), retention), "what the build does not read goes"
        assert schedule_clustering(table, ClusteringSettings(sort_by=("fare",))) is not None
        assert cluster_in_process(table) is not None
        assert compact(HudiTable.open(table.location), CompactionSettings(max_delta_commits=1)) == [], (
            "what is not complete is not compacted"
        )
        assert used(table) == set(), "nobody uses it"
        return stats

    run(table, instant, build=build)
    assert_indexes_equal_a_rebuild(table, ALL)


# --- what the RFC's summary asks for besides ----------------------------------------------------


def test_it_errors_out_when_the_lock_does_not_keep_another_hudi_writer_out(table: HudiTable) -> None:
    jvm = JvmWrite(table).begin()
    with pytest.raises(InvalidInputError, match="configure the lock provider"):
        schedule_index(table, ALL)
    instant = schedule(table)
    with pytest.raises(InvalidInputError, match="FilesystemLockProvider does not keep it out"):
        run_index(table, instant)
    assert CommitLog(table.storage).newest() is not None
    jvm.upsert([4])
    run(table, instant)
    assert_indexes_equal_a_rebuild(table, ALL)


def test_two_runs_at_once_one_is_told(table: HudiTable) -> None:
    instant = schedule(table)

    def build(planned: IndexBuild) -> list[WriteStat]:
        with pytest.raises(WriteConflictError, match="carried out already by"):
            run(table, instant)
        return build_in_process(planned)

    run(table, instant, build=build)
    assert_indexes_equal_a_rebuild(table, ALL)
    assert snapshot(HudiTable.open(table.location)).to_table().num_rows == 3


def test_a_drop_that_stands_still_takes_nothing_of_the_index_that_comes_after_it(table: HudiTable) -> None:
    run(table, schedule(table))
    writer, stat = written(table, [7])
    goes_on = threading.Event()

    class StandsStill(Storage):
        """A cleaner that pauses after it has listed the files to delete, and loses its lock."""

        stands = threading.Event()

        def delete(self, path: str) -> bool:
            if path.startswith(f"{METADATA_FOLDER}/record_index"):
                self.stands.set()
                assert goes_on.wait(60)
            return super().delete(path)

    storage = StandsStill(table.location)
    drop = threading.Thread(
        target=drop_index,
        args=(HudiTable(storage, table.config), ["record_index"]),
        kwargs={"lock": NoLock()},
    )

    class Waited(SharedLock):
        """A lock: before its acquisition the index for which the writer has staged is dropped and rebuilt."""

        def __enter__(self) -> SharedLock:
            drop.start()
            assert storage.stands.wait(60)
            run(table, schedule(table))
            return super().__enter__()

    writer.lock = Waited(table.location)
    writer.commit([stat])
    goes_on.set()
    drop.join()
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 7}


def age(table: HudiTable, path: str) -> None:
    os.utime(f"{table.location}/{path}", (0, 0))


def test_a_writer_that_was_rolled_back_cannot_commit_into_the_index(table: HudiTable) -> None:
    instant = schedule(table)
    writer, stat = written(table, [4])
    age(table, f".hoodie/.heartbeat/{writer.instant}")
    run(table, instant)  # it rolls dead writers back first
    with pytest.raises(InstantRolledBackError):
        writer.commit([stat])
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3}


def test_a_plan_says_what_hudi_wants_to_know(table: HudiTable) -> None:
    instant = schedule(table)
    (planned,) = table.timeline().pending()
    said = table.timeline().plan(planned)
    assert said is not None
    assert [info["metadataPartitionPath"] for info in said["indexPartitionInfos"]] == ALL
    run(table, instant)
    config = HudiTable.open(table.location).config
    assert config.raw["hoodie.table.index.defs.path"] == ".hoodie/.index_defs/index.json"

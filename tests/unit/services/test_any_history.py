"""Any history of writes and table services, compared with a dictionary; hudi-rs reads the same rows.

Indexes are built and dropped meanwhile; after every step they equal a rebuild from the data.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider.concurrency import Writer, begin_write, rollback
from airflow_provider.concurrency.readers import forget_consumer, reader_lease, register_consumer
from airflow_provider.exceptions import SnapshotUnavailableError, TableError, WriteConflictError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.locks import InProcessLockProvider
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, plan_clean
from airflow_provider.services.compaction import compact, pending_compactions, schedule_compaction
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint, savepoints
from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    schedule_table_compaction,
)
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from airflow_provider.table.file_groups.view import FileSystemView
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.reading.incremental import increment
from airflow_provider.table.reading.slices import file_slices
from tests.ingestion_contract.interleaving import Clustering
from tests.ingestion_contract.lake import Lake, in_order
from tests.ingestion_contract.merge_on_read import BUCKETS
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.int64()})
Rows = dict[tuple[str, int], int]

# A record key is in one partition only: a record index has one place for it.
keys = st.sampled_from([("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 5), ("b", 6), ("b", 7), ("b", 8)])
indexes = st.sets(st.sampled_from(list(MetadataPartition)), min_size=1, max_size=3)
batches = st.sets(keys, min_size=1, max_size=4)
positions = st.integers(0, 20)
policies = st.sampled_from(
    [
        Retention(CleaningPolicy.KEEP_LATEST_COMMITS, 1, reverted_after=0.0),
        Retention(CleaningPolicy.KEEP_LATEST_COMMITS, 3, reverted_after=0.0),
        Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1, reverted_after=0.0),
        Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 2, reverted_after=0.0),
        Retention(CleaningPolicy.KEEP_LATEST_BY_HOURS, 1e-9),
    ]
)


@dataclass
class Commit:
    """A commit that is not undone, and the rows after it."""

    instant: str
    rows: Rows
    is_saved: bool = False


@dataclass
class Watcher:
    """A reader that needs the files of its snapshot, and the function that ends it."""

    files: set[str]
    ends: ExitStack = field(default_factory=ExitStack)


class Histories(RuleBasedStateMachine):
    options: ClassVar[dict[str, Any]] = {}
    clusters = True
    has_not: ClassVar[set[MetadataPartition]] = set()

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.made = Lake(Path(self._folder.name)).create(SCHEMA, partition_by=["p"], **self.options)
        self.lock = InProcessLockProvider(self.made.location)
        self.rows: Rows = {}
        self.commits: list[Commit] = []
        self.watchers: list[Watcher] = []
        self.writer: Writer | None = None
        self.checkpoint: str | None = None
        self.version = 0

    @initialize(batch=batches, is_indexed=st.booleans())
    def first_commit(self, batch: set[tuple[str, int]], is_indexed: bool) -> None:
        self.upsert(batch)
        if is_indexed:
            self.schedule_indexes(set(MetadataPartition))
            self.build_indexes()

    # --- writes -----------------------------------------------------------------------------

    @rule(batch=batches)
    def upsert(self, batch: set[tuple[str, int]]) -> None:
        self._write("upsert", batch)
        self.rows = self.rows | dict.fromkeys(batch, self.version)
        self._committed()

    @rule(batch=batches)
    def delete(self, batch: set[tuple[str, int]]) -> None:
        self._write("delete", batch)
        self.rows = {key: value for key, value in self.rows.items() if key not in batch}
        self._committed()

    @rule(batch=batches)
    def insert_overwrite(self, batch: set[tuple[str, int]]) -> None:
        self._write("insert_overwrite", batch)
        overwritten = {partition for partition, _ in batch}
        kept = {key: value for key, value in self.rows.items() if key[0] not in overwritten}
        self.rows = kept | dict.fromkeys(batch, self.version)
        self._committed()

    @precondition(lambda self: self.clusters)
    @rule(partition=st.sampled_from("ab"))
    def cluster(self, partition: str) -> None:
        clustering = Clustering(self.made.table, f"p={partition}", outputs=1)
        clustering.commit()
        if clustering.instant is not None:  # otherwise the service would improve nothing
            self._committed()

    @rule(is_late=st.booleans(), partition=st.sampled_from("ab"))
    def a_writer_dies(self, is_late: bool, partition: str) -> None:
        """A writer dies; its last file may come after its rollback, from a task that outlived it."""
        table = self.made.table
        writer = begin_write(table, operation="UPSERT", action=table.write_action, lock=self.lock)
        path = f"p={partition}/{base_file_name('dead-0', '0-0-0', writer.instant)}"
        writer.plan((), [f"p={partition}"])
        writer.heartbeat.stop()
        if not is_late:
            table.storage.put(path, b"never read")
        rollback(table, writer.instant)
        if is_late:
            table.storage.put(path, b"never read")

    # --- who needs something ------------------------------------------------------------------

    @precondition(lambda self: self.writer is None)
    @rule()
    def a_writer_begins(self) -> None:
        table = self.made.table
        self.writer = begin_write(table, operation="UPSERT", action=table.write_action, lock=self.lock)
        watcher = Watcher(self._files(self.writer.view))
        watcher.ends.callback(self.writer.abort)
        self.watchers.append(watcher)

    @rule()
    def a_reader_begins(self) -> None:
        watcher = Watcher(set())
        watcher.ends.enter_context(reader_lease(self.made.table))
        watcher.files = self._files(self.made.table.view())
        self.watchers.append(watcher)

    @precondition(lambda self: self.watchers)
    @rule(position=positions)
    def one_of_them_ends(self, position: int) -> None:
        watcher = self.watchers.pop(position % len(self.watchers))
        watcher.ends.close()
        if self.writer is not None and self.writer.ended:
            self.writer = None

    @rule()
    def a_consumer_reads(self) -> None:
        found = increment(self.made.table, self.checkpoint)
        self.checkpoint = found.end
        register_consumer(self.made.table, "billing", found.end or "")

    @rule()
    def the_consumer_is_forgotten(self) -> None:
        forget_consumer(self.made.table, "billing")
        self.checkpoint = None

    # --- services -----------------------------------------------------------------------------

    @rule(retention=policies)
    def clean(self, retention: Retention) -> None:
        table = self.made.table
        planned = plan_clean(table, retention)
        whole = [commit for commit in self.commits if self._as_of(commit) is not None]
        results = clean(table, retention, lock=self.lock)
        assert sum(result.deleted for result in results) == len(planned.files)
        assert sum(result.size for result in results) == planned.size
        assert not any((Path(self.made.location) / file.path).exists() for file in planned.files)
        assert plan_clean(table, retention).files == (), "a clean leaves nothing for the next one"
        self._check_history()
        if retention.policy is CleaningPolicy.KEEP_LATEST_COMMITS:
            kept = self.commits[-int(retention.retained or 0) - 1 :]
            assert all(self._as_of(commit) == commit.rows for commit in kept if commit in whole)

    @rule(keep=st.integers(1, 3))
    def archive(self, keep: int) -> None:
        table = self.made.table
        archive(table, keep_min=keep, keep_max=keep + 1, dead_writer_seconds=0.0, lock=self.lock)
        active = {instant.requested_time for instant in table.timeline().commits()}
        left, self.commits = self.commits, [each for each in self.commits if each.instant in active]
        assert self.commits == left[-len(self.commits) :], "the oldest leave, without a gap"
        assert not any(commit.is_saved for commit in left[: -len(self.commits)])
        self._check_history()

    @rule(position=positions)
    def savepoint(self, position: int) -> None:
        commit = self.commits[position % len(self.commits)]
        if self._as_of(commit) is None:
            with pytest.raises(SnapshotUnavailableError):
                create_savepoint(self.made.table, commit.instant, lock=self.lock)
        else:
            create_savepoint(self.made.table, commit.instant, lock=self.lock)
            commit.is_saved = True

    @rule(position=positions)
    def delete_savepoint(self, position: int) -> None:
        if saved := [commit for commit in self.commits if commit.is_saved]:
            commit = saved[position % len(saved)]
            delete_savepoint(self.made.table, commit.instant)
            commit.is_saved = False

    @rule(position=positions)
    def restore(self, position: int) -> None:
        position %= len(self.commits)
        commit, later = self.commits[position], self.commits[position + 1 :]
        if any(each.is_saved for each in later):
            with pytest.raises(TableError, match="delete it first"):
                restore(self.made.table, commit.instant, lock=self.lock)
        elif self._as_of(commit) is None:
            with pytest.raises(SnapshotUnavailableError, match="needs"):
                restore(self.made.table, commit.instant, lock=self.lock)
        elif self.writer is not None:
            with pytest.raises(WriteConflictError, match="is under way"):
                restore(self.made.table, commit.instant, lock=self.lock)
        else:
            result = restore(self.made.table, commit.instant, lock=self.lock)
            assert list(result.plan.to_dict()["undone"]) == [each.instant for each in later][::-1]
            self.commits, self.rows = self.commits[: position + 1], commit.rows
            self._check_history()
            if later:  # a restore keeps no file for readers of commits that it undoes
                while self.watchers:
                    self.watchers.pop().ends.close()
                self.the_consumer_is_forgotten()

    # --- indexes ------------------------------------------------------------------------------

    @rule(names=indexes)
    def schedule_indexes(self, names: set[MetadataPartition]) -> None:
        """Plan indexes; each commit logs to them until they are built."""
        wanted = (names | {MetadataPartition.COLUMN_STATS}) - self.has_not
        schedule_index(self.made.table, sorted(wanted), lock=self.lock)

    @rule()
    def build_indexes(self) -> None:
        for instant in pending_indexings(self.made.table):
            run_index(self.made.table, instant, lock=self.lock)

    @rule(names=indexes)
    def drop_indexes(self, names: set[MetadataPartition]) -> None:
        if wanted := names - self.has_not:
            drop_index(self.made.table, sorted(wanted), lock=self.lock)

    @rule()
    def plan_a_compaction(self) -> None:
        """Plan a compaction, which never includes later commits, whenever it is executed."""
        schedule_compaction(self.made.table, CompactionSettings(1), lock=self.lock)

    @rule()
    def compact(self) -> None:
        compact(self.made.table, CompactionSettings(1), lock=self.lock)
        assert pending_compactions(self.made.table) == []

    @invariant()
    def indexes_equal_a_rebuild(self) -> None:
        assert_indexes_equal_a_rebuild(self.made.table)

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def all_readers_see_the_model(self) -> None:
        assert self.made.rows() == _listed(self.rows)
        if self.hudi_rs_reads_all():
            assert self.made._theirs() == _listed(self.rows)

    def hudi_rs_reads_all(self, as_of: str | None = None) -> bool:
        return True

    @invariant()
    def nothing_that_is_needed_is_gone(self) -> None:
        for watcher in self.watchers:
            assert all((Path(self.made.location) / path).exists() for path in watcher.files)

    def _check_history(self) -> None:
        for commit in self.commits:
            found = self._as_of(commit)
            assert found in (None, commit.rows), "a snapshot of the past is whole, or cannot be read"
            if commit.is_saved:
                assert found == commit.rows
                if self.hudi_rs_reads_all(commit.instant):
                    assert self.made._theirs(as_of=commit.instant) == _listed(commit.rows)
        saved = {commit.instant for commit in self.commits if commit.is_saved}
        assert {each.instant for each in savepoints(self.made.table)} == saved
        if self.checkpoint is not None:
            timeline = self.made.table.timeline()
            for commit in timeline.commits():
                if (commit.completion_time or "") > self.checkpoint:
                    increment(self.made.table, self.checkpoint, end=commit.completion_time)

    def teardown(self) -> None:
        for watcher in self.watchers:
            watcher.ends.close()
        self._folder.cleanup()

    def _write(self, operation: str, batch: set[tuple[str, int]]) -> None:
        self.version += 1
        rows = [{"id": id_, "p": partition, "v": self.version} for partition, id_ in sorted(batch)]
        self.made.ingest(operation, rows, lock=self.lock)

    @staticmethod
    def _files(view: FileSystemView) -> set[str]:
        """Paths of the snapshot's base files and log files."""
        partitions = view.all_partitions()
        files = (each for path in partitions for each in (*view.base_files(path), *view.log_files(path)))
        return {each.path for each in files}

    def _committed(self) -> None:
        newest = self.made.table.timeline().commits()[-1]
        self.commits.append(Commit(newest.requested_time, self.rows))

    def _as_of(self, commit: Commit) -> Rows | None:
        try:
            found = self.made.rows(commit.instant)
        except SnapshotUnavailableError:
            return None
        return {(row["p"], row["id"]): row["v"] for row in found}


def _listed(rows: Rows) -> list[dict[str, Any]]:
    return in_order({"id": id_, "p": partition, "v": value} for (partition, id_), value in rows.items())


class WithLogFiles(Histories):
    """The same on a merge-on-read table, with its two compactions."""

    options: ClassVar[dict[str, Any]] = {"table_type": "merge_on_read"}

    @rule(commits=st.integers(1, 2))
    def compact_table(self, commits: int) -> None:
        for _ in compact_table(
            self.made.table, TableCompactionSettings(delta_commits=commits), lock=self.lock
        ):
            self._committed()

    @rule()
    def plan_a_table_compaction(self) -> None:
        """Plan a compaction, before which other services and writes come."""
        schedule_table_compaction(self.made.table, TableCompactionSettings(delta_commits=1), lock=self.lock)

    @precondition(lambda self: self.clusters)
    @rule()
    def compact_logs(self) -> None:
        for _ in compact_logs(self.made.table, LogCompactionSettings(blocks=2), lock=self.lock):
            self._committed()


class InBuckets(WithLogFiles):
    """The same on a non-blocking table, which has neither clusterings nor log compactions."""

    options: ClassVar[dict[str, Any]] = {
        "table_type": "merge_on_read",
        "concurrency": "non_blocking",
        "hudi_options": BUCKETS,
    }
    clusters = False
    has_not: ClassVar[set[MetadataPartition]] = {MetadataPartition.RECORD_INDEX}

    def hudi_rs_reads_all(self, as_of: str | None = None) -> bool:
        """Of a bucket that has only log files it may miss rows: in an indexed or archived table."""
        return all(each.base_path for each in file_slices(self.made.table, as_of=as_of))


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=12)
SHARE = settings(stateful_step_count=12, max_examples=max(1, settings.default.max_examples // 5))
TestWithLogFiles, TestInBuckets = WithLogFiles.TestCase, InBuckets.TestCase
TestWithLogFiles.settings = TestInBuckets.settings = SHARE

"""The operations on a table before a power failure, and the rows that must be there after it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
from hudi import HudiTableBuilder

from airflow_provider.concurrency import PRIORITIES, rollback_dead_writers
from airflow_provider.concurrency.commit.publish import publish_head
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.concurrency.log.commit_log import CommitLog
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.exceptions import SnapshotUnavailableError, TableError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import InProcessLockProvider
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, pending_cleans, run_clean
from airflow_provider.services.clustering.clustering import (
    pending_clusterings,
    run_clustering,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.clustering.clustering_task import ClusteringTask
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint, savepoints
from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.storage.durability import DURABILITY
from airflow_provider.table.timeline.archived_timeline import archived_instants
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.int64()})
KEYS = [("a", 0), ("a", 1), ("a", 2), ("b", 5), ("b", 6), ("c", 8)]
INDEXES = ["column_stats", "files", "record_index"]
Rows = dict[tuple[str, int], int]

_turns = count()


class History:
    """A table, and the commits that were reported to its users.

    :param location: the table's location.
    :param keys: the keys of the writes.
    :ivar rows: the rows after the last reported operation.
    :ivar coming: the rows after the running operation, if it succeeds.
    :ivar passed: the rows that a reader that knows only Hudi may see during the running operation.
    :ivar kept: commits whose savepoints were reported, and their rows.
    """

    def __init__(self, location: str, keys: Sequence[tuple[str, int]] = KEYS) -> None:
        self.location = location
        self.keys = keys
        self.rows: Rows = {}
        self.coming: Rows = {}
        self.passed: list[Rows] = []
        self.kept: dict[str, Rows] = {}
        self.let_go: str | None = None
        self.after: dict[str, Rows] = {}
        self.version = 0
        self.open()

    def open(self) -> None:
        """Open the table as a new process does."""
        self.table = HudiTable.open(self.location)
        self.lock = InProcessLockProvider(f"{self.location} {next(_turns)}")

    # --- operations ---------------------------------------------------------------------

    def upsert(self, random: Random) -> None:
        batch = random.sample(self.keys, random.randint(1, min(4, len(self.keys))))
        self._write("upsert", batch, self.rows | dict.fromkeys(batch, self.version + 1))

    def insert_overwrite(self, random: Random) -> None:
        batch = random.sample(self.keys, random.randint(1, 2))
        overwritten = {partition for partition, _ in batch}
        kept = {key: value for key, value in self.rows.items() if key[0] not in overwritten}
        self._write("insert_overwrite", batch, kept | dict.fromkeys(batch, self.version + 1))

    def delete(self, random: Random) -> None:
        batch = random.sample(self.keys, random.randint(1, 2))
        self._write("delete", batch, {key: v for key, v in self.rows.items() if key not in batch})

    def cluster(self, random: Random) -> None:
        self.coming = self.rows
        partitions = sorted({f"p={partition}" for partition, _ in self.rows})[:1]
        settings = ClusteringSettings(("id",), partitions=tuple(partitions), target_file_size=1000)
        # It has the writers' priority, so it need not wait for a paused writer.
        priority = PRIORITIES["ingestion"]
        schedule_clustering(self.table, settings, priority=priority, lock=self.lock, max_failures=None)
        for instant in pending_clusterings(self.table):
            job = ClusteringJob(self.location, instant)
            run_clustering(job, self.table, _cluster_in_another_process, lock=self.lock)
            self._committed()

    def clean(self, random: Random) -> None:
        self.coming = self.rows
        retention = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1, reverted_after=0.0)
        clean(self.table, retention, lock=self.lock)

    def archive(self, random: Random) -> None:
        self.coming = self.rows
        archive(self.table, keep_min=2, keep_max=3, dead_writer_seconds=0.0, lock=self.lock)

    def index(self, random: Random) -> None:
        self.coming = self.rows
        schedule_index(self.table, INDEXES, lock=self.lock)
        for instant in pending_indexings(self.table):
            run_index(self.table, instant, lock=self.lock)
        self.table = HudiTable.open(self.location)

    def drop_indexes(self, random: Random) -> None:
        self.coming = self.rows
        drop_index(self.table, INDEXES, lock=self.lock)
        self.table = HudiTable.open(self.location)

    def compact(self, random: Random) -> None:
        self.coming = self.rows
        compact(self.table, CompactionSettings(1), lock=self.lock)

    def compact_table(self, random: Random) -> None:
        self.coming = self.rows
        if self.table.is_merge_on_read:
            compact_table(self.table, TableCompactionSettings(delta_commits=1), lock=self.lock)
            self._committed()

    def compact_logs(self, random: Random) -> None:
        self.coming = self.rows
        if self.table.is_merge_on_read:
            compact_logs(self.table, LogCompactionSettings(blocks=2), lock=self.lock)
            self._committed()

    def savepoint(self, random: Random) -> None:
        self.coming = self.rows
        instant = random.choice([commit for commit in self._commits() if commit in self.after])
        try:
            create_savepoint(self.table, instant, lock=self.lock)
        except (TableError, SnapshotUnavailableError):
            return
        self.kept[instant] = self.after[instant]

    def delete_savepoint(self, random: Random) -> None:
        self.coming = self.rows
        if self.kept:
            self.let_go = random.choice(sorted(self.kept))
            delete_savepoint(self.table, self.let_go)
            del self.kept[self.let_go]

    def restore(self, random: Random) -> None:
        commits = [commit for commit in self._commits() if commit in self.after]
        to = random.choice(commits)
        self.coming = self.after[to]
        self.passed = [self.after[each] for each in commits[commits.index(to) :]]
        try:
            restore(self.table, to, lock=self.lock)
        except (TableError, SnapshotUnavailableError):
            return
        finally:
            self.let_go = None
        self.rows = self.coming

    def _write(self, operation: str, batch: Sequence[tuple[str, int]], after: Rows) -> None:
        self.version += 1
        self.coming = after
        rows = [{"id": id_, "p": partition, "v": self.version} for partition, id_ in batch]
        names = ["id", "p"] if operation == "delete" else SCHEMA.names
        schema = pa.schema([SCHEMA.field(name) for name in names])
        found = [{name: row[name] for name in names} for row in rows]
        data = pa.Table.from_pylist(found, schema)
        ingest_arrow(self.table, data, operation, lock=self.lock, on_conflict="rebase")
        self.rows = after
        self._committed()

    def _committed(self) -> None:
        self.after[self._commits()[-1]] = self.rows

    def instants_with_files(self) -> set[str]:
        """Requested times of the instants of existing data files."""
        names = (path.name for path in Path(self.location).rglob("*.parquet"))
        return {parsed[2] for name in names if (parsed := parse_base_file_name(name)) is not None}

    def _commits(self) -> list[str]:
        return [commit.requested_time for commit in self.table.timeline().commits()]

    def is_expected(self, found: Rows) -> bool:
        """Whether a reader may find these rows after a power failure.

        :param found: the rows.
        """
        return found in (self.rows, self.coming)

    # --- what must hold -----------------------------------------------------------------

    def check_after_power_failure(self, is_expected: Callable[[Rows], bool] | None = None) -> None:
        """Check that every reported commit exists, that no file is half-written, and that the table works.

        :param is_expected: whether these rows may be found; :meth:`is_expected` when None.
        """
        is_expected = is_expected or self.is_expected
        self.open()
        assert is_expected(_rows(self.table)), "our reader"
        theirs = _theirs(self.location)
        assert is_expected(theirs) or theirs in self.passed, "hudi-rs, before any writer comes"
        self._recover()
        self.rows = _rows(self.table)
        assert is_expected(self.rows)
        self.check()
        self.upsert(Random(self.version))
        self.check()
        self.archive(Random())  # readers assume that every instant older than the timeline is committed
        self.check()

    def recover(self) -> None:
        """Do the next writer's work, once the heartbeats of dead writers have expired."""
        self.open()
        self._recover()

    def check(self) -> None:
        """Check that all readers see the log's rows, savepoints hold, and indexes equal a rebuild."""
        entries = list(CommitLog(self.table.storage).backwards())
        undone = frozenset[str]().union(*(entry.undone for entry in entries))
        shows = (each for each in entries if isinstance(each, Commit) and each.action is not Action.INDEXING)
        committed = {entry.instant for entry in shows} - undone
        shown = {each.requested_time for each in self.table.timeline().completed()}
        if not CommitLog(self.table.storage).trimmed():
            assert set(self._commits()) <= committed, "the timeline is not ahead of the log"
        assert committed <= shown | {each.requested_time for each in archived_instants(self.table.storage)}
        assert _rows(self.table) == self.rows
        assert _theirs(self.location) == self.rows
        found = {each.instant for each in savepoints(self.table)}
        assert self.kept.keys() - {self.let_go} <= found
        for instant in self.kept.keys() & found:
            assert _rows(self.table, instant) == self.kept[instant]
        assert_indexes_equal_a_rebuild(HudiTable.open(self.location))

    def _learn(self) -> None:
        """Add the rows of commits that were not reported, or that another process made."""
        for commit in self._commits():
            with suppress(SnapshotUnavailableError):  # a clean has deleted it since
                if commit not in self.after:
                    self.after[commit] = _rows(self.table, commit)

    def _recover(self) -> None:
        folder = Path(self.location, HEARTBEAT_FOLDER)
        for each in folder.iterdir() if folder.exists() else ():
            os.utime(each, (0, 0))
        publish_head(self.table.storage, CommitLog(self.table.storage))
        rollback_dead_writers(self.table)
        for instant in pending_cleans(self.table):  # until then the indexes name files that it has deleted
            run_clean(self.table, instant, lock=self.lock)
        for each in folder.iterdir() if folder.exists() else ():
            os.utime(each, (0, 0))
        self._learn()
        there = {each.instant for each in savepoints(self.table)}
        for instant in there:
            self.kept.setdefault(instant, self.after[instant])
        if self.let_go not in there:  # its deletion happened, but was not reported
            self.kept.pop(self.let_go, None)
        self.let_go, self.passed = None, []


OPERATIONS: tuple[Callable[[History, Random], None], ...] = (
    History.upsert,
    History.upsert,
    History.insert_overwrite,
    History.delete,
    History.cluster,
    History.clean,
    History.archive,
    History.index,
    History.drop_indexes,
    History.compact,
    History.compact_table,
    History.compact_logs,
    History.savepoint,
    History.delete_savepoint,
    History.restore,
)


def create(location: str, durability: str, *, is_indexed: bool, table_type: str = "copy_on_write") -> History:
    """A table with some past."""
    HudiTable.create(
        location,
        name="t",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["p"],
        hudi_options={DURABILITY: durability},
        table_type=table_type,
    )
    history, random = History(location), Random(1)
    for _ in range(3):
        history.upsert(random)
    if is_indexed:
        history.index(random)
    for _ in range(2):
        history.upsert(random)
    return history


def _cluster_in_another_process(tasks: Sequence[ClusteringTask]) -> list[WriteStat]:
    tasks = pickle.loads(pickle.dumps(tasks))  # with a storage object of its own
    written = (task.run(f"{number}-0-0") for number, task in enumerate(tasks))
    return [stat for stat in written if stat is not None]


def _rows(table: HudiTable, as_of: str | None = None) -> Rows:
    return _by_key(snapshot(HudiTable.open(table.location), as_of).to_table())


def _theirs(location: str) -> Rows:
    batches = HudiTableBuilder.from_base_uri(location).build().read()
    return _by_key(pa.Table.from_batches(batches)) if batches else {}


def _by_key(rows: pa.Table) -> Rows:
    found = {(row["p"], row["id"]): row["v"] for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a key lives twice"
    return found

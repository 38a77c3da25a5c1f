"""Any history, with commits that complete in another order than they were requested: the past is exact.

A snapshot is refused only if a file of it is deleted, which the test checks on storage.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import event, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from airflow_provider.exceptions import SnapshotUnavailableError, TableError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, schedule_clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint
from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from airflow_provider.table.file_groups.cleans import cleaned_files
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.archived_timeline import archived_commits
from airflow_provider.table.timeline.instant import State, after
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.ingestion_contract.lake import Lake

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.int64()})
Key = tuple[str, int]
Rows = dict[Key, int]

keys = st.tuples(st.sampled_from("ab"), st.integers(0, 3))
batches = st.sets(keys, min_size=1, max_size=3)
writes = st.tuples(st.sampled_from(["upsert", "upsert", "delete", "insert_overwrite", "cluster"]), batches)
services = st.tuples(st.sampled_from(["clean", "archive"]), batches)
late_writes = st.tuples(st.sampled_from(["upsert", "delete"]), batches)
positions = st.integers(0, 20)
policies = st.sampled_from(
    [
        Retention(CleaningPolicy.KEEP_LATEST_COMMITS, 1),
        Retention(CleaningPolicy.KEEP_LATEST_COMMITS, 3),
        Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1),
    ]
)


@dataclass
class Commit:
    """A commit, with the table's rows and files after it."""

    requested: str
    completed: str
    rows: Rows
    files: frozenset[str]


class Past(RuleBasedStateMachine):
    options: ClassVar[dict[str, Any]] = {}
    rewriting: ClassVar[tuple[str, ...]] = ("cluster",)

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.made = Lake(Path(self._folder.name)).create(SCHEMA, partition_by=["p"], **self.options)
        self.rows: Rows = {}
        self.history: list[Commit] = []
        self.version = 0
        self.savepoint_of: str | None = None

    def teardown(self) -> None:
        self._folder.cleanup()

    @initialize(batch=batches, is_indexed=st.booleans())
    def first_commits(self, batch: set[Key], is_indexed: bool) -> None:
        self.write("upsert", batch)
        if is_indexed:
            run_index(self.made.table, schedule_index(self.made.table, ["files"]) or "")
        for partition, id_ in ((p, id_) for p in "ab" for id_ in (4, 5)):  # more file groups
            self.write("bulk_insert", {(partition, id_)})

    # --- what happens -------------------------------------------------------------------------

    @rule(wanted=writes)
    def a_write(self, wanted: tuple[str, set[Key]]) -> None:
        self.act(*wanted)

    @rule(mine=late_writes, others=st.lists(st.one_of(writes, services), min_size=1, max_size=3))
    def overtaken(self, mine: tuple[str, set[Key]], others: list[tuple[str, set[Key]]]) -> None:
        """A commit that is requested before the others, and completes after them."""
        lock = MeetingLock(lambda: [self.act(*other) for other in others])
        self.write(*mine, lock=lock, on_conflict="rebase")

    @rule(retention=policies)
    def cleans(self, retention: Retention) -> None:
        clean(self.made.table, retention)

    @rule(retention=policies)
    def a_cleaner_dies(self, retention: Retention) -> None:
        """A cleaner dies after it has deleted its files, before it completes."""
        instant = schedule_clean(self.made.table, retention)
        put = Storage.put

        def killed(storage: Storage, path: str, content: bytes) -> None:
            if path.endswith(f"{instant}.avro"):
                raise KeyboardInterrupt
            put(storage, path, content)

        if instant is not None:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Storage, "put", killed)
                with pytest.raises(KeyboardInterrupt):
                    clean(self.made.table, retention)

    @rule(retention=policies)
    def a_cleaner_loses_answers(self, retention: Retention) -> None:
        delete, stat = Storage.delete, Storage.stat

        def lost(storage: Storage, path: str) -> bool:
            if not path.startswith(".hoodie"):
                delete(storage, path)
                raise ConnectionError(path)
            return delete(storage, path)

        def unknown(storage: Storage, path: str) -> object:
            if not path.startswith(".hoodie"):
                raise ConnectionError(path)
            return stat(storage, path)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Storage, "delete", lost)
            patched.setattr(Storage, "stat", unknown)
            clean(self.made.table, retention)

    @rule(keep=st.integers(1, 4))
    def archives(self, keep: int) -> None:
        archive(self.made.table, keep_min=keep, keep_max=keep + 1, dead_writer_seconds=0.0)

    @rule()
    def what_completed_late_is_archived(self) -> None:
        """Archive a commit that completed late; the commits that overtook it stay."""
        active = self.active()
        late = [one for one, other in pairwise(active) if other.requested < one.requested]
        if late:
            keep = sum(each.requested >= late[-1].requested for each in active)
            archive(self.made.table, keep_min=keep, keep_max=keep + 1, dead_writer_seconds=0.0)

    @rule(position=positions)
    def savepoint(self, position: int) -> None:
        active = self.active()
        commit = active[position % len(active)]
        if self.savepoint_of is not None:
            delete_savepoint(self.made.table, self.savepoint_of)
            self.savepoint_of = None
            return
        refused = _refused(lambda: create_savepoint(self.made.table, commit.requested))
        if refused is None:
            event("savepoint made")
            if self.archived_after(commit):
                event("savepoint made, with a later commit archived")
                assert self.theirs(commit) == commit.rows
            self.savepoint_of = commit.requested
        else:
            event("savepoint refused")
            assert isinstance(refused, SnapshotUnavailableError)
            told_by_all = self.theirs(commit) == commit.rows
            assert not told_by_all or self.doomed() & commit.files, refused

    @rule(position=positions)
    def restore(self, position: int) -> None:
        active = self.active()
        commit = active[-1 - position % min(4, len(active))]
        later = [each for each in active if each.completed > commit.completed]
        kept = next((each for each in self.history if each.requested == self.savepoint_of), None)
        refused = _refused(lambda: restore(self.made.table, commit.requested))
        if refused is None:
            event(f"restored over {min(len(later), 3)}")
            assert not self.archived_after(commit)
            self.history = [each for each in self.history if each.completed <= commit.completed]
            self.rows = commit.rows
        elif isinstance(refused, SnapshotUnavailableError):
            event("restore refused: cleaned")
            assert self.doomed() & commit.files, refused
        else:
            event("restore refused")
            oldest = min(each.requested for each in active)
            is_oldest = oldest in {each.requested for each in later}
            is_kept = kept is not None and kept.completed > commit.completed
            assert self.archived_after(commit) or is_oldest or is_kept, refused

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def every_commit_on_the_timeline_is_told_or_a_file_of_it_is_gone(self) -> None:
        if not self.history:
            return
        active = self.active()
        moments = [(commit.requested, commit) for commit in active]
        moments += [(commit.completed, commit) for commit in active[:2]]
        times = {time for each in self.history for time in (each.requested, each.completed)}
        between = [(after(commit.completed), commit) for commit in active[:-1]]
        moments += [each for each in between if each[0] not in times][:2]
        for moment, commit in moments:
            gone = {path for path in commit.files if not (Path(self.made.location) / path).exists()}
            found: list[dict[str, Any]] = []
            refused = _refused(lambda moment=moment, found=found: found.extend(self.made.rows(moment)))
            if refused is None:
                event("told, with a later commit archived" if self.archived_after(commit) else "told")
                assert {(row["p"], row["id"]): row["v"] for row in found} == commit.rows
                assert not gone
            else:
                event("refused")
                assert isinstance(refused, SnapshotUnavailableError)
                assert gone, refused

    @invariant()
    def now_is_told_by_all_readers(self) -> None:
        expected = [{"id": id_, "p": p, "v": value} for (p, id_), value in self.rows.items()]
        assert self.made.rows() == self.made._theirs() == sorted(expected, key=repr)

    # --- how ----------------------------------------------------------------------------------

    def act(self, what: str, batch: set[Key]) -> None:
        if what == "clean":
            clean(self.made.table, Retention(CleaningPolicy.KEEP_LATEST_COMMITS, 1))
        elif what == "archive":
            archive(self.made.table, keep_min=1, keep_max=2, dead_writer_seconds=0.0)
        elif what == "cluster":
            self.rewrite(min(batch))
        else:
            self.write(what, batch)

    def rewrite(self, key: Key) -> None:
        """One of the services that write the rows of a partition, or of the table, into other files."""
        service = self.rewriting[key[1] % len(self.rewriting)]
        if service == "cluster":
            Clustering(self.made.table, f"p={key[0]}", outputs=1).commit()
        elif service == "compact":
            compact_table(self.made.table, TableCompactionSettings(delta_commits=1))
        elif service == "compact logs":
            compact_logs(self.made.table, LogCompactionSettings(blocks=2))
        self.committed()

    def write(self, operation: str, batch: set[Key], **how: Any) -> None:
        self.version += 1
        version = self.version
        rows = [{"id": id_, "p": partition, "v": version} for partition, id_ in sorted(batch)]
        self.made.ingest(operation, rows, small_file_limit=0, **how)
        if how:  # it may come before some of the others with which it did not conflict
            self.rows = {(row["p"], row["id"]): row["v"] for row in self.made._theirs()}
        elif operation == "insert_overwrite":
            parts = {partition for partition, _ in batch}
            self.rows = {key: value for key, value in self.rows.items() if key[0] not in parts}
            self.rows |= dict.fromkeys(batch, version)
        elif operation == "delete":
            self.rows = {key: value for key, value in self.rows.items() if key not in batch}
        else:
            self.rows = self.rows | dict.fromkeys(batch, version)
        self.committed()

    def committed(self) -> None:
        """The commit that has just completed, if any."""
        newest = self.made.table.timeline().commits()[-1]
        # The newest on the timeline may be an earlier one, because a commit that completed late is archived.
        if newest.completion_time in {each.completed for each in self.history}:
            return
        slices = file_slices(self.made.table)
        files = frozenset(path for each in slices for path in (each.base_path, *each.log_paths) if path)
        commit = Commit(newest.requested_time, newest.completion_time or "", self.rows, files)
        self.history.append(commit)

    def active(self) -> list[Commit]:
        on_timeline = {each.requested_time for each in self.made.table.timeline().commits()}
        return [each for each in self.history if each.requested in on_timeline]

    def archived_after(self, commit: Commit) -> bool:
        found = archived_commits(self.made.table.storage, completed_after=commit.completed)
        return next(iter(found), None) is not None

    def theirs(self, commit: Commit) -> Rows | None:
        """The rows that hudi-rs shows as of a commit; None if a file that it opens is deleted."""
        try:
            found = self.made._theirs(as_of=commit.requested)
        except Exception as error:
            if "NotFound" not in str(error):
                raise
            return None
        return {(row["p"], row["id"]): row["v"] for row in found}

    def doomed(self) -> set[str]:
        """Files that are deleted, or that a pending clean is about to delete."""
        storage = self.made.table.storage
        planned = cleaned_files(storage, Timeline.load(storage)).items()
        pending = {path for path, each in planned if each.state is not State.COMPLETED}
        gone = {
            path
            for commit in self.history
            for path in commit.files
            if not (Path(self.made.location) / path).exists()
        }
        return pending | gone


def _refused(call: Callable[[], object]) -> TableError | None:
    try:
        call()
    except TableError as error:
        return error
    return None


class WithLogFiles(Past):
    """The same on a merge-on-read table, with its two compactions."""

    options: ClassVar[dict[str, Any]] = {"table_type": "merge_on_read"}
    rewriting: ClassVar[tuple[str, ...]] = ("compact", "compact", "compact logs", "cluster")


TestPast = Past.TestCase
TestPast.settings = settings(stateful_step_count=10)
SHARE = settings(stateful_step_count=10, max_examples=max(1, settings.default.max_examples // 4))
TestWithLogFiles = WithLogFiles.TestCase
TestWithLogFiles.settings = SHARE

"""A commit that is replicated from another table: its entry, and the cases without an entry."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit import commit, is_there, replay_commit, undo_replayed
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path
from airflow_provider.concurrency.log.log_entry import Archival, Commit, Revert
from airflow_provider.exceptions import TableError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.owner import describe_owner
from airflow_provider.services.archival import archived_content, take_off
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.archive_files import append_history
from airflow_provider.table.timeline.instant import Action, Instant
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import create_trips, fares, rows
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


class Pair:
    """A table, and its copy of a moment ago."""

    def __init__(self, root: Path, source: HudiTable) -> None:
        shutil.copytree(source.location, root / "target")
        self.source, self.target = source, HudiTable.open(str(root / "target"))

    def newest(self) -> Instant:
        return self.source.timeline().commits()[-1]

    def replay(self, instant: Instant) -> Commit | None:
        """Replay a commit on the copy, its data files first."""
        for stat in self.source.timeline().commit_metadata(instant).write_stats:
            self.target.storage.put(stat.path, self.source.storage.read(stat.path))
        content = self.source.storage.read(instant_path(instant))
        return replay_commit(self.target.storage, self.source.storage, instant, content)

    def upsert(self, fare: float) -> Instant:
        ingest_arrow(self.source, rows({1: fare}))
        return self.newest()


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, create_trips(str(tmp_path / "source")))


def test_its_entry_says_what_the_entry_of_the_source_says_and_its_completion_time(pair: Pair) -> None:
    ingest_arrow(pair.source, rows({7: 7.0}), "insert_overwrite")
    instant = pair.newest()
    there = CommitLog(pair.source.storage).newest()
    entry = pair.replay(instant)
    assert isinstance(there, Commit)
    assert entry is not None
    assert there.written
    assert there.replaced
    assert entry == Commit(
        instant=instant.requested_time,
        action=Action.REPLACE_COMMIT,
        operation="INSERT_OVERWRITE",
        priority=there.priority,
        completion_time=entry.completion_time,
        owner=describe_owner(),
        indexes=entry.indexes,
        properties=entry.properties,
        written=there.written,
        replaced=there.replaced,
        inserted_in=there.inserted_in,
        metadata_path=staged_metadata_path(instant.requested_time),
        replayed=str(instant.completion_time),
    )
    assert entry.completion_time > str(instant.completion_time)
    assert pair.target.timeline().commits()[-1] == instant
    assert fares(pair.target) == {7: 7.0}
    assert pair.replay(instant) is None, "done again it changes nothing"


def test_its_entry_is_later_than_its_completion_at_a_source_whose_clock_is_ahead(pair: Pair) -> None:
    instant = pair.upsert(3.0)
    content = pair.source.storage.read(instant_path(instant))
    pair.source.storage.delete(instant_path(instant))
    ahead = replace(instant, completion_time="29990101000000001")
    pair.source.storage.put(instant_path(ahead), content)
    entry = pair.replay(ahead)
    assert entry is not None
    assert entry.shown_completion == "29990101000000001" < entry.completion_time


def test_what_was_archived_here_is_here(pair: Pair) -> None:
    instant, later = pair.upsert(3.0), pair.upsert(4.0)
    for each in (instant, later):
        assert not is_there(pair.target.storage, pair.target.timeline(), each)
        pair.replay(each)
        assert is_there(pair.target.storage, pair.target.timeline(), each)
    storage = pair.target.storage
    content = archived_content(storage, instant)
    assert content is not None
    append_history(storage, [content])
    take_off(storage, [instant])  # the log has its entry
    assert is_there(storage, pair.target.timeline(), instant)
    assert pair.replay(instant) is None
    CommitLog(storage).trim(CommitLog(storage).head() - 1)  # and has it no longer
    assert pair.replay(instant) is None


def test_what_was_taken_off_or_undone_here_cannot_be_replayed(pair: Pair) -> None:
    instant, later = pair.upsert(3.0), pair.upsert(4.0)
    for each in (instant, later):
        pair.replay(each)
    assert isinstance(undo_replayed(pair.target.storage, later.requested_time), Revert)
    assert undo_replayed(pair.target.storage, later.requested_time) is None
    with pytest.raises(TableError, match=f"commit {later.requested_time} .* it is undone here") as caught:
        pair.replay(later)
    assert caught.value.details == {"instant": later.requested_time}
    pair.target.storage.delete(instant_path(instant))
    with pytest.raises(TableError, match=f"commit {instant.requested_time} .* it is completed here"):
        pair.replay(instant)


def test_what_is_older_than_the_archive_cannot_be_replayed(pair: Pair) -> None:
    instant = pair.upsert(3.0)
    bound = instant.requested_time
    commit(pair.target.storage, lambda moment: Archival(priority=100, archived=bound))
    with pytest.raises(TableError, match=f"the timeline is archived up to {bound}; delete this folder"):
        pair.replay(instant)


def test_to_undo_it_brings_back_what_it_had_taken_out(pair: Pair) -> None:
    (old,) = pair.source.view().all_base_files()
    ingest_arrow(pair.source, rows({7: 7.0}), "insert_overwrite")
    instant = pair.newest()
    (new,) = pair.source.view().all_base_files()
    pair.replay(instant)
    entry = undo_replayed(pair.target.storage, instant.requested_time)
    assert entry is not None
    assert (entry.rolls_back, entry.inserted_in) == (instant.requested_time, {"city=sf"})
    assert entry.written == {FileGroupId("city=sf", new.file_id)}
    assert entry.replaced == {FileGroupId("city=sf", old.file_id)}
    assert fares(pair.target) == {1: 1.0, 2: 2.0}


def test_what_came_with_the_bootstrap_is_undone_though_the_log_does_not_know_it(pair: Pair) -> None:
    instant = pair.upsert(3.0)
    copy = Pair(Path(pair.source.location).parent / "again", pair.source)
    shutil.rmtree(Path(copy.target.location) / ".hoodie" / "commit_log")
    entry = undo_replayed(copy.target.storage, instant.requested_time)
    assert entry is not None
    assert entry.rolls_back == instant.requested_time
    assert fares(copy.target) == {1: 1.0, 2: 2.0}


def test_its_index_records_are_of_the_columns_that_it_brings(tmp_path: Path) -> None:
    """Statistics of a partition cover older files, too, with the column's new type."""

    def batch(key: str, value: int, kind: pa.DataType) -> pa.Table:
        return pa.table({"id": [key], "v": pa.array([value], kind)})

    schema = pa.schema({"id": pa.string(), "v": pa.int32()})
    source = HudiTable.create(str(tmp_path / "source"), name="t", schema=schema, record_key=["id"])
    ingest_arrow(source, batch("a", 1, pa.int32()), "bulk_insert")
    indexes = ["files", "column_stats", "partition_stats"]
    schedule_index(source, indexes)
    run_index(source)
    pair = Pair(tmp_path, source)
    ingest_arrow(source.location, batch("b", 2**40, pa.int64()), "bulk_insert")
    assert pair.replay(pair.newest()) is not None
    assert_indexes_equal_a_rebuild(HudiTable.open(pair.target.location), indexes)

"""The next commit of this package logs the commits that another Hudi writer did not log to the indexes."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit.unlogged_commits import find_unlogged_commits, log_unlogged_commits
from airflow_provider.concurrency.conflicts import has_other_writers
from airflow_provider.concurrency.indexes.log_to_indexes import current_indexes
from airflow_provider.concurrency.log import IndexState
from airflow_provider.exceptions import CorruptTableError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive, archived_content, take_off
from airflow_provider.services.compaction import CompactionSettings, compact
from airflow_provider.table import HudiTable
from airflow_provider.table.files.log_file_writer import LogFileWriter
from airflow_provider.table.files.log_records import DeletedRecord
from airflow_provider.table.files.partition_metadata import PARTITION_METADATA
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.writer import write_instant
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.archive_files import append_history
from airflow_provider.table.timeline.instant import Action, after, now
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm
from tests.unit.concurrency.other_hudi_writers.foreign_metadata_table import ForeignMetadataTable
from tests.unit.concurrency.simulation.rows import PARTITION
from tests.unit.concurrency.simulation.scheduler import Simulation
from tests.unit.indexing.jvm import SCHEMA, rows
from tests.unit.indexing.under_shared_lock import ALL, SharedLock, indexed_keys, run, schedule
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


@pytest.fixture
def indexed(table: HudiTable) -> HudiTable:
    run(table, schedule(table))
    return HudiTable.open(table.location)


@pytest.mark.parametrize("is_archived", [True, False], ids=["archived", "undone"])
def test_what_leaves_the_timeline_after_the_look(indexed: HudiTable, is_archived: bool) -> None:
    """An archived commit that no writer logged is logged from the archive; an undone one needs no records."""
    storage, commit_log = indexed.storage, CommitLog(indexed.storage)
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    indexes, timeline = current_indexes(storage, commit_log, commit_log.newest()), indexed.timeline()
    (not_logged,) = find_unlogged_commits(storage, indexes, timeline)
    if is_archived:
        content = archived_content(storage, not_logged)
        assert content is not None
        append_history(storage, [content])
    storage.delete(instant_path(not_logged))
    assert log_unlogged_commits(storage, indexes, timeline) == [not_logged] * is_archived
    assert (20 in indexed_keys(indexed)) is is_archived


@pytest.mark.parametrize("stands_still_at", range(0, 36, 2))
def test_two_log_it_at_once(indexed: HudiTable, stands_still_at: int) -> None:
    """Two writers without a turn may log the same commit: their records are equal."""
    for key in (20, 21):
        Jvm(indexed).upsert({key: 1.0})
    files = {path: (indexed.storage.read(path), 0.0) for path in _files(indexed)}
    simulation = Simulation(files)
    simulation.config = indexed.config
    del simulation.files[f"{PARTITION}/{PARTITION_METADATA}"]
    for name in ("slow", "fast"):
        simulation.add(name, lambda table, _: _log_missed(table))
    slow, fast = simulation.actors
    simulation.go_on(slow, stands_still_at)
    simulation.go_on(fast)
    simulation.go_on(slow)
    assert (slow.failure, fast.failure) == (None, None)
    for path, (content, _) in simulation.files.items():
        indexed.storage.put(path, content)
    assert_indexes_equal_a_rebuild(indexed, ALL)
    assert {20, 21} < indexed_keys(indexed)


def _files(table: HudiTable) -> list[str]:
    return [status.path for status in table.storage.list("", recursive=True) if not status.is_directory]


def _log_missed(table: HudiTable) -> None:
    commit_log = CommitLog(table.storage)
    log_unlogged_commits(
        table.storage,
        current_indexes(table.storage, commit_log, commit_log.newest()),
        table.timeline(),
    )


def test_an_index_is_built_on_a_table_that_has_other_writers(table: HudiTable) -> None:
    Jvm(table).upsert({20: 1.0})
    ingest_arrow(table, rows([21]))
    assert has_other_writers(table.storage)
    run(table, schedule(table))
    assert_indexes_equal_a_rebuild(HudiTable.at(table.storage), ALL)


def test_nothing_is_archived_that_no_index_knows(indexed: HudiTable) -> None:
    """Writers without a common lock, their clocks behind: they complete before our newest entry, unseen."""
    slow = [Jvm(indexed) for _ in range(3)]
    ingest_arrow(indexed, rows([5]))
    for key, each in enumerate(slow, 20):
        each.upsert({key: 1.0})
    held_by = archive(indexed, keep_min=1, keep_max=2).held_by
    assert held_by == f"no index knows of {slow[0].instant} yet"
    ingest_arrow(indexed, rows([60]))
    assert_indexes_equal_a_rebuild(indexed, ALL)
    assert {20, 21, 22, 60} < indexed_keys(indexed)
    assert slow[0].instant in archive(indexed, keep_min=1, keep_max=2).to_dict()["archived"]


def log_to_files_only(table: HudiTable, jvm: Jvm) -> None:
    """Log like a writer that began before the other indexes existed."""
    (done,) = (each for each in table.timeline().commits() if each.requested_time == jvm.instant)
    stats = table.timeline().commit_metadata(done).write_stats
    ForeignMetadataTable(table.storage, lambda: after(now())).commit(jvm.instant, stats)


@pytest.mark.parametrize("is_new", [True, False], ids=["new keys", "an update, of which one has no records"])
def test_what_was_logged_to_one_index_only_is_logged_to_the_others(indexed: HudiTable, is_new: bool) -> None:
    jvm = Jvm(indexed)
    (before,) = indexed.view().all_base_files()
    jvm.upsert({20 if is_new else 1: 99.0}, into=None if is_new else before)
    log_to_files_only(indexed, jvm)
    assert 20 not in indexed_keys(indexed)
    ingest_arrow(indexed, rows([4]), lock=SharedLock(indexed.location))
    assert (20 in indexed_keys(indexed)) is is_new
    assert_indexes_equal_a_rebuild(indexed, ALL)


def test_rows_that_another_took_out_are_in_no_index_though_it_wrote_no_file(indexed: HudiTable) -> None:
    jvm, gone = Jvm(indexed), tuple(each.file_id for each in indexed.view().all_base_files())
    jvm._complete(Action.REPLACE_COMMIT, CommitMetadata("DELETE_PARTITION", (), {"city=sf": gone}, {}))
    log_to_files_only(indexed, jvm)
    ingest_arrow(indexed, rows([4]), lock=SharedLock(indexed.location))
    assert indexed_keys(indexed) == {4}


def test_a_key_that_anothers_log_file_deletes_leaves_the_index_that_was_not_told(tmp_path: Path) -> None:
    table = HudiTable.create(
        str(tmp_path / "logs"),
        name="logs",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["city"],
        table_type="merge_on_read",
    )
    ingest_arrow(table, rows([1, 2, 3]))
    run(table, schedule(table))
    table = HudiTable.open(table.location)
    (base_file,) = table.view().all_base_files()
    jvm = Jvm(table)
    writer = LogFileWriter(table.storage, "city=sf", base_file.file_id, "0-1-2", jvm.instant, SCHEMA)
    gone = writer.write(SCHEMA.empty_table(), pa.array([], pa.string()), [DeletedRecord("1", "city=sf")])
    stat = WriteStat(
        base_file.file_id,
        "city=sf",
        gone.path,
        num_deletes=1,
        log_files=(gone.name,),
        file_size=gone.size,
    )
    jvm._complete(Action.DELTA_COMMIT, CommitMetadata("DELETE", (stat,), {}, {}))
    log_to_files_only(table, jvm)
    assert indexed_keys(table) == {1, 2, 3}
    ingest_arrow(table, rows([4]), lock=SharedLock(table.location))
    assert indexed_keys(table) == {2, 3, 4}
    assert_indexes_equal_a_rebuild(table, ALL)


def test_what_was_logged_in_part_is_logged_to_an_index_that_was_compacted_before(indexed: HudiTable) -> None:
    ingest_arrow(indexed, rows([4]))
    assert len(compact(indexed, CompactionSettings(max_delta_commits=1))) == 1
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    log_to_files_only(indexed, jvm)
    ingest_arrow(indexed, rows([5]), lock=SharedLock(indexed.location))
    assert_indexes_equal_a_rebuild(indexed, ALL)


def test_an_index_that_was_compacted_without_a_commit_is_not_logged_to_any_more(indexed: HudiTable) -> None:
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    log_to_files_only(indexed, jvm)
    # Another Hudi writer's compaction, at the moment of the commit's completion.
    metadata_table = metadata_storage(indexed.storage)
    for each in MetadataTable(metadata_table).file_slices("record_index"):
        assert each.base_file is not None
        compacted = each.base_file.path.replace(each.base_file.instant, jvm.completion_time)
        metadata_table.put(compacted, metadata_table.read(each.base_file.path))
    write_instant(metadata_table, Action.COMPACTION, jvm.completion_time, after(now()), "COMPACT", [])
    with pytest.raises(CorruptTableError, match="index record_index, and compacted that since") as caught:
        ingest_arrow(indexed, rows([4]), lock=SharedLock(indexed.location))
    assert caught.value.details == {
        "location": indexed.location,
        "index": "record_index",
        "instant": jvm.instant,
    }


def an_index(instant: str, made: str = "") -> IndexState:
    return IndexState("files", instant, 1, True, made)


def unlogged(table: HudiTable, *indexes: IndexState) -> list[str]:
    found = find_unlogged_commits(table.storage, indexes, table.timeline())
    return [each.requested_time for each in found]


def test_without_an_index_nothing_is_left_to_log(table: HudiTable) -> None:
    Jvm(table).upsert({20: 1.0})
    assert unlogged(table) == []
    assert log_unlogged_commits(table.storage, (), table.timeline(), after="") == []


def test_what_has_completed_when_the_first_index_began_is_in_it(table: HudiTable) -> None:
    first, second, third = (Jvm(table) for _ in range(3))
    for key, each in enumerate((third, second, first), 20):
        time.sleep(0.002)
        each.completion_time = after(now())
        each.upsert({key: 1.0})
    assert unlogged(table, an_index(third.completion_time)) == [second.instant, first.instant]
    assert unlogged(table, an_index(second.completion_time)) == [first.instant]
    both = (an_index(second.completion_time), an_index(third.completion_time))
    assert unlogged(table, *both) == [second.instant, first.instant]


def test_what_has_completed_when_another_made_its_index_is_in_it(table: HudiTable) -> None:
    """If that time is unknown, only commits since the first one that is logged there count as unlogged."""
    metadata_table = metadata_storage(table.storage)
    for key in (20, 21):
        Jvm(table).upsert({key: 1.0})
    (_, first, second) = table.timeline().commits()
    assert first.completion_time
    assert second.completion_time
    made = f"{0:017d}"
    archived = an_index("", "archived")
    everything = [each.requested_time for each in table.timeline().commits()]
    assert unlogged(table, archived) == everything
    write_instant(metadata_table, Action.DELTA_COMMIT, made, first.completion_time, "BULK_INSERT", [])
    assert unlogged(table, an_index("", made)) == [second.requested_time]
    assert unlogged(table, archived) == everything
    write_instant(metadata_table, Action.DELTA_COMMIT, first.completion_time, after(now()), "UPSERT", [])
    assert unlogged(table, archived) == [second.requested_time]


def test_what_is_in_the_archive_of_the_metadata_table_was_logged(indexed: HudiTable) -> None:
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    log_to_files_only(indexed, jvm)
    began = an_index(indexed.timeline().commits()[0].completion_time or "")
    assert unlogged(indexed, began) == []
    metadata_table = metadata_storage(indexed.storage)
    logged = Timeline.load(metadata_table).find(jvm.instant)
    assert logged is not None
    content = archived_content(metadata_table, logged)
    assert content is not None
    take_off(metadata_table, [logged])
    assert unlogged(indexed, began) == [jvm.instant]
    append_history(metadata_table, [content])
    assert unlogged(indexed, began) == []
    commit_log, timeline = CommitLog(indexed.storage), indexed.timeline()
    indexes = current_indexes(indexed.storage, commit_log, commit_log.newest())
    assert log_unlogged_commits(indexed.storage, indexes, timeline, after="") == []


def test_of_commits_that_were_logged_in_part_each_is_made_up_for_and_told(indexed: HudiTable) -> None:
    """A commit of this package among them, and a commit that is in no index, need no such records."""
    since = CommitLog(indexed.storage).newest()
    assert since is not None
    ingest_arrow(indexed, rows([5]))
    partly, not_at_all, again = (Jvm(indexed) for _ in range(3))
    for key, each in enumerate((partly, not_at_all, again), 20):
        each.upsert({key: 1.0})
        if each is not not_at_all:
            log_to_files_only(indexed, each)
    commit_log, timeline = CommitLog(indexed.storage), indexed.timeline()
    indexes = current_indexes(indexed.storage, commit_log, commit_log.newest())
    logged = log_unlogged_commits(indexed.storage, indexes, timeline, after=since.completion_time)
    assert [each.requested_time for each in logged] == [not_at_all.instant, partly.instant, again.instant]
    assert_indexes_equal_a_rebuild(indexed, ALL)
    assert {20, 21, 22} < indexed_keys(indexed)


def test_what_was_logged_in_part_before_a_moment_is_not_looked_for(indexed: HudiTable) -> None:
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    log_to_files_only(indexed, jvm)
    commit_log, timeline = CommitLog(indexed.storage), indexed.timeline()
    indexes = current_indexes(indexed.storage, commit_log, commit_log.newest())
    assert log_unlogged_commits(indexed.storage, indexes, timeline, after=jvm.completion_time) == []
    assert log_unlogged_commits(indexed.storage, indexes, timeline) == []


def test_an_index_that_began_with_a_commit_is_not_told_of_it(indexed: HudiTable) -> None:
    jvm = Jvm(indexed)
    jvm.upsert({20: 1.0})
    log_to_files_only(indexed, jvm)
    before = indexed_keys(indexed)
    indexes = (IndexState("record_index", jvm.completion_time, 1, True),)
    assert log_unlogged_commits(indexed.storage, indexes, indexed.timeline(), after="") == []
    assert indexed_keys(indexed) == before

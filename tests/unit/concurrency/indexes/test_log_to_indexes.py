"""The records that a write logs to the indexes: the deleted files of an instant, and its staged records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.indexes import state_in_indexes
from airflow_provider.concurrency.indexes.log_to_indexes import (
    _deleted,
    _files_of,
    _has_predecessor,
    change_of_metadata,
    columns_of,
    drop_staged,
    publish_staged,
    staged_path,
)
from airflow_provider.concurrency.log.log_entry import IndexState
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archived_content
from airflow_provider.table.files.log_file import LogFileName
from airflow_provider.table.metadata_table import METADATA_FOLDER, metadata_storage
from airflow_provider.table.metadata_table.index_definitions import (
    column_stats_definition,
    write_index_definitions,
)
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.archive_files import append_history
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import create_trips, rows

OF_SF = {"city=sf": {"successDeleteFiles": ["s3://lake/trips/city=sf/a.parquet", "b.parquet"]}}
OF_NONE = {"": {"successDeleteFiles": ["c.parquet"]}, "city=la": {"successDeleteFiles": None}}


@pytest.mark.parametrize(
    ("record", "paths"),
    [
        ({"partitionMetadata": OF_SF}, ["city=sf/a.parquet", "city=sf/b.parquet"]),
        ({"partitionMetadata": OF_NONE, "hoodieRestoreMetadata": None}, ["c.parquet"]),
        ({"partitionMetadata": None}, []),
        (
            {
                "hoodieRestoreMetadata": {
                    "1": [{"partitionMetadata": OF_SF}],
                    "2": [{"partitionMetadata": OF_NONE}],
                }
            },
            ["city=sf/a.parquet", "city=sf/b.parquet", "c.parquet"],
        ),
    ],
    ids=["a clean or a rollback", "without partitions", "nothing", "a restore"],
)
def test_paths_of_what_was_deleted(record: dict[str, Any], paths: list[str]) -> None:
    assert list(_deleted(record)) == paths


def test_records_of_an_instant_are_completed_in_flight_or_not_there(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "trips"))
    planned = schedule_index(table, ["files"])
    assert planned is not None
    run_index(table, planned)
    ingest_arrow(table, rows({3: 3.0}))
    entry = CommitLog(table.storage).newest()
    assert entry is not None
    of_entry = (table.storage, entry.instant, entry.completion_time)
    assert state_in_indexes(*of_entry) is State.COMPLETED
    metadata_table = metadata_storage(table.storage)
    completed = Instant(entry.instant, Action.DELTA_COMMIT, State.COMPLETED, entry.completion_time)
    metadata_table.delete(instant_path(completed))
    assert state_in_indexes(*of_entry) is State.INFLIGHT
    for state in (State.REQUESTED, State.INFLIGHT):
        path = instant_path(Instant(entry.instant, Action.DELTA_COMMIT, state))
        content = metadata_table.read(path)
        metadata_table.delete(path)
        assert state_in_indexes(*of_entry) is None
        metadata_table.put(path, content)
    assert state_in_indexes(*of_entry) is State.INFLIGHT


# --- what another Hudi writer's commit says of its files ----------------------------------------

DEAD, ALIVE = "20260101000000002", "20260101000000004"
TOKENS = ("0-0-0", "1-0-0")
BASE = WriteStat("f-0", "a/b", "a/b/f-0_0-0-0_1.parquet", file_size=7)
APPENDED = replace(BASE, path="a/b/.f.log.2", log_files=(".f.log.1", ".f.log.2", ".gone.log.1"))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    made = Storage(str(tmp_path / "t"))
    for path in ("a/b/.f.log.1", "a/b/.f.log.2", BASE.path, ".f.log.1", "old.parquet", "a/b/old.parquet"):
        made.put(path, b"123")
    return made


def test_each_log_file_that_is_there_is_one_by_its_size(storage: Storage) -> None:
    assert list(_files_of(storage, APPENDED)) == [
        replace(APPENDED, path=path, file_size=3) for path in ("a/b/.f.log.1", "a/b/.f.log.2")
    ]
    without_partitions = replace(APPENDED, partition_path="", path=".f.log.1", log_files=(".f.log.1",))
    assert list(_files_of(storage, without_partitions)) == [replace(without_partitions, file_size=3)]


def test_a_base_file_that_is_there_is_as_it_was_told(storage: Storage) -> None:
    assert list(_files_of(storage, BASE)) == [BASE]
    assert list(_files_of(storage, replace(BASE, path="a/b/gone.parquet"))) == []


@pytest.mark.parametrize("partition", ["", "a/b"])
def test_a_slice_has_the_predecessor_that_is_there(storage: Storage, partition: str) -> None:
    named = replace(BASE, partition_path=partition)
    assert _has_predecessor(storage, replace(named, prev_base_file="old.parquet"))
    assert not _has_predecessor(storage, replace(named, prev_base_file="gone.parquet"))
    assert not _has_predecessor(storage, named)


RECORD_INDEX = (IndexState("record_index", "1", 1, True),)


@pytest.mark.parametrize("is_there", [True, False])
def test_keys_that_left_are_told_by_a_predecessor_that_is_there(tmp_path: Path, is_there: bool) -> None:
    table = create_trips(str(tmp_path / "trips"))
    (before,) = table.view().all_base_files()
    ingest_arrow(table, rows({1: 1.0}), "delete")
    last = table.timeline().commits()[-1]
    if not is_there:
        table.storage.delete(before.path)
    for operation in ("UPSERT", "upsert"):
        said = replace(table.timeline().commit_metadata(last), operation_type=operation)
        assert last.completion_time is not None
        change = change_of_metadata(table.storage, table.timeline(), said, last.completion_time, RECORD_INDEX)
        ((old, new),) = change.slices
        assert [each.path for each in change.added] == [said.write_stats[0].path]
        assert new is not None
        assert (None if old is None else old.base_path) == (before.path if is_there else None)


def test_a_compaction_in_small_letters_is_one(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "trips"))
    last = table.timeline().commits()[-1]
    assert last.completion_time is not None
    for operation, slices in (("compact", 0), ("upsert", 1)):
        said = replace(table.timeline().commit_metadata(last), operation_type=operation)
        moment = last.completion_time
        change = change_of_metadata(table.storage, table.timeline(), said, moment, RECORD_INDEX)
        assert len(change.slices) == slices


# --- what is staged -----------------------------------------------------------------------------


def test_who_is_dead_loses_its_own_staged_records_alone(storage: Storage) -> None:
    drop_staged(storage, DEAD)  # of a table without indexes
    staged = [
        [
            f".hoodie/commit_log/staged/{instant}.metadata_table.avro",
            *(f"{METADATA_FOLDER}/files/{LogFileName('files-0000-0', instant, 1, each)}" for each in TOKENS),
            f"{METADATA_FOLDER}/record_index/{LogFileName('record-index-0', instant, 1, '0-0-0')}",
            *(
                f"{METADATA_FOLDER}/{instant_path(Instant(instant, Action.DELTA_COMMIT, state))}"
                for state in (State.REQUESTED, State.INFLIGHT)
            ),
        ]
        for instant in (DEAD, ALIVE)
    ]
    others = [f"{METADATA_FOLDER}/files/{DEAD}", f"{METADATA_FOLDER}/files/.x_{DEAD}"]
    for path in (*staged[0], *staged[1], *others):
        storage.put(path, b"")
    drop_staged(storage, DEAD)
    assert [storage.stat(path) for path in staged[0]] == [None] * len(staged[0])
    assert None not in [storage.stat(path) for path in (*staged[1], *others)]


def test_statistics_are_of_the_columns_that_the_definition_names_or_of_all(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "trips"))
    assert columns_of(table.storage, ["files", "record_index"]) == ()
    for partition in ("column_stats", "partition_stats"):
        assert set(columns_of(table.storage, ["files", partition])) >= {"id", "city", "fare"}
    write_index_definitions(table.storage, [column_stats_definition(["fare"])])
    assert list(columns_of(table.storage, ["column_stats"])) == ["fare"]
    assert columns_of(table.storage, ["files"]) == ()


@pytest.mark.parametrize("moves_atomically", [True, False])
def test_records_that_come_after_their_archival_go_where_a_move_may_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_atomically: bool
) -> None:
    """On a disk a file that is moved now cannot have been moved before, and archived since."""
    table = create_trips(str(tmp_path / "trips"))
    schedule_index(table, ["files"])
    run_index(table)
    monkeypatch.setattr(Storage, "moves_atomically", moves_atomically)
    for key in (3, 4):
        ingest_arrow(table, rows({key: 1.0}))
    metadata_table = metadata_storage(table.storage)
    first, second = Timeline.load(metadata_table).completed()[-2:]
    content = archived_content(metadata_table, first)
    assert content is not None
    append_history(metadata_table, [content])
    for instant in (first, second):
        path = instant_path(instant)
        table.storage.put(staged_path(instant.requested_time), metadata_table.read(path))
        metadata_table.delete(path)
        publish_staged(table.storage, instant.requested_time, instant.completion_time or "")
    there = [metadata_table.stat(instant_path(each)) is not None for each in (first, second)]
    assert there == [moves_atomically, True]

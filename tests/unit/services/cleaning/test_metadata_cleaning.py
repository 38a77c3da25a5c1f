"""The files of the metadata table that a clean deletes after a compaction, and those that it keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider.concurrency import (
    HeartbeatSettings,
    WriteSettings,
    begin_write,
    rollback,
    rollback_dead_writers,
)
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.concurrency.readers import reader_lease
from airflow_provider.exceptions import InstantRolledBackError, SnapshotUnavailableError
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.metadata_cleaning import (
    archive_metadata_timeline,
    delete_superseded,
    superseded_files,
)
from airflow_provider.services.compaction import compact
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.keys import ALL_PARTITIONS, files_key
from airflow_provider.table.metadata_table.partitions import file_group_id
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import FileInfo, FileList, Payload, RecordLocation
from airflow_provider.table.metadata_table.writer import UPSERT, begin_instant, write_log_file
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.archived_timeline import archived_instants
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.concurrency.simulation.scheduler import NoLock
from tests.unit.services.indexed_table import (
    EVERY_COMMIT,
    FILES,
    GROUPS,
    RECORD_INDEX,
    check_indexes,
    commit,
    indexed_table,
    records,
    rows,
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return indexed_table(tmp_path / "trips")


def compacted(table: HudiTable) -> str:
    return compact(table, EVERY_COMMIT, lock=NoLock())[-1].instant


def base_instants(table: HudiTable) -> list[str]:
    (group,) = MetadataTable(metadata_storage(table.storage)).file_groups(FILES)
    return [each.instant for each in group.base_files]


def test_the_newest_slice_and_the_one_before_stay(table: HudiTable) -> None:
    commit(table, 1)
    readers = [MetadataTable(metadata_storage(table.storage)) for _ in range(2)]
    assert {reader.timeline.newest_completion for reader in readers}  # loaded; they list later
    expected = records(table)
    assert base_instants(table) == ["00000000000000000"]
    first = compacted(table)
    assert {partition: dict(readers[0].records(partition)) for partition in GROUPS} == expected
    commit(table, 2)
    second = compacted(table)
    assert base_instants(table) == [first, second]
    (group,) = MetadataTable(metadata_storage(table.storage)).file_groups(FILES)
    assert all(each.completion_time > first for each in group.log_files)
    assert superseded_files(table) == []
    with pytest.raises(SnapshotUnavailableError, match="compacted and cleaned since"):
        readers[1].file_slices(FILES)
    check_indexes(table)
    assert rows(table) == [1, 2]


def test_slices_stay_for_readers_and_writers_that_live(table: HudiTable) -> None:
    made = []
    with reader_lease(table):
        for number in range(4):
            commit(table, number)
            made.append(compacted(table))
        # The reader began before the first compaction was planned, and may have seen no compaction.
        assert base_instants(table) == ["00000000000000000", *made]
    assert {each.path.rpartition("_")[2] for each in superseded_files(table)} >= {f"{made[1]}.hfile"}
    with begin_write(table, operation="UPSERT", lock=NoLock()) as writer:
        delete_superseded(table)
        assert base_instants(table) == made[-2:], "what began after both needs no more"
        for number in range(3):
            commit(table, number)
            made.append(compacted(table))
        assert base_instants(table) == made[-5:]
        writer.abort("not needed")
    delete_superseded(table)
    assert base_instants(table) == made[-2:]
    check_indexes(table)


def test_instants_leave_once_they_left_the_table_itself(table: HudiTable) -> None:
    storage = metadata_storage(table.storage)
    commits = []
    for number in range(6):
        commits.append(commit(table, number))
        compacted(table)
    before = [i.requested_time for i in Timeline.load(storage).instants]
    first = [i.requested_time for i in archived_instants(storage)]
    assert all(each.startswith("0") for each in first), "which was never on the table's own"
    archive(table, keep_min=3, keep_max=4, lock=NoLock())
    left = archive_metadata_timeline(table)
    assert left
    assert left == before[: len(left)]
    assert max(left) < min(commits[-3:])
    again = [i.requested_time for i in archived_instants(storage)]
    assert again == [*first, *left]
    assert [i.requested_time for i in Timeline.load(storage).instants] == before[len(left) :]
    content = {i.action for i in archived_instants(storage)}
    assert content == {Action.DELTA_COMMIT, Action.COMMIT}
    assert archive_metadata_timeline(table) == []
    check_indexes(table)
    assert rows(table) == list(range(6))
    for number in range(12):
        commit(table, number)
        compacted(table)
        archive(table, keep_min=1, keep_max=2, lock=NoLock())
    assert len(Timeline.load(storage).instants) < 12, "it does not grow"
    check_indexes(table)
    assert rows(table) == list(range(12))


def test_instants_whose_log_files_are_read_stay(table: HudiTable) -> None:
    """Log files also stay in a file group that is not compacted because they are small."""
    storage = metadata_storage(table.storage)
    compacted_late = [commit(table, number) for number in range(4)]
    archive(table, keep_min=1, keep_max=2, lock=NoLock())
    assert archive_metadata_timeline(table) == []
    assert [i for i in compacted_late if Timeline.load(storage).find(i) is None] == []
    check_indexes(table)
    assert rows(table) == [0, 1, 2, 3]


def dies(table: HudiTable) -> str:
    """Make a writer that pauses and is rolled back; return its instant."""
    writer = begin_write(
        table, operation="UPSERT", lock=NoLock(), settings=WriteSettings(heartbeat=HeartbeatSettings(3600.0))
    )
    writer.heartbeat.stop()
    rollback(table, writer.instant, reason="no heartbeat")
    return writer.instant


def wakes_up(table: HudiTable, dead: str, *, requests: bool) -> list[str]:
    """Let a writer that does not know that it is dead stage its records."""
    storage = metadata_storage(table.storage)
    lost = FileList({"lost.parquet": FileInfo(5)})
    located: dict[str, Payload | None] = {str(key): RecordLocation("lost", "f-0", 0) for key in range(9)}
    stats = [
        write_log_file(storage, FILES, file_group_id(FILES, 0), dead, {files_key("city=sf"): lost}),
        *(
            write_log_file(storage, RECORD_INDEX, file_group_id(RECORD_INDEX, n), dead, located)
            for n in (0, 1)
        ),
    ]
    if requests:
        begin_instant(storage, Action.DELTA_COMMIT, dead, UPSERT)
    return [stat.path for stat in stats]


@pytest.mark.parametrize("requests", [False, True])
def test_a_late_log_file_of_a_dead_writer_is_never_read(table: HudiTable, requests: bool) -> None:
    storage = metadata_storage(table.storage)
    commit(table, 1)
    dead = dies(table)
    late = wakes_up(table, dead, requests=requests)
    for number in range(4):
        check_indexes(table)
        commit(table, number)
        compacted(table)
    check_indexes(table)
    archive(table, keep_min=1, keep_max=2, dead_writer_seconds=0.0, lock=NoLock())
    archive_metadata_timeline(table)
    assert Timeline.load(storage).instants[0].requested_time > dead
    assert not any(storage.stat(path) for path in late), "its files went before its instant was passed"
    check_indexes(table)

    # The writer wakes up again, when the timeline no longer says that it is dead.
    late = wakes_up(table, dead, requests=requests)
    said = records(table)
    listed = said[FILES][files_key("city=sf")]
    assert isinstance(listed, FileList)
    assert "lost.parquet" not in listed.files
    check_indexes(table)
    assert rows(table) == [0, 1, 2, 3]
    commit(table, 5)
    compacted(table)
    commit(table, 6)
    compacted(table)
    check_indexes(table)
    assert rows(table) == [0, 1, 2, 3, 5, 6]
    assert not any(storage.stat(path) for path in late)
    assert Timeline.load(storage).find(dead) is None


def test_a_late_log_file_in_a_file_group_that_nothing_changes(table: HudiTable) -> None:
    """The base file is older than the dead writer; the archived timeline shows that the writer is dead."""
    storage = metadata_storage(table.storage)
    commit(table, 3)
    unchanged = [
        each
        for each in MetadataTable(storage).file_slices(RECORD_INDEX)
        if all(log.instant.startswith("0") for log in each.log_files)
    ]
    assert len(unchanged) == 1
    dead = dies(table)
    for _ in range(4):
        commit(table, 3)
        compacted(table)
    archive(table, keep_min=1, keep_max=2, dead_writer_seconds=0.0, lock=NoLock())
    archive_metadata_timeline(table)
    assert Timeline.load(storage).instants[0].requested_time > dead
    wakes_up(table, dead, requests=False)
    (untouched,) = [
        e for e in MetadataTable(storage).file_slices(RECORD_INDEX) if e.file_id == unchanged[0].file_id
    ]
    assert untouched.base_file is not None
    assert untouched.base_file.instant < dead
    assert untouched.log_files == ()
    check_indexes(table)
    assert ALL_PARTITIONS in records(table)[FILES]
    assert rows(table) == [3]


def test_a_dead_writers_pending_instant_does_not_hold_archival_up(table: HudiTable) -> None:
    storage = metadata_storage(table.storage)
    with begin_write(
        table, operation="UPSERT", lock=NoLock(), settings=WriteSettings(heartbeat=HeartbeatSettings(3600.0))
    ) as writer:
        live = writer.instant
        begin_instant(storage, Action.DELTA_COMMIT, live, UPSERT)
        for number in range(4):
            commit(table, number)
            compacted(table)
        archive(table, keep_min=1, keep_max=2, dead_writer_seconds=0.0, lock=NoLock())
        assert all(each < live for each in archive_metadata_timeline(table))
        requested = instant_path(Instant(live, Action.DELTA_COMMIT, State.REQUESTED))
        assert storage.stat(requested) is not None
        os.utime(f"{table.location}/{HEARTBEAT_FOLDER}/{live}", (0, 0))
        assert rollback_dead_writers(table) == [live]
        begin_instant(storage, Action.DELTA_COMMIT, live, UPSERT)
        with pytest.raises(InstantRolledBackError):
            writer.commit([])
    archive(table, keep_min=1, keep_max=2, dead_writer_seconds=0.0, lock=NoLock())
    delete_superseded(table)
    assert archive_metadata_timeline(table)
    assert Timeline.load(storage).find(live) is None
    check_indexes(table)


def test_who_completes_an_archived_compaction_again_does_no_harm(table: HudiTable) -> None:
    """A cleaner that pauses right before its last step leaves this state."""
    storage = metadata_storage(table.storage)
    commit(table, 0)
    first = compacted(table)
    folder = Path(storage.root) / ".hoodie/timeline"
    kept = {path.name: path.read_bytes() for path in folder.glob(f"{first}*")}
    for number in range(5):
        commit(table, number)
        compacted(table)
    archive(table, keep_min=1, keep_max=2, lock=NoLock())
    archive_metadata_timeline(table)
    assert not list(folder.glob(f"{first}*"))
    for name, content in kept.items():
        storage.put(f".hoodie/timeline/{name}", content)
    check_indexes(table)
    assert rows(table) == list(range(5))
    archive_metadata_timeline(table)
    assert not list(folder.glob(f"{first}*"))
    assert [i.requested_time for i in archived_instants(storage)].count(first) == 1

"""Unpublished commits of the log: those that another Hudi writer has overtaken, and those that stand.

The commit is an upsert whose entry is in the log; ``seen`` is the last part of the timeline that its writer
read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.concurrency.conflicts.foreign_writers import as_entry, clustered, compacted, is_lost
from airflow_provider.concurrency.log import Commit, CommitLog, LogEntry, Restore, Rollback
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.timeline import Action, Instant, State, instant_path
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode, encode_commit_metadata
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm, create_trips, only_file, rows

OTHER = FileGroupId("city=sf", "another-file-group-0")


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


@pytest.fixture
def commit(table: HudiTable) -> Commit:
    """An upsert that has committed and is not published yet."""
    seen = table.timeline().newest_completion
    ingest_arrow(table, rows({1: 10.0}))
    entry = CommitLog(table.storage).newest()
    assert isinstance(entry, Commit)
    shown = table.timeline().find(entry.instant)
    assert shown is not None
    table.storage.delete(instant_path(shown))
    return replace(entry, seen=seen)


def group_of(commit: Commit) -> FileGroupId:
    (group,) = commit.touched
    return group


def plan_clustering(table: HudiTable, group: FileGroupId, on: str) -> None:
    slice_ = {"partitionPath": group.partition_path, "fileId": group.file_id, "dataFilePath": on}
    plan = {"clusteringPlan": {"inputGroups": [{"slices": [slice_]}]}, "operationType": "CLUSTER"}
    put(table, Jvm(table), Action.CLUSTERING, State.REQUESTED, encode("HoodieRequestedReplaceMetadata", plan))


def put(table: HudiTable, jvm: Jvm, action: Action, state: State, content: bytes) -> None:
    completed = jvm.completion_time if state is State.COMPLETED else None
    table.storage.put(instant_path(Instant(jvm.instant, action, state, completed)), content)


def write(table: HudiTable, stat: WriteStat, jvm: Jvm | None = None) -> None:
    metadata = CommitMetadata("UPSERT", (stat,), {}, {})
    put(
        table,
        jvm or Jvm(table),
        Action.COMMIT,
        State.COMPLETED,
        encode_commit_metadata(metadata, Action.COMMIT),
    )


def test_alone_it_stands(table: HudiTable, commit: Commit) -> None:
    assert not is_lost(table.storage, commit)


@pytest.mark.parametrize("mine", [True, False])
def test_to_a_clustering_that_is_planned_without_it(table: HudiTable, commit: Commit, mine: bool) -> None:
    plan_clustering(table, group_of(commit) if mine else OTHER, "city=sf/f-0_0-0-0_20200101000000000.parquet")
    assert is_lost(table.storage, commit) == mine


def test_not_to_a_clustering_that_is_planned_on_it(table: HudiTable, commit: Commit) -> None:
    plan_clustering(table, group_of(commit), f"city=sf/f-0_0-0-0_{commit.instant}.parquet")
    assert not is_lost(table.storage, commit)


def test_to_a_clustering_of_log_files_alone(table: HudiTable, commit: Commit) -> None:
    plan = {"partitionPath": "city=sf", "fileId": group_of(commit).file_id, "dataFilePath": None}
    content = {"clusteringPlan": {"inputGroups": [{"slices": [plan]}]}, "operationType": "CLUSTER"}
    put(
        table,
        Jvm(table),
        Action.CLUSTERING,
        State.REQUESTED,
        encode("HoodieRequestedReplaceMetadata", content),
    )
    assert is_lost(table.storage, commit)


@pytest.mark.parametrize("mine", [True, False])
def test_to_a_write_of_its_file_group(table: HudiTable, commit: Commit, mine: bool) -> None:
    group = group_of(commit) if mine else OTHER
    write(table, WriteStat(group.file_id, group.partition_path, "city=sf/f", "20200101000000000"))
    assert is_lost(table.storage, commit) == mine


def test_not_to_a_write_that_was_merged_on_it(table: HudiTable, commit: Commit) -> None:
    group = group_of(commit)
    write(table, WriteStat(group.file_id, group.partition_path, "city=sf/f", commit.instant))
    assert not is_lost(table.storage, commit)


def test_not_to_a_write_that_it_has_seen(table: HudiTable, commit: Commit) -> None:
    jvm, group = Jvm(table), group_of(commit)
    write(table, WriteStat(group.file_id, group.partition_path, "city=sf/f", "20200101000000000"), jvm)
    assert not is_lost(table.storage, replace(commit, seen=jvm.completion_time))


def test_not_to_a_write_where_its_writer_had_no_shared_lock(table: HudiTable, commit: Commit) -> None:
    group = group_of(commit)
    write(table, WriteStat(group.file_id, group.partition_path, "city=sf/f", "20200101000000000"))
    assert not is_lost(table.storage, replace(commit, seen=""))


@pytest.mark.parametrize(("inserted_in", "lost"), [({"city=sf"}, True), ({"city=la"}, False)])
def test_to_a_write_that_may_have_the_same_new_keys(
    table: HudiTable, commit: Commit, inserted_in: set[str], lost: bool
) -> None:
    write(table, WriteStat(OTHER.file_id, OTHER.partition_path, "city=sf/f", "null", num_inserts=1))
    assert is_lost(table.storage, replace(commit, inserted_in=frozenset(inserted_in))) == lost


def test_to_a_restore(table: HudiTable, commit: Commit) -> None:
    Jvm(table).restore([])
    assert is_lost(table.storage, commit)


@pytest.mark.parametrize("on_it", [True, False])
def test_to_a_compaction_that_has_not_read_its_log_file(
    table: HudiTable, commit: Commit, on_it: bool
) -> None:
    jvm, group = Jvm(table), group_of(commit)
    read = f".f-0_{commit.instant if on_it else '20200101000000000'}.log.1_0-0-0"
    operation = {
        "partitionPath": group.partition_path,
        "fileId": group.file_id,
        "deltaFilePaths": [read],
        "dataFilePath": None,
        "baseInstantTime": "20200101000000000",
    }
    other = operation | {"fileId": OTHER.file_id, "deltaFilePaths": None}
    plan = encode("HoodieCompactionPlan", {"operations": [other, operation], "version": 2})
    put(table, jvm, Action.COMPACTION, State.REQUESTED, plan)
    write(table, WriteStat(group.file_id, group.partition_path, "city=sf/f", "20200101000000000"), jvm)
    assert is_lost(table.storage, commit) != on_it


def test_not_to_a_clean(table: HudiTable, commit: Commit) -> None:
    put(table, Jvm(table), Action.CLEAN, State.COMPLETED, b"")
    assert not is_lost(table.storage, commit)


# --- what stands for an instant of another Hudi writer --------------------------------------


def test_an_upsert_stands_as_an_ingestion_and_a_rewrite_as_a_table_service(table: HudiTable) -> None:
    base_file = only_file(table)
    upserts, clusters = Jvm(table), Jvm(table)
    upserts.upsert({7: 7.0})
    clusters.cluster([base_file])
    upsert, clustering = entry_of(table, upserts), entry_of(table, clusters)
    assert (upsert.priority, clustering.priority) == (PRIORITIES["ingestion"], PRIORITIES["table_service"])
    assert (upsert.completion_time, clustering.completion_time) == (
        upserts.completion_time,
        clusters.completion_time,
    )


def test_a_restore_and_a_rollback_stand_at_their_completion(table: HudiTable) -> None:
    undone, rolls_back, restores = Jvm(table), Jvm(table), Jvm(table)
    undone.upsert({7: 7.0})
    rolls_back.roll_back(undone.instant)
    restores.restore([])
    rollback, restore = entry_of(table, rolls_back), entry_of(table, restores)
    assert isinstance(rollback, Rollback)
    assert rollback.rolls_back == undone.instant
    assert isinstance(restore, Restore)
    assert (rollback.completion_time, restore.completion_time) == (
        rolls_back.completion_time,
        restores.completion_time,
    )


def test_a_file_group_that_got_a_base_file_too_is_none_that_got_log_files_alone(table: HudiTable) -> None:
    jvm = Jvm(table)
    appended = WriteStat(
        OTHER.file_id, OTHER.partition_path, "city=sf/.f.log.1", "1", log_files=(".f.log.1",)
    )
    new = WriteStat("new-0", "city=sf", "city=sf/new-0", "null")
    metadata = CommitMetadata("UPSERT", (appended, new), {}, {})
    content = encode_commit_metadata(metadata, Action.DELTA_COMMIT)
    put(table, jvm, Action.DELTA_COMMIT, State.COMPLETED, content)
    entry = entry_of(table, jvm)
    assert isinstance(entry, Commit)
    assert entry.appended == {OTHER}


def test_a_plan_names_file_groups_of_a_table_without_partitions(table: HudiTable) -> None:
    slices = [{"partitionPath": None, "fileId": "a-0", "dataFilePath": None}]
    plan = {"clusteringPlan": {"inputGroups": [{"slices": slices}]}, "operationType": "CLUSTER"}
    jvm = Jvm(table)
    put(table, jvm, Action.CLUSTERING, State.REQUESTED, encode("HoodieRequestedReplaceMetadata", plan))
    timeline = table.timeline()
    (instant,) = timeline.pending()
    assert clustered(timeline, instant) == {FileGroupId("", "a-0")}
    assert compacted(timeline, instant) == set()


def test_a_compaction_plan_names_its_file_groups(table: HudiTable) -> None:
    operations = [
        {"partitionPath": each, "fileId": "a-0", "deltaFilePaths": [], "dataFilePath": None}
        for each in (None, "city=sf")
    ]
    plan = encode("HoodieCompactionPlan", {"operations": operations, "version": 2})
    put(table, Jvm(table), Action.COMPACTION, State.REQUESTED, plan)
    timeline = table.timeline()
    (instant,) = timeline.pending()
    assert compacted(timeline, instant) == {FileGroupId("", "a-0"), FileGroupId("city=sf", "a-0")}
    assert clustered(timeline, instant) == set()


def entry_of(table: HudiTable, jvm: Jvm) -> LogEntry:
    found = table.timeline().find(jvm.instant)
    assert found is not None
    return as_entry(table.storage, found)

"""Writers, compactions and clusterings of a merge-on-read table beside each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import begin_planned, begin_write, rollback_dead_writers
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.concurrency.transactions.transactions import undo_writes
from airflow_provider.exceptions import (
    NoSuchInstantError,
    WriteConflictError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    preview_clustering,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    pending_table_compactions,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import HudiTable, increment, read_optimized
from airflow_provider.table.files.log_file_writer import LogFileWriter
from airflow_provider.table.files.log_records import DeletedRecord
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.timeline import WriteStat
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.unit.ingestion.merge_on_read.three_file_groups import (
    ALWAYS,
    APART,
    OF_A,
    Row,
    expected,
    logs,
    make_filled,
    row,
)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return make_filled(lake)


def overtaken(
    table: LakeTable, operation: str, batch: list[Row], *others: Callable[[], object]
) -> dict[str, Any]:
    """Run a write; when it has written its files, another write commits before each of its tries."""
    lock = MeetingLock(*others)
    return ingest_arrow(
        table.location, table.arrow(batch), operation, lock=lock, on_conflict="rebase", **APART
    )


@pytest.mark.parametrize(
    ("mine", "theirs"), [("upsert", "upsert"), ("delete", "upsert"), ("upsert", "delete")]
)
def test_writes_of_one_file_group_come_one_after_the_other(table: LakeTable, mine: str, theirs: str) -> None:
    own, other = [row(1, "mine"), row(2, "mine"), row(7, "mine")], [row(2, "theirs"), row(3, "theirs")]
    result = overtaken(table, mine, own, lambda: table.ingest(theirs, other, **APART))
    assert result["rebases"] == 1
    changes = [*(other if theirs == "upsert" else []), *(own if mine == "upsert" else [])]
    gone = (
        {("a", 3)}
        if theirs == "delete"
        else {("a", each["id"]) for each in own}
        if mine == "delete"
        else set()
    )
    table.check_now(expected(*changes, gone=tuple(gone)))


def test_an_upsert_beside_a_compaction_waits_for_nobody(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new"), row(7, "new")])
    instant = schedule_table_compaction(table.table, ALWAYS)
    before = table.ingest("upsert", [row(2, "planned")])
    beside = overtaken(
        table, "upsert", [row(1, "beside")], lambda: run_table_compaction(table.table, instant)
    )
    assert before["rebases"] == beside["rebases"] == 0
    wanted = expected(row(1, "beside"), row(7, "new"), row(2, "planned"))
    table.check_now(wanted)
    compacted = read_optimized(table.table).to_table().to_pylist()
    assert {each["value"] for each in compacted if each["part"] == "a"} == {"old", "new"}
    compact_table(table.table, ALWAYS)
    assert logs(table) == []
    table.check_now(wanted)


def test_a_write_that_was_requested_before_the_plan_completes_after_it(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])

    def plan_and_run() -> None:
        run_table_compaction(table.table, schedule_table_compaction(table.table, ALWAYS))

    result = overtaken(table, "upsert", [row(1, "mine")], plan_and_run)
    assert result["rebases"] == 0
    assert result["instant"] < max(each.instant for each in table.table.view().base_files("part=a"))
    table.check_now(expected(row(1, "mine")))
    compact_table(table.table, ALWAYS)
    table.check_now(expected(row(1, "mine")))
    clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    table.check_now(expected(row(1, "mine")))


def test_a_write_that_completed_late_stays_on_the_timeline_until_it_is_compacted(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])

    def plan_and_run() -> None:
        run_table_compaction(table.table, schedule_table_compaction(table.table, ALWAYS))

    late = overtaken(table, "upsert", [row(1, "mine")], plan_and_run)["instant"]
    for _ in range(3):
        table.ingest("upsert", [row(1, "beside", "b")], **APART)
    done = archive(table.table, keep_min=1, keep_max=2)
    assert f"log files of {late} are on a slice" in (done.held_by or "")
    wanted = expected(row(1, "mine"), row(1, "beside", "b"))
    assert table.rows() == in_order(wanted)
    table.check_readers(None, in_order(wanted))
    # Another Hudi archives it all the same: readers of this package find its completion time in the archive.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_provider.services.archival._late_log_bounds", lambda *_: iter(()))
        archive(table.table, keep_min=1, keep_max=2)
    assert table.table.timeline().find(late) is None
    assert table.rows() == in_order(wanted)
    clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    assert table.rows() == in_order(wanted)
    compact_table(table.table, ALWAYS)
    table.check_readers(None, in_order(wanted))


def test_a_clustering_reads_log_files_and_replaces_their_file_groups(table: LakeTable) -> None:
    table.ingest("bulk_insert", [row(n, "old") for n in range(20, 24)])
    start = table.table.timeline().commits()[-1].completion_time
    table.ingest("upsert", [row(1, "new"), row(6, "new")], **APART)
    table.ingest("delete", [row(2, "")])
    before = {each.file_id for each in table.table.view().base_files("part=a")}
    (group,) = (preview_clustering(table.table, OF_A) or pytest.fail("nothing to do")).groups
    assert sorted(len(each.log_paths) for each in group.slices) == [0, 1, 2]
    done = cluster_in_process(table.table, schedule_clustering(table.table, OF_A))
    assert done is not None
    assert (done["groups_done"], done["files_replaced"], done["files_written"]) == (1, 3, 1)
    assert not before & {each.file_id for each in table.table.view().base_files("part=a")}
    assert not any(each.log_paths for each in file_slices(table.table))
    wanted = expected(row(1, "new"), row(6, "new"), gone=(("a", 2),))
    wanted += [row(n, "old") for n in range(20, 24)]
    table.check_now(wanted)
    found = increment(HudiTable.open(table.location), start).scanner().to_table()
    assert sorted(found["id"].to_pylist()) == [1, 6]


def test_a_clustering_and_a_write_that_appends_to_its_file_groups(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")], **APART)
    planned = schedule_clustering(table.table, OF_A)
    table.ingest("upsert", [row(2, "between")], **APART)
    with pytest.raises(WriteConflictError):  # the plan lacks the log files that were appended since
        cluster_in_process(table.table, planned)
    again = schedule_clustering(table.table, OF_A)

    def yields() -> None:
        with pytest.raises(WriteConflictError):  # a load has the higher priority
            cluster_in_process(table.table, again)

    beside = table.arrow([row(3, "beside")])
    ingest_arrow(table.location, beside, "upsert", lock=MeetingLock(yields))
    wanted = expected(row(1, "new"), row(2, "between"), row(3, "beside"))
    table.check_now(wanted)
    assert cluster_in_process(table.table, schedule_clustering(table.table, OF_A)) is not None
    table.check_now(wanted)


def test_a_clustering_and_a_compaction_leave_each_others_file_groups(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new"), row(6, "new")], **APART)
    compaction = schedule_table_compaction(table.table, ALWAYS)
    assert schedule_clustering(table.table, OF_A) is None
    run_table_compaction(table.table, compaction)
    table.ingest("upsert", [row(2, "new")], **APART)
    clustering = schedule_clustering(table.table, OF_A)
    assert schedule_table_compaction(table.table, ALWAYS) is None
    assert cluster_in_process(table.table, clustering) is not None
    table.check_now(expected(row(1, "new"), row(6, "new"), row(2, "new")))


def test_a_sorted_clustering_of_log_files_into_several_file_groups(table: LakeTable) -> None:
    table.ingest("upsert", [row(n, f"v{9 - n}") for n in range(0, 10, 2)], **APART)
    sizes = sum(each.size for each in table.table.view().base_files("part=a"))
    settings = ClusteringSettings(sort_by=("value",), partitions=("part=a",), target_file_size=sizes // 2)
    done = cluster_in_process(table.table, schedule_clustering(table.table, settings))
    assert done is not None
    assert done["files_written"] >= 2
    wanted = expected(*(row(n, f"v{9 - n}") for n in range(0, 10, 2)))
    table.check_now(wanted)
    # A slice that has a log file again counts as not clustered.
    assert schedule_clustering(table.table, settings) is None
    table.ingest("upsert", [row(4, "zzz")], **APART)
    assert schedule_clustering(table.table, settings) is not None


def test_an_overwrite_wins_against_a_compaction(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new"), row(1, "new", "b")])
    instant = schedule_table_compaction(table.table, ALWAYS)
    table.ingest("insert_overwrite", [row(20, "over")])
    done = run_table_compaction(table.table, instant)
    assert done is not None
    assert done.partitions == ("part=b",)
    table.check_now(
        [row(20, "over"), *(each for each in expected(row(1, "new", "b")) if each["part"] == "b")]
    )


def test_a_pending_plan_of_which_writes_left_nothing_gives_way_to_another(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])
    overtaken = schedule_table_compaction(table.table, ALWAYS) or ""
    table.ingest("insert_overwrite", [row(20, "over")])
    table.ingest("upsert", [row(20, "again")])
    (done,) = compact_table(table.table, ALWAYS)
    assert done.instant > overtaken
    assert pending_table_compactions(table.table) == []
    table.check_now([row(20, "again"), *(each for each in expected() if each["part"] == "b")])


def test_a_plan_is_carried_out_once_and_a_dead_one_is_planned_again(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])
    instant = schedule_table_compaction(table.table, ALWAYS) or ""
    begin_planned(table.table, instant)
    with pytest.raises(WriteConflictError, match="is being carried out already"):
        run_table_compaction(table.table, instant)
    assert compact_table(table.table, ALWAYS) == []  # its file groups belong to another plan
    path = Path(table.location) / heartbeat_path(instant)
    os.utime(path, (0, 0))
    rollback_dead_writers(table.table)
    with pytest.raises(NoSuchInstantError):
        run_table_compaction(table.table, instant)
    (again,) = compact_table(table.table, ALWAYS)
    assert again.instant > instant
    assert pending_table_compactions(table.table) == []
    table.check_now(expected(row(1, "new")))


def test_what_comes_back_beside_a_delete_that_was_requested_before(table: LakeTable) -> None:
    (group,) = (each for each in file_slices(table.table) if each.partition_path == "part=b")
    opened = table.table
    other = begin_write(opened, operation="DELETE", action=opened.write_action)

    def deletes() -> None:
        with other:
            other.plan([group.file_group], [], appended=[group.file_group])
            writer = LogFileWriter(
                opened.storage, "part=b", group.file_id, "0-0-0", other.instant, opened.schema
            )
            log_file = writer.write(
                opened.schema.empty_table(), pa.array([], pa.string()), [DeletedRecord("1", "part=b")]
            )
            stat = WriteStat(
                group.file_id, "part=b", log_file.path, num_deletes=1, log_files=(log_file.name,)
            )
            other.commit([replace(stat, file_size=log_file.size)])

    result = overtaken(table, "upsert", [row(1, "mine", "b")], deletes)
    assert result["instant"] > other.instant
    table.check_now(expected(row(1, "mine", "b")))


def test_a_transaction_is_aborted_after_its_file_group_was_compacted(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])
    instant = schedule_table_compaction(table.table, ALWAYS)
    table.ingest("upsert", [row(1, "aborted")], txn_id=7, write_id=7, txn_goes_on=True)
    run_table_compaction(table.table, instant)
    undo_writes(table.table, 7)
    table.check_now(expected(row(1, "new")))

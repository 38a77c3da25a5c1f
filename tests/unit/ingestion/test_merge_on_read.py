"""Merge-on-read tables: upserts and deletes append log files, compactions write them into base files."""

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
    InvalidInputError,
    NoSuchInstantError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
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
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    due_table_compactions,
    pending_table_compactions,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from airflow_provider.table import HudiTable, increment, read_optimized, snapshot
from airflow_provider.table.files.log_file import BlockType, HeaderKey, read_log_blocks
from airflow_provider.table.files.log_file_writer import LogFileWriter
from airflow_provider.table.files.log_records import DeletedRecord, deleted_records
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.storage import ByteRange
from airflow_provider.table.timeline import Action, WriteStat
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.ingestion_contract.merge_on_read import operations_one_after_the_other
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})
APART: dict[str, Any] = {"small_file_limit": 0}
ALWAYS = TableCompactionSettings(delta_commits=1)
OF_A = ClusteringSettings(partitions=("part=a",))
KEPT = ("files", "column_stats", "partition_stats", "bloom_filters")

Row = dict[str, Any]


def row(id_: int, value: str, part: str = "a", ts: int = 1) -> Row:
    return {"id": id_, "part": part, "value": value, "ts": ts}


def make(lake: Lake, **options: Any) -> LakeTable:
    return lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read", **options)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    """Partition ``a`` with rows 0 to 4 in one file group, 5 to 9 in another; ``b`` with 0 to 4."""
    made = make(lake)
    made.ingest("bulk_insert", [row(n, "old") for n in range(5)])
    made.ingest("bulk_insert", [row(n, "old") for n in range(5, 10)] + [row(n, "old", "b") for n in range(5)])
    return made


OLD = [row(n, "old") for n in range(10)] + [row(n, "old", "b") for n in range(5)]


def expected(*changes: Row, gone: tuple[tuple[str, int], ...] = ()) -> list[Row]:
    found = {(each["part"], each["id"]): each for each in (*OLD, *changes)}
    return [each for key, each in found.items() if key not in gone]


def logs(table: LakeTable) -> list[str]:
    return sorted(path for each in file_slices(table.table) for path in each.log_paths)


# --- writing ----------------------------------------------------------------------------------


def test_its_properties_are_the_jvms(lake: Lake) -> None:
    config = make(lake, ordering_field="ts").table.config
    found = (config.table_type, config.version, config.layout, config.raw["hoodie.record.merge.mode"])
    assert found == ("MERGE_ON_READ", 9, 2, "EVENT_TIME_ORDERING")


def test_an_update_is_one_log_file_a_file_group(table: LakeTable) -> None:
    before = {each.path for each in table.table.view().all_base_files()}
    batch = [row(1, "new"), row(2, "new"), row(7, "new")]
    result = table.ingest("upsert", batch)
    assert (result["action"], result["rows_updated"], result["rows_inserted"]) == ("deltacommit", 3, 0)
    assert {each.path for each in table.table.view().all_base_files()} == before
    names = [path.rpartition("/")[2] for path in logs(table)]
    groups = sorted(each.file_id for each in table.table.view().base_files("part=a"))
    assert names == [
        f".{group}_{result['instant']}.log.1_{names[at].rpartition('.log.1_')[2]}"
        for at, group in enumerate(groups)
    ]
    table.check(expected(*batch))


def test_what_the_blocks_and_the_commit_say(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])
    instant = table.ingest("delete", [row(2, "")])["instant"]
    (first, second) = logs(table)
    found = [
        block
        for path in (first, second)
        for block in read_log_blocks(ByteRange.of_file(table.table.storage, path))
    ]
    assert [block.block_type for block in found] == [BlockType.PARQUET_DATA, BlockType.DELETE]
    assert all('"_hoodie_commit_time"' in block.header[HeaderKey.SCHEMA] for block in found)
    (deleted,) = deleted_records(found[1])
    assert (deleted.record_key, deleted.partition_path) == ("2", "part=a")
    _, metadata = table.table.find_commit(instant) or pytest.fail("no such commit")
    (stat,) = metadata.write_stats
    assert (stat.log_files, stat.log_version, stat.log_offset, stat.base_file) == (
        (second.rpartition("/")[2],),
        1,
        0,
        "",
    )
    assert (stat.num_writes, stat.num_deletes, stat.file_size) == (0, 1, stat.total_write_bytes)


def test_new_rows_fill_small_file_groups_without_log_files(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])
    logged = {each.file_id for each in file_slices(table.table) if each.log_paths}
    before = {each.file_id: each.path for each in table.table.view().base_files("part=a")}
    table.ingest("upsert", [row(3, "newer"), row(50, "new")])
    after = {each.file_id: each.path for each in table.table.view().base_files("part=a")}
    assert before.keys() == after.keys()
    assert {each for each in before if before[each] == after[each]} == logged
    table.check(expected(row(1, "new"), row(3, "newer"), row(50, "new")))


def test_a_key_that_is_back_is_there_once(table: LakeTable) -> None:
    table.ingest("delete", [row(1, "")], **APART)
    table.ingest("insert", [row(1, "inserted")], **APART)  # looks nothing up: another file group
    table.ingest("upsert", [row(1, "again")], **APART)
    table.check_now(expected(row(1, "again")))
    table.ingest("delete", [row(1, "")], **APART)
    table.ingest("upsert", [row(1, "back")], **APART)
    table.check_now(expected(row(1, "back")))
    compact_table(table.table, ALWAYS)
    table.check_now(expected(row(1, "back")))


def test_late_rows_and_late_deletes_lose(lake: Lake) -> None:
    table = make(lake, ordering_field="ts")
    table.ingest("insert", [row(n, "old", ts=5) for n in range(4)])
    table.ingest("upsert", [row(0, "late", ts=4), row(1, "new", ts=6)], **APART)
    table.ingest("delete", [row(2, "", ts=4), row(3, "", ts=5)], **APART)
    wanted = [row(0, "old", ts=5), row(1, "new", ts=6), row(2, "old", ts=5)]
    table.check_now(wanted)
    table.ingest("upsert", [row(1, "late", ts=5)], **APART)
    table.check_now(wanted)
    compact_table(table.table, ALWAYS)
    table.check_now(wanted)


def test_a_record_that_comes_back_is_new_whatever_its_ordering_value(lake: Lake) -> None:
    table = make(lake, ordering_field="ts")
    table.ingest("insert", [row(1, "old", ts=9), row(2, "old", ts=9)])
    table.ingest("delete", [row(1, "")], **APART)
    gone = pa.table({"id": [2], "part": ["a"]})
    table.write("delete", gone, **APART)
    table.check_now([row(1, "old", ts=9)])  # of which the delete was late
    table.ingest("upsert", [row(2, "back", ts=3)], **APART)
    table.check_now([row(1, "old", ts=9), row(2, "back", ts=3)])


def test_a_record_that_comes_back_beside_a_compaction_of_its_delete(table: LakeTable) -> None:
    table.ingest("delete", [row(1, "")], **APART)
    instant = schedule_table_compaction(table.table, ALWAYS)
    table.ingest("upsert", [row(1, "back")], **APART)
    with pytest.raises(WriteConflictError):  # the only file group of the plan is written anew already
        run_table_compaction(table.table, instant)
    table.ingest("upsert", [row(1, "again")], **APART)
    table.check_now(expected(row(1, "again")))


def test_a_column_is_added_and_widened(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])
    more = pa.table({"id": [2], "part": ["a"], "value": ["new"], "ts": [1], "more": ["x"]})
    table.write("upsert", more, **APART)
    wanted = [
        each | {"more": "x" if each["id"] == 2 and each["part"] == "a" else None}
        for each in expected(row(1, "new"), row(2, "new"))
    ]
    table.check_now(wanted)
    compact_table(table.table, ALWAYS)
    table.check_now(wanted)


def test_what_is_not_done_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match="table_type must be copy_on_write or merge_on_read"):
        lake.create(SCHEMA, table_type="merge_on_write")
    with pytest.raises(UnsupportedTableError, match="it has no log files"):
        compact_table(lake.create(SCHEMA).table)


@pytest.mark.parametrize("seed", range(4))
def test_operations_one_after_the_other(lake: Lake, seed: int) -> None:
    operations_one_after_the_other(lake, seed, steps=14)


# --- beside each other ------------------------------------------------------------------------


def overtaken(
    table: LakeTable, operation: str, batch: list[Row], *others: Callable[[], object]
) -> dict[str, Any]:
    """A write that has written its files; before each of its tries another write commits."""
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
    # Another Hudi archives it all the same: who reads here finds in the archive when it completed.
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
    with pytest.raises(WriteConflictError):  # the plan lacks what was appended since
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
    # A slice that has a log file again is not laid out any more.
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


def test_a_plan_is_carried_out_once_and_a_dead_one_is_planned_again(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new")])
    instant = schedule_table_compaction(table.table, ALWAYS) or ""
    begin_planned(table.table, instant)
    with pytest.raises(WriteConflictError, match="is being carried out already"):
        run_table_compaction(table.table, instant)
    assert compact_table(table.table, ALWAYS) == []  # its file groups are taken
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


# --- services ---------------------------------------------------------------------------------


def test_when_it_is_due_and_of_what(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new"), row(1, "new", "b")])
    table.ingest("upsert", [row(1, "newer"), row(2, "new")])
    assert due_table_compactions(table.table, TableCompactionSettings())["due"] is None  # four delta commits

    def chosen(**settings: Any) -> Any:
        due = due_table_compactions(table.table, TableCompactionSettings(delta_commits=1, **settings))["due"]
        return due and (due["partitions"], due["log_files"])

    assert chosen() == (["part=a", "part=b"], 3)
    assert chosen(min_log_files=2) == (["part=a"], 2)
    assert chosen(partitions=("part=b",)) == (["part=b"], 1)
    assert chosen(max_io_bytes=1) == (["part=a"], 2)
    assert chosen(min_log_bytes=10**9) is None


def test_a_load_compacts_where_the_table_says_so(lake: Lake) -> None:
    options = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 3}
    table = make(lake, hudi_options=options)
    table.ingest("insert", [row(1, "old")])
    for value in ("a", "b", "c"):
        table.ingest("upsert", [row(1, value)])
    actions = [each.action for each in table.table.timeline().commits()]
    assert actions == [Action.DELTA_COMMIT] * 3 + [Action.COMMIT, Action.DELTA_COMMIT]
    table.check_now([row(1, "c")])


def test_cleaning_restoring_and_the_past(table: LakeTable) -> None:
    moments: dict[str, list[Row]] = {}

    def then(operation: str, batch: list[Row]) -> str:
        instant: str = table.ingest(operation, batch, **APART)["instant"]
        moments[instant] = table.rows()
        return instant

    then("upsert", [row(1, "one"), row(7, "one")])
    saved = then("delete", [row(2, "")])
    create_savepoint(table.table)
    compact_table(table.table, ALWAYS)
    then("upsert", [row(1, "two"), row(2, "two")])
    compact_table(table.table, ALWAYS)
    then("upsert", [row(3, "three")])
    for instant, rows in moments.items():
        assert table.rows(instant) == rows
    (cleaned,) = clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    assert cleaned.deleted
    table.check_now(table.rows())
    assert table.rows(saved) == moments[saved]
    restore(table.table, saved)
    table.check_now(moments[saved])
    table.ingest("upsert", [row(4, "after")], **APART)
    table.check_now(expected(row(1, "one"), row(7, "one"), row(4, "after"), gone=(("a", 2),)))


def test_its_indexes_say_what_its_files_say(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "aaa")])
    schedule_index(table.table, list(KEPT))
    run_index(table.table)
    table.ingest("upsert", [row(1, "zzz"), row(7, "yyy"), row(40, "new", "c")], **APART)
    table.ingest("delete", [row(2, "")])
    assert_indexes_equal_a_rebuild(table.table, KEPT)
    found = snapshot(table.table, where=[("value", ">=", "yyy")]).to_table()
    assert sorted(found["id"].to_pylist()) == [1, 7]
    compact_table(table.table, ALWAYS)
    table.ingest("upsert", [row(3, "xxx")], **APART)
    assert_indexes_equal_a_rebuild(table.table, KEPT)
    clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    assert_indexes_equal_a_rebuild(table.table, KEPT)
    wanted = expected(row(1, "zzz"), row(7, "yyy"), row(40, "new", "c"), row(3, "xxx"), gone=(("a", 2),))
    table.check_now(wanted)


def test_an_incremental_read_tells_what_was_logged(table: LakeTable) -> None:
    start = table.table.timeline().commits()[-1].completion_time
    table.ingest("upsert", [row(1, "new")])
    instant = schedule_table_compaction(table.table, ALWAYS)
    table.ingest("upsert", [row(7, "newer")])
    run_table_compaction(table.table, instant)
    found = increment(HudiTable.open(table.location), start).scanner().to_table().to_pylist()
    assert sorted((each["id"], each["value"]) for each in found) == [(1, "new"), (7, "newer")]

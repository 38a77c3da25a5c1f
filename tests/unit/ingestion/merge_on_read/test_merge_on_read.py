"""Merge-on-read tables: upserts and deletes append log files, compactions write them into base files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import (
    InvalidInputError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    due_table_compactions,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import HudiTable, increment, snapshot
from airflow_provider.table.files.log_file import BlockType, HeaderKey, read_log_blocks
from airflow_provider.table.files.log_records import deleted_records
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.storage import ByteRange
from airflow_provider.table.timeline import Action
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.ingestion_contract.merge_on_read import operations_one_after_the_other
from tests.unit.ingestion.merge_on_read.three_file_groups import (
    ALWAYS,
    APART,
    KEPT,
    SCHEMA,
    Row,
    expected,
    logs,
    make,
    make_filled,
    row,
)
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return make_filled(lake)


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
    table.ingest("insert", [row(1, "inserted")], **APART)  # looks no key up: another file group
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
    table.check_now([row(1, "old", ts=9)])  # the delete of this key was late
    table.ingest("upsert", [row(2, "back", ts=3)], **APART)
    table.check_now([row(1, "old", ts=9), row(2, "back", ts=3)])


def test_a_record_that_comes_back_beside_a_compaction_of_its_delete(table: LakeTable) -> None:
    table.ingest("delete", [row(1, "")], **APART)
    instant = schedule_table_compaction(table.table, ALWAYS)
    table.ingest("upsert", [row(1, "back")], **APART)
    with pytest.raises(WriteConflictError):  # the only file group of the plan is rewritten already
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

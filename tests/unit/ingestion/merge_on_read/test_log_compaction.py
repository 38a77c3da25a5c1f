"""Log compactions: many log blocks become one, and every reader shows the same rows."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import begin_planned, rollback_dead_writers
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.exceptions import InvalidInputError, UnsupportedTableError, WriteConflictError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.services.table_compaction.log_compaction import (
    LogCompactionSettings,
    compact_logs,
    pending_log_compactions,
    run_log_compaction,
    schedule_log_compaction,
)
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.table import HudiTable, increment
from airflow_provider.table.files.log_file import BlockType, HeaderKey
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.timeline import Action, State
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})
APART: dict[str, Any] = {"small_file_limit": 0}
TWO = LogCompactionSettings(blocks=2)
KEPT = ("files", "column_stats", "record_index")

Row = dict[str, Any]


def row(id_: int, value: str, ts: int = 1) -> Row:
    return {"id": id_, "part": "a", "value": value, "ts": ts}


def make(lake: Lake, **options: Any) -> LakeTable:
    made = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read", **options)
    made.ingest("bulk_insert", [row(n, "old") for n in range(6)])
    return made


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return make(lake)


def after(*changed: Row, gone: tuple[int, ...] = ()) -> list[Row]:
    found = {n: row(n, "old") for n in range(6)} | {each["id"]: each for each in changed}
    return [each for n, each in found.items() if n not in gone]


def blocks(table: LakeTable) -> list[Any]:
    """The blocks that readers merge, of the only file group with log files."""
    (only,) = (each for each in file_slices(table.table) if each.log_paths)
    return SliceReader.of(table.table, table.table.view()).blocks(only)


def test_many_blocks_become_one(table: LakeTable) -> None:
    instants = [
        table.ingest("upsert", [row(1, "one"), row(2, "two")])["instant"],
        table.ingest("upsert", [row(2, "three")])["instant"],
        table.ingest("delete", [row(4, "")])["instant"],
    ]
    wanted = after(row(1, "one"), row(2, "three"), gone=(4,))
    (done,) = compact_logs(table.table, TWO)
    assert (done.file_groups, done.records) == (1, 2)
    found = blocks(table)
    assert [each.block_type for each in found] == [BlockType.PARQUET_DATA, BlockType.DELETE]
    assert {each.header[HeaderKey.COMPACTED_BLOCK_TIMES] for each in found} == {",".join(instants)}
    completed, metadata = table.table.find_commit(done.instant) or pytest.fail("no such commit")
    assert (completed.action, metadata.operation_type) == (Action.DELTA_COMMIT, "LOG_COMPACT")
    table.check_now(wanted)
    assert compact_logs(table.table, TWO) == []  # replaced blocks do not count
    table.ingest("upsert", [row(1, "four")])
    (again,) = compact_logs(table.table, LogCompactionSettings(blocks=2))
    assert again.records == 2
    wanted = after(row(1, "four"), row(2, "three"), gone=(4,))
    table.check_now(wanted)
    assert compact_table(table.table, TableCompactionSettings(delta_commits=1))
    table.check_now(wanted)
    clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    table.check_now(wanted)


def test_a_load_does_it_where_the_option_says_so(lake: Lake) -> None:
    options = {"hoodie.log.compaction.inline": True, "hoodie.log.compaction.blocks.threshold": 3}
    table = make(lake, hudi_options=options)
    for value in ("one", "two", "three", "four"):
        table.ingest("upsert", [row(1, value)])
    assert [len({each.instant for each in blocks(table)})] == [2]  # of the log compaction, and one later
    table.check_now(after(row(1, "four")))


def test_it_changes_no_row_for_an_incremental_reader(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "one")])
    start = table.table.timeline().commits()[-1].completion_time
    table.ingest("upsert", [row(2, "two")])
    compact_logs(table.table, TWO)
    for upto in (None, "again"):
        if upto:
            table.ingest("upsert", [row(3, "three")])
        found = increment(HudiTable.open(table.location), start).scanner().to_table()
        assert sorted(found["id"].to_pylist()) == [2, 3][: 2 if upto else 1]


def test_by_ordering_values(lake: Lake) -> None:
    table = make(lake, ordering_field="ts")
    table.ingest("upsert", [row(1, "newest", ts=9), row(2, "late", ts=0)])
    table.ingest("upsert", [row(1, "older", ts=5)])
    table.write("delete", table.arrow([row(3, "", ts=5), row(4, "", ts=0), row(1, "", ts=2)]))
    table.ingest("delete", [{"id": 5, "part": "a"}])
    wanted = after(row(1, "newest", ts=9), gone=(3, 5))
    table.check_now(wanted)
    assert compact_logs(table.table, TWO)
    table.check_now(wanted)
    compact_table(table.table, TableCompactionSettings(delta_commits=1))
    table.check_now(wanted)


def test_who_appends_meanwhile_wins(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "one")])
    table.ingest("upsert", [row(1, "two")])
    instant = schedule_log_compaction(table.table, TWO)
    table.ingest("upsert", [row(1, "between")])
    with pytest.raises(WriteConflictError):
        run_log_compaction(table.table, instant or "")
    rollback_dead_writers(table.table)
    table.check_now(after(row(1, "between")))
    again = schedule_log_compaction(table.table, TWO)

    def yields() -> None:
        with pytest.raises(WriteConflictError):  # a load has the higher priority
            run_log_compaction(table.table, again or "")

    ingest_arrow(table.location, table.arrow([row(2, "beside")]), "upsert", lock=MeetingLock(yields))
    table.check_now(after(row(1, "between"), row(2, "beside")))


def test_a_pending_plan_that_a_write_overtook_gives_way_to_another(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "one")])
    table.ingest("upsert", [row(1, "two")])
    overtaken = schedule_log_compaction(table.table, TWO) or ""
    table.ingest("upsert", [row(1, "three")])
    (done,) = compact_logs(table.table, TWO)
    assert done.instant > overtaken
    assert pending_log_compactions(table.table) == []
    table.check_now(after(row(1, "three")))


def test_it_and_a_compaction_leave_each_others_file_groups(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "one")])
    table.ingest("upsert", [row(1, "two")])
    planned = schedule_log_compaction(table.table, TWO)
    assert compact_table(table.table, TableCompactionSettings(delta_commits=1)) == []
    assert run_log_compaction(table.table, planned or "").file_groups == 1
    assert run_log_compaction(table.table, planned or "").instant == planned
    assert compact_table(table.table, TableCompactionSettings(delta_commits=1))
    table.check_now(after(row(1, "two")))


def test_one_that_dies_is_rolled_back_and_planned_again(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "one")])
    table.ingest("upsert", [row(1, "two")])
    instant = schedule_log_compaction(table.table, TWO)
    begin_planned(table.table, instant or "")
    os.utime(Path(table.location) / heartbeat_path(instant or ""), (0, 0))
    rollback_dead_writers(table.table)
    assert pending_log_compactions(table.table) == []
    assert not [each for each in table.table.timeline().pending() if each.state is State.INFLIGHT]
    table.check_now(after(row(1, "two")))
    assert compact_logs(table.table, TWO)
    table.check_now(after(row(1, "two")))


def test_what_is_not_done_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match="blocks must be a whole number of at least 2, not 1"):
        LogCompactionSettings(blocks=1)
    with pytest.raises(UnsupportedTableError, match="it has no log files"):
        compact_logs(lake.create(SCHEMA).table)
    buckets = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}
    other = lake.create(SCHEMA, table_type="merge_on_read", concurrency="non_blocking", hudi_options=buckets)
    with pytest.raises(UnsupportedTableError, match="its writers append log files at any time"):
        schedule_log_compaction(other.table)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_readers_and_indexes_agree(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    table = make(lake, **({"ordering_field": "ts"} if seed % 2 else {}))
    schedule_index(table.table, list(KEPT))
    run_index(table.table)
    model = {each["id"]: each for each in after()}
    savepoint, saved = create_savepoint(table.table).instant, dict(model)
    for step in range(14):
        kind = rng.choice(["upsert"] * 4 + ["delete"] * 2 + ["log"] * 3 + ["compact"])
        ids = rng.sample(range(9), 2)
        if step == 10:
            restore(table.table, savepoint)
            model = dict(saved)
        elif kind == "upsert":
            batch = [row(n, str(step), 2) for n in ids]
            table.ingest("upsert", batch, **APART)
            model.update({each["id"]: each for each in batch})
        elif kind == "delete":
            table.ingest("delete", [{"id": n, "part": "a"} for n in ids])
            model = {n: each for n, each in model.items() if n not in ids}
        elif kind == "log":
            compact_logs(table.table, TWO)
        else:
            compact_table(table.table, TableCompactionSettings(delta_commits=1))
        table.check_now(list(model.values()))
        assert_indexes_equal_a_rebuild(table.table, KEPT)

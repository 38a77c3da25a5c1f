"""Non-blocking concurrency: writers that append to one file group neither conflict nor wait.

The first tests are the scenarios of Apache Hudi's ``TestSparkNonBlockingConcurrencyControl``, with their
names and numbers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES, rollback_dead_writers
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.concurrency.transactions.transactions import undo_writes
from airflow_provider.exceptions import HigherPriorityWriteError, UnsupportedTableError, WriteConflictError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import increment, read_optimized
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.reading.slices import file_slices
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.unit.ingestion.merge_on_read.non_blocking_table import (
    ALWAYS,
    beside,
    files,
    in_flight,
    make,
    row,
)
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

KEPT = ("files", "column_stats", "partition_stats", "bloom_filters")
FIXED = "00000000-0000-0000-0000-000000000000-0"


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return make(lake)


# --- scenarios of the JVM's test --------------------------------------------------------------


def test_non_blocking_concurrency_control_with_two_first_writes(table: LakeTable) -> None:
    beside(
        table, "insert", [row("id1", "Danny", 1)], lambda: table.ingest("insert", [row("id1", "Julian", 2)])
    )
    assert files(table) == [(FIXED, False, 2)]  # no base file, because there was no compaction yet
    table.check_now([row("id1", "Julian", 2)])
    assert compact_table(table.table, ALWAYS)
    assert files(table) == [(FIXED, True, 0)]
    table.check_now([row("id1", "Julian", 2)])


def test_non_blocking_concurrency_control_with_inflight_instant(table: LakeTable) -> None:
    def meanwhile() -> None:
        table.ingest("insert", [row("id1", "Danny", 1)])
        instant = schedule_table_compaction(table.table, ALWAYS)
        table.ingest("insert", [row("id3", "Julian", 4)])
        assert run_table_compaction(table.table, instant)
        compacted = read_optimized(table.table).to_table().to_pylist()
        assert compacted == [row("id1", "Danny", 1)]  # none in flight, none after the plan
        table.check_readers(None, in_order([row("id1", "Danny", 1), row("id3", "Julian", 4)]))

    beside(table, "insert", [row("id1", "Sophia", 2)], meanwhile)
    table.check_now([row("id1", "Sophia", 2), row("id3", "Julian", 4)])
    assert compact_table(table.table, ALWAYS)
    table.check_now([row("id1", "Sophia", 2), row("id3", "Julian", 4)])


@pytest.mark.parametrize("bulk_insert_first", [True, False])
def test_multi_base_file(table: LakeTable, bulk_insert_first: bool) -> None:
    wanted = [row("id1", "Danny", 23)]
    if bulk_insert_first:
        table.ingest("bulk_insert", [row("id0", "Danny", 0)])
        compact_table(table.table, ALWAYS)
        wanted.append(row("id0", "Danny", 0))
    beside(
        table, "insert", [row("id1", "Danny", 22)], lambda: table.ingest("upsert", [row("id1", "Danny", 23)])
    )
    assert files(table) == [(FIXED, bulk_insert_first, 2)]
    table.check_now(wanted)


def test_non_blocking_concurrency_control_with_partial_update_payload_is_refused(lake: Lake) -> None:
    """A version that keeps values of the older one is no whole row, and log files here have whole rows."""
    table = make(lake)
    with (Path(table.location) / PROPERTIES_PATH).open("a") as file:  # another Hudi has made it so
        file.write("hoodie.table.partial.update.mode=IGNORE_DEFAULTS\n")
    with pytest.raises(UnsupportedTableError, match=r"partial\.update\.mode"):
        table.ingest("upsert", [row("id1", "Danny", 1) | {"age": None}])
    assert table.table.timeline().instants == ()


INSERT, BULK_INSERT = ("insert", "Danny"), ("bulk_insert", "Julian")
CASES = {
    "case 2: insert begins first and commits first": (INSERT, BULK_INSERT, (0, 1)),
    "case 3: bulk_insert begins first and commits last": (BULK_INSERT, INSERT, (1, 0)),
    "case 4: insert begins first and commits last": (INSERT, BULK_INSERT, (1, 0)),
    "case 5: bulk_insert begins first and commits first": (BULK_INSERT, INSERT, (0, 1)),
}


@pytest.mark.parametrize(("first", "second", "order"), CASES.values(), ids=list(CASES))
@pytest.mark.parametrize("larger", [0, 1])
def test_bulk_insert_and_insert_concurrent(
    table: LakeTable, first: tuple[str, str], second: tuple[str, str], order: tuple[int, int], larger: int
) -> None:
    """This package's bulk insert appends, too: it commits in cases 2 and 3, in which the JVM's fails."""
    rows = [
        row("id1", name, 2 if number == larger else 1) for number, (_, name) in enumerate((first, second))
    ]
    operations = (first[0], second[0])
    writes = [(operation, table.arrow([each])) for operation, each in zip(operations, rows, strict=True)]
    found = in_flight(table, writes, order)
    assert found[0]["instant"] < found[1]["instant"] < min(each["completion_time"] for each in found)
    assert found[order[0]]["completion_time"] < found[order[1]]["completion_time"]
    assert files(table) == [(FIXED, False, 2)]
    table.check_now([rows[larger]])
    compact_table(table.table, ALWAYS)
    table.check_now([rows[larger]])


@pytest.mark.parametrize(
    ("first", "second"),
    [("insert", "bulk_insert"), ("bulk_insert", "insert")],
    ids=["case 1: insert, then bulk_insert", "case 6: bulk_insert, then insert"],
)
def test_bulk_insert_and_insert_one_after_the_other(table: LakeTable, first: str, second: str) -> None:
    table.ingest(first, [row("id1", "Danny", 1)])
    table.ingest(second, [row("id1", "Julian", 2)])
    compact_table(table.table, ALWAYS)
    table.check_now([row("id1", "Julian", 2)])


# --- who meets whom ---------------------------------------------------------------------------


@pytest.mark.parametrize("mine", ["upsert", "delete"])
@pytest.mark.parametrize("theirs", ["upsert", "delete"])
def test_writers_of_one_file_group_commit_without_a_rebase(lake: Lake, mine: str, theirs: str) -> None:
    table = make(lake, ordering_field=None)
    table.ingest("insert", [row(key, "old") for key in "abcd"])
    beside(
        table,
        mine,
        [row("a", "mine"), row("b", "mine")],
        lambda: table.ingest(theirs, [row("b", "theirs"), row("c", "theirs")]),
    )
    found = {key: row(key, "old") for key in "abcd"}
    for operation, name, keys in ((theirs, "theirs", "bc"), (mine, "mine", "ab")):
        for key in keys:
            found.pop(key, None)
            if operation == "upsert":
                found[key] = row(key, name)
    assert table.rows() == in_order(found.values())  # completion decides, although `mine` was requested first
    compact_table(table.table, ALWAYS)
    table.check_now(list(found.values()))


@pytest.mark.parametrize("ordering_field", [None, "ts"])
def test_a_delete_beside_the_first_upsert_of_a_bucket_removes_what_completed_before_it(
    lake: Lake, ordering_field: str | None
) -> None:
    """When the delete begins the bucket has no file group."""
    table = make(lake, ordering_field=ordering_field)
    beside(
        table, "delete", [{"id": "a", "part": "par1"}], lambda: table.ingest("upsert", [row("a", "theirs")])
    )
    assert table.rows() == []
    compact_table(table.table, ALWAYS)
    table.check_now([])


def test_a_writer_of_low_priority_gives_way_to_nobody(table: LakeTable) -> None:
    table.ingest("insert", [row("a", "old")])
    low: list[dict[str, Any]] = []

    def write_low() -> None:
        low.append(
            ingest_arrow(
                table.location,
                table.arrow([row("a", "low", 2)]),
                "upsert",
                priority=PRIORITIES["backfill"],
                on_higher_priority="fail",
            )
        )

    beside(table, "upsert", [row("a", "high", 3)], write_low, priority=PRIORITIES["ingestion"])
    assert low[0]["rebases"] == 0
    table.check_now([row("a", "high", 3)])


@pytest.mark.parametrize("first", ["insert_overwrite", "upsert"])
@pytest.mark.parametrize("is_new", [True, False])
def test_an_overwrite_conflicts(table: LakeTable, first: str, is_new: bool) -> None:
    """They conflict even if neither has seen the file group of the bucket, because a bucket has only one."""
    if not is_new:
        table.ingest("insert", [row("a", "old"), row("b", "old")])
    second = "upsert" if first == "insert_overwrite" else "insert_overwrite"
    theirs = [row("b", "theirs", 5)]
    lock = MeetingLock(lambda: table.ingest(first, theirs))
    with pytest.raises(WriteConflictError):
        ingest_arrow(table.location, table.arrow([row("a", "mine", 5)]), second, lock=lock)
    untouched = [] if is_new or first == "insert_overwrite" else [row("a", "old")]
    table.check_now([*theirs, *untouched])
    lock = MeetingLock(lambda: table.ingest(first, theirs))
    result = ingest_arrow(
        table.location, table.arrow([row("a", "mine", 6)]), second, lock=lock, on_conflict="rebase"
    )
    assert result["rebases"] == 1
    wanted = [row("a", "mine", 6)] if second == "insert_overwrite" else [row("a", "mine", 6), *theirs]
    table.check_now(wanted)
    assert len(file_slices(table.table)) == 1


LOW, HIGH = PRIORITIES["backfill"], PRIORITIES["ingestion"]


@pytest.mark.parametrize("running", ["upsert", "insert_overwrite", "insert_overwrite_table"])
@pytest.mark.parametrize("runs_high", [True, False])
def test_priorities_decide_between_an_overwrite_and_an_appending_writer(
    table: LakeTable, running: str, runs_high: bool
) -> None:
    """The second begins while the first is running: the one of lower priority gives way, or conflicts."""
    table.ingest("insert", [row("a", "old"), row("b", "old")])
    second = "insert_overwrite" if running == "upsert" else "upsert"
    mine, theirs = row("a", "running", 5), row("a", "second", 6)

    def begins() -> None:
        job: dict[str, Any] = {"priority": LOW if runs_high else HIGH, "on_higher_priority": "fail"}
        if not runs_high:
            table.ingest(second, [theirs], **job)
            return
        with pytest.raises(HigherPriorityWriteError):
            table.ingest(second, [theirs], **job)

    def run() -> None:
        priority = HIGH if runs_high else LOW
        lock = MeetingLock(begins)
        ingest_arrow(table.location, table.arrow([mine]), running, lock=lock, priority=priority)

    if runs_high:
        run()
        winner, wins = mine, running
    else:
        with pytest.raises(WriteConflictError):
            run()
        winner, wins = theirs, second
    table.check_now([winner] if wins != "upsert" else [winner, row("b", "old")])


@pytest.mark.parametrize("service_is_high", [True, False])
@pytest.mark.parametrize("service_comes_second", [True, False])
def test_an_appending_writer_and_a_compaction_of_any_priority_are_in_nobodys_way(
    table: LakeTable, service_is_high: bool, service_comes_second: bool
) -> None:
    table.ingest("insert", [row("a", "old"), row("b", "old")])
    plan = schedule_table_compaction(table.table, ALWAYS, priority=HIGH if service_is_high else LOW)
    job: dict[str, Any] = {"priority": LOW if service_is_high else HIGH, "on_higher_priority": "fail"}

    def write() -> None:
        assert table.ingest("upsert", [row("a", "new", 2)], **job)["rebases"] == 0

    if service_comes_second:
        beside(table, "upsert", [row("a", "new", 2)], lambda: run_table_compaction(table.table, plan), **job)
    else:
        assert run_table_compaction(table.table, plan, lock=MeetingLock(write))
    assert files(table) == [(FIXED, True, 1)]
    table.check_now([row("a", "new", 2), row("b", "old")])


def test_first_writes_after_an_overwrite_agree_on_a_new_file_group(lake: Lake) -> None:
    table = make(lake, buckets=2)
    table.ingest("insert", [row(f"k{n}", "old") for n in range(8)])
    table.ingest("insert_overwrite", [row("k0", "kept")])  # the bucket of the others is empty now
    gone = "k1"
    beside(table, "upsert", [row(gone, "mine", 3)], lambda: table.ingest("upsert", [row(gone, "theirs", 2)]))
    table.check_now([row("k0", "kept"), row(gone, "mine", 3)])
    assert len(file_slices(table.table)) == 2


def test_a_schema_change_beside_a_write_is_taken_up(table: LakeTable) -> None:
    table.ingest("insert", [row("a", "old")])
    wider = pa.Table.from_pylist([row("b", "wider", 2) | {"extra": 7}])
    beside(table, "upsert", [row("a", "mine", 2)], lambda: table.ingest("upsert", wider))
    assert table.table.schema.names[-1] == "extra"
    table.check_now([row("a", "mine", 2) | {"extra": None}, row("b", "wider", 2) | {"extra": 7}])


def test_a_transaction_that_goes_on_is_in_no_appending_writers_way_and_leaves_without_a_trace(
    table: LakeTable,
) -> None:
    table.ingest("insert", [row("a", "old")])

    def in_transaction() -> None:
        table.ingest(
            "upsert", [row("a", "txn", 9), row("b", "txn", 9)], txn_id=7, write_id=1, txn_goes_on=True
        )

    beside(table, "upsert", [row("a", "beside", 2)], in_transaction)
    table.ingest("upsert", [row("b", "after", 3)])
    undo_writes(table.table, 7)
    assert table.rows() == in_order([row("a", "beside", 2), row("b", "after", 3)])
    table.check_readers(None, table.rows())


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_two_transactions_of_one_bucket_are_aborted_in_any_order(
    table: LakeTable, order: tuple[int, int]
) -> None:
    table.ingest("insert", [row("a", "old")])
    for txn_id in (7, 8):
        table.ingest(
            "upsert", [row("a", f"txn {txn_id}", txn_id)], txn_id=txn_id, write_id=1, txn_goes_on=True
        )
    for txn_id in order:
        undo_writes(table.table, txn_id)
    table.check_now([row("a", "old")])


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize("overwrite", ["insert_overwrite", "insert_overwrite_table"])
def test_an_overwrite_of_an_open_transaction_holds_the_buckets_that_it_has_emptied(
    lake: Lake, operation: str, overwrite: str
) -> None:
    """Otherwise an abort would bring the old file group back beside a new one: two in one bucket."""
    table = make(lake, buckets=2)
    old = [row(f"k{n}", "old") for n in range(8)]
    table.ingest("insert", old)
    table.ingest(overwrite, [row("k0", "txn")], txn_id=7, write_id=1, txn_goes_on=True)
    for each in old:
        with pytest.raises(WriteConflictError, match="transaction 7"):
            table.ingest(operation, [each])
    undo_writes(table.table, 7)
    table.check_now(old)
    table.ingest(operation, old)
    table.check_now(old if operation == "upsert" else [])
    assert len(file_slices(table.table)) == 2


def test_an_abort_is_in_no_appending_writers_way(table: LakeTable) -> None:
    table.ingest("insert", [row("a", "old")])
    table.ingest("upsert", [row("a", "txn", 9)], txn_id=7, write_id=1, txn_goes_on=True)
    beside(table, "upsert", [row("b", "beside", 2)], lambda: undo_writes(table.table, 7))
    table.check_now([row("a", "old"), row("b", "beside", 2)])


def test_a_killed_first_write_leaves_nothing_behind(table: LakeTable) -> None:
    class Gone(BaseException):
        pass

    def dies() -> None:
        raise Gone

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_provider.concurrency.write.writer.Writer.abort", lambda *_: None)
        with pytest.raises(Gone):
            ingest_arrow(table.location, table.arrow([row("a", "dead")]), "upsert", lock=MeetingLock(dies))
    assert any(table.table.storage.names("part=par1"))
    (pending,) = table.table.timeline().pending()
    storage = table.table.storage
    os.utime(Path(table.location) / heartbeat_path(pending.requested_time), (0, 0))
    rollback_dead_writers(table.table)
    assert [name for name in storage.names("part=par1") if "log" in name] == []
    table.ingest("upsert", [row("a", "alive")])
    table.check_now([row("a", "alive")])


# --- what follows -----------------------------------------------------------------------------


def test_cleaning_archiving_restoring_and_the_past(table: LakeTable) -> None:
    """The file groups have only log files, and later a first compaction."""
    first = table.ingest("insert", [row("a", "one")])
    assert create_savepoint(table.table).instant == first["instant"]
    table.ingest("upsert", [row("a", "two", 2), row("b", "two", 2)])
    for turn in range(3, 7):
        beside(
            table,
            "upsert",
            [row("a", f"{turn}", turn)],
            lambda turn=turn: table.ingest("upsert", [row("b", f"{turn}", turn)]),  # type: ignore[misc]
        )
        compact_table(table.table, ALWAYS)
    wanted = [row("a", "6", 6), row("b", "6", 6)]
    table.check_now(wanted)
    clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    table.check_now(wanted)
    assert table.rows(first["instant"]) == [row("a", "one")]
    archive(table.table, keep_min=2, keep_max=3)
    table.check_readers(None, in_order(wanted))
    assert table.rows() == in_order(wanted)
    restore(table.table, first["instant"])
    assert table.rows() == [row("a", "one")]
    table.check_readers(None, [row("a", "one")])
    table.ingest("upsert", [row("a", "again", 9)])
    assert table.rows() == [row("a", "again", 9)]


def test_its_indexes_say_what_its_files_say(lake: Lake) -> None:
    table = make(lake, buckets=2)
    table.ingest("insert", [row(f"k{n}", "old") for n in range(6)])
    schedule_index(table.table, list(KEPT))
    run_index(table.table)
    beside(table, "upsert", [row("k1", "mine", 2)], lambda: table.ingest("upsert", [row("k1", "theirs", 3)]))
    assert_indexes_equal_a_rebuild(table.table, KEPT)
    compact_table(table.table, ALWAYS)
    beside(table, "delete", [row("k2", "", 9)], lambda: table.ingest("upsert", [row("k9", "theirs", 3)]))
    assert_indexes_equal_a_rebuild(table.table, KEPT)
    table.check_readers(None, table.rows())


def test_an_incremental_read_tells_what_was_appended(table: LakeTable) -> None:
    first = table.ingest("insert", [row("a", "old"), row("b", "old")])
    beside(table, "upsert", [row("a", "mine", 2)], lambda: table.ingest("upsert", [row("b", "theirs", 2)]))
    found = increment(table.table, first["completion_time"]).scanner().to_table().to_pylist()
    assert in_order(found) == in_order([row("a", "mine", 2), row("b", "theirs", 2)])

"""This package and the JVM's Hudi write one merge-on-read table in turn; after each step readers agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider.services.cleaning import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.table_compaction import (
    LogCompactionSettings,
    TableCompactionSettings,
    compact_logs,
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from tests.real_hudi.in_turn.shared_table import ALL_INDEXES, ALL_INDEXES_OF_THE_JVM, SharedTable, row, rows
from tests.real_hudi.jvm import Session
from tests.real_hudi.services_and_columns.metadata_table import check_metadata_table

START = rows(range(60), 0)
INDEXES = ("files", "column_stats", "partition_stats", "bloom_filters")
OF_THE_JVM = {
    **{name: value for name, value in ALL_INDEXES_OF_THE_JVM.items() if "record" not in name},
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
    "hoodie.metadata.global.record.level.index.enable": "false",
}
BY_RECORD_INDEX = {
    **ALL_INDEXES_OF_THE_JVM,
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    "hoodie.parquet.small.file.limit": "0",
}
ALWAYS = TableCompactionSettings(delta_commits=1)


def of_ours(hudi: Session, location: Path) -> SharedTable:
    shared = SharedTable.of_ours(hudi, location, START, INDEXES, table_type="merge_on_read")
    shared.always(OF_THE_JVM)
    return shared


def of_the_jvm(hudi: Session, location: Path) -> SharedTable:
    shared = SharedTable(hudi, location)
    shared.always(OF_THE_JVM)
    shared.theirs(START, mode="overwrite")
    return shared


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("made", "turns"), [(of_ours, (1, 2)), (of_the_jvm, (3,))], ids=["ours", "theirs"])
def test_upserts_deletes_and_compactions_in_turn(
    made: Callable[[Session, Path], SharedTable], turns: tuple[int, ...], hudi: Session, location: Path
) -> None:
    shared = made(hudi, location)
    shared.always({"hoodie.parquet.small.file.limit": "0"})  # so that the JVM appends, too
    shared.check()
    for turn in turns:
        ts = 100 * turn
        shared.ours([*rows(range(turn, 60, 7), 1000 * turn, ts), row(200 + turn, 1, ts)], small_file_limit=0)
        shared.check()
        shared.theirs([*rows(range(turn, 60, 5), 2000 * turn, ts + 10), row(300 + turn, 1, ts)])
        shared.check()
        shared.ours_deletes([f"k{number:04d}" for number in (turn, turn + 10)])
        shared.check()
        gone = [f"k{number:04d}" for number in (turn + 20, turn + 30)]
        shared.sql(f"delete from {{t}} where id in {tuple(gone)}")
        shared.drop(gone)
        shared.check()
        shared.ours(rows((turn, turn + 20), 3000 * turn, ts + 20))  # the deleted keys come back
        shared.check()
        if turn == 1:
            assert compact_table(shared.table, ALWAYS)
        elif turn == 2:  # this package plans and the JVM executes, with a write of each side in between
            instant = schedule_table_compaction(shared.table, ALWAYS)
            shared.ours(rows(range(2, 60, 11), 4000, ts + 30))
            shared.theirs(rows(range(3, 60, 11), 4000, ts + 40))
            shared.check()
            shared.sql(f"call run_compaction(op => 'run', table => '{{t}}', timestamp => {instant})")
            found = shared.table.timeline().find(instant or "")
            assert found is not None
            assert found.completion_time is not None
        else:
            [planned] = shared.sql("call run_compaction(op => 'schedule', table => '{t}')")
            shared.ours(rows(range(2, 60, 11), 4000, ts + 30))
            shared.check()
            at = planned["timestamp"]
            shared.sql(f"call run_compaction(op => 'run', table => '{{t}}', timestamp => {at})")
        shared.check()
    shared.ours(rows(range(5, 60, 9), 5000, 850), small_file_limit=0)
    instant = schedule_table_compaction(shared.table, ALWAYS)
    shared.theirs(rows(range(4, 60, 9), 5000, 900))
    assert run_table_compaction(shared.table, instant) is not None
    shared.check()
    clean(shared.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    shared.check()
    check_metadata_table(hudi, shared.table)


@pytest.mark.timeout(1800)
def test_both_keep_the_record_index_and_read_log_compactions(hudi: Session, location: Path) -> None:
    shared = SharedTable.of_ours(hudi, location, START, ALL_INDEXES, table_type="merge_on_read")
    shared.always(BY_RECORD_INDEX)
    shared.ours([*rows(range(0, 60, 7), 1000, 100), row(200, 1, 100)], small_file_limit=0)
    shared.ours_deletes(["k0003", "k0013"])
    shared.theirs([*rows(range(0, 60, 5), 2000, 110), row(3, 2, 110), row(300, 1, 110)])
    shared.check()
    shared.sql("delete from {t} where id in ('k0020', 'k0030')")
    shared.drop(["k0020", "k0030"])
    check_metadata_table(hudi, shared.table)
    assert compact_logs(shared.table, LogCompactionSettings(blocks=2))
    shared.check()
    shared.theirs(rows(range(1, 60, 9), 2500, 115))
    shared.check()
    shared.ours([row(20, 3, 120), row(13, 3, 120), row(300, 3, 120)], small_file_limit=0)
    shared.check()
    instant = schedule_table_compaction(shared.table, ALWAYS)
    shared.sql(f"call run_compaction(op => 'run', table => '{{t}}', timestamp => {instant})")
    shared.check()
    shared.theirs([row(20, 4, 130), row(30, 4, 130), row(13, 4, 130)])
    shared.ours_deletes(["k0030", "k0000"])
    shared.check()
    check_metadata_table(hudi, shared.table)


@pytest.mark.timeout(1800)
def test_avro_blocks_of_both_in_one_file_slice(hudi: Session, location: Path) -> None:
    avro = {"hoodie.logfile.data.block.format": "avro"}
    shared = SharedTable.of_ours(
        hudi, location, START, INDEXES, table_type="merge_on_read", hudi_options=avro
    )
    shared.always({**OF_THE_JVM, **avro, "hoodie.parquet.small.file.limit": "0"})
    shared.ours([*rows(range(0, 60, 7), 1000, 100), row(200, 1, 100)], small_file_limit=0)
    shared.check()
    shared.theirs(rows(range(0, 60, 5), 2000, 110))
    shared.ours_deletes(["k0003", "k0013"])
    shared.ours(rows(range(1, 60, 9), 3000, 120), small_file_limit=0)
    shared.check()
    assert compact_logs(shared.table, LogCompactionSettings(blocks=2))
    shared.check()
    instant = schedule_table_compaction(shared.table, ALWAYS)
    shared.sql(f"call run_compaction(op => 'run', table => '{{t}}', timestamp => {instant})")
    shared.check()
    check_metadata_table(hudi, shared.table)

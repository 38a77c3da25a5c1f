"""This package and the JVM's Hudi write one table with a bucket index in turn, to the same buckets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.table_compaction import (
    TableCompactionSettings,
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.services.table_options import change_options
from airflow_provider.table.reading import file_slices
from tests.ingestion_contract.interleaving import MeetingLock
from tests.real_hudi.fixtures.log_kinds import UNBLOCKED
from tests.real_hudi.fixtures.options import ALONE, buckets
from tests.real_hudi.in_turn.shared_table import SCHEMA, SharedTable, row, rows
from tests.real_hudi.jvm import Session

START = rows(range(30), 0)
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
OF_THE_JVM = {
    **buckets(2),
    **ALONE,
    **UNBLOCKED,
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
    "hoodie.metadata.enable": "false",
}
ALWAYS = TableCompactionSettings(delta_commits=1)


def of_ours(hudi: Session, location: Path) -> SharedTable:
    made = {"table_type": "merge_on_read", "concurrency": "non_blocking", "hudi_options": BUCKETS}
    shared = SharedTable.of_ours(hudi, location, START, **made)
    shared.always(OF_THE_JVM)
    return shared


def of_the_jvm(hudi: Session, location: Path) -> SharedTable:
    shared = SharedTable(hudi, location)
    shared.always(OF_THE_JVM)
    shared.theirs(START, mode="overwrite")
    change_options(shared.table, BUCKETS | NON_BLOCKING)
    return shared


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("made", [of_ours, of_the_jvm], ids=["ours", "theirs"])
def test_writers_of_one_bucket_in_turn(
    made: Callable[[Session, Path], SharedTable], hudi: Session, location: Path
) -> None:
    shared = made(hudi, location)
    shared.check()
    assert len(file_slices(shared.table)) == 6  # two buckets in each of three partitions
    shared.ours([*rows(range(0, 30, 2), 1000, 10), row(40, 1, 10), row(41, 1, 10)])
    shared.check()
    shared.theirs([*rows(range(0, 30, 3), 2000, 20), row(50, 1, 20), row(40, 2, 20)])
    shared.check()
    shared.ours_deletes(["k0003", "k0040"])
    shared.sql("delete from {t} where id in ('k0005', 'k0050')")
    shared.drop(["k0005", "k0050"])
    shared.check()

    def meanwhile() -> None:
        shared.theirs(rows(range(1, 30, 4), 3000, 30))

    # The JVM commits between our data files and our commit: to the same buckets, and nobody loses.
    mine = rows(range(1, 30, 6), 4000, 40)
    data = pa.Table.from_pylist(mine, SCHEMA)
    result = ingest_arrow(shared.table, data, "upsert", lock=MeetingLock(meanwhile))
    assert result["rebases"] == 0
    shared.add(mine, "upsert")
    shared.check()
    # The JVM executes our plan; later writes are in the next slice.
    instant = schedule_table_compaction(shared.table, ALWAYS)
    shared.ours(rows(range(2, 30, 5), 5000, 50))
    shared.sql(f"call run_compaction(op => 'run', table => '{{t}}', timestamp => {instant})")
    shared.check()
    shared.theirs(rows(range(4, 30, 5), 6000, 60))
    assert compact_table(shared.table, ALWAYS)
    shared.check()
    assert run_table_compaction(shared.table) is None
    assert len({(each.partition_path, each.file_id[:8]) for each in file_slices(shared.table)}) == 6
    assert len(file_slices(shared.table)) == 6

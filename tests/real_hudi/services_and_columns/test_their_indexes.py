"""The JVM's Hudi makes, changes or drops metadata partitions, and this package builds them beside it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.status import index_status
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import open_lock
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER
from tests.real_hudi.beside.our_writer import WRITTEN, table_that_meets
from tests.real_hudi.in_turn.shared_table import (
    ALL_INDEXES,
    ALL_INDEXES_OF_THE_JVM,
    SCHEMA,
    SharedTable,
    row,
    rows,
)
from tests.real_hudi.jvm import Session
from tests.real_hudi.one_lock import OneLock
from tests.real_hudi.services_and_columns.metadata_table import check_metadata_table

START = rows(range(90), 0)
MOST = ("files", "column_stats", "partition_stats")
ALONE = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
"""Options with a lock: without a lock the JVM's SQL makes and drops no index."""
OF_EACH_PARTITION = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.metadata.record.level.index.min.filegroup.count": "1",
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
}
BY_RECORD_INDEX = {**ALL_INDEXES_OF_THE_JVM, "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX"}


def indexes(shared: SharedTable) -> set[str]:
    """The indexes of the table, according to its properties."""
    return set(shared.table.config.metadata_partitions)


def ours_writes(shared: SharedTable, turn: int) -> None:
    """Write with this package: old rows, new rows, a new partition, and a delete."""
    changed = rows(range(turn, 90, 7), 500 * turn, 20 * turn)
    new = rows(range(200 + turn * 10, 203 + turn * 10), 600)
    shared.ours([*changed, *new, row(400 + turn, 700, part=f"new{turn}")])
    shared.ours_deletes(sorted(shared.model)[turn::30])


def theirs_updates(shared: SharedTable, digit: int) -> None:
    shared.sql(f"update {{t}} set v = v + 1000 where id like '%{digit}'")
    for key in [key for key in shared.model if key.endswith(str(digit))]:
        shared.change([key], v=shared.model[key]["v"] + 1000)


@pytest.mark.parametrize(
    ("built", "options"),
    [
        (["files"], {}),
        (MOST, ALL_INDEXES_OF_THE_JVM),
    ],
    ids=["files only", "no record index"],
)
@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_an_index_build_of_ours_and_at_once_a_write_of_the_jvm_that_makes_another(
    built: list[str], options: dict[str, str], operation: str, hudi: Session, location: Path
) -> None:
    shared = SharedTable.of_ours(hudi, location, START, built)
    changed = rows(range(100, 104), 100) if operation == "insert" else rows(range(0, 90, 9), 9000, 50)
    shared.theirs(changed, operation, options)
    shared.check()
    ours_writes(shared, 1)
    shared.check()
    check_metadata_table(hudi, shared.table)


def test_the_jvm_makes_the_metadata_table_of_a_table_of_ours(hudi: Session, location: Path) -> None:
    shared = SharedTable.of_ours(hudi, location, START)
    shared.theirs(rows(range(100, 110), 100), "insert")
    assert {"files", "column_stats", "partition_stats"} <= indexes(shared)
    for turn in (1, 2):
        ours_writes(shared, turn)
        shared.check()
        theirs_updates(shared, 2 + turn)
        shared.check()
    check_metadata_table(hudi, shared.table)


def test_the_jvm_drops_the_record_index(hudi: Session, location: Path) -> None:
    shared = SharedTable.of_ours(hudi, location, START, ALL_INDEXES)
    shared.always({**ALL_INDEXES_OF_THE_JVM, **ALONE})
    shared.sql("drop index record_index on {t}")
    assert "record_index" not in indexes(shared)
    ours_writes(shared, 1)
    assert "record_index" not in indexes(shared)
    shared.check()
    drop_index(shared.table, ["bloom_filters"])
    assert indexes(shared) == {"files", "column_stats", "partition_stats"}
    shared.check()
    check_metadata_table(hudi, shared.table)


def test_the_jvm_drops_indexes_by_its_defaults_and_ours_builds_them_anew(
    hudi: Session, location: Path
) -> None:
    shared = SharedTable.of_ours(hudi, location, START, ALL_INDEXES)
    shared.theirs(rows(range(100, 110), 100), "insert")
    assert "record_index" not in indexes(shared)
    ours_writes(shared, 1)
    shared.check()
    shared.build(["record_index", "bloom_filters"])
    assert indexes(shared) == set(ALL_INDEXES)
    shared.check()
    shared.theirs(rows(range(40, 52), 3000, 900), options=BY_RECORD_INDEX)
    shared.check()
    check_metadata_table(hudi, shared.table)


@pytest.mark.parametrize("by", ["create index", "a write"])
def test_the_jvm_makes_the_record_index(by: str, hudi: Session, location: Path) -> None:
    shared = SharedTable.of_ours(hudi, location, START, MOST)
    shared.ours(rows(range(5, 15), 100, 2))
    if by == "create index":
        shared.always(ALONE)
        shared.sql("create index record_index on {t} (id)")
    else:
        shared.theirs(rows(range(4), 300, 3), options=ALL_INDEXES_OF_THE_JVM)
    assert "record_index" in indexes(shared)
    ours_writes(shared, 1)
    shared.check()
    check_metadata_table(hudi, shared.table)
    shared.theirs([*rows(range(210, 213), 3000, 900), row(2, 3002, 900)], options=BY_RECORD_INDEX)
    shared.check()
    ours_writes(shared, 2)
    shared.check()


@pytest.mark.parametrize(
    "made",
    [
        "create index other on {t} (name)",
        "create index other on {t} using column_stats (ts) "
        "options(expr = 'from_unixtime', format = 'yyyy-MM-dd')",
    ],
    ids=["secondary", "expression"],
)
def test_an_index_of_the_jvm_that_ours_does_not_write(made: str, hudi: Session, location: Path) -> None:
    """A write of this package refuses and names the index; after the index is dropped, it succeeds."""
    shared = SharedTable.of_ours(hudi, location, START, [*MOST, "record_index"])
    shared.always({**ALL_INDEXES_OF_THE_JVM, **ALONE})
    shared.sql(made)
    [other] = indexes(shared) - set(ALL_INDEXES)
    with pytest.raises(Exception, match=other) as refused:
        ours_writes(shared, 1)
    assert "airflow_provider.exceptions" in type(refused.value).__module__
    shared.check()
    shared.sql("drop index other on {t}")
    ours_writes(shared, 2)
    shared.check()


def test_a_record_index_of_each_partition(hudi: Session, location: Path) -> None:
    """The index has a key once for each partition; the global look-up would find no row. A write refuses."""
    shared = SharedTable.of_ours(hudi, location, START, MOST)
    shared.theirs(rows(range(4), 300, 3), options=OF_EACH_PARTITION)
    with pytest.raises(UnsupportedTableError, match=r"record_index \(of each partition\)"):
        ours_writes(shared, 1)
    shared.check()
    drop_index(shared.table, ["record_index"])
    ours_writes(shared, 2)
    shared.check()
    check_metadata_table(hudi, shared.table)


def test_the_jvm_writes_without_the_metadata_table(hudi: Session, location: Path) -> None:
    """The JVM then removes the metadata table."""
    shared = SharedTable.of_ours(hudi, location, START, ALL_INDEXES)
    shared.theirs(rows(range(100, 110), 100), "insert", {"hoodie.metadata.enable": "false"})
    ours_writes(shared, 1)
    shared.check()
    shared.theirs(rows(range(120, 125), 100), "insert")
    shared.check()
    ours_writes(shared, 2)
    shared.check()


def test_the_jvm_deletes_the_metadata_table(hudi: Session, location: Path) -> None:
    shared = SharedTable.of_ours(hudi, location, START, ALL_INDEXES)
    shared.sql("call delete_metadata_table(table => '{t}')")
    assert not (location / METADATA_FOLDER).exists()
    ours_writes(shared, 1)
    assert not index_status(shared.table)
    shared.check()
    shared.build()
    ours_writes(shared, 2)
    shared.check()
    check_metadata_table(hudi, shared.table)


def test_the_properties_that_ours_rewrites_are_read_by_the_jvm(hudi: Session, location: Path) -> None:
    """Hadoop's local file system keeps a checksum beside each file that it writes."""
    shared = SharedTable.of_ours(hudi, location, START)
    shared.theirs(rows(range(100, 104), 100), "insert")
    shared.build(["bloom_filters"])
    shared.check()
    drop_index(shared.table, ["bloom_filters"])
    shared.theirs(rows(range(104, 108), 100), "insert")
    shared.check()


def test_a_write_of_ours_that_a_later_requested_one_overtakes_under_the_record_index(
    hudi: Session, location: Path, one_lock: OneLock
) -> None:
    """The write's rows are where the index says; a merge into a new file group would not be there."""
    options = {**BY_RECORD_INDEX, **one_lock.theirs}  # without them the JVM rolls our write back
    shared = SharedTable.of_the_jvm(hudi, location, rows(range(20), 0), options)
    mine = rows(range(5, 15), 400, 4)
    meets = table_that_meets(shared.location, WRITTEN, lambda: shared.theirs(rows(range(8, 12), 300, 3)))
    lock = open_lock(one_lock.ours, meets.storage)
    ingest_arrow(meets, pa.Table.from_pylist(mine, SCHEMA), lock=lock, on_conflict="rebase")
    shared.add(mine)
    shared.check()
    check_metadata_table(hudi, shared.table)
    shared.theirs(rows(range(5, 15), 500, 5))
    shared.check()

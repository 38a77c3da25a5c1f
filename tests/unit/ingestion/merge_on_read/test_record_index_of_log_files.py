"""The record index of a merge-on-read table: the keys that leave it with log files, and come back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency.transactions.transactions import undo_writes
from airflow_provider.exceptions import InvalidInputError, UnsupportedTableError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.services.table_compaction.table_compaction import (
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import read_optimized, snapshot
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import RecordLocation
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})
ALWAYS = TableCompactionSettings(delta_commits=1)
KEPT = ("files", "column_stats", "record_index")
APART: dict[str, Any] = {"small_file_limit": 0}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}

Row = dict[str, Any]


def row(id_: int, value: str, part: str = "a", ts: int = 1) -> Row:
    return {"id": id_, "part": part, "value": value, "ts": ts}


def make(lake: Lake, **options: Any) -> LakeTable:
    """Make a table: partition ``a`` with rows 0 to 4 in one file group, 5 to 9 in another; index the keys."""
    made = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read", **options)
    for ids in (range(5), range(5, 10)):
        made.ingest("bulk_insert", [row(n, "old") for n in ids])
    build(made)
    return made


def build(table: LakeTable) -> None:
    schedule_index(table.table, list(KEPT), options={"hoodie.metadata.record.index.min.filegroup.count": 2})
    run_index(table.table)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return make(lake)


def place(table: LakeTable, id_: int) -> tuple[str, str] | None:
    """The partition path and file id of a key, by the index."""
    found = MetadataTable(metadata_storage(table.table.storage)).look_up("record_index", [str(id_)])
    location = found.get(str(id_))
    return (location.partition_path, location.file_id) if isinstance(location, RecordLocation) else None


def check(table: LakeTable, rows: list[Row]) -> None:
    table.check_now(rows)
    assert_indexes_equal_a_rebuild(table.table, KEPT)


def without(*gone: int) -> list[Row]:
    return [row(n, "old") for n in range(10) if n not in gone]


def test_a_deleted_key_leaves_the_index_with_the_delete_and_stays_out(table: LakeTable) -> None:
    before = place(table, 2)
    instant = schedule_table_compaction(table.table, ALWAYS)
    assert instant is None
    table.ingest("upsert", [row(1, "new")])
    instant = schedule_table_compaction(table.table, ALWAYS)
    table.ingest("delete", [row(2, "")])
    assert place(table, 2) is None
    run_table_compaction(table.table, instant)  # the compaction writes the key into the new base file
    assert place(table, 2) is None
    check(table, [*without(1, 2), row(1, "new")])
    table.ingest("upsert", [row(2, "back", "b")])  # a record key may come back in another partition
    assert place(table, 2) not in (None, before)
    compact_table(table.table, ALWAYS)
    check(table, [*without(1, 2), row(1, "new"), row(2, "back", "b")])


def test_an_index_that_is_built_later_lacks_what_log_files_have_deleted(lake: Lake) -> None:
    table = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read")
    table.ingest("bulk_insert", without())
    table.ingest("delete", [row(3, "")])
    build(table)
    assert place(table, 3) is None
    check(table, without(3))


def test_a_delete_that_loses_leaves_its_key_in_the_index(lake: Lake) -> None:
    table = make(lake, ordering_field="ts")
    table.ingest("upsert", [row(1, "newer", ts=9)])
    table.write("delete", table.arrow([row(1, "", ts=5), row(2, "", ts=5)]))
    assert place(table, 1) is not None
    assert place(table, 2) is None
    check(table, [*without(1, 2), row(1, "newer", ts=9)])


def test_what_overwrites_take_out_of_log_files_stays_where_it_has_come_back(table: LakeTable) -> None:
    table.ingest("delete", [row(2, "")])
    table.ingest("upsert", [row(2, "back", "b")], **APART)
    table.ingest("insert_overwrite", [row(7, "over")])  # the clean deletes the base file of the deleted key
    assert place(table, 2) is not None
    check(table, [row(7, "over"), row(2, "back", "b")])


def test_undone_deletes_and_undone_updates(table: LakeTable) -> None:
    savepoint = create_savepoint(table.table)
    table.ingest("delete", [row(1, ""), row(8, "")], txn_id=7, write_id=7, txn_goes_on=True)
    assert (place(table, 1), place(table, 8)) == (None, None)
    undo_writes(table.table, 7)
    check(table, without())
    table.ingest("delete", [row(4, "")])
    table.ingest("upsert", [row(4, "back", "b"), row(20, "new")], **APART)
    compact_table(table.table, ALWAYS)
    check(table, [*without(4), row(4, "back", "b"), row(20, "new")])
    restore(table.table, savepoint.instant)
    assert place(table, 20) is None
    check(table, without())


def test_a_delete_beside_an_update_of_the_same_key(table: LakeTable) -> None:
    ingest_arrow(
        table.location,
        table.arrow([row(1, "mine"), row(6, "mine")]),
        "upsert",
        lock=MeetingLock(lambda: table.ingest("delete", [row(1, "")])),
        on_conflict="rebase",
    )
    check(table, [*without(1, 6), row(1, "mine"), row(6, "mine")])


def test_a_query_by_key_opens_one_slice_and_a_read_optimized_one_is_not_misled(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new"), row(7, "new")])
    table.ingest("delete", [row(2, "")])
    found = snapshot(table.table, where=[("id", "=", 1)])
    assert {each.rpartition("/")[2].lstrip(".").partition("_")[0] for each in found.files} == {
        (place(table, 1) or ("", ""))[1]
    }
    assert found.to_table().to_pylist() == [row(1, "new")]
    assert snapshot(table.table, where=[("id", "=", 2)]).to_table().num_rows == 0
    assert read_optimized(table.table, where=[("id", "=", 2)]).to_table().to_pylist() == [row(2, "old")]


def test_beside_a_bucket_index_it_is_refused(lake: Lake, table: LakeTable) -> None:
    options = {**BUCKETS, "hoodie.metadata.global.record.level.index.enable": True}
    with pytest.raises(InvalidInputError, match="record_index is not kept here for a MERGE_ON_READ table"):
        lake.create(SCHEMA, table_type="merge_on_read", hudi_options=options)
    buckets = lake.create(SCHEMA, table_type="merge_on_read", hudi_options=BUCKETS)
    with pytest.raises(UnsupportedTableError, match="record_index is not kept here beside it"):
        schedule_index(buckets.table, ["record_index"])


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_done_the_index_equals_a_rebuild(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    table = make(lake, **({"ordering_field": "ts"} if seed % 2 else {}))
    model = {each["id"]: each for each in without()}
    kept: list[tuple[str, dict[int, Row]]] = []

    def upsert() -> None:
        ids = rng.sample(range(16), rng.choice([1, 4]))
        batch = [row(n, f"{step}", model[n]["part"] if n in model else rng.choice("ab"), 2) for n in ids]
        table.ingest("upsert", batch, **APART)
        model.update({each["id"]: each for each in batch})

    def delete() -> None:
        ids = rng.sample(range(16), 3)
        table.ingest("delete", [row(n, "", model[n]["part"] if n in model else "a", 2) for n in ids])
        for n in ids:
            model.pop(n, None)

    def compact() -> None:
        compact_table(
            table.table, TableCompactionSettings(delta_commits=1, max_io_bytes=rng.choice([None, 1]))
        )

    def cluster() -> None:
        if (instant := schedule_clustering(table.table, ClusteringSettings(sort_by=("id",)))) is not None:
            cluster_in_process(table.table, instant)

    def abort() -> None:
        operation = rng.choice(["upsert", "delete"])
        ids = rng.sample(sorted(model), min(3, len(model)))
        batch = [row(n, "aborted", model[n]["part"], 2) for n in ids]
        if batch:
            ids_of_txn = {"txn_id": step + 1, "write_id": step + 1, "txn_goes_on": True}
            table.ingest(operation, batch, **APART, **ids_of_txn)
            undo_writes(table.table, step + 1)

    def save() -> None:
        kept.append((create_savepoint(table.table).instant, dict(model)))

    def go_back() -> None:
        if kept:
            instant, rows = kept.pop()
            restore(table.table, instant)
            model.clear()
            model.update(rows)
            kept.clear()

    def tidy() -> None:
        clean(table.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))

    steps: list[Callable[[], None]] = [upsert, upsert, delete, delete, compact, cluster, abort, save, go_back]
    for step in range(14):
        done = rng.choice([*steps, tidy])
        done()
        try:
            check(table, list(model.values()))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {step}: {done.__name__}") from error

"""Tables with Hudi's bucket index: the hash of a key decides its file group, for every writer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider.exceptions import InvalidInputError, UnsupportedTableError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import preview_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable
from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.reading import SliceReader
from airflow_provider.table.reading.slices import file_slices
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.ingestion_contract.merge_on_read import BUCKETS, operations_one_after_the_other

SCHEMA = pa.schema({"id": pa.string(), "value": pa.string(), "ts": pa.int64()})
KINDS = [("merge_on_read", "optimistic"), ("merge_on_read", "non_blocking"), ("copy_on_write", "optimistic")]

Row = dict[str, Any]


def row(id_: str, value: str, ts: int = 1) -> Row:
    return {"id": id_, "value": value, "ts": ts}


def make(lake: Lake, table_type: str = "merge_on_read", concurrency: str = "optimistic") -> LakeTable:
    return lake.create(SCHEMA, table_type=table_type, concurrency=concurrency, hudi_options=BUCKETS)


def places(table: LakeTable) -> dict[str, str]:
    """The file group of each key."""
    opened = table.table
    reader = SliceReader.of(opened, opened.view())
    return {key: each.file_id for each in file_slices(opened) for key in reader.keys(each).to_pylist()}


@pytest.mark.parametrize(("table_type", "concurrency"), KINDS)
def test_each_key_is_in_the_file_group_of_its_bucket(lake: Lake, table_type: str, concurrency: str) -> None:
    table, keys = make(lake, table_type, concurrency), [f"k{n}" for n in range(20)]
    for operation, some in (("insert", keys[:9]), ("upsert", keys[5:15]), ("bulk_insert", keys[10:])):
        table.ingest(operation, [row(key, operation) for key in some])
    index = BucketIndex("t", 2, ("id",))
    numbers = index.of_rows(pa.array(keys), [""], np.zeros(len(keys), np.int64)).tolist()
    wanted = [f"{number:08d}-0000-0000-0000-000000000000-0" for number in numbers]
    assert places(table) == dict(zip(keys, wanted, strict=True))
    table.check()


@pytest.mark.parametrize(("table_type", "concurrency"), KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_operations_one_after_the_other(lake: Lake, seed: int, table_type: str, concurrency: str) -> None:
    operations_one_after_the_other(lake, seed, 12, buckets=concurrency, table_type=table_type)


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("operation", ["upsert", "delete", "insert_overwrite"])
def test_two_first_writes_of_a_bucket_meet_in_it(lake: Lake, table_type: str, operation: str) -> None:
    table = make(lake, table_type)
    lock = MeetingLock(lambda: table.ingest("upsert", [row("a", "theirs"), row("b", "theirs")]))
    mine = [row("a", "mine"), row("c", "mine")]
    if operation == "delete":
        table.ingest("upsert", [row("a", "before"), row("c", "before")])
    result = ingest_arrow(table.location, table.arrow(mine), operation, lock=lock, on_conflict="rebase")
    assert result["rebases"] == 1
    wanted = {
        "upsert": [*mine, row("b", "theirs")],
        "delete": [row("b", "theirs")],
        "insert_overwrite": mine,
    }[operation]
    table.check_now(wanted)
    names = [each.file_id[:8] for each in file_slices(table.table)]
    assert len(names) == len(set(names))


def test_what_cannot_work_is_refused_before_anything_is_there(lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match=r"'non_blocking' of a COPY_ON_WRITE table.*merge_on_read"):
        make(lake, "copy_on_write", "non_blocking")
    with pytest.raises(InvalidInputError, match=r"without hoodie.index.type=BUCKET"):
        lake.create(SCHEMA, table_type="merge_on_read", concurrency="non_blocking")
    with pytest.raises(InvalidInputError, match=r"without hoodie.bucket.index.num.buckets"):
        lake.create(SCHEMA, hudi_options={"hoodie.index.type": "BUCKET"})
    with pytest.raises(InvalidInputError, match="'optimistic' or 'non_blocking', not 'pessimistic'"):
        make(lake, concurrency="pessimistic")
    mode = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    with pytest.raises(InvalidInputError, match="leave one out"):
        lake.create(SCHEMA, concurrency="optimistic", hudi_options=BUCKETS | mode)
    with pytest.raises(UnsupportedTableError, match=r"value is no column of the record key"):
        lake.create(SCHEMA, hudi_options=BUCKETS | {"hoodie.bucket.index.hash.field": "value"})
    assert not lake.root.exists()


def test_the_number_of_buckets_stays_and_keys_stay_in_them(lake: Lake) -> None:
    table = make(lake)
    table.ingest("upsert", [row(f"k{n}", "old") for n in range(9)])
    before = table.rows()
    with pytest.raises(UnsupportedTableError, match="each key stays in its file group"):
        preview_clustering(table.table, ClusteringSettings())
    change_options(table.table, {"hoodie.bucket.index.num.buckets": 1})
    with pytest.raises(UnsupportedTableError, match=r"is bucket 1, and hoodie.bucket.index.num.buckets is 1"):
        table.ingest("upsert", [row("k1", "new")])
    change_options(table.table, BUCKETS)
    table.check_now(before)


def test_a_table_whose_options_forget_its_buckets_is_refused_with_the_remedy(lake: Lake) -> None:
    table = make(lake)
    table.ingest("upsert", [row("a", "old")])
    change_options(table.table, {}, unset=list(BUCKETS))
    with pytest.raises(UnsupportedTableError, match=r"set hoodie.index.type=BUCKET"):
        table.ingest("upsert", [row("a", "new")])
    change_options(table.table, BUCKETS)
    table.ingest("upsert", [row("a", "new")])
    table.check_now([row("a", "new")])


def test_a_mode_that_needs_buckets_is_refused_where_a_table_has_none(lake: Lake) -> None:
    table = make(lake, "copy_on_write")
    change_options(table.table, {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"})
    with pytest.raises(
        UnsupportedTableError, match=r"COPY_ON_WRITE with a bucket index: only a merge-on-read"
    ):
        HudiTable.open(table.location).check_writable()

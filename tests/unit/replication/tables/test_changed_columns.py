"""Changes of a table's columns: the target has the same columns, remarks and values after each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.alter_table import Alteration, alter_table
from airflow_provider.services.metastore_columns import follow_columns
from airflow_provider.table import snapshot
from tests.unit.replication.pair import KINDS, Pair, rows
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

BY_ID = {"hoodie.schema.on.read.enable": True}
INDEXES = ["files", "column_stats", "bloom_filters", "record_index"]

Change = Callable[[Pair], None]


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    made = Pair(tmp_path, **KINDS[request.param])
    made.lake.write("trips", {1: 10, 100: 5})
    return made


def load(pair: Pair, **columns: Any) -> None:
    """Upsert a row with these values besides its key, as a transaction of its own."""
    metastore, table = pair.source, pair.lake.tables["trips"]
    txn = metastore.open_txn("me", "here")
    write_id = metastore.allocate_table_write_id(txn, "lake", "trips")
    kinds = {"tip": pa.float64(), "fare": pa.int64(), "price": pa.int64()}
    fields = [("id", pa.int64()), ("city", pa.string()), *((name, kinds[name]) for name in columns)]
    data = pa.Table.from_pylist([{"id": 2, "city": "sf", **columns}], pa.schema(fields))
    result = ingest_arrow(table, data, "upsert", txn_id=txn, write_id=write_id)
    metastore.record_write(txn, "lake", "trips", result["instant"])
    metastore.commit_txn(txn)


def alter(pair: Pair, **changes: dict[str, str]) -> None:
    """Change the columns as the operator does."""
    table = pair.lake.tables["trips"]
    alter_table(table, Alteration(**changes))
    follow_columns(pair.source, "lake", "trips", table)


def add_by_a_load(pair: Pair) -> None:
    load(pair, fare=20, tip=0.5)


def add(pair: Pair) -> None:
    alter(pair, add={"tip": "double"})


def comment(pair: Pair) -> None:
    alter(pair, comment={"fare": "in cents"})


def rename(pair: Pair) -> None:
    alter(pair, rename={"fare": "price"})


def is_equal(pair: Pair) -> None:
    """Check schemas, remarks, rows at both sides, and what the two metastores say about the columns."""
    source, target = pair.lake.tables["trips"], pair.copy_of("trips")
    ours, theirs = target.schema_on(target.timeline()), source.schema_on(source.timeline())
    assert (ours.columns, ours.comments()) == (theirs.columns, theirs.comments())
    at_source, at_target = pair.write_ids("trips")
    assert rows(target, at_target) == rows(source, at_source)
    of_source, of_target = pair.source.get_table("lake", "trips"), pair.target.get_table("lake_copy", "trips")
    assert of_target.schema == of_source.schema


@pytest.mark.parametrize("is_following", [True, False], ids=["event by event", "at once"])
@pytest.mark.parametrize("is_indexed", [False, True], ids=["no index", "indexes"])
@pytest.mark.parametrize(
    ("change", "then"),
    [
        (add_by_a_load, {"fare": 21, "tip": 1.5}),
        (add, {"fare": 21, "tip": 1.5}),
        (comment, {"fare": 21}),
    ],
)
def test_new_columns_and_remarks_arrive(
    pair: Pair, change: Change, then: dict[str, Any], is_indexed: bool, is_following: bool
) -> None:
    if is_indexed:
        schedule_index(pair.lake.tables["trips"], INDEXES)
        run_index(pair.lake.tables["trips"])
    if is_following:
        pair.replicate()
    change(pair)
    if is_following:
        pair.replicate()
        is_equal(pair)
    load(pair, **then)
    pair.replicate()
    is_equal(pair)
    pair.check_equal()
    if is_indexed:
        assert_indexes_equal_a_rebuild(pair.copy_of("trips"))


@pytest.mark.parametrize("is_indexed", [False, True], ids=["no index", "indexes"])
def test_a_new_name_arrives(tmp_path: Path, is_indexed: bool) -> None:
    pair = Pair(tmp_path, hudi_options=BY_ID)
    pair.lake.write("trips", {1: 10, 100: 5})
    if is_indexed:
        of_other_columns = ["id"]  # a column with statistics gets no new name
        schedule_index(pair.lake.tables["trips"], INDEXES, of_other_columns)
        run_index(pair.lake.tables["trips"])
    pair.replicate()
    rename(pair)
    pair.replicate()
    is_equal(pair)
    found = snapshot(pair.copy_of("trips")).to_table().select(["id", "price"]).to_pylist()
    assert sorted(each["price"] for each in found) == [5, 10]
    load(pair, price=20)
    pair.replicate()
    is_equal(pair)
    target = pair.copy_of("trips")
    assert "fare" not in target.schema.names
    if is_indexed:
        assert_indexes_equal_a_rebuild(target)

"""The virtual columns ``row_id`` and ``current_write_id``: their values, and which tables lack them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_provider.exceptions import InvalidInputError, NoWriteIdError, UnsupportedTableError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.table import HudiTable, increment, snapshot
from tests.ingestion_contract.lake import LakeTable
from tests.ingestion_contract.merge_semantics import set_properties
from tests.unit.concurrency.transactions.transactional_lake import Lake

TASK = 2**32
"""The step by which a bucket counts the commits of a transaction."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_they_are_the_write_the_task_and_the_row_that_made_a_row(lake: Lake) -> None:
    lake.write("trips", {1: 10, 2: 20})
    lake.write("trips", {2: 21, 3: 30})
    txn = lake.begin()
    lake.write("trips", {4: 40}, txn)
    lake.write("trips", {300: 50}, txn)
    lake.commit(txn)
    rows = snapshot(lake.tables["trips"], row_ids=True)
    assert rows.schema.names == ["id", "city", "fare", "row_id", "current_write_id"]
    found = rows.to_table(["id", "row_id", "current_write_id"]).sort_by("id").to_pylist()
    assert [(each["id"], *each["row_id"].values(), each["current_write_id"]) for each in found] == [
        (1, 1, 0, 0, 1),
        (2, 2, 0, 0, 2),
        (3, 2, 0, 1, 2),
        (4, 3, 0, 0, 3),
        (300, 3, TASK, 0, 3),
    ]
    written_in_2 = rows.filter(pc.field("row_id", "original_write_id") == 2).to_table(["id"])
    assert sorted(written_in_2["id"].to_pylist()) == [2, 3]
    assert rows.count_rows(filter=(pc.field("current_write_id") == 3) & (pc.field("id") > 100)) == 1
    assert pickle.loads(pickle.dumps(rows)).to_table() == rows.to_table()


def test_a_snapshot_of_the_past_has_the_row_ids_of_then(lake: Lake) -> None:
    first = lake.write("trips", {1: 10, 2: 20})
    before = snapshot(lake.tables["trips"], row_ids=True).to_table().sort_by("id")
    lake.write("trips", {1: 11}, operation="upsert")
    assert snapshot(lake.tables["trips"], first, row_ids=True).to_table().sort_by("id") == before


def test_an_incremental_read_has_them(lake: Lake) -> None:
    lake.write("trips", {1: 10, 2: 20})
    table = lake.tables["trips"]
    checkpoint = increment(table).end
    lake.write("trips", {2: 21, 3: 30})
    expected = (
        snapshot(table, row_ids=True).filter(pc.field("current_write_id") == 2).to_table().sort_by("id")
    )
    window = increment(table, checkpoint)
    assert window.scanner(row_ids=True).to_table().sort_by("id") == expected
    second = window.scanner(["id"], pc.field("row_id", "row") == 1, row_ids=True)
    assert second.to_table()["id"].to_pylist() == [3]


def test_a_compaction_moves_rows_with_their_ids(lake: Lake, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    table = HudiTable.create(
        str(tmp_path / "mor"), name="mor", schema=schema, record_key=["id"], table_type="merge_on_read"
    )
    for write_id, ids in enumerate([[1, 2, 3], [2], [3, 4]], 1):
        data = pa.table({"id": ids, "v": [write_id] * len(ids)}, schema=schema)
        ingest_arrow(table, data, "upsert", txn_id=write_id, write_id=write_id)
    before = snapshot(table, row_ids=True).to_table().sort_by("id")
    assert before["current_write_id"].to_pylist() == [1, 2, 3, 3]
    assert len({*map(str, before["row_id"].to_pylist())}) == 4
    assert compact_table(table, TableCompactionSettings(delta_commits=1))
    assert snapshot(table, row_ids=True).to_table().sort_by("id") == before


def test_rows_of_a_commit_without_a_write_id_have_none(lake: Lake) -> None:
    lake.write("trips", {1: 10})
    table = lake.tables["trips"]
    rows = snapshot(table).to_table()
    instant = ingest_arrow(table, rows, "insert")["instant"]
    with pytest.raises(
        NoWriteIdError, match=rf"{table.location}: commit {instant} has no write id.*by its name"
    ):
        snapshot(table, row_ids=True).to_table()
    assert snapshot(table, row_ids=True).to_table(["id"]).num_rows == 2
    lake.write("trips", {1: 10}, operation="insert_overwrite_table")
    assert snapshot(table, row_ids=True).to_table()["current_write_id"].to_pylist() == [2]


def test_an_empty_table_has_the_columns(lake: Lake) -> None:
    empty = snapshot(lake.tables["trips"], row_ids=True, meta_columns=True)
    assert empty.to_table().num_rows == 0
    assert empty.schema.names[:1] == ["_hoodie_commit_time"]
    assert empty.files == []


def test_a_column_of_that_name_is_in_the_way(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "row_id": pa.int64()})
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"])
    with pytest.raises(InvalidInputError, match="a column 'row_id' of its own"):
        snapshot(table, row_ids=True)


def test_rows_that_do_not_say_who_wrote_them_have_none(tmp_path: Path) -> None:
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=pa.schema({"id": pa.int64()}), record_key=["id"]
    )
    set_properties(LakeTable(table.location), {"hoodie.populate.meta.fields": "false"})
    with pytest.raises(UnsupportedTableError, match=r"populate\.meta\.fields=false.*no row ids"):
        snapshot(HudiTable.open(table.location), row_ids=True)


def test_a_key_that_hudi_has_not_generated_is_named(tmp_path: Path) -> None:
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=pa.schema({"id": pa.string()}), record_key=["id"]
    )
    ingest_arrow(table, pa.table({"id": ["odd"]}), txn_id=1, write_id=1)
    set_properties(LakeTable(table.location), {"hoodie.table.recordkey.fields": ""})
    with pytest.raises(UnsupportedTableError, match="_hoodie_record_key 'odd' is not <instant>_<task>_<row>"):
        snapshot(HudiTable.open(table.location), row_ids=True).to_table()

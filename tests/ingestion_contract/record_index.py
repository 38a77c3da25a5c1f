"""Writes into tables with indexes of their keys: the index that finds each key, and the refusals."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import InvalidRecordKeyError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.reading.snapshots import select_slices
from tests.ingestion_contract.lake import KIB, Lake, LakeTable, Rows

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.string()})
SMALL = {"target_file_size": 12 * KIB, "small_file_limit": 0}
"""Sizes so small that every commit opens file groups of its own."""


def rows(ids: Any, partition: str = "a", value: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "p": partition, "v": f"{value}{number}"} for number in ids]


def build(table: LakeTable, *indexes: str) -> None:
    """Build indexes of the present rows."""
    schedule_index(table.table, indexes, options={"hoodie.metadata.record.index.min.filegroup.count": 3})
    run_index(table.table)


@pytest.fixture
def table_type() -> str:
    """The type of the tables; an engine may try other types, too."""
    return "copy_on_write"


@pytest.fixture
def table(lake: Lake, table_type: str) -> LakeTable:
    """A table of two partitions with three file groups each."""
    made = lake.create(SCHEMA, partition_by=["p"], table_type=table_type)
    for number in range(3):
        batch = [
            *rows(range(number * 10, number * 10 + 5)),
            *rows(range(number * 10 + 5, number * 10 + 10), "b"),
        ]
        made.ingest("bulk_insert", batch, **SMALL)
    return made


def check_index(table: LakeTable) -> None:
    """Check that the record index has the place of every key, and no other records."""
    metadata = MetadataTable(metadata_storage(table.table.storage))
    said = {key: (each.partition_path, each.file_id) for key, each in metadata.records("record_index")}  # type: ignore[union-attr]
    expected = {}
    reader, slices = select_slices(table.table)
    for each in slices:
        keys = reader.keys(each).to_pylist()
        assert not expected.keys() & set(keys), "a key is there twice"
        expected |= dict.fromkeys(keys, tuple(each.file_group))
    assert said == expected


@contextmanager
def base_files_gone(table: LakeTable, keep: set[str]) -> Iterator[None]:
    """Make all base files except some unreadable."""
    root = Path(table.location)
    away = [root / each.path for each in table.table.view().all_base_files() if each.path not in keep]
    for path in away:
        path.rename(f"{path}.away")
    try:
        yield
    finally:
        for path in away:
            Path(f"{path}.away").rename(path)


def file_of(table: LakeTable, number: int) -> str:
    """Path of the base file with a row."""
    (found,) = [
        each.path
        for each in table.table.view().all_base_files()
        if number in pa.parquet.read_table(f"{table.location}/{each.path}")["id"].to_pylist()
    ]
    return found


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize("index", ["record_index", "bloom_filters"])
def test_only_file_groups_with_hits_are_opened(
    table: LakeTable, index: str, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "airflow_provider.ingestion")
    build(table, "files", index)
    expected = [row for row in table.rows() if row["id"] != 12]
    expected += rows([12], value="new") if operation == "upsert" else []
    with base_files_gone(table, keep={file_of(table, 12)}):
        result = table.ingest(operation, rows([12], value="new"))
    assert result["files_written"] == 1
    assert f"keys located by {index}" in caplog.text
    table.check_now(expected)
    if index == "record_index":
        check_index(table)


def test_without_an_index_keys_are_located_by_footers(
    table: LakeTable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "airflow_provider.ingestion")
    table.ingest("upsert", rows([12], value="new"))
    assert "keys located by footers" in caplog.text


def test_keys_in_new_partitions_are_looked_up_too(table: LakeTable) -> None:
    build(table, "record_index")
    with pytest.raises(InvalidRecordKeyError, match=r"'12' lives in partition 'p=a' and comes for.*'p=c'"):
        table.ingest("upsert", rows([12, 99], "c"))
    table.ingest("upsert", rows([99], "c"))
    table.ingest("delete", rows([12], "a"))
    table.ingest("upsert", rows([12], "c"))
    assert {row["p"] for row in table.rows() if row["id"] in (12, 99)} == {"c"}
    check_index(table)


def test_a_key_comes_for_one_partition(table: LakeTable) -> None:
    build(table, "record_index")
    with pytest.raises(InvalidRecordKeyError, match="'99' comes more than once"):
        table.ingest("upsert", [*rows([98, 99], "c"), *rows([99], "a")])
    with pytest.raises(InvalidRecordKeyError, match=r"'12' lives in partition 'p=a' and comes for.*'p=b'"):
        table.ingest("upsert", [*rows([11], "a"), *rows([12], "b")])
    table.ingest("upsert", [*rows([99, 98], "c"), *rows([99], "c", "last")])
    assert [row["v"] for row in table.rows() if row["id"] == 99] == ["last99"]
    check_index(table)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_a_key_is_not_inserted_twice(table: LakeTable, operation: str) -> None:
    build(table, "record_index")
    before = table.rows()
    with pytest.raises(InvalidRecordKeyError, match="'21' is in the table already, in partition 'p=a'"):
        table.ingest(operation, rows([21, 50], "c"))
    with pytest.raises(InvalidRecordKeyError, match="'50' comes more than once"):
        table.ingest(operation, rows([50, 50], "c"))
    assert table.rows() == before
    table.ingest(operation, rows([50, 51], "c"))
    check_index(table)


def test_what_is_overwritten_may_come_again_and_nothing_else(table: LakeTable) -> None:
    build(table, "record_index")
    with pytest.raises(InvalidRecordKeyError, match="'5' is in the table already, in partition 'p=b'"):
        table.ingest("insert_overwrite", rows([1, 5], "a"))
    table.ingest("insert_overwrite", rows([1, 70], "a"))
    check_index(table)
    table.ingest("insert_overwrite_table", rows([5, 1], "a"))
    assert [row["id"] for row in table.rows()] == [1, 5]
    check_index(table)


def test_operations_one_after_the_other_with_indexes(lake: Lake, table_type: str) -> None:
    rng = random.Random(3)
    table, model = (
        lake.create(SCHEMA, partition_by=["p"], table_type=table_type),
        dict[int, dict[str, Any]](),
    )
    table.ingest("bulk_insert", rows(range(40)))
    model.update({row["id"]: row for row in rows(range(40))})
    build(table, "files", "column_stats", "bloom_filters", "record_index")
    for step in range(6):
        batch: Rows = [
            {"id": n, "p": model[n]["p"] if n in model else rng.choice("ab"), "v": f"{step}"}
            for n in rng.sample(range(60), rng.choice([1, 8, 25]))
        ]
        operation = rng.choice(["upsert", "upsert", "delete"])
        table.ingest(operation, batch, **SMALL)
        for row in batch:
            model.pop(row["id"], None) if operation == "delete" else model.update({row["id"]: dict(row)})
        table.check_now(list(model.values()))
        check_index(table)
    table = LakeTable(table.location)
    number = next(iter(model))
    opened: HudiTable = table.table
    assert snapshot(opened, where=[("id", "=", number)]).to_table().to_pylist() == [model[number]]
    _, slices = select_slices(opened, where=[("id", "=", number)])
    assert len(slices) == 1

"""Invalid input: a clear error, and no byte of the table changes."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.exceptions import (
    EmptySourceError,
    IncompatibleSchemaError,
    InvalidInputError,
    InvalidPartitionValueError,
    InvalidRecordKeyError,
    MissingColumnError,
    NotATableError,
    TableServiceError,
    UnknownOperationError,
)
from tests.ingestion_contract.lake import Lake, LakeTable, fingerprint, untouched

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("sub", pa.string()),
        pa.field("part", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("ts", pa.int64()),
        pa.field("must", pa.int64(), nullable=False),
    ]
)
GOOD: dict[str, Any] = {"id": "1", "sub": "s", "part": "p", "n": 1, "ts": 1, "must": 1}


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    """A table with one row, a key of one column, a partition and an ordering column."""
    made = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts")
    made.ingest("upsert", [GOOD])
    return made


def refused(table: LakeTable, error: type[TableServiceError], *named: str, act: Callable[[], object]) -> None:
    """Check that the action raises this error, that its text names these things, and that no file changes."""

    def expect() -> None:
        with pytest.raises(error) as caught:
            act()
        assert type(caught.value) is error
        for name in named:
            assert name in str(caught.value)

    untouched(table.location, expect)


@pytest.mark.parametrize("column", ["id", "part", "ts", "n", "must"])
def test_a_missing_column(table: LakeTable, column: str) -> None:
    row = {name: value for name, value in GOOD.items() if name != column}
    refused(table, MissingColumnError, repr(column), act=lambda: table.ingest("upsert", [row]))


def test_all_missing_columns_are_named_with_the_option_that_fills_them(table: LakeTable) -> None:
    row = {name: value for name, value in GOOD.items() if name not in ("n", "sub")}
    option = "hoodie.write.set.null.for.missing.columns=true"
    refused(table, MissingColumnError, "'sub', 'n'", option, act=lambda: table.ingest("insert", [row]))


@pytest.mark.parametrize("column", ["id", "part"])
def test_a_delete_without_its_key_or_partition(table: LakeTable, column: str) -> None:
    row = {name: GOOD[name] for name in ("id", "part") if name != column}
    refused(table, MissingColumnError, repr(column), act=lambda: table.ingest("delete", [row]))


@pytest.mark.parametrize("key", [None, ""])
@pytest.mark.parametrize("operation", ["insert", "upsert", "delete", "bulk_insert", "insert_overwrite"])
def test_a_null_or_empty_key(table: LakeTable, operation: str, key: str | None) -> None:
    rows = [GOOD, GOOD | {"id": key}, GOOD | {"id": key, "part": "q"}]
    refused(table, InvalidRecordKeyError, "id", "2 rows", act=lambda: table.ingest(operation, rows))


def test_keys_of_several_columns(lake: Lake) -> None:
    table = lake.create(SCHEMA, record_key=["id", "sub"])
    table.ingest("upsert", [GOOD, GOOD | {"id": None}, GOOD | {"sub": ""}])
    for bad in ({"id": None, "sub": ""}, {"id": "x,sub:y"}, {"sub": "__null__"}):
        refused(table, InvalidRecordKeyError, act=lambda bad=bad: table.ingest("upsert", [GOOD, GOOD | bad]))


def test_a_key_that_cannot_be_one(lake: Lake) -> None:
    schema = pa.schema({"id": pa.float64(), "p": pa.binary(), "n": pa.int64()})
    row = {"id": 1.0, "p": b"p", "n": 1}
    floating = lake.create(schema)
    refused(floating, InvalidRecordKeyError, "'id'", "double", act=lambda: floating.ingest("insert", [row]))
    binary = lake.create(schema, record_key=["n"], partition_by=["p"])
    refused(binary, InvalidPartitionValueError, "'p'", "binary", act=lambda: binary.ingest("insert", [row]))


def test_a_partition_value_that_is_too_long(table: LakeTable) -> None:
    rows = [GOOD | {"part": "x" * 300}]
    refused(table, InvalidPartitionValueError, "'part'", act=lambda: table.ingest("insert", rows))


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("n", pa.bool_(), True),
        ("n", pa.date32(), datetime.date(2024, 1, 1)),
        ("n", pa.list_(pa.int32()), [1]),
        ("ts", pa.string(), "1"),
        ("ts", pa.timestamp("us"), datetime.datetime(2024, 1, 1)),
        ("id", pa.bool_(), True),
        ("ID", pa.string(), "x"),
    ],
)
def test_a_column_that_does_not_fit(table: LakeTable, column: str, kind: pa.DataType, value: Any) -> None:
    fields = [field for field in SCHEMA if field.name != column] + [pa.field(column, kind)]
    rows = pa.Table.from_pylist([GOOD | {column: value}], pa.schema(fields))
    refused(table, IncompatibleSchemaError, repr(column), act=lambda: table.ingest("upsert", rows))


def test_a_null_where_none_may_be(table: LakeTable) -> None:
    rows = [GOOD, GOOD | {"id": "2", "must": None}]
    nullable = pa.Table.from_pylist(rows, pa.schema([field.with_nullable(True) for field in SCHEMA]))
    refused(table, IncompatibleSchemaError, "'must'", " 1 ", act=lambda: table.ingest("upsert", nullable))


def test_an_unknown_operation(table: LakeTable) -> None:
    refused(table, UnknownOperationError, "merge", "bulk_insert", act=lambda: table.ingest("merge", [GOOD]))


@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite_table"])
def test_no_row(table: LakeTable, operation: str) -> None:
    refused(table, EmptySourceError, "no row", act=lambda: table.ingest(operation, SCHEMA.empty_table()))


def test_a_place_without_a_table(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("mine")
    rows = pa.table({"id": ["1"]})
    for location in (tmp_path, tmp_path / "nowhere"):
        before = fingerprint(tmp_path)
        with pytest.raises(NotATableError, match="not a Hudi table"):
            lake.open(str(location)).write("upsert", rows)
        assert fingerprint(tmp_path) == before
    with pytest.raises(InvalidInputError, match="relative path"):
        lake.open("relative/path").write("upsert", rows)

"""Input that cannot work: a clear error, and not one byte of the table changed."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.exceptions import (
    CommitError,
    EmptySourceError,
    IncompatibleSchemaError,
    InvalidInputError,
    InvalidPartitionValueError,
    InvalidRecordKeyError,
    MissingColumnError,
    NotATableError,
    TableServiceError,
    UnknownOperationError,
    UnreadableSourceError,
)
from airflow_provider.spark import IngestJob, ingest
from tests.spark.lake import Lake, LakeTable, fingerprint, untouched

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
    """The action raises this error, which names these things, and leaves no trace."""

    def expect() -> None:
        with pytest.raises(error) as caught:
            act()
        assert type(caught.value) is error
        for name in named:
            assert name in str(caught.value)

    untouched(table.location, expect)


@pytest.mark.parametrize("column", ["id", "part", "ts", "must"])
def test_a_missing_column(table: LakeTable, column: str) -> None:
    row = {name: value for name, value in GOOD.items() if name != column}
    error = IncompatibleSchemaError if column == "must" else MissingColumnError
    refused(table, error, repr(column), act=lambda: table.ingest("upsert", [row]))


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
        ("n", pa.int64(), 1),
        ("n", pa.string(), "1"),
        ("ts", pa.float64(), 1.0),
        ("id", pa.int64(), 1),
        ("id", pa.date32(), datetime.date(2024, 1, 1)),
        ("nobody", pa.string(), "x"),
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
    refused(table, IncompatibleSchemaError, "'must'", "1 rows", act=lambda: table.ingest("upsert", nullable))


def test_an_unknown_operation(table: LakeTable) -> None:
    refused(table, UnknownOperationError, "merge", "bulk_insert", act=lambda: table.ingest("merge", [GOOD]))


def test_an_empty_source(table: LakeTable, tmp_path: Path) -> None:
    empty = SCHEMA.empty_table()
    for operation in ("upsert", "insert_overwrite_table"):
        refused(table, EmptySourceError, "no row", act=lambda o=operation: table.ingest(o, empty))
    pq.write_table(empty, tmp_path / "empty.parquet")
    refused(table, EmptySourceError, "no row", act=lambda: table.load("upsert", tmp_path / "empty.parquet"))
    (tmp_path / "folder").mkdir()
    refused(table, EmptySourceError, "folder", act=lambda: table.load("upsert", tmp_path / "folder"))


def test_an_unreadable_source(table: LakeTable, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "*.parquet"
    refused(table, UnreadableSourceError, "missing", act=lambda: table.load("upsert", missing))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1, but nothing of it")
    refused(table, UnreadableSourceError, "broken", act=lambda: table.load("upsert", broken))
    refused(
        table,
        UnreadableSourceError,
        "no_such_format",
        act=lambda: table.load("upsert", broken, source_format="no_such_format"),
    )
    refused(table, InvalidInputError, "source", act=lambda: table.load("upsert"))


def test_one_of_several_files_is_broken(table: LakeTable, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([GOOD], SCHEMA), tmp_path / "a.parquet")
    cut = (tmp_path / "a.parquet").read_bytes()[:-20]
    (tmp_path / "b.parquet").write_bytes(cut)
    refused(table, UnreadableSourceError, act=lambda: table.load("upsert", tmp_path / "*.parquet"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("id,part,n,ts,must\n1,p,1,1,1\n2,p,many,1,1\n", UnreadableSourceError),
        ("id,part,n,ts,must\n1,p,1,1,1\n2,p\n", UnreadableSourceError),
        ("id,part,n,ts,must,extra\n1,p,1,1,1,1\n", IncompatibleSchemaError),
        ("part,n,ts,must\np,1,1,1\n", MissingColumnError),
        ("id,part,n,ts,must\n", EmptySourceError),
        ("id,part,n,ts,must\n,p,1,1,1\n", InvalidRecordKeyError),
    ],
)
def test_text_that_does_not_hold_the_tables_types(
    table: LakeTable, tmp_path: Path, text: str, error: type[TableServiceError]
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text(text)
    options = {"source_format": "csv", "source_options": {"header": "true"}}
    refused(table, error, act=lambda: table.load("upsert", source, **options))


def test_a_place_without_a_table(table: LakeTable, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("mine")
    for location in (tmp_path, tmp_path / "nowhere"):
        job = IngestJob(str(location))
        frame = table.spark.createDataFrame([("1",)], "id string")
        before = fingerprint(tmp_path)
        with pytest.raises(NotATableError, match="not a Hudi table"):
            ingest(table.spark, job, dataframe=frame)
        assert fingerprint(tmp_path) == before
    with pytest.raises(InvalidInputError, match="relative path"):
        ingest(table.spark, IngestJob("relative/path"), dataframe=frame)


def test_values_that_are_found_out_only_while_writing_are_rolled_back(lake: Lake) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("ms", tz="UTC")})
    table = lake.create(schema)
    table.ingest("insert", [{"id": 1, "at": 5}])
    exact = pa.table({"id": [2], "at": pa.array([1], pa.timestamp("us", tz="UTC"))})
    before = table.rows()
    with pytest.raises(IncompatibleSchemaError, match="'at'"):
        table.ingest("upsert", exact)
    table.check(before)
    assert table.table.timeline().pending() == ()
    assert len(list(Path(table.location).glob("*.parquet"))) == 1, "no data file is left"


def test_rows_that_are_others_every_time_are_not_written(table: LakeTable, tmp_path: Path) -> None:
    before = table.rows()
    looks = tmp_path / "looks"

    def growing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with looks.open("a") as log:
                log.write("x")
            yield from [batch] * looks.stat().st_size

    one = table.spark.createDataFrame(pa.Table.from_pylist([GOOD], SCHEMA)).coalesce(1)
    frame = one.mapInArrow(growing, one.schema)
    with pytest.raises(CommitError, match="gives other rows every time"):
        ingest(table.spark, IngestJob(table.location), dataframe=frame)
    table.check(before)

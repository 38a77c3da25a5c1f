"""Invalid rows and invalid sources, through Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.exceptions import (
    CommitError,
    EmptySourceError,
    IncompatibleSchemaError,
    InvalidInputError,
    InvalidRecordKeyError,
    MissingColumnError,
    MissingSourceError,
    TableServiceError,
    UnreadableSourceError,
)
from airflow_provider.spark import IngestJob, ingest
from tests.ingestion_contract.bad_input import *  # noqa: F403
from tests.ingestion_contract.bad_input import GOOD, SCHEMA, refused
from tests.spark.lake import SparkLake, SparkLakeTable


def test_an_empty_source(table: SparkLakeTable, tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "empty.parquet")
    refused(table, EmptySourceError, "no row", act=lambda: table.load("upsert", tmp_path / "empty.parquet"))
    (tmp_path / "folder").mkdir()
    refused(table, EmptySourceError, "folder", act=lambda: table.load("upsert", tmp_path / "folder"))


def test_an_unreadable_source(table: SparkLakeTable, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "*.parquet"
    refused(table, MissingSourceError, "missing", act=lambda: table.load("upsert", missing))
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


def test_one_of_several_files_is_broken(table: SparkLakeTable, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([GOOD], SCHEMA), tmp_path / "a.parquet")
    cut = (tmp_path / "a.parquet").read_bytes()[:-20]
    (tmp_path / "b.parquet").write_bytes(cut)
    refused(table, UnreadableSourceError, act=lambda: table.load("upsert", tmp_path / "*.parquet"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("id,sub,part,n,ts,must\n1,s,p,1,1,1\n2,s,p,many,1,1\n", UnreadableSourceError),
        ("id,sub,part,n,ts,must\n1,s,p,1,1,1\n2,s,p\n", UnreadableSourceError),
        ("id,sub,part,n,ts,must,Sub\n1,s,p,1,1,1,1\n", MissingColumnError),
        ("sub,part,n,ts,must\ns,p,1,1,1\n", MissingColumnError),
        ("id,part,n,ts,must\n1,p,1,1,1\n", MissingColumnError),
        ("id,sub,part,n,ts,must\n", EmptySourceError),
        ("id,sub,part,n,ts,must\n,s,p,1,1,1\n", InvalidRecordKeyError),
    ],
)
def test_text_that_does_not_hold_the_tables_types(
    table: SparkLakeTable, tmp_path: Path, text: str, error: type[TableServiceError]
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text(text)
    options = {"source_format": "csv", "source_options": {"header": "true"}}
    refused(table, error, act=lambda: table.load("upsert", source, **options))


def test_values_that_are_found_out_only_while_writing_are_rolled_back(lake: SparkLake) -> None:
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


def test_rows_that_are_others_every_time_are_not_written(table: SparkLakeTable, tmp_path: Path) -> None:
    before = table.rows()
    looks = tmp_path / "looks"

    def growing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with looks.open("a") as log:
                log.write("x")
            yield from [batch] * looks.stat().st_size

    one = table.spark.createDataFrame(pa.Table.from_pylist([GOOD], SCHEMA)).coalesce(1)
    frame = one.mapInArrow(growing, one.schema)
    with pytest.raises(CommitError, match="returns other rows at each read"):
        ingest(table.spark, IngestJob.of(table.location), dataframe=frame)
    table.check(before)

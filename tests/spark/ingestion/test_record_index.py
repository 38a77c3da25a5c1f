"""Writes into tables with indexes of their keys, looked up in Spark; reads that skip files."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_provider.exceptions import InvalidInputError, InvalidRecordKeyError
from airflow_provider.spark import read_snapshot
from airflow_provider.table.skipping.predicates import Filter, expression
from tests.ingestion_contract.lake import LakeTable
from tests.ingestion_contract.record_index import (
    SCHEMA,
    SMALL,
    base_files_gone,
    build,
    check_index,
    file_of,
    rows,
)
from tests.spark.lake import SparkLake, SparkLakeTable

FLOATS = pa.schema({"id": pa.int64(), "x": pa.float64()})


@pytest.fixture
def table(lake: SparkLake, source: None) -> SparkLakeTable:
    """A table with three file groups in each of two partitions, written without Spark."""
    made = LakeTable(lake.create(SCHEMA, partition_by=["p"]).location)
    for number in range(3):
        ids = range(number * 10, number * 10 + 10)
        made.ingest("bulk_insert", [*rows(ids[:5]), *rows(ids[5:], "b")], **SMALL)
    return lake.open(made.location)


def test_only_file_groups_with_hits_are_opened(
    table: SparkLakeTable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "airflow_provider.ingestion")
    before = [row for row in table.rows() if row["id"] not in (12, 13)]
    build(table, "files", "bloom_filters")
    with base_files_gone(table, keep={file_of(table, 12)}):
        assert table.ingest("upsert", rows([12], value="new"))["files_written"] == 1
    assert "keys located by bloom_filters" in caplog.text
    build(table, "record_index")
    with base_files_gone(table, keep={file_of(table, 13)}):
        result = table.ingest("upsert", [*rows([13], value="new"), *rows([60], "c")])
    assert "keys located by record_index" in caplog.text
    assert (result["rows_updated"], result["rows_inserted"]) == (1, 1)
    table.check_now([*before, *rows([12, 13], value="new"), *rows([60], "c")])
    check_index(table)


def test_a_record_index_keeps_one_record_per_key(table: SparkLakeTable) -> None:
    build(table, "record_index")
    before = table.rows()
    with pytest.raises(InvalidRecordKeyError, match=r"'12' lives in partition 'p=a' and comes for.*'p=c'"):
        table.ingest("upsert", [*rows([12, 99], "c"), *rows([11], "a")])
    with pytest.raises(InvalidRecordKeyError, match="'99' comes more than once"):
        table.ingest("upsert", [*rows([98, 99], "c"), *rows([99], "a")])
    with pytest.raises(InvalidRecordKeyError, match="'21' is in the table already, in partition 'p=a'"):
        table.ingest("bulk_insert", rows([21, 50], "c"))
    with pytest.raises(InvalidRecordKeyError, match="'50' comes more than once"):
        table.ingest("insert", rows([50, 50], "c"))
    assert table.rows() == before


def test_rows_are_filtered_as_without_spark(lake: SparkLake) -> None:
    made = lake.create(FLOATS)
    plain = LakeTable(made.location)
    values = [1.5, None, float("nan"), -2.0, 7.0]
    for number, value in enumerate(values):
        plain.ingest("bulk_insert", [{"id": number, "x": value}])
    build(plain, "column_stats")
    everything = pa.table({"id": range(5), "x": values}, FLOATS)
    wheres: list[list[Filter]] = [
        [("x", ">", 1)],
        [("x", "!=", 1.5)],
        [("x", "in", [1.5, 7.0])],
        [("x", "not in", [1.5])],
        [("x", "is null", None)],
        [("id", ">=", 2), ("x", "<=", 7)],
    ]
    for where in wheres:
        found = read_snapshot(lake.spark, made.table, where=where).collect()
        expected = everything.filter(expression(where, FLOATS))["id"].to_pylist()
        assert sorted(row["id"] for row in found) == expected, where
    assert read_snapshot(lake.spark, made.table, where=[("x", ">", 100)]).collect() == []
    with pytest.raises(InvalidInputError, match="pyarrow expression"):
        read_snapshot(lake.spark, made.table, where=pc.field("x") > 1)

"""Increments as DataFrames."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider.spark import read_incremental, read_snapshot
from airflow_provider.table import increment
from tests.spark.lake import SparkLake

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "text": pa.string()})


def test_a_dataframe_follows_a_table(lake: SparkLake) -> None:
    table = lake.create(SCHEMA, partition_by=["p"])
    spark = lake.spark

    def batch(*ids: int, text: str) -> list[dict[str, object]]:
        return [{"id": number, "p": "{x}*", "text": text} for number in ids]

    empty, nothing = read_incremental(spark, table.table)
    assert (empty.count(), nothing.end) == (0, None)
    table.ingest("insert", batch(1, 2, 3, text="a"))
    rows, first = read_incremental(spark, table.table, nothing.end)
    assert rows.count() == 3
    assert rows.columns == SCHEMA.names
    table.ingest("upsert", batch(2, text="b"))
    table.ingest("insert", batch(4, text="c"))
    rows, second = read_incremental(spark, table.table, first.end)
    told = {row["id"]: row["text"] for row in rows.collect()}
    assert told == {2: "b", 4: "c"}
    with_meta, _ = read_incremental(spark, table.table, first.end, meta_columns=True)
    times = {row["_hoodie_commit_time"] for row in with_meta.collect()}
    assert times == {commit.requested_time for commit in second.commits}
    part, _ = read_incremental(spark, table.table, first.end, end=second.commits[0].completion_time)
    assert [row["id"] for row in part.collect()] == [2]
    fenced, _ = read_incremental(spark, table.table, first.commits[0].requested_time, order="fenced")
    assert {row["id"] for row in fenced.collect()} == {2, 4}
    rows, third = read_incremental(spark, table.table, second.end)
    assert (rows.count(), rows.columns, third.end) == (0, SCHEMA.names, second.end)
    assert increment(table.table, first.end).scanner().count_rows() == 2
    assert read_snapshot(spark, table.table).count() == 4


def test_a_dataframe_stays_what_it_is(lake: SparkLake) -> None:
    table = lake.create(SCHEMA)
    table.ingest("insert", [{"id": 1, "p": "x", "text": "a"}])
    rows, _ = read_incremental(lake.spark, table.table)
    table.ingest("upsert", [{"id": 1, "p": "x", "text": "b"}])
    assert [row["text"] for row in rows.collect()] == ["a"]


@pytest.mark.parametrize("order", ["completion", "fenced", "requested"])
def test_an_insert_overwrite_takes_rows_out_of_the_window(lake: SparkLake, order: str) -> None:
    table = lake.create(SCHEMA, partition_by=["p"])
    table.ingest("insert", [{"id": 1, "p": "x", "text": "a"}])
    start = read_incremental(lake.spark, table.table, order=order)[1].end
    table.ingest("insert", [{"id": 2, "p": "x", "text": "b"}])
    table.ingest("insert_overwrite", [{"id": 3, "p": "x", "text": "c"}])
    rows, found = read_incremental(lake.spark, table.table, start, order=order)
    assert [row["id"] for row in rows.collect()] == [3]
    assert len(found.commits) == 2

"""Clustering by Spark, on an existing session: one task for each new file group, several groups at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog, rollback
from airflow_provider.exceptions import CorruptTableError, InstantRolledBackError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import clustering_progress, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.clustering.clustering_task import ClusteringTask
from airflow_provider.spark import ClusteringJob, cluster
from airflow_provider.table import snapshot
from airflow_provider.table.reading import file_slices
from airflow_provider.table.timeline.metadata import WriteStat
from tests.ingestion_contract.lake import in_order
from tests.ingestion_contract.merge_on_read import CONSISTENT
from tests.spark.lake import SparkLake, SparkLakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "x": pa.int64(), "y": pa.float64()})


@pytest.fixture
def table(lake: SparkLake) -> SparkLakeTable:
    """A table: partitions ``a`` to ``c`` with four file groups each, made without Spark, which is faster."""
    made = lake.create(SCHEMA, partition_by=["part"])
    assert isinstance(made, SparkLakeTable)
    for number in range(4):
        rows = [
            {"id": n, "part": part, "x": n * 37 % 100, "y": n * 61 % 100 / 4}
            for part in "abc"
            for n in range(100 * number, 100 * number + 100)
        ]
        ingest_arrow(made.location, made.arrow(rows), "bulk_insert", small_file_limit=0)
    return made


def half(table: SparkLakeTable) -> int:
    """The bytes of half a partition."""
    return sum(base_file.size for base_file in table.table.view().base_files("part=a")) // 2 + 1000


def plan(table: SparkLakeTable, **settings: Any) -> str:
    instant = schedule_clustering(table.table, ClusteringSettings(**settings))
    assert instant is not None
    return instant


def rows_and_meta(table: SparkLakeTable) -> list[dict[str, Any]]:
    rows = snapshot(table.table, meta_columns=True).to_table().drop_columns(["_hoodie_file_name"])
    return in_order(rows.to_pylist())


@pytest.mark.parametrize("layout", ["linear", "z-order", "hilbert"])
def test_all_readers_see_the_same_rows(
    table: SparkLakeTable, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = rows_and_meta(table)
    instant = plan(table, sort_by=("x", "y"), layout=layout, target_file_size=half(table))
    with caplog.at_level(logging.INFO, "airflow_provider.services.clustering.clustering"):
        result = cluster(table.spark, ClusteringJob(table.location, instant))
    assert result is not None
    assert (result["groups_done"], result["files_replaced"], result["files_written"]) == (3, 12, 6)
    assert rows_and_meta(table) == before
    table.check()
    assert any("; 3 of 3 groups done" in message for message in caplog.messages)
    if layout == "linear":  # one task's file goes on where the other one's ends
        ranges = sorted(
            (rows["x"][0].as_py(), rows["x"][-1].as_py())
            for base_file in table.table.view().base_files("part=b")
            for rows in [pa.parquet.read_table(f"{table.location}/{base_file.path}", partitioning=None)]
        )
        assert ranges[0][0] <= ranges[0][1] <= ranges[1][0] <= ranges[1][1]


def test_what_others_write_to_meanwhile_is_left_out(
    table: SparkLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": 7, "part": "b", "x": -1, "y": -1.0}]
    told: list[dict[str, str]] = []

    def overtake(instant: str) -> None:
        told.append(clustering_progress(table.table))
        ingest_arrow(table.location, table.arrow(rows), "upsert", small_file_limit=0)

    instant = plan(table)
    before_the_first(monkeypatch, overtake)
    result = cluster(table.spark, ClusteringJob(table.location, instant, parallel_groups=1))
    assert result is not None
    assert (result["groups_done"], result["partitions"]) == (2, ["part=a", "part=c"])
    table.check_now(table.rows())
    assert {row["x"] for row in table.rows() if (row["id"], row["part"]) == (7, "b")} == {-1}


def test_tasks_of_a_clustering_that_was_rolled_back_leave_nothing(
    table: SparkLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = table.rows()
    instant = plan(table)
    before_the_first(monkeypatch, lambda instant: rollback(table.table, instant))
    with pytest.raises(InstantRolledBackError, match=f"instant {instant} was rolled back"):
        cluster(table.spark, ClusteringJob(table.location, instant, parallel_groups=2))
    table.check_now(before)


def test_a_file_that_cannot_be_read_fails_it_with_its_name(table: SparkLakeTable) -> None:
    instant = plan(table)
    (broken, *_) = table.table.view().base_files("part=c")
    content = Path(table.location, broken.path).read_bytes()
    Path(table.location, broken.path).write_bytes(b"no parquet")
    with pytest.raises(CorruptTableError, match=broken.file_id):
        cluster(table.spark, ClusteringJob(table.location, instant))
    Path(table.location, broken.path).write_bytes(content)
    (entry,) = [entry for entry in CommitLog(table.table.storage).backwards() if entry.undone]
    assert broken.file_id in entry.reason
    table.check()


def before_the_first(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], object]) -> None:
    """Call a function after the clustering has begun, before the tasks of its first group."""
    from airflow_provider.spark import clustering

    original = clustering.run_tasks
    acted: list[str] = []

    def run_tasks(spark: Any, tasks: list[ClusteringTask]) -> list[WriteStat]:
        if not acted:
            acted.append(tasks[0].instant)
            act(tasks[0].instant)
        return original(spark, tasks)

    monkeypatch.setattr(clustering, "run_tasks", run_tasks)


def test_buckets_are_split_and_written_on(lake: SparkLake) -> None:
    options = CONSISTENT | {
        "hoodie.bucket.index.max.num.buckets": 8,
        "hoodie.parquet.max.file.size": 1,
        "hoodie.parquet.small.file.limit": 0,
    }
    made = {"partition_by": ["part"], "table_type": "merge_on_read", "hudi_options": options}
    table = lake.create(SCHEMA, **made)
    assert isinstance(table, SparkLakeTable)
    rows = [{"id": n, "part": part, "x": n, "y": 0.5} for part in "ab" for n in range(40)]
    ingest_arrow(table.location, table.arrow(rows), "insert")
    before = rows_and_meta(table)
    result = cluster(table.spark, ClusteringJob(table.location, plan(table)))
    assert result is not None
    assert (result["groups_done"], result["files_written"]) == (4, 8)
    assert rows_and_meta(table) == before
    changed = [{**row, "y": 1.5} for row in rows if row["id"] % 3 == 0]
    table.ingest("upsert", [*changed, {"id": 77, "part": "c", "x": 1, "y": 1.5}])
    kept = [row for row in rows if row["id"] % 3]
    table.check_now([*kept, *changed, {"id": 77, "part": "c", "x": 1, "y": 1.5}])
    assert len(file_slices(table.table)) == 9

"""A merge-on-read table with rows in three file groups, and functions to describe it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.table.reading.slices import file_slices
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})
APART: dict[str, Any] = {"small_file_limit": 0}
ALWAYS = TableCompactionSettings(delta_commits=1)
OF_A = ClusteringSettings(partitions=("part=a",))
KEPT = ("files", "column_stats", "partition_stats", "bloom_filters")

Row = dict[str, Any]


def row(id_: int, value: str, part: str = "a", ts: int = 1) -> Row:
    return {"id": id_, "part": part, "value": value, "ts": ts}


def make(lake: Lake, **options: Any) -> LakeTable:
    return lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read", **options)


def make_filled(lake: Lake) -> LakeTable:
    """Make partition ``a`` with rows 0 to 4 in one file group, 5 to 9 in another; ``b`` with 0 to 4."""
    made = make(lake)
    made.ingest("bulk_insert", [row(n, "old") for n in range(5)])
    made.ingest("bulk_insert", [row(n, "old") for n in range(5, 10)] + [row(n, "old", "b") for n in range(5)])
    return made


OLD = [row(n, "old") for n in range(10)] + [row(n, "old", "b") for n in range(5)]


def expected(*changes: Row, gone: tuple[tuple[str, int], ...] = ()) -> list[Row]:
    found = {(each["part"], each["id"]): each for each in (*OLD, *changes)}
    return [each for key, each in found.items() if key not in gone]


def logs(table: LakeTable) -> list[str]:
    return sorted(path for each in file_slices(table.table) for path in each.log_paths)

"""This package and the JVM write one table with buckets by consistent hashing; each splits and merges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.services.clustering import ClusteringSettings
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.services.table_options import change_options
from airflow_provider.table.bucket_index import HashingMetadata, load_hashing_metadata
from tests.real_hudi.fixtures.log_kinds import CONSISTENT
from tests.real_hudi.in_turn.shared_table import SharedTable, row, rows
from tests.real_hudi.jvm import Session

START = rows(range(30), 0)
BUCKETS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.min.num.buckets": "1",
    "hoodie.bucket.index.max.num.buckets": "4",
}
OF_THE_JVM = BUCKETS | {
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.clustering.plan.strategy.class": (
        f"{CONSISTENT}plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
    ),
    "hoodie.clustering.execution.strategy.class": (
        f"{CONSISTENT}run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    ),
    "hoodie.clustering.updates.strategy": (
        f"{CONSISTENT}update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
    ),
}
SPLITS = {"hoodie.parquet.max.file.size": "100", "hoodie.parquet.small.file.limit": "0"}
MERGES = {"hoodie.parquet.max.file.size": "125829120", "hoodie.parquet.small.file.limit": "0"}
NOW = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}


def of_ours(hudi: Session, location: Path) -> SharedTable:
    made: dict[str, Any] = {"table_type": "merge_on_read", "hudi_options": BUCKETS}
    shared = SharedTable.of_ours(hudi, location, START, **made)
    shared.always(OF_THE_JVM)
    return shared


def of_the_jvm(hudi: Session, location: Path) -> SharedTable:
    shared = SharedTable(hudi, location)
    shared.always(OF_THE_JVM)
    shared.theirs(START, mode="overwrite")
    change_options(shared.table, BUCKETS)
    return shared


def sizes(shared: SharedTable, options: dict[str, str]) -> None:
    """Set sizes by which both sides split, or merge, every bucket."""
    change_options(shared.table, options)
    shared.always(options)


def plan(shared: SharedTable) -> str:
    """Schedule a plan by this package."""
    instant = schedule_clustering(shared.table, ClusteringSettings())
    assert instant is not None
    return instant


def ring(shared: SharedTable) -> HashingMetadata:
    table = shared.table
    found = load_hashing_metadata(table.storage, table.view(), "part=p0")
    assert found is not None
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("made", [of_ours, of_the_jvm], ids=["ours", "theirs"])
def test_either_resizes_what_both_write(
    made: Callable[[Session, Path], SharedTable], hudi: Session, location: Path
) -> None:
    shared = made(hudi, location)
    shared.theirs(rows(range(0, 40, 2), 1000, 10))
    shared.ours(rows(range(0, 40, 3), 2000, 20))
    shared.check()
    # Ours splits.
    sizes(shared, SPLITS)
    plan(shared)
    assert cluster_in_process(shared.table) is not None
    assert len(ring(shared).nodes) == 4
    shared.check()
    shared.theirs(rows(range(0, 40, 5), 3000, 30))
    shared.check()
    # The JVM writes to both sides of a plan of ours, and carries it out: it merges.
    sizes(shared, MERGES)
    instant = plan(shared)
    shared.theirs(rows(range(1, 50, 2), 4000, 40))
    shared.check()
    shared.sql(f"call run_clustering(table => '{{t}}', op => 'execute', instants => '{instant}')")
    assert (ring(shared).instant, len(ring(shared).nodes)) == (instant, 1)
    shared.check()
    shared.ours(rows(range(0, 60, 3), 5000, 50))
    shared.check()
    # It writes to both sides, and ours carries the plan out: the log files of the new buckets stay.
    sizes(shared, SPLITS)
    instant = plan(shared)
    shared.theirs([*rows(range(1, 60, 4), 6000, 60), row(70, 1, 60)])
    result = cluster_in_process(shared.table)
    assert result is not None
    assert (result["groups_left_out"], len(ring(shared).nodes)) == (0, 2)
    shared.check()
    shared.theirs(rows(range(1, 60, 5), 7000, 70))
    shared.ours(rows(range(1, 60, 6), 8000, 80))
    shared.check()
    # The JVM splits, and ours goes on with its buckets.
    shared.theirs([row(4, 9000, 90)], options=NOW)
    assert len(ring(shared).nodes) == 4
    shared.check()
    shared.ours([*rows(range(0, 60, 7), 10_000, 100), row(71, 1, 100)])
    shared.ours_deletes(["k0003", "k0070"])
    shared.check()
    # Buckets that this package overwrites get other file groups, which the JVM finds.
    shared.ours([row(3, 11_000, 110), row(6, 11_000, 110)], "insert_overwrite")
    shared.theirs(rows(range(0, 60, 3), 12_000, 120))
    shared.check()
    assert compact_table(shared.table, TableCompactionSettings(delta_commits=1))
    shared.theirs(rows(range(0, 60, 4), 13_000, 130))
    shared.check()

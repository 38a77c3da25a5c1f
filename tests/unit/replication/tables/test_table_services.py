"""Table services: the source's clusterings and restores arrive, the target's own run beside them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider.exceptions import ReplicationError
from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.services.clustering import ClusteringSettings, schedule_clustering
from airflow_provider.services.clustering.clustering import cluster_in_process
from airflow_provider.services.compaction import CompactionSettings, compact
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable, increment
from tests.unit.replication.pair import Pair
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

INDEXES = ["files", "column_stats", "partition_stats", "bloom_filters", "record_index"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    made.lake.write("trips", {1: 10, 100: 5})
    made.replicate()
    yield made
    made.check_equal()
    assert_indexes_equal_a_rebuild(made.copy_of("trips"))


def cluster(table: HudiTable) -> str | None:
    instant = schedule_clustering(table, ClusteringSettings())
    if instant is not None:
        cluster_in_process(table, instant)
    return instant


def test_a_clustering_of_the_source_arrives(pair: Pair) -> None:
    for key in range(2, 5):
        pair.lake.write("trips", {key: key}, operation="bulk_insert")
    pair.replicate()
    assert cluster(pair.lake.tables["trips"])
    pair.replicate()
    pair.lake.write("trips", {1: 11, 2: 21})
    pair.replicate()


def test_a_clustering_waits_for_the_transaction_that_it_has_rewritten(pair: Pair) -> None:
    pair.replicate()
    for key in range(2, 5):
        pair.lake.write("trips", {key: key}, operation="bulk_insert")
    assert cluster(pair.lake.tables["trips"])
    first = next(
        e
        for e in pair.source.next_events(pair.replicator().status().event_id or 0)
        if e.event_type == "COMMIT_TXN"
    )
    pair.replicate(upto=first.event_id)
    assert set(pair.rows_of_target("trips")) == {1, 2, 100}
    pair.replicate()


def test_indexes_are_built_and_dropped_as_at_the_source(pair: Pair) -> None:
    table = pair.lake.tables["trips"]
    assert schedule_index(table, INDEXES)
    run_index(table)
    pair.replicate()
    assert {*pair.copy_of("trips").config.metadata_partitions} == {*INDEXES}
    early = pair.lake.begin()
    pair.lake.write("trips", {200: 1}, early)
    for fare in range(6):
        pair.lake.write("trips", {1: fare, 2 + fare: 0})
        pair.replicate()
    assert compact(pair.copy_of("trips"), CompactionSettings(max_delta_commits=2))
    pair.lake.commit(early)
    pair.replicate()
    pair.lake.write("trips", {200: 2, 201: 1})
    pair.replicate()


def test_cleaning_and_archival_of_the_target_are_its_own(pair: Pair) -> None:
    early = pair.lake.begin()
    pair.lake.write("trips", {200: 1}, early)
    for fare in range(8):
        pair.lake.write("trips", {1: fare})
    pair.replicate()
    table = pair.copy_of("trips")
    clean(table, Retention(retained=1))
    archive(table, keep_min=2, keep_max=3)
    pair.lake.commit(early)
    pair.replicate()
    for fare in range(8):
        pair.lake.write("trips", {1: fare, 200: fare})
    pair.replicate()
    assert clean(table, Retention(retained=1))
    assert archive(table, keep_min=2, keep_max=3)
    pair.lake.write("trips", {1: 1})
    pair.replicate()
    # The comparison leaves out instants that one timeline has archived.
    archive(pair.lake.tables["trips"], keep_min=2, keep_max=3)


def test_a_clean_of_the_source_waits_for_the_replication(pair: Pair) -> None:
    for fare in range(8):
        pair.lake.write("trips", {1: fare})
    clean(pair.lake.tables["trips"], Retention(retained=1))
    archive(pair.lake.tables["trips"], keep_min=2, keep_max=3)
    done = pair.replicate()
    assert done.files_copied >= 8


def test_a_file_that_is_missing_is_named_and_never_passed_over(pair: Pair) -> None:
    pair.lake.write("trips", {1: 11})
    position = pair.replicator().status().event_id
    newest = max(
        Path(pair.lake.tables["trips"].location).rglob("*.parquet"), key=lambda each: each.stat().st_mtime
    )
    kept = newest.read_bytes()
    newest.unlink()
    with pytest.raises(ReplicationError, match=newest.name):
        pair.replicate()
    failed = pair.replicator().status()
    assert newest.name in str(failed.last_error)
    assert pair.rows_of_target("trips") == {1: 10, 100: 5}
    assert failed.event_id is not None
    assert failed.event_id > (position or 0)
    newest.write_bytes(kept)
    pair.replicate()
    assert pair.replicator().status().last_error is None


def test_a_restore_of_the_source_arrives(pair: Pair) -> None:
    table = pair.lake.tables["trips"]
    pair.lake.write("trips", {2: 20})
    kept = create_savepoint(table)
    pair.lake.write("trips", {1: 99, 3: 30})
    pair.lake.write("trips", {3: 31})
    pair.replicate()
    restore(table, kept.instant)
    pair.replicate()
    assert pair.rows_of_target("trips") == {1: 10, 2: 20, 100: 5}
    pair.lake.write("trips", {1: 12})
    pair.replicate()


def test_a_restore_of_what_came_with_the_bootstrap_arrives(pair: Pair) -> None:
    table = pair.lake.tables["trips"]
    kept = create_savepoint(table)
    pair.lake.write("trips", {1: 99, 3: 30})
    schedule_index(table, ["files"])
    run_index(table)
    pair.replicate()
    shutil.rmtree(pair.copy_of("trips").location)
    pair.replicate(bootstrap=True)
    # The target keeps fewer files than the source; files that a restore shows again are deleted there.
    clean(pair.copy_of("trips"), Retention(retained=1))
    restore(table, kept.instant)
    pair.replicate()
    assert pair.rows_of_target("trips") == {1: 10, 100: 5}


def test_an_incremental_reader_of_the_target_misses_nothing_that_comes_late(pair: Pair) -> None:
    early = pair.lake.begin()
    pair.lake.write("trips", {200: 1}, early)
    pair.lake.write("trips", {1: 11})
    pair.replicate()
    table, read = pair.copy_of("trips"), []
    first = increment(table, None)
    pair.lake.write("trips", {1: 12})
    pair.replicate()
    second = increment(table, first.end)
    pair.lake.commit(early)
    pair.replicate()
    third = increment(table, second.end)
    for each in (first, second, third):
        read += each.scanner(["id", "fare"]).to_table().to_pylist()
    assert {"id": 200, "fare": 1} in read
    assert {"id": 1, "fare": 12} in read

"""Merge-on-read tables: log files come with their commit, compactions and clusterings from the source."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.services.table_compaction import (
    TableCompactionSettings,
    compact_table,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import HudiTable, increment, read_optimized
from tests.unit.concurrency.transactions.transactional_lake import rows_of
from tests.unit.replication.pair import KINDS, Pair
from tests.unit.replication.tables.test_table_services import cluster
from tests.unit.replication.test_killed import KilledError
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

ALWAYS = TableCompactionSettings(delta_commits=1)


@pytest.fixture(params=["merge-on-read", "non-blocking", "consistent hashing"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """A source and its target; the table ``trips`` has a base file or a log file in either partition."""
    made = Pair(tmp_path, **KINDS[request.param])
    made.lake.write("trips", {1: 10, 100: 5})
    made.replicate()
    return made


def data_files(table: HudiTable) -> set[str]:
    """The base and log files of all partitions, also those that no reader sees."""
    return {
        str(each.relative_to(table.location))
        for pattern in ("*.parquet", ".*.log.*")
        for each in Path(table.location).glob(f"city=*/{pattern}")
    }


def test_log_files_come_with_the_commit_and_not_before(pair: Pair) -> None:
    before = data_files(pair.copy_of("trips"))
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 11}, txn)
    assert pair.replicate().bytes_copied == 0
    assert data_files(pair.copy_of("trips")) == before
    pair.lake.commit(txn)
    assert pair.replicate().bytes_copied > 0
    assert any(".log." in each for each in data_files(pair.copy_of("trips")) - before)
    pair.check_equal()


def test_log_files_of_an_aborted_transaction_cost_no_byte(pair: Pair) -> None:
    before = data_files(pair.copy_of("trips"))
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 11, 100: 6}, txn)
    opened = pair.replicate()
    pair.lake.abort(txn)
    assert (opened.bytes_copied, pair.replicate().bytes_copied) == (0, 0)
    assert data_files(pair.copy_of("trips")) == before
    pair.check_equal()


def test_a_compaction_of_the_source_arrives(pair: Pair) -> None:
    for fare in (11, 12):
        pair.lake.write("trips", {1: fare, 2: fare})
    pair.replicate()
    assert compact_table(pair.lake.tables["trips"], ALWAYS)
    assert pair.replicate().files_copied > 0
    pair.check_equal()
    assert rows_of(read_optimized(pair.copy_of("trips")).to_table()) == {1: 12, 2: 12, 100: 5}
    pair.lake.write("trips", {1: 13})
    pair.replicate()
    pair.check_equal()


def test_a_log_file_that_is_written_beside_a_compaction_belongs_to_the_same_slice(pair: Pair) -> None:
    """Its write is requested before the new base file, or after it, and completes after the plan."""
    table = pair.lake.tables["trips"]
    pair.lake.write("trips", {1: 11})
    planned = schedule_table_compaction(table, ALWAYS)
    assert planned is not None
    pair.lake.write("trips", {1: 12})
    pair.replicate()
    pair.check_equal()
    run_table_compaction(table, planned)
    pair.replicate()
    pair.check_equal()
    assert pair.rows_of_target("trips") == {1: 12, 100: 5}


def test_a_compaction_of_the_other_partition_does_not_wait_for_an_open_transaction(pair: Pair) -> None:
    pair.lake.write("trips", {1: 11, 100: 6})
    txn = pair.lake.begin()
    pair.lake.write("trips", {100: 7}, txn)
    assert compact_table(pair.lake.tables["trips"], ALWAYS)
    pair.replicate()
    pair.check_equal()
    assert rows_of(read_optimized(pair.copy_of("trips")).to_table())[1] == 11
    pair.lake.commit(txn)
    pair.replicate()
    pair.check_equal()


def test_a_compaction_waits_for_the_commit_that_it_has_merged(pair: Pair) -> None:
    pair.lake.write("trips", {1: 11})
    pair.lake.write("trips", {1: 12})
    assert compact_table(pair.lake.tables["trips"], ALWAYS)
    begun = pair.replicator().status().event_id or 0
    first = next(e for e in pair.source.next_events(begun) if e.event_type == "COMMIT_TXN")
    pair.replicate(upto=first.event_id)
    assert pair.rows_of_target("trips") == {1: 11, 100: 5}
    pair.replicate()
    pair.check_equal()


def test_a_bootstrap_brings_slices_without_what_is_open_and_goes_on(pair: Pair) -> None:
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 11}, txn)
    pair.lake.write("trips", {100: 6})
    compact_table(pair.lake.tables["trips"], ALWAYS)
    shutil.rmtree(pair.copy_of("trips").location)
    copies = 0

    def die(name: str) -> None:
        nonlocal copies
        copies += name.startswith("copy city=")
        if copies == 2:
            raise KilledError

    with pytest.raises(KilledError):
        pair.replicator(die).run(bootstrap=True)
    pair.replicate(bootstrap=True)
    pair.check_equal()
    pair.lake.commit(txn)
    pair.replicate()
    pair.check_equal()
    assert pair.replicate(bootstrap=True).bytes_copied == 0


def test_a_restore_before_a_compaction_brings_back_the_log_files_that_the_target_has_cleaned(
    pair: Pair,
) -> None:
    table = pair.lake.tables["trips"]
    pair.lake.write("trips", {1: 11, 100: 6})
    kept = create_savepoint(table)
    compact_table(table, ALWAYS)
    pair.lake.write("trips", {1: 12})
    compact_table(table, ALWAYS)
    pair.replicate()
    before = data_files(pair.copy_of("trips"))
    clean(pair.copy_of("trips"), Retention(retained=1))
    assert any(".log." in each for each in before - data_files(pair.copy_of("trips")))
    restore(table, kept.instant)
    pair.replicate()
    pair.check_equal()
    assert pair.rows_of_target("trips") == {1: 11, 100: 6}


def test_indexes_are_kept_over_log_files_compactions_and_late_commits(pair: Pair) -> None:
    table = pair.lake.tables["trips"]
    of_keys = ["record_index"] if table.bucket_index is None else []  # a bucket's number determines it
    schedule_index(table, ["files", "column_stats", "bloom_filters", *of_keys])
    run_index(table)
    pair.replicate()
    early = pair.lake.begin()
    pair.lake.write("trips", {1: 11}, early)
    pair.lake.write("trips", {100: 6, 101: 1})
    pair.replicate()
    compact_table(table, ALWAYS)
    pair.lake.commit(early)
    pair.replicate()
    compact_table(table, ALWAYS)
    pair.lake.write("trips", {1: 12, 101: 2})
    pair.replicate()
    pair.check_equal()
    assert_indexes_equal_a_rebuild(pair.copy_of("trips"))


def test_an_incremental_reader_of_the_target_gets_each_change_once(pair: Pair) -> None:
    table = pair.copy_of("trips")
    begun = increment(table, None)
    early = pair.lake.begin()
    pair.lake.write("trips", {1: 11}, early)
    pair.lake.write("trips", {100: 6})
    pair.replicate()
    first = increment(table, begun.end)
    pair.lake.commit(early)
    pair.replicate()
    second = increment(table, first.end)
    read = [each.scanner(["id", "fare"]).to_table().to_pylist() for each in (first, second)]
    assert sorted(map(str, [*read[0], *read[1]])) == sorted(
        map(str, [{"id": 1, "fare": 11}, {"id": 100, "fare": 6}])
    )


def test_a_clustering_of_what_was_compacted_arrives(tmp_path: Path) -> None:
    pair = Pair(tmp_path, **KINDS["merge-on-read"])
    for key in range(3):
        pair.lake.write("trips", {key: key}, operation="bulk_insert")
    pair.lake.write("trips", {1: 11})
    pair.replicate()
    compact_table(pair.lake.tables["trips"], ALWAYS)
    assert cluster(pair.lake.tables["trips"])
    pair.replicate()
    pair.check_equal()
    assert len(pair.copy_of("trips").view().all_base_files()) == 1


def test_writers_of_one_bucket_arrive_in_any_order_of_their_commits(tmp_path: Path) -> None:
    pair = Pair(tmp_path, **KINDS["non-blocking"])
    pair.replicate()
    early, late = pair.lake.begin(), pair.lake.begin()
    pair.lake.write("trips", {1: 10, 3: 3}, early)
    pair.lake.write("trips", {1: 20}, late)
    pair.lake.commit(late)
    pair.replicate()
    pair.check_equal()
    assert pair.rows_of_target("trips") == {1: 20}
    pair.lake.commit(early)
    pair.replicate()
    pair.check_equal()
    assert pair.rows_of_target("trips") == {1: 20, 3: 3}
    compact_table(pair.lake.tables["trips"], ALWAYS)
    pair.replicate()
    pair.check_equal()
    assert pair.rows_of_target("trips") == {1: 20, 3: 3}

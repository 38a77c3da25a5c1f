"""The JVM's Hudi has planned to split and merge buckets, and has written rows to the old and the new buckets.

Two partitions of the table have an empty bucket, which is not in the plan.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.concurrency import rollback
from airflow_provider.concurrency.conflicts import clustered
from airflow_provider.concurrency.write import committing
from airflow_provider.exceptions import NoSuchInstantError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import cluster_in_process
from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.bucket_index import bucket_index_of, load_hashing_metadata
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.reading.slices import file_slices
from tests.ingestion_contract.lake import in_order
from tests.ingestion_contract.merge_on_read import CONSISTENT

PLANNED = Path(__file__).parents[3] / "fixtures" / "real_hudi" / "mor_resizing_planned.zip"
ALWAYS = TableCompactionSettings(delta_commits=1)
OPERATIONS = ["upsert", "delete", "insert_overwrite", "insert_overwrite_table"]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    with ZipFile(PLANNED) as packed:
        packed.extractall(tmp_path)
    return change_options(HudiTable.open(str(tmp_path)), CONSISTENT)


def rows(table: HudiTable) -> pa.Table:
    return snapshot(HudiTable.open(table.location)).to_table()


def listed(table: HudiTable) -> list[dict[str, Any]]:
    return in_order(rows(table).to_pylist())


def pending(table: HudiTable) -> str:
    """The requested time of the JVM's plan, which must be there."""
    (plan,) = table.timeline().pending()
    return plan.requested_time


def planned(table: HudiTable) -> set[FileGroupId]:
    (plan,) = table.timeline().pending()
    return set(clustered(table.timeline(), plan))


def rows_of_the_empty_bucket(table: HudiTable) -> pa.Table:
    """New rows of a partition that go into its bucket without files."""
    index = bucket_index_of(table.config)
    ring = load_hashing_metadata(table.storage, table.view(), "part=p0")
    assert index is not None
    assert ring is not None
    there = {each.file_id for each in file_slices(table) if each.partition_path == "part=p0"}
    (empty,) = [node for node in ring.nodes if node.file_id not in there]
    keys = [f"new{n}" for n in range(20)]
    hashes = index.on(table.storage, table.view(), ["part=p0"]).hashes(pa.array(keys)).tolist()
    own = [key for key, hash_ in zip(keys, hashes, strict=True) if ring.nodes[ring.number_of(hash_)] == empty]
    assert own
    like = next(row for row in rows(table).to_pylist() if row["part"] == "p0")
    return pa.Table.from_pylist([{**like, "id": key} for key in own], rows(table).schema)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_write_to_the_planned_buckets_is_refused_by_the_plans_name(
    table: HudiTable, operation: str
) -> None:
    before, plan = listed(table), pending(table)
    with pytest.raises(WriteConflictError, match="CLUSTER") as refused:
        ingest_arrow(table, rows(table), operation)
    assert plan in str(refused.value)
    assert "on_pending_clustering='wait'" in str(refused.value)
    assert (listed(table), pending(table)) == (before, plan)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_write_may_wait_until_the_plan_has_ended(
    table: HudiTable, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, waited, waits = listed(table), list[str](), committing.wait_for_clustering

    def ends_meanwhile(of: HudiTable, instant: str, timeout: float) -> bool:
        assert not waits(of, instant, 0.0)
        waited.append(instant)
        rollback(of, instant)
        return waits(of, instant, timeout)

    monkeypatch.setattr(committing, "wait_for_clustering", ends_meanwhile)
    plan, changed = pending(table), rows(table)
    ingest_arrow(table, changed, operation, on_pending_clustering="wait", on_conflict="rebase")
    assert waited == [plan]
    assert listed(table) == ([] if operation == "delete" else before)
    assert table.timeline().pending() == ()


def test_rows_of_an_empty_bucket_of_the_same_partition_are_written(table: HudiTable) -> None:
    before, plan = listed(table), pending(table)
    new = rows_of_the_empty_bucket(table)
    ingest_arrow(table, new, "upsert")
    assert listed(table) == in_order([*before, *new.to_pylist()])
    assert pending(table) == plan


@pytest.mark.parametrize("service", ["compaction", "log compaction"])
def test_compactions_leave_the_planned_buckets_out(table: HudiTable, service: str) -> None:
    new = rows_of_the_empty_bucket(table)
    for _ in range(2):
        ingest_arrow(table, new.slice(0, 1), "upsert")
    ingest_arrow(table, new.slice(0, 1), "upsert")
    before, plan, left = listed(table), pending(table), planned(table)
    shown = {each.file_group: each for each in file_slices(table)}
    assert left <= shown.keys()
    if service == "compaction":
        (done,) = compact_table(table, ALWAYS)
    else:
        (done,) = compact_logs(table, LogCompactionSettings(blocks=2))
    assert (done.file_groups, done.partitions) == (1, ("part=p0",))
    after = {each.file_group: each for each in file_slices(table)}
    assert {each for each in shown if shown[each] != after[each]} == shown.keys() - left
    assert (listed(table), pending(table)) == (before, plan)


def test_only_the_jvm_executes_its_plan(table: HudiTable) -> None:
    before, plan = listed(table), pending(table)
    with pytest.raises(NoSuchInstantError, match=plan):
        cluster_in_process(table, plan)
    assert (listed(table), pending(table)) == (before, plan)


def test_a_rollback_of_the_plan_leaves_each_row_once(table: HudiTable) -> None:
    """The rows that the JVM has written to the new buckets as well are in the old ones."""
    before = rows(table)
    rollback(table, pending(table))
    theirs = pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.location).build().read())
    for found in (rows(table), theirs):
        assert sorted(found["id"].to_pylist()) == sorted(before["id"].to_pylist())
    ingest_arrow(table, before, "upsert")
    compact_table(table, ALWAYS)
    assert listed(table) == in_order(before.to_pylist())
    assert len(file_slices(table)) == 4

"""The merge rules of a table's properties, in this process."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import preview_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table import snapshot
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.reading.incremental import increment
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake
from tests.ingestion_contract.merge_semantics import *  # noqa: F403
from tests.ingestion_contract.merge_semantics import SCHEMA, START, row, set_properties, without


def test_a_rebase_merges_as_the_table_says(started: Any) -> None:
    table = started(hoodie__table__partial__update__mode="IGNORE_DEFAULTS")
    batch = [row("1", None, 30, name="late"), row("2", 9), row("3", 1, 11, _hoodie_is_deleted=True)]
    meanwhile = [row("1", 7, 20, name=None), row("3", 1, 12)]
    lock = MeetingLock(lambda: table.ingest("upsert", meanwhile))
    result = ingest_arrow(table.location, table.arrow(batch), "upsert", lock=lock, on_conflict="rebase")
    assert result["rebases"] == 1
    table.check_now(
        [row("1", 7, 30, name="late"), row("2", 9), row("3", 1, 12), *without(START, "1", "2", "3")]
    )


@pytest.mark.parametrize("operation", ["upsert", "insert", "delete", "insert_overwrite"])
def test_buckets_of_a_bucket_index_are_read_and_not_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    table = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts")
    with monkeypatch.context() as patched:
        bucket = "00000003-2037-498d-82f2-0a82039771ff-0"
        patched.setattr("airflow_provider.ingestion.file_groups.file_group_plan.new_file_id", lambda: bucket)
        table.ingest("bulk_insert", START)
    with pytest.raises(UnsupportedTableError, match=r"00000003-2037.*is a bucket"):
        table.ingest(operation, [row("1", 1)])
    table.check_now(START)
    with pytest.raises(UnsupportedTableError, match=r"hoodie.index.type=BUCKET"):
        preview_clustering(table.table, ClusteringSettings())
    # Writes into a partition without buckets work as usual.
    table.ingest(operation, [row("9", 1, part="b")])


def test_no_file_group_of_ours_looks_like_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([UUID("00000007-2037-498d-82f2-0a82039771ff"), UUID("0000000a-2037-498d-82f2-0a82039771ff")])
    monkeypatch.setattr("airflow_provider.table.file_names.uuid.uuid4", lambda: next(drawn))
    assert new_file_id().startswith("0000000a-")


def test_folders_that_hold_no_values_are_not_skipped_by_value(started: Any) -> None:
    table = started()
    table.ingest("upsert", [row("6", part="b")])
    asked = [("part", "=", "b")]
    assert len(table.table.base_files(where=asked)) == 1
    set_properties(table, {"hoodie.table.keygenerator.type": "TIMESTAMP"})
    assert len(table.table.base_files(where=asked)) == 2
    assert snapshot(table.table, where=asked).to_table().to_pylist() == [row("6", part="b")]


def test_rows_that_do_not_say_which_commit_wrote_them_have_no_increments(started: Any) -> None:
    table = started()
    set_properties(table, {"hoodie.populate.meta.fields": "false"})
    with pytest.raises(UnsupportedTableError, match=r"populate.meta.fields=false.*nobody can tell"):
        increment(table.table)


def test_partition_columns_that_the_files_lack_are_read_off_the_folders_and_not_written(started: Any) -> None:
    table = started()
    set_properties(table, {"hoodie.datasource.write.drop.partition.columns": "true"})
    before = snapshot(table.table).to_table().sort_by("id").to_pylist()
    with pytest.raises(UnsupportedTableError, match=r"drop\.partition\.columns=true and cannot be written"):
        table.ingest("upsert", [row("6", part="b")])
    assert snapshot(table.table).to_table().sort_by("id").to_pylist() == before

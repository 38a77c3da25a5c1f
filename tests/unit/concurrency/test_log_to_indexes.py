"""What is logged to the indexes: which files an instant has deleted, and how far its records are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.indexes import state_in_indexes
from airflow_provider.concurrency.indexes.log_to_indexes import _deleted
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table.metadata_table import metadata_storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State

from .another_hudi_writer import create_trips, rows

OF_SF = {"city=sf": {"successDeleteFiles": ["s3://lake/trips/city=sf/a.parquet", "b.parquet"]}}
OF_NONE = {"": {"successDeleteFiles": ["c.parquet"]}, "city=la": {"successDeleteFiles": None}}


@pytest.mark.parametrize(
    ("record", "paths"),
    [
        ({"partitionMetadata": OF_SF}, ["city=sf/a.parquet", "city=sf/b.parquet"]),
        ({"partitionMetadata": OF_NONE, "hoodieRestoreMetadata": None}, ["c.parquet"]),
        ({"partitionMetadata": None}, []),
        (
            {
                "hoodieRestoreMetadata": {
                    "1": [{"partitionMetadata": OF_SF}],
                    "2": [{"partitionMetadata": OF_NONE}],
                }
            },
            ["city=sf/a.parquet", "city=sf/b.parquet", "c.parquet"],
        ),
    ],
    ids=["a clean or a rollback", "without partitions", "nothing", "a restore"],
)
def test_paths_of_what_was_deleted(record: dict[str, Any], paths: list[str]) -> None:
    assert list(_deleted(record)) == paths


def test_records_of_an_instant_are_completed_in_flight_or_not_there(tmp_path: Path) -> None:
    table = create_trips(str(tmp_path / "trips"))
    planned = schedule_index(table, ["files"])
    assert planned is not None
    run_index(table, planned)
    ingest_arrow(table, rows({3: 3.0}))
    entry = CommitLog(table.storage).newest()
    assert entry is not None
    of_entry = (table.storage, entry.instant, entry.completion_time)
    assert state_in_indexes(*of_entry) is State.COMPLETED
    metadata_table = metadata_storage(table.storage)
    completed = Instant(entry.instant, Action.DELTA_COMMIT, State.COMPLETED, entry.completion_time)
    metadata_table.delete(instant_path(completed))
    assert state_in_indexes(*of_entry) is State.INFLIGHT
    metadata_table.delete(instant_path(Instant(entry.instant, Action.DELTA_COMMIT, State.INFLIGHT)))
    assert state_in_indexes(*of_entry) is None

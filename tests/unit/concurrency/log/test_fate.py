"""The fate of an instant: by the commit log, and by the archived timeline once the log is trimmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import begin_write, rollback
from airflow_provider.concurrency.log import CommitLog, Fate, fate_of
from airflow_provider.exceptions import InstantRolledBackError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline import newest_archived

SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])


def commit(table: HudiTable, key: int = 0) -> str:
    return str(ingest_arrow(table, pa.table({"id": [key]}, schema=SCHEMA))["instant"])


def roll_one_back(table: HudiTable) -> str:
    with begin_write(table, operation="UPSERT") as writer:
        rollback(table, writer.instant, reason="a test")
    return writer.instant


def fate(table: HudiTable, instant: str) -> Fate | None:
    return fate_of(table.storage, CommitLog(table.storage), instant)


def forget(table: HudiTable, *instants: str) -> None:
    """Commit and archive until the log no longer has entries of the instants."""
    settings: dict[str, Any] = {"keep_min": 1, "keep_max": 2, "dead_writer_seconds": 0}
    for key in range(100):
        commit(table, key)
        archive(table, **settings)
        if not any(list(CommitLog(table.storage).about(instant)) for instant in instants):
            return
    raise AssertionError("the commit log is never trimmed")


def test_what_the_log_knows(table: HudiTable) -> None:
    first, dead, last = commit(table), roll_one_back(table), commit(table)
    with begin_write(table, operation="UPSERT") as writer:
        assert fate(table, writer.instant) is None
        rollback(table, writer.instant, reason="a test")
    assert [fate(table, each) for each in (first, dead, last)] == [Fate.COMPLETED, Fate.DEAD, Fate.COMPLETED]


def test_a_savepoint_has_the_requested_time_of_its_commit(table: HudiTable) -> None:
    kept, undone = commit(table), commit(table)
    create_savepoint(table, kept)
    assert fate(table, kept) is Fate.COMPLETED
    restore(table, kept)
    assert (fate(table, kept), fate(table, undone)) == (Fate.COMPLETED, Fate.UNDONE)


def test_what_was_archived_stands_and_what_is_not_in_the_archive_is_dead(table: HudiTable) -> None:
    stands, dead = commit(table), roll_one_back(table)
    forget(table, stands, dead)
    assert (fate(table, stands), fate(table, dead)) == (Fate.ARCHIVED, Fate.DEAD)
    newest = newest_archived(table.storage)
    assert fate(table, newest) in (Fate.ARCHIVED, Fate.COMPLETED)
    assert fate(table, newest + "0") is None, "nothing is known of what is later than the archive"


def test_a_planned_index_is_dead_once_it_is_dropped(table: HudiTable) -> None:
    commit(table)
    plan = schedule_index(table, ["files", "column_stats"])
    assert plan is not None
    assert fate(table, plan) is None
    commit(table, 1)
    assert fate(table, plan) is None, "a commit carries the planned indexes on"
    drop_index(table, ["column_stats"])
    assert fate(table, plan) is None, "one of its indexes is left"
    drop_index(table, ["files"])
    assert fate(table, plan) is Fate.DEAD


def test_who_misses_its_files_is_told_that_its_rollback_is_archived(table: HudiTable) -> None:
    commit(table)
    writer = begin_write(table, operation="UPSERT")
    rollback(table, writer.instant, reason="a test")
    forget(table, writer.instant)
    with pytest.raises(InstantRolledBackError, match="so long ago that it is archived") as error, writer:
        table.storage.read("0.parquet")
    assert error.value.details["instant"] == writer.instant

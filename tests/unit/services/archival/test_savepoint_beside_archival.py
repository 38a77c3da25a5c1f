"""A savepoint of a commit, after a commit that completed later was archived: other readers show both."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.exceptions import SnapshotUnavailableError, TableError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, pending_cleans, plan_clean, schedule_clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.cleans import planned_files
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import LakeTable
from tests.unit.services.archival.trips import commits, create, ingest, on_timeline

NOW_ONLY = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create(tmp_path)


def completed_late_and_superseded(table: HudiTable, is_indexed: bool) -> str:
    """Make a commit, and a later commit that is archived, and whose file a clean is about to delete.

    :return: the requested time of the first; the table had the trips 0 and 1 then.
    """
    ingest(table, {0: 0.0}, operation="bulk_insert")
    if is_indexed:
        run_index(table, schedule_index(table, ["files"]) or "")
    before: list[str] = []
    lock = MeetingLock(lambda: before.append(ingest(table, {1: 1.0}, operation="bulk_insert")["instant"]))
    late = ingest(table, {2: 2.0}, operation="bulk_insert", lock=lock)["instant"]
    ingest(table, {2: 3.0})
    ingest(table, {5: 5.0}, operation="bulk_insert")
    assert [late in file.path for file in plan_clean(table, NOW_ONLY).files] == [True]
    schedule_clean(table, NOW_ONLY)
    archive(table, keep_min=3, keep_max=4)
    assert late < on_timeline(table)[0] == before[0]
    return before[0]


def ours_as_of(table: HudiTable, moment: str) -> dict[int, float]:
    return {row["id"]: row["fare"] for row in LakeTable(table.location).rows(moment)}


def theirs_as_of(table: HudiTable, moment: str) -> dict[int, float]:
    """The rows that hudi-rs shows."""
    return {row["id"]: row["fare"] for row in LakeTable(table.location)._theirs(as_of=moment)}


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_savepoint_is_made_of_what_all_readers_tell_whatever_was_archived(
    table: HudiTable, is_indexed: bool
) -> None:
    past = completed_late_and_superseded(table, is_indexed)
    table = HudiTable.open(table.location)
    assert ours_as_of(table, past) == {0: 0.0, 1: 1.0} != theirs_as_of(table, past)
    with pytest.raises(SnapshotUnavailableError, match="which completed later, was archived"):
        create_savepoint(table, past)
    (cleaner,) = pending_cleans(table)
    for path in planned_files(table.timeline().plan(Instant(cleaner, Action.CLEAN, State.REQUESTED)) or {}):
        table.storage.delete(path)
    if is_indexed:  # hudi-rs compares these times
        with pytest.raises(SnapshotUnavailableError, match="which completed later, was archived"):
            create_savepoint(table, past)
    clean(table, NOW_ONLY)
    assert ours_as_of(table, past) == theirs_as_of(table, past) == {0: 0.0, 1: 1.0}
    assert create_savepoint(table, past).files == len(table.base_files(past))
    commits(table, 6, first=20)
    clean(table, NOW_ONLY)
    archive(table, keep_min=1, keep_max=2)
    assert ours_as_of(table, past) == theirs_as_of(table, past) == {0: 0.0, 1: 1.0}
    with pytest.raises(TableError, match="which completed later, was archived"):
        restore(table, past)

"""Queries of the past after archival: answers, refusals, and their reasons."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import NoSuchInstantError, SnapshotUnavailableError
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.archived_timeline import HISTORY_FOLDER, archived_commits
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.unit.services.archival.trips import commits, create, fares, ingest, on_timeline

NOW_ONLY = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create(tmp_path)


def write(
    table: HudiTable, states: dict[str, dict[int, float]], wanted: dict[int, float], **how: Any
) -> None:
    """Ingest, and record the table's rows after the commit."""
    instant = ingest(table, wanted, **how)["instant"]
    states[instant] = fares(table)


def fares_as_of(table: HudiTable, moment: str) -> dict[int, float]:
    rows = snapshot(HudiTable.open(table.location), moment).to_table().to_pylist()
    found = {row["id"]: row["fare"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("how", ["insert_overwrite", "cluster"])
def test_what_an_archived_commit_replaced_is_not_missed(table: HudiTable, how: str) -> None:
    ingest(table, {0: 0.0, 1: 0.0}, operation="bulk_insert")
    ingest(table, {2: 0.0}, operation="bulk_insert")
    if how == "cluster":
        Clustering(table, "city=sf", outputs=1).commit()
    else:
        ingest(table, {0: 0.5, 1: 0.5}, operation=how)
    states: dict[str, dict[int, float]] = {}
    for number in range(6):
        write(table, states, {1: 2.0 + number})
    clean(table, Retention("KEEP_LATEST_COMMITS", 2))
    for number in range(3):
        write(table, states, {1: 20.0 + number})
    archive(table, keep_min=4, keep_max=5)
    left = [each.requested_time for each in table.timeline().commits()]
    assert len(left) == 4
    for instant in left:
        assert fares_as_of(table, instant) == states[instant]
    create_savepoint(table, left[1])
    restore_to = create_savepoint(table).instant
    assert restore_to == left[-1]
    ingest(table, {1: 99.0})
    restore(table, restore_to)
    assert fares(table) == states[restore_to]


def overtaken(table: HudiTable) -> tuple[str, str]:
    """An upsert that was requested first, and completes later than another one, on which it is merged."""
    ingest(table, {0: 0.0})
    before: list[str] = []
    lock = MeetingLock(lambda: before.append(ingest(table, {0: 1.0})["instant"]))
    late = ingest(table, {0: 2.0}, lock=lock, on_conflict="rebase")
    assert (late["action"], late["rebases"]) == ("replacecommit", 1)
    assert late["instant"] < before[0]
    return before[0], late["instant"]


def test_a_slice_that_an_archived_rebase_took_out_is_not_missed(table: HudiTable) -> None:
    before, late = overtaken(table)
    states = {before: {0: 1.0}}
    for number in (7, 8):
        write(table, states, {number: 0.0}, operation="bulk_insert")
    clean(table, NOW_ONLY)
    write(table, states, {9: 0.0}, operation="bulk_insert")
    archive(table, keep_min=4, keep_max=5)
    assert late not in on_timeline(table)
    for instant, rows in states.items():
        if instant == before:  # its slice is deleted
            with pytest.raises(SnapshotUnavailableError, match=r"clean \d+ deleted city=sf/.*" + before):
                fares_as_of(table, instant)
            with pytest.raises(
                SnapshotUnavailableError, match=f"{late}, which completed later, was archived"
            ):
                create_savepoint(table, instant)
        else:
            assert fares_as_of(table, instant) == rows
            create_savepoint(table, instant)


def test_a_commit_that_completed_later_and_was_archived_is_hidden(table: HudiTable) -> None:
    ingest(table, {0: 0.0}, operation="bulk_insert")
    before: list[str] = []
    lock = MeetingLock(lambda: before.append(ingest(table, {1: 1.0}, operation="bulk_insert")["instant"]))
    late = ingest(table, {2: 2.0}, operation="bulk_insert", lock=lock)["instant"]
    commits(table, 2, first=5)
    archive(table, keep_min=3, keep_max=4)
    assert late < on_timeline(table)[0] == before[0]
    assert fares_as_of(table, before[0]) == {0: 0.0, 1: 1.0}
    (moment,) = (i.completion_time for i in archived_commits(table.storage) if i.requested_time == late)
    assert fares_as_of(table, moment or "") == {0: 0.0, 1: 1.0, 2: 2.0}


def test_a_file_of_a_commit_that_a_restore_has_undone_is_not_missed(table: HudiTable) -> None:
    """A clean deleted the file, a restore undid its commit, and archival removed its instant."""
    states: dict[str, dict[int, float]] = {}
    first = commits(table, 2)[-1]
    kept: list[str] = []
    lock = MeetingLock(lambda: kept.append(ingest(table, {8: 0.0}, operation="bulk_insert")["instant"]))
    undone = ingest(table, {9: 2.0}, operation="bulk_insert", lock=lock)["instant"]
    ingest(table, {9: 3.0})
    clean(table, NOW_ONLY)
    assert first < undone < kept[0]
    restore(table, kept[0])
    for number in (4, 5):
        write(table, states, {number: 0.0}, operation="bulk_insert")
    archive(table, keep_min=3, keep_max=4, dead_writer_seconds=0)
    assert undone < on_timeline(table)[0] == kept[0]
    for instant, rows in states.items():
        assert fares_as_of(table, instant) == rows
    restore(table, create_savepoint(table, kept[0]).instant)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_file_of_an_archived_commit_that_was_superseded_later_is_missed(
    table: HudiTable, is_known: bool
) -> None:
    """This holds even if the archive is lost, and nothing says whether the file belongs to a commit."""
    commits(table, 1, first=9)
    first = ingest(table, {0: 0.0}, operation="bulk_insert")["instant"]
    past = ingest(table, {1: 0.0}, operation="bulk_insert")["instant"]
    ingest(table, {0: 1.0})
    clean(table, NOW_ONLY)
    for number in (5, 6):
        ingest(table, {number: 0.0}, operation="bulk_insert")
    archive(table, keep_min=4, keep_max=5)
    assert on_timeline(table)[0] == past
    if not is_known:
        shutil.rmtree(Path(table.location) / HISTORY_FOLDER)
    with pytest.raises(SnapshotUnavailableError, match=rf"clean \d+ deleted city=sf/.*{first}"):
        fares_as_of(table, past)


def test_before_the_first_commit_there_is_nothing(table: HudiTable) -> None:
    commits(table, 1)
    with pytest.raises(NoSuchInstantError, match="no commit had completed"):
        fares_as_of(table, "20000101000000000")


def test_with_the_default_options_the_newest_commit_is_always_told(table: HudiTable) -> None:
    """The table has 150 commits, a clustering after every ninth, and a clean after each commit."""
    told: dict[str, dict[int, float]] = {}
    expected: dict[int, float] = {}
    refused = []
    for number in range(150):
        ingest(table, {number % 13: float(number)}, small_file_limit=0)
        expected[number % 13] = float(number)
        if number % 9 == 8:
            Clustering(table, "city=sf", outputs=1).commit()
            clean(table)
        newest = table.timeline().commits()[-1].requested_time
        told[newest] = dict(expected)
        try:
            assert fares_as_of(table, newest) == expected
        except SnapshotUnavailableError as error:
            refused.append(f"{number}: {error}")
    assert refused == []
    assert [*archived_commits(table.storage)], "it was archived meanwhile"
    assert fares(table) == expected


def test_where_nothing_is_suspicious_no_metadata_is_read_in_the_archive(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(table, 6)
    archive(table, keep_min=2, keep_max=3)
    newest = table.timeline().commits()[-1].requested_time
    asked = []
    columns = "airflow_provider.table.timeline.archived_timeline._rows_in"
    from airflow_provider.table.timeline import archived_timeline

    read = archived_timeline._rows_in

    def watched(storage: Storage, file: object, wanted_columns: list[str], wanted: object) -> object:
        asked.append(tuple(wanted_columns))
        return read(storage, file, wanted_columns, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(columns, watched)
    fares_as_of(table, newest)
    assert asked
    assert not any("metadata" in each for each in asked)

"""A cleaner dies after its deletions, before it has logged them: the index `files` still lists the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.metastore import ValidWriteIdList
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, pending_cleans, plan_clean, schedule_clean
from airflow_provider.services.orphans.found_files import there_and_gone
from airflow_provider.services.restore import restore
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, now
from tests.ingestion_contract.interleaving import Clustering
from tests.unit.services.archival.trips import commits, create, fares, ingest, on_timeline

NOW_ONLY = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)
ONE = {"keep_min": 1, "keep_max": 2}


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    """A table with four trips in four file groups, and the index `files`."""
    table = create(tmp_path)
    commits(table, 1)
    run_index(table, schedule_index(table, ["files"]) or "")
    ingest(table, {1: 1.0}, operation="bulk_insert")
    return HudiTable.open(table.location)


def clustered(table: HudiTable) -> str:
    """Replace both file groups by a clustering; two commits follow."""
    clustering = Clustering(table, "city=sf", outputs=1)
    clustering.commit()
    for number in (2, 3):
        ingest(table, {number: float(number)}, operation="bulk_insert")
    return clustering.instant or ""


def cleaner_dies(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a clean that has deleted its files, and has not completed."""
    (instant,) = pending_cleans(table) or [schedule_clean(table, NOW_ONLY)]
    put = Storage.put

    def killed(storage: Storage, path: str, content: bytes) -> None:
        if path.endswith(f"{instant}.avro"):
            raise KeyboardInterrupt
        put(storage, path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            clean(table, NOW_ONLY)
    return instant or ""


def test_a_replacecommit_stays_while_a_clean_of_what_it_replaced_is_unfinished(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = clustered(table)
    before = fares(table)
    cleaner = cleaner_dies(table, monkeypatch)
    plan = archive(table, **ONE)
    assert f"which {replaced} replaced" in str(plan.held_by)
    assert f"clean {cleaner}" in str(plan.held_by)
    assert fares(table) == before
    assert ingest(table, {0: 7.0})["rows_updated"] == 1
    clean(table, NOW_ONLY)
    assert replaced in [each.requested_time for each in archive(table, **ONE).instants]
    assert fares(table) == {**before, 0: 7.0}


@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_another_hudi_writers_clean_holds_it_as_well(table: HudiTable, state: State) -> None:
    replaced = clustered(table)
    before, plan = fares(table), plan_clean(table, NOW_ONLY)
    requested = now()
    for each in {State.REQUESTED, state}:
        content = plan.to_avro(table.storage) if each is State.REQUESTED else b""
        table.storage.put(instant_path(Instant(requested, Action.CLEAN, each)), content)
    for file in plan.files:
        table.storage.delete(file.path)
    held = archive(table, **ONE).held_by
    assert f"which {replaced} replaced" in str(held)
    assert fares(table) == before


def lose_the_answer(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a clean that has deleted a file, and lost the answer; return the file."""
    doomed = plan_clean(table, NOW_ONLY).files[0].path
    delete, stat = Storage.delete, Storage.stat

    def deleted(storage: Storage, path: str) -> bool:
        found = delete(storage, path)
        if path == doomed:
            raise ConnectionError("the answer is lost")
        return found

    def unknown(storage: Storage, path: str) -> object:
        if path == doomed:
            raise ConnectionError("nobody answers")
        return stat(storage, path)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "delete", deleted)
        patched.setattr(Storage, "stat", unknown)
        (result,) = clean(table, NOW_ONLY)
    assert result.failed == 1
    assert table.storage.stat(doomed) is None
    return doomed


def test_a_file_that_is_gone_and_listed_holds_it_until_the_next_clean(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = clustered(table)
    before = fares(table)
    gone = lose_the_answer(table, monkeypatch)
    held = archive(table, **ONE).held_by
    assert f"which {replaced} replaced, is not cleaned yet" in str(held)
    assert fares(table) == before
    assert [file.path for file in plan_clean(table, NOW_ONLY).files] == [gone]
    clean(table, NOW_ONLY)
    assert plan_clean(table, NOW_ONLY).files == ()
    assert replaced in [each.requested_time for each in archive(table, **ONE).instants]
    assert fares(table) == before


def test_a_clean_heals_a_table_that_was_archived_past_such_a_file(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions of this package archived so: no reader could open the table any more."""
    replaced = clustered(table)
    before = fares(table)
    lose_the_answer(table, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr("airflow_provider.services.archival._replaced_bounds", lambda *_: ())
        assert replaced in [each.requested_time for each in archive(table, **ONE).instants]
    with pytest.raises(FileNotFoundError):
        fares(table)
    clean(table, NOW_ONLY)
    assert fares(table) == before


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_file_of_which_a_clean_does_not_know_that_it_is_gone_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_indexed: bool
) -> None:
    table = create(tmp_path)
    past = commits(table, 1)[-1]
    if is_indexed:
        run_index(table, schedule_index(table, ["files"]) or "")
        table = HudiTable.open(table.location)
    commits(table, 1)
    lose_the_answer(table, monkeypatch)
    with pytest.raises(SnapshotUnavailableError, match=r"clean \d+ deleted"):
        table.base_files(past)


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_slice_that_a_hidden_transaction_superseded_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_indexed: bool
) -> None:
    """An older slice of the same file group still exists; readers do not mistake it for the missing one."""
    table = create(tmp_path)
    commits(table, 1)
    if is_indexed:
        run_index(table, schedule_index(table, ["files"]) or "")
        table = HudiTable.open(table.location)
    for write_id in (1, 2):
        ingest(table, {0: float(write_id)}, txn_id=write_id, write_id=write_id)
    older = ValidWriteIdList(None, 1)
    assert snapshot(table, valid_write_ids=older).to_table()["fare"].to_pylist() == [1.0]
    doomed = [file.path for file in plan_clean(table, NOW_ONLY).files]
    assert len(doomed) == 2
    cleaner_dies(table, monkeypatch)
    first, second = sorted(doomed, key=lambda path: path.rpartition("_")[2])
    table.storage.put(first, b"this one is not deleted yet")
    with pytest.raises(SnapshotUnavailableError, match=r"clean \d+ deleted " + second):
        table.base_files(valid_write_ids=older)


def test_a_superseded_slice_that_is_gone_and_listed_goes_with_the_next_clean(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(table, {0: 1.0})
    gone = lose_the_answer(table, monkeypatch)
    assert [file.path for file in plan_clean(table, NOW_ONLY).files] == [gone]
    clean(table, NOW_ONLY)
    assert plan_clean(table, NOW_ONLY).files == ()


def test_a_file_that_is_gone_and_listed_supersedes_nothing(table: HudiTable) -> None:
    """A live file stays, even if the index does not list it."""
    newest = ingest(table, {0: 1.0})
    (lost,) = [each for each in table.base_files() if each.instant == newest["instant"]]
    table.storage.delete(lost.path)
    assert plan_clean(table, NOW_ONLY).files == ()


def test_what_a_restore_has_undone_is_not_listed_any_more(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean has deleted a file of an undone commit without recording that."""
    kept = ingest(table, {8: 1.0}, operation="bulk_insert")["instant"]
    before = fares(table)
    undone = [ingest(table, {9: fare}, small_file_limit=0)["instant"] for fare in (2.0, 3.0)]
    assert undone[0] in lose_the_answer(table, monkeypatch)
    restore(table, kept)
    assert fares(table) == before
    for number in range(2, 7):
        ingest(table, {number: float(number)}, operation="bulk_insert")
    before = fares(table)
    archive(table, dead_writer_seconds=0, **ONE)
    assert min(on_timeline(table)) > max(undone), "it is over"
    assert fares(table) == before


def test_what_an_earlier_restore_left_in_the_index_holds_archival_until_the_next_clean(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions of this package looked for files of an undone commit only on storage."""
    kept = ingest(table, {8: 1.0}, operation="bulk_insert")["instant"]
    undone = [ingest(table, {9: fare}, small_file_limit=0)["instant"] for fare in (2.0, 3.0)]
    lose_the_answer(table, monkeypatch)
    with monkeypatch.context() as patched:
        there = "airflow_provider.services.restore.there_and_gone"
        patched.setattr(there, lambda storage: (there_and_gone(storage)[0], []))
        restore(table, kept)
    for number in range(2, 7):
        ingest(table, {number: float(number)}, operation="bulk_insert")
    before = fares(table)
    held = archive(table, dead_writer_seconds=0, **ONE).held_by
    assert held == f"{undone[0]} was undone, and the index `files` may list files of it until the next clean"
    assert fares(table) == before
    clean(table, NOW_ONLY)
    archive(table, dead_writer_seconds=0, **ONE)
    assert min(on_timeline(table)) > max(undone)
    assert fares(table) == before


def test_a_file_that_goes_while_a_clean_is_unfinished_is_not_promised_to_a_snapshot_of_the_past(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = table.timeline().commits()[-1].requested_time
    clustered(table)
    cleaner = cleaner_dies(table, monkeypatch)
    with pytest.raises(SnapshotUnavailableError, match=f"clean {cleaner} "):
        table.base_files(past)

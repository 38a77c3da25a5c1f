"""A rebase stages the index records of a write again, beside readers."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency.commit import commit_point
from airflow_provider.concurrency.indexes.log_to_indexes import drop_staged
from airflow_provider.concurrency.log import LogEntry
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.files.log_file import LogFileName
from airflow_provider.table.metadata_table.reader import metadata_storage
from airflow_provider.table.storage.storage import FileStatus, Storage
from airflow_provider.table.timeline.instant import Action
from tests.ingestion_contract.interleaving import crossing
from tests.unit.indexing.jvm import rows
from tests.unit.indexing.under_shared_lock import ALL, SharedLock
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


@pytest.fixture
def indexed(table: HudiTable) -> HudiTable:
    ingest_arrow(table, rows([4, 5, 6]), "bulk_insert", small_file_limit=0)
    schedule_index(table, ALL)
    run_index(table)
    return HudiTable.open(table.location)


def log_files(table: HudiTable) -> list[LogFileName]:
    storage = metadata_storage(table.storage)
    names = (each.name for partition in ALL for each in storage.list(partition))
    return [name for name in map(LogFileName.parse, names) if name is not None]


@contextmanager
def after_listing(folder: str, other: Callable[[], object]) -> Iterator[None]:
    """A context in which another process acts once, when this thread has listed a metadata table's folder."""
    here, list_ = threading.get_ident(), Storage.list
    waiting = [other]

    def listed(storage: Storage, path: str, *, recursive: bool = False) -> list[FileStatus]:
        found = list_(storage, path, recursive=recursive)
        if waiting and path == folder and threading.get_ident() == here:
            waiting.pop()()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "list", listed)
        yield
    assert not waiting, "the folder was never listed"


def rebased(table: HudiTable, meanwhile: Callable[[], object]) -> None:
    """An upsert of two file groups, which another write replaces by one: it stages fewer records again."""

    def overtake() -> None:
        ingest_arrow(table, rows([9]), "insert_overwrite")
        meanwhile()

    with crossing(("commit_log/0", overtake)):
        result = ingest_arrow(table, rows([1, 2, 4, 5]), on_conflict="rebase", small_file_limit=0)
    assert result["rebases"] == 1


def test_a_reader_beside_a_rebase(indexed: HudiTable, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "airflow_provider.table")
    go_on, listed, failed = threading.Event(), threading.Event(), []
    found: list[int] = []

    def read() -> None:
        def wait() -> None:
            listed.set()
            assert go_on.wait(60)

        try:
            with after_listing("files", wait):
                where = [("id", "=", 9)]
                found.append(snapshot(HudiTable.open(indexed.location), where=where).to_table().num_rows)
        except Exception as error:
            failed.append(error)
        finally:
            listed.set()

    reader = threading.Thread(target=read)

    def begin_to_read() -> None:
        reader.start()
        assert listed.wait(60)

    rebased(indexed, begin_to_read)
    go_on.set()
    reader.join()
    assert failed == []
    assert found == [1]
    assert "went away" not in caplog.text, "the reader looks again, and goes on with the index"


def test_a_log_file_never_changes_and_nothing_of_an_earlier_staging_is_left(
    indexed: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, written = Storage.put, dict[str, set[bytes]]()

    def noted(storage: Storage, path: str, data: bytes) -> None:
        if ".log." in path:
            written.setdefault(path, set()).add(data)
        put(storage, path, data)

    monkeypatch.setattr(Storage, "put", noted)
    rebased(indexed, lambda: None)
    assert written
    assert [path for path, contents in written.items() if len(contents) > 1] == []
    counts = Counter((name.file_id, name.instant) for name in log_files(indexed))
    assert set(counts.values()) == {1}
    assert_indexes_equal_a_rebuild(indexed, ALL)


class DiesError(Exception):
    """Raised where a process dies."""


def die() -> None:
    raise DiesError


@pytest.mark.parametrize("meanwhile", ["nothing", "an index is dropped", "an index is made anew"])
def test_a_cleaner_that_was_killed_after_it_had_staged(indexed: HudiTable, meanwhile: str) -> None:
    for _ in range(3):
        ingest_arrow(indexed, rows([1, 4]), small_file_limit=0)
    retention = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)
    with pytest.raises(DiesError), crossing(("commit_log/0", lambda: None), ("commit_log/0", die)):
        clean(indexed, retention)
    left = ALL
    if meanwhile != "nothing":
        drop_index(indexed, ["record_index"])
        left = [index for index in ALL if index != "record_index"]
    if meanwhile == "an index is made anew":
        schedule_index(indexed, ["record_index"])
        run_index(indexed)
        left = ALL
    before = {name.instant for name in log_files(indexed)}
    assert clean(indexed, retention) is not None
    cleaned = next(i for i in indexed.timeline().completed() if i.action is Action.CLEAN)
    assert cleaned.requested_time in before, "the one that was killed had staged"
    counts = Counter((name.file_id, name.instant) for name in log_files(indexed))
    assert counts.keys() >= {("files-0000-0", cleaned.requested_time)}
    assert set(counts.values()) == {1}, "both say the same, under the same names"
    assert_indexes_equal_a_rebuild(indexed, left)


def taken_back(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> list[str]:
    """Write while another Hudi writer rolls back every pending instant of the metadata table's timeline, also
    that of a live write."""
    publish, instants = commit_point.publish, list[str]()

    def publish_late(storage: Storage, entry: LogEntry, **given: bool) -> bool:
        instants.append(entry.instant)
        drop_staged(storage, entry.instant)
        return publish(storage, entry, **given)

    with monkeypatch.context() as patch:
        patch.setattr(commit_point, "publish", publish_late)
        write()
    return instants


def test_records_that_another_hudi_writer_took_back_for_a_dead_writers_are_staged_again(
    indexed: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = SharedLock(indexed.location)
    gone = taken_back(monkeypatch, lambda: ingest_arrow(indexed, rows([4, 7]), lock=lock, small_file_limit=0))
    assert gone == [indexed.timeline().commits()[-1].requested_time]
    assert_indexes_equal_a_rebuild(indexed, ALL)


def test_what_is_staged_again_is_of_the_columns_that_the_commit_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics of a partition cover older files, too, with the column's new type."""

    def batch(key: str, value: int, kind: pa.DataType) -> pa.Table:
        return pa.table({"id": [key], "v": pa.array([value], kind)})

    schema = pa.schema({"id": pa.string(), "v": pa.int32()})
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"])
    ingest_arrow(table, batch("a", 1, pa.int32()), "bulk_insert")
    indexes = ["files", "column_stats", "partition_stats"]
    schedule_index(table, indexes)
    run_index(table)
    wider, lock = batch("b", 2**40, pa.int64()), SharedLock(table.location)
    assert taken_back(monkeypatch, lambda: ingest_arrow(table.location, wider, "bulk_insert", lock=lock))
    assert_indexes_equal_a_rebuild(HudiTable.open(table.location), indexes)

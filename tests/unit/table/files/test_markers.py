"""Hudi's markers: writes put them before their data files, and delete them at the end."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from airflow_provider.concurrency import begin_write, rollback
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table import HudiTable
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.files.markers import MarkerType, delete_markers, marked_files, write_marker
from airflow_provider.table.storage.storage import Storage
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import (
    SCHEMA,
    Jvm,
    create_trips,
    fares,
    rows,
)


class Killed(BaseException):
    """Stands for SIGKILL: no code of the package catches it."""


class Watched(Storage):
    """A storage that records the markers when a data file is begun."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.begun: dict[str, list[str]] = {}

    def create(self, path: str):  # type: ignore[no-untyped-def]
        self.begun[path] = markers(self.root)
        return super().create(path)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


def markers(location: str) -> list[str]:
    """All files and folders below the folder of markers, and the markers that are lines of files."""
    temp = Path(location) / ".hoodie" / ".temp"
    files = [path for path in temp.glob("*/MARKERS*") if path.name != "MARKERS.type"]
    lines = [f"{path.parent.name}/{line}" for path in files for line in path.read_text().splitlines()]
    return sorted([*lines, *(str(path.relative_to(temp)) for path in temp.rglob("*"))])


def data_files(table: HudiTable, instant: str) -> list[str]:
    return [str(path) for path in Path(table.location).rglob(f"*_{instant}.parquet")]


def killed(monkeypatch: pytest.MonkeyPatch, table: HudiTable, fares: dict[int, float], city: str) -> str:
    """Make an upsert that dies before its entry; return its requested time."""

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider.concurrency.commit.staged_metadata.StagedWrite.stage", kill)
        patch.setattr("airflow_provider.concurrency.write.writer.Writer._give_up", lambda *_: None)
        with pytest.raises(Killed):
            ingest_arrow(table, rows(fares, city))
    (pending,) = table.timeline().pending()
    return pending.requested_time


def test_each_data_file_has_a_marker_before_it_is_begun(table: HudiTable) -> None:
    storage = Watched(table.location)
    watched = HudiTable(storage, table.config)
    ingest_arrow(watched, pa.concat_tables([rows({1: 10.0}), rows({5: 5.0}, "la")]))
    assert len(storage.begun) == 2
    for path, there in storage.begun.items():
        instant = path.rpartition("_")[2].removesuffix(".parquet")
        how = "CREATE" if path.startswith("city=la") else "MERGE"
        assert f"{instant}/{path}.marker.{how}" in there
    assert markers(table.location) == []


def test_a_clustering_has_them_too(table: HudiTable) -> None:
    schedule_clustering(table, ClusteringSettings(sort_by=("fare",)))
    storage = Watched(table.location)
    assert cluster_in_process(HudiTable(storage, table.config))
    ((path, there),) = storage.begun.items()
    assert [each for each in there if each.endswith(f"{path}.marker.CREATE")]
    assert markers(table.location) == []


def test_another_hudi_writer_deletes_by_them_what_a_dead_write_has_left(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = killed(monkeypatch, table, {1: 10.0, 7: 7.0}, "sf")
    assert data_files(table, dead)
    Jvm(table).roll_back(dead)
    assert data_files(table, dead) == []
    assert fares(table) == {1: 1.0, 2: 2.0}


def test_a_rollback_takes_them_away(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = killed(monkeypatch, table, {9: 9.0}, "la")
    assert markers(table.location)
    rollback(table, dead)
    assert data_files(table, dead) == []
    assert markers(table.location) == []


def test_who_is_rolled_back_by_another_leaves_none_that_it_wrote_since(table: HudiTable) -> None:
    writer = begin_write(table, operation="UPSERT")
    writer.plan([], ["city=sf"])
    Jvm(table).roll_back(writer.instant)
    sink = BaseFileWriter(
        table.storage,
        partition_path="city=sf",
        file_id=new_file_id(),
        write_token="0-1-2",
        instant=writer.instant,
        schema=SCHEMA,
    )
    sink.close()
    assert markers(table.location)
    writer.abort()
    assert data_files(table, writer.instant) == []
    assert markers(table.location) == []


def test_what_a_killed_writer_has_left_goes_with_its_instant(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider.concurrency.write.writer.delete_markers", kill)
        with pytest.raises(Killed):
            ingest_arrow(table, rows({1: 10.0}))
    assert markers(table.location)
    for each in range(6):
        ingest_arrow(table, rows({2: float(each)}))
    assert archive(table, keep_min=1, keep_max=2).instants
    assert markers(table.location) == []
    assert fares(table) == {1: 10.0, 2: 5.0}


def test_a_commit_that_cannot_delete_them_is_a_commit(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("slow down")

    monkeypatch.setattr(Storage, "delete_folder", fail)
    ingest_arrow(table, rows({1: 10.0}))
    assert fares(table) == {1: 10.0, 2: 2.0}


def test_on_an_object_store() -> None:
    root = "memory://markers/trips"
    storage = Storage(root)
    for _ in range(2):
        write_marker(storage, "20260101000000000", "city=sf/a.parquet", MarkerType.CREATE)
    write_marker(storage, "20260101000000001", "city=sf/b.parquet", MarkerType.MERGE)
    delete_markers(storage, "20260101000000000")
    delete_markers(storage, "20260101000000000")
    left = fsspec.filesystem("memory").find("/markers/trips")
    assert left == ["/markers/trips/.hoodie/.temp/20260101000000001/city=sf/b.parquet.marker.MERGE"]


def test_threads_and_processes_add_to_one_folder(table: HudiTable) -> None:
    instant, names = "20260101000000000", [f"city=sf/{number}.parquet" for number in range(400)]

    def write(name: str) -> None:
        write_marker(table.storage, instant, name, MarkerType.CREATE)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, names[:200]))
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as processes:
        list(processes.map(partial(_write_in_process, table.location, instant), names[200:], chunksize=50))
    assert sorted(marked_files(table.storage, instant)) == sorted(names)
    folder = Path(table.location, ".hoodie", ".temp", instant)
    assert (folder / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
    assert 3 <= len(list(folder.iterdir())) <= 4


def _write_in_process(location: str, instant: str, name: str) -> None:
    write_marker(Storage(location), instant, name, MarkerType.CREATE)


def test_the_type_comes_first(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []
    real = Storage.put_if_absent

    def watched(self: Storage, path: str, data: bytes) -> bool:
        put.append(path.rpartition("/")[2])
        return real(self, path, data)

    monkeypatch.setattr(Storage, "put_if_absent", watched)
    write_marker(table.storage, "20260101000000000", "city=sf/a.parquet", MarkerType.CREATE)
    assert put[0] == "MARKERS.type"
    assert len(put) == 2


def test_single_markers_of_an_earlier_release_count(table: HudiTable) -> None:
    instant = "20260101000000000"
    table.storage.put_if_absent(f".hoodie/.temp/{instant}/city=sf/a.parquet.marker.CREATE", b"")
    write_marker(table.storage, instant, "city=sf/b.parquet", MarkerType.MERGE)
    assert sorted(marked_files(table.storage, instant)) == ["city=sf/a.parquet", "city=sf/b.parquet"]

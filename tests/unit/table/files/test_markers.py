"""Hudi's markers: writes put them before their data files, and delete them at the end."""

from __future__ import annotations

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
from airflow_provider.table.files.markers import MarkerType, delete_markers, write_marker
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
    """All files and folders below the folder of markers."""
    temp = Path(location) / ".hoodie" / ".temp"
    return sorted(str(path.relative_to(temp)) for path in temp.rglob("*"))


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

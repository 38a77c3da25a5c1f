"""The durability level of a table, and the operations that obey it."""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.ingestion.ingestion import _MANY_PARTITIONS
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable
from airflow_provider.table.files.partition_metadata import PARTITION_METADATA
from airflow_provider.table.metadata_table.reader import metadata_storage
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.storage import durability
from airflow_provider.table.storage.durability import DURABILITY, Disk, Durability, force_file_systems
from airflow_provider.table.storage.storage import Storage
from tests.unit.power.disk import ForgetfulDisk, Only, PowerCut
from tests.unit.power.operations import SCHEMA, History


def created(location: str, **options: str) -> HudiTable:
    return HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"], hudi_options=options)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of forced files and folders."""
    paths: list[str] = []

    def told(real: Callable[[int], None]) -> Callable[[int], None]:
        def force(descriptor: int) -> None:
            paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            real(descriptor)

        return force

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, told(getattr(os, name)))
    return paths


def test_a_table_that_says_nothing_loses_nothing_that_was_reported(tmp_path: Path) -> None:
    table = created(str(tmp_path / "t"))
    assert DURABILITY not in table.config.raw
    assert table.storage.durability is HudiTable.open(table.location).storage.durability is Durability.COMMIT


def test_the_option_is_kept_and_can_be_changed(tmp_path: Path) -> None:
    table = created(str(tmp_path / "t"), **{DURABILITY: "FULL"})
    assert HudiTable.open(table.location).storage.durability is Durability.FULL
    changed = change_options(table, {DURABILITY: "none"})
    assert changed.storage.durability is Durability.NONE
    assert HudiTable.open(table.location).storage.durability is Durability.NONE


def test_a_value_that_means_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"{DURABILITY} must be: `none` or `commit` or `full`"):
        created(str(tmp_path / "t"), **{DURABILITY: "maybe"})
    properties = tmp_path / "t" / PROPERTIES_PATH
    created(str(tmp_path / "t"))
    properties.write_text(f"{properties.read_text()}{DURABILITY}=maybe\n")
    with pytest.raises(
        InvalidInputError, match=f"{DURABILITY} must be one of none, commit, full, not 'maybe'"
    ):
        HudiTable.open(str(tmp_path / "t"))


def test_other_processes_and_the_metadata_table_go_by_it(tmp_path: Path) -> None:
    table = created(str(tmp_path / "t"), **{DURABILITY: "full"})
    sent = pickle.loads(pickle.dumps(table.storage))
    assert sent.durability is metadata_storage(table.storage).durability is Durability.FULL


def test_at_none_nothing_is_forced(tmp_path: Path, forced: list[str]) -> None:
    history = History(created(str(tmp_path / "t"), **{DURABILITY: "none"}).location)
    forced.clear()
    _upsert(history)
    assert forced == []


def test_at_commit_a_data_file_is_forced_with_its_entry(tmp_path: Path, forced: list[str]) -> None:
    history = History(created(str(tmp_path / "t")).location)
    forced.clear()
    _upsert(history)
    positions = [number for number, path in enumerate(forced) if path.endswith(".parquet")]
    entry = next(n for n, path in enumerate(forced) if "/commit_log/.staged-" in path)
    log = max(number for number, path in enumerate(forced) if path.endswith("/commit_log"))
    assert len(positions) == 1
    assert entry < positions[0] < log


def test_at_full_a_step_is_on_the_disk_when_it_returns(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    with disk.running():
        storage = Storage(str(tmp_path / "t"))
        storage.durability = Durability.FULL
        storage.put(".hoodie/commit_log/staged/1.avro", b"staged")
        with storage.create("p/1.parquet") as file:
            file.write(b"data")
        storage.put("p/2.parquet", b"data")
        storage.delete("p/2.parquet")
        storage.link_if_absent("p/1.parquet", "p/3.parquet")
        storage.put_if_absent(".hoodie/timeline/1.commit.requested", b"")
        disk.cut()
    disk.come_back(Only())
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    assert {str(path.relative_to(tmp_path / "t")): path.read_bytes() for path in files} == {
        ".hoodie/commit_log/staged/1.avro": b"staged",
        "p/1.parquet": b"data",
        "p/3.parquet": b"data",
        ".hoodie/timeline/1.commit.requested": b"",
    }


def _load_of_many_partitions(folder: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = HudiTable.create(
        str(folder / "t"), name="t", schema=columns, record_key=["id"], partition_by=["p"], hive_style=False
    )
    rows = pa.table([range(_MANY_PARTITIONS), [f"p{n}" for n in range(_MANY_PARTITIONS)]], schema=columns)
    ingest_arrow(table, rows, "bulk_insert")


@pytest.mark.parametrize("is_forced", [True, False])
def test_a_partition_is_marked_by_a_whole_file_at_any_moment_of_a_load_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_forced: bool
) -> None:
    disk = ForgetfulDisk(tmp_path)
    marks = 0

    def before_step(name: str, path: str) -> None:
        nonlocal marks
        marks += name == "link" and path.endswith(PARTITION_METADATA)
        if marks == 5:
            disk.cut()

    disk.before_step = before_step
    if not is_forced:
        monkeypatch.setattr(Disk, "force", lambda *_: None)
    with disk.running(), pytest.raises(PowerCut):
        _load_of_many_partitions(tmp_path)
    disk.come_back(Only(""))  # every name exists, and every file has only its forced content
    found = [path.read_bytes() for path in tmp_path.rglob(PARTITION_METADATA)]
    assert len(found) == 4
    assert all(found) == is_forced


def test_many_files_are_forced_with_their_file_system(
    tmp_path: Path, forced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = iter([-1, 0, 0, 0, 0, 0]), []

    def syncfs(descriptor: int) -> int:
        asked.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        ctypes.set_errno(errno.EIO)
        return next(answers)

    monkeypatch.setattr(durability, "_syncfs", lambda: syncfs)
    monkeypatch.setattr(durability, "_WORTH_A_FILE_SYSTEM", 4)
    storage = Storage(str(tmp_path / "t"))
    for number in range(3):
        storage.put(f"p/{number}.parquet", b"data")
    with pytest.raises(OSError, match="Input/output error"):
        storage.sync()
    storage.sync()  # the next step forces the files that were not forced yet
    storage.sync()
    # Each folder above the table is forced, too, whose name may be in another file system.
    file_systems = {folder.stat().st_dev for folder in (tmp_path, *tmp_path.parents)}
    assert (len(asked), forced) == (1 + len(file_systems), [])
    monkeypatch.setattr(durability, "_syncfs", lambda: None)
    storage.put("p/4.parquet", b"data")
    storage.put("q/4.parquet", b"data")
    storage.sync()
    assert sorted(Path(path).name for path in forced if path.endswith("parquet")) == ["4.parquet"] * 2


def test_linux_forces_a_file_system_and_tells_errors(tmp_path: Path) -> None:
    assert force_file_systems([str(tmp_path), str(tmp_path / "gone")]) == (durability._syncfs() is not None)


def test_an_object_store_is_not_asked(forced: list[str]) -> None:
    storage = Storage("memory://lake/t")
    storage.put_if_absent(".hoodie/commit_log/1.json", b"{}")
    storage.sync(".hoodie/commit_log")
    storage.sync_later(["p/1.parquet"])
    assert forced == []


def _upsert(history: History) -> None:
    history.keys = [("a", 0)]
    history.upsert(Random(1))

"""The replicator copies a file completely or not at all, copies it once, and compares it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import BinaryIO

import pytest

from airflow_provider.exceptions import InvalidInputError, ReplicationError
from airflow_provider.replication import CopySettings
from airflow_provider.replication.copying import Copier
from airflow_provider.table.storage import Storage, copy_file

CONTENT = bytes(range(256)) * 5_000


@pytest.fixture(params=["local", "memory", "local to memory", "memory to local"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, Storage]:
    roots = {"local": str(tmp_path), "memory": f"memory://{tmp_path}"}
    source, _, target = request.param.partition(" to ")
    made = Storage(f"{roots[source]}/source"), Storage(f"{roots[target or source]}/target")
    for name in ("a", "b"):
        made[0].put(f"city=sf/{name}.parquet", CONTENT)
    return made


def test_a_file_is_copied_once(stores: tuple[Storage, Storage]) -> None:
    source, target = stores
    copier = Copier()
    files = [("city=sf/a.parquet", len(CONTENT)), ("city=sf/b.parquet", None)]
    assert copier.copy(source, target, files) == 2 * len(CONTENT)
    assert copier.copy(source, target, files) == 0
    assert (copier.bytes_copied, copier.files_copied) == (2 * len(CONTENT), 2)
    assert target.read("city=sf/b.parquet") == CONTENT
    assert sorted(each.name for each in target.list("city=sf")) == ["a.parquet", "b.parquet"]


def test_a_bounded_rate_is_kept_by_all_threads_together(stores: tuple[Storage, Storage]) -> None:
    copier = Copier(CopySettings(threads=2, bytes_per_second=len(CONTENT) * 10))
    began = time.monotonic()
    copier.copy(*stores, [("city=sf/a.parquet", None), ("city=sf/b.parquet", None)])
    assert time.monotonic() - began >= 0.1
    assert stores[1].read("city=sf/a.parquet") == CONTENT


def test_a_missing_file_and_one_of_another_size_are_named(stores: tuple[Storage, Storage]) -> None:
    source, target = stores
    for path, size in (("city=sf/c.parquet", None), ("city=sf/a.parquet", 7)):
        with pytest.raises(ReplicationError, match=path):
            Copier().copy(source, target, [(path, size)])
        assert target.stat(path) is None


class BadDisk(Storage):
    """A storage that writes a wrong last byte."""

    def create(self, path: str) -> BinaryIO:
        made = super().create(path)
        write = made.write
        made.write = lambda data: write(bytes(data[:-1]) + b"?")  # type: ignore[method-assign]
        return made


def test_a_copy_that_differs_never_gets_its_name(tmp_path: Path) -> None:
    source, target = Storage(f"{tmp_path}/source"), BadDisk(f"{tmp_path}/target")
    source.put("a.parquet", CONTENT)
    with pytest.raises(OSError, match=r"a\.parquet"):
        copy_file(source, target, "a.parquet", throttle=lambda _: None)
    assert list(Path(target.root).iterdir()) == []


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"bytes_per_second": 0.0}, {"progress_seconds": 0.0}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="above zero"):
        CopySettings(**wrong)  # type: ignore[arg-type]

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.storage import durability
from airflow_provider.table.storage.storage import Storage


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return Storage(str(tmp_path / "table"))
    return Storage(f"memory://{tmp_path}/table")


def test_many_files_are_created_where_there_are_none(storage: Storage) -> None:
    storage.put("p/1", b"there")
    storage.put_all_if_absent({"p/1": b"one", "p/2": b"two", "q/3": b"three"})
    assert [storage.read(path) for path in ("p/1", "p/2", "q/3")] == [b"there", b"two", b"three"]
    assert sorted(each.path for each in storage.list("p")) == ["p/1", "p/2"], "nothing staged is left"


def test_put_if_absent_creates_once(storage: Storage) -> None:
    assert storage.put_if_absent("a/b", b"first")
    assert not storage.put_if_absent("a/b", b"second")
    assert storage.read("a/b") == b"first"


def test_put_replaces(storage: Storage) -> None:
    storage.put("a/b", b"first")
    storage.put("a/b", b"second")
    assert storage.read("a/b") == b"second"


def test_stat_and_delete(storage: Storage) -> None:
    assert storage.stat("a") is None
    storage.put("a/b", b"123")
    status = storage.stat("a/b")
    assert status is not None
    assert (status.path, status.size, status.is_directory) == ("a/b", 3, False)
    assert status.modified == pytest.approx(time.time(), abs=300)
    assert storage.delete("a/b")
    assert not storage.delete("a/b")
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")


def test_listing(storage: Storage) -> None:
    for path in ("a/1", "a/2", "a/b/3", "c/4"):
        storage.put(path, b"x")
    assert {status.path for status in storage.list("a") if not status.is_directory} == {"a/1", "a/2"}
    assert {status.path for status in storage.list("a") if status.is_directory} == {"a/b"}
    assert {status.path for status in storage.list("", recursive=True)} == {"a/1", "a/2", "a/b/3", "c/4"}
    assert storage.list("nowhere") == []
    assert sorted(storage.names("a")) == ["1", "2", "b"]
    assert storage.names("nowhere") == []


def test_folders_are_found_by_a_file_in_them(storage: Storage) -> None:
    for path in ("a=1/b=2/here", "a=1/b=3/here", "a=1/b=3/c=4/here", "d=5/data", ".hoodie/here"):
        storage.put(path, b"x")
    found = set(storage.folders_holding("here"))
    # A listing may or may not contain folders below one: no partition has another one inside.
    assert found - {"a=1/b=3/c=4"} == {"a=1/b=2", "a=1/b=3"}
    assert set(storage.folders_holding("nothing")) == set()
    assert set(storage.folders_holding("nothing", "data")) == {"d=5"}
    storage.put("here", b"x")
    assert "" in set(storage.folders_holding("here"))


def test_a_data_file_is_written_and_read(storage: Storage) -> None:
    with storage.create("deep/er/file") as sink:
        sink.write(b"content")
    with storage.open("deep/er/file") as source:
        assert source.read() == b"content"


def test_a_part_of_a_file_is_read(storage: Storage) -> None:
    storage.put("a/file", b"0123456789")
    assert storage.read_range("a/file", 2, 5) == b"234"
    assert storage.read_range("a/file", 8, 20) == b"89"
    assert storage.read_range("a/file", 3, 3) == b""
    with pytest.raises(FileNotFoundError):
        storage.read_range("a/nothing", 0, 1)


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="absolute path or a URL"):
        Storage("lake/flights")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="nosuch"):
        Storage("nosuch://bucket/flights")


def test_the_storage_of_a_folder_is_always_the_same(storage: Storage) -> None:
    """The storage keeps the parsed parts of a timeline, so it must be the same object."""
    inner = storage.within("a")
    inner.put("b", b"1")
    assert storage.read("a/b") == b"1"
    assert storage.within("a") is inner
    assert storage.within("c") is not inner


def test_a_checksum_of_hadoops_goes_before_the_file_that_it_is_of(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "t"))
    for path in ("replaced", "deleted", "kept"):
        storage.put(path, b"as the JVM wrote it")
        (tmp_path / "t" / f".{path}.crc").write_bytes(b"crc")
    storage.put("replaced", b"new")
    assert storage.delete("deleted")
    assert sorted(each.name for each in (tmp_path / "t").iterdir()) == [".kept.crc", "kept", "replaced"]


def test_a_forked_process_forces_files_by_threads_of_its_own() -> None:
    def meet() -> None:  # as many steps as there are threads
        durability._at_once([threading.Barrier(durability._AT_ONCE).wait] * durability._AT_ONCE)

    meet()
    child = os.fork()
    if child == 0:
        signal.alarm(300)  # the parent's threads would never come
        meet()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""The lock file of Hudi's FileSystemBasedLockProvider, with other contenders that act like the JVM."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from airflow_provider.exceptions import InvalidConnectionError, LockLostError, LockTimeoutError
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.hudi_options import HudiOptions
from airflow_provider.table.storage.storage import Storage

JVM = '{"lockCreateTime":"2026-11-23 12:00:00.000","lockThreadName":"Executor 7","lockStacksInfo":""}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / ".hoodie").mkdir()
    return tmp_path / ".hoodie/lock"


def lock(file: Path, **options: object) -> LockProvider:
    return open_lock({"provider": "hudi_filesystem", **options}, Storage(str(file.parents[1])))


def written_by_the_jvm(file: Path, *, minutes_ago: float = 0, content: str = JVM) -> None:
    file.write_text(content)
    (file.parent / ".lock.crc").write_bytes(b"crc")
    then = time.time() - 60 * minutes_ago
    os.utime(file, (then, then))


@pytest.mark.parametrize("content", [JVM, ""], ids=["whole", "not written yet"])
def test_a_jvm_that_holds_the_lock_is_waited_for_and_named(file: Path, content: str) -> None:
    written_by_the_jvm(file, content=content, minutes_ago=600)
    with pytest.raises(LockTimeoutError, match="held by another Hudi writer"):
        lock(file).acquire(timeout=0.2)
    threading.Timer(0.3, file.unlink).start()
    with lock(file) as ours:
        assert ours.is_held()


def test_a_jvm_that_died_loses_the_lock_once_it_expires(file: Path) -> None:
    written_by_the_jvm(file, minutes_ago=1)
    with pytest.raises(LockTimeoutError, match=r"Executor 7\), .* free from \d\d:\d\d:\d\d UTC on"):
        lock(file, expire_seconds=120).acquire(timeout=0.2)
    with lock(file, expire_seconds=40) as ours:
        assert ours.is_held()
        assert not (file.parent / ".lock.crc").exists()
    assert not file.exists()


def test_a_jvm_that_had_looked_before_ours_created_the_file_has_the_lock(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Storage.put_if_absent

    def create_and_be_overwritten(storage: Storage, path: str, data: bytes) -> bool:
        created = create(storage, path, data)
        if created and path == ".hoodie/lock":
            written_by_the_jvm(file)
        return created

    monkeypatch.setattr(Storage, "put_if_absent", create_and_be_overwritten)
    ours = lock(file)
    with pytest.raises(LockTimeoutError):
        ours.acquire(timeout=0.5)
    assert not ours.is_held()
    assert file.read_text() == JVM


def test_a_lock_that_the_jvm_took_away_is_lost_and_stays_its_own(file: Path) -> None:
    ours = lock(file)
    ours.acquire()
    written_by_the_jvm(file)
    assert not ours.is_held()
    with pytest.raises(LockLostError):
        ours.release()
    assert file.read_text() == JVM


def test_a_lease_longer_than_the_expiry_of_the_jvm_is_refused(file: Path) -> None:
    with pytest.raises(InvalidConnectionError, match=r"lease_seconds=90 .* expire_seconds=60"):
        lock(file, lease_seconds=90, expire_seconds=60)


def test_the_folder_may_be_another(file: Path, tmp_path: Path) -> None:
    with lock(file, path=str(tmp_path / "locks")):
        assert (tmp_path / "locks/lock").exists()
        assert not file.exists()


@pytest.mark.parametrize(("minutes", "expire"), [(0, {}), (2, {"expire_seconds": 120.0})])
def test_hudis_options_choose_it(minutes: int, expire: dict[str, float]) -> None:
    options = {
        "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
        "hoodie.write.lock.filesystem.path": "/locks",
        "hoodie.write.lock.filesystem.expire": minutes,
    }
    assert HudiOptions.parse(options).lock == {"provider": "hudi_filesystem", "path": "/locks", **expire}

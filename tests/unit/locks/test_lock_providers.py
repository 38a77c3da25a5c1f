"""The promises of every lock provider."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider.exceptions import (
    InvalidConnectionError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
)
from airflow_provider.locks import LockProvider, lease, open_lock
from airflow_provider.table.storage.storage import Storage

MakeLock = Callable[..., LockProvider]


@pytest.fixture(params=["filesystem", "hudi_filesystem", "in_process", "database", "metastore"])
def make_lock(request: pytest.FixtureRequest, tmp_path: Path) -> MakeLock:
    has_url = request.param in {"database", "metastore"}
    where = {"url": f"sqlite:///{tmp_path}/locks.db"} if has_url else {}

    def make(**options: object) -> LockProvider:
        return open_lock({"provider": request.param, **where, **options}, Storage(str(tmp_path)))

    return make


def test_one_holder_at_a_time(make_lock: MakeLock) -> None:
    first, second = make_lock(owner="first"), make_lock(owner="second")
    first.acquire()
    assert first.is_held()
    with pytest.raises(LockTimeoutError, match="held by first"):
        second.acquire(timeout=0.1)
    assert not second.is_held()
    first.release()
    second.acquire(timeout=60)
    assert second.is_held()
    assert not first.is_held()
    second.release()


def test_fencing_tokens_grow(make_lock: MakeLock) -> None:
    tokens = []
    for _ in range(5):
        lock = make_lock()
        with lock:
            tokens.append(lock.fencing_token)
    assert tokens == sorted(set(tokens))


def test_holder_is_named(make_lock: MakeLock) -> None:
    lock = make_lock(owner="me")
    assert lock.holder() is None
    with lock:
        holder = lock.holder()
        assert holder is not None
        assert holder.owner == "me"
        assert holder.fencing_token == lock.fencing_token
    assert lock.holder() is None


def test_release_by_a_non_owner_is_refused(make_lock: MakeLock) -> None:
    holder, other = make_lock(), make_lock()
    holder.acquire()
    with pytest.raises(LockLostError):
        other.release()
    assert holder.is_held()
    holder.release()
    with pytest.raises(LockLostError):
        holder.release()


def test_threads_exclude_each_other(make_lock: MakeLock) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            with make_lock():
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_leaving_the_block_does_not_hide_what_happened_in_it(make_lock: MakeLock) -> None:
    lock = make_lock()

    def work() -> None:
        with lock:
            lock.release()  # at the end of the block the lock counts as lost
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def test_a_contender_whose_clock_is_ahead_does_not_rob_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    holder, other = open_lock({"lease_seconds": 30}, storage), open_lock({"lease_seconds": 30}, storage)
    holder.acquire()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    with pytest.raises(LockTimeoutError):
        other.acquire(timeout=0.2)
    assert holder.is_held()
    assert [path.name for path in (tmp_path / ".hoodie/locks").iterdir()] == ["lock1.acquired"]


@pytest.mark.parametrize("provider", ["filesystem", "hudi_filesystem"])
def test_who_waits_long_tells_the_log_for_whom_and_until_when(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease, "_SILENT_SECONDS", 0.0)

    def make(owner: str) -> LockProvider:
        return open_lock({"provider": provider, "owner": owner}, Storage(str(tmp_path)))

    until = r"ingest of flights, last renewed .* free from \d\d:\d\d:\d\d UTC on"
    with make("ingest of flights"), pytest.raises(LockTimeoutError, match=until):
        make("other").acquire(timeout=1)
    [told] = [record.getMessage() for record in caplog.records if "waits for" in record.getMessage()]
    assert re.search(f"waits for {until}", told)


def test_in_process_serves_first_come_first(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    order: list[int] = []
    held = open_lock({"provider": "in_process"}, storage)
    held.acquire()
    threads = []
    for number in range(5):
        lock = open_lock({"provider": "in_process", "owner": str(number)}, storage)

        def work(lock: LockProvider = lock, number: int = number) -> None:
            with lock:
                order.append(number)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        while len(held.waiters()) <= number:
            time.sleep(0.001)
    assert held.waiters() == list("01234")
    held.release()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"provider": "zoo"},
            "known: database, filesystem, hudi_filesystem, in_process, metastore, storage, zookeeper",
        ),
        ({"provider": "in_process", "lease_seconds": 3}, "has no option 'lease_seconds'"),
        ({"lease_seconds": "soon"}, "must be a number of seconds above zero, not 'soon'"),
        ({"timeout_seconds": 0}, "must be a number of seconds above zero"),
    ],
)
def test_wrong_configuration_is_refused(config: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConnectionError, match=message):
        open_lock(config, Storage(str(tmp_path)))


def test_a_metastore_that_is_away_is_reported_alike_by_every_question(tmp_path: Path) -> None:
    config = {"provider": "metastore", "url": "thrift://127.0.0.1:1", "connection_timeout_seconds": 1}
    lock = open_lock(config, Storage(str(tmp_path)))
    for ask in (lock.holder, lock.waiters, lock.acquire):
        with pytest.raises(LockUnavailableError, match=str(tmp_path)):
            ask()

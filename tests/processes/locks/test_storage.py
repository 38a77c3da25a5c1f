"""The object store's lock alone: conditions, ETags and lost answers."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from airflow_provider.exceptions import (
    InvalidConnectionError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
)
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.locks.hudi.conditional_store import ConditionalStore, StoredObject
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.conftest import s3_options
from tests.processes.servers import TcpProxy

LOCK = ".hoodie/.locks/table_lock.json"


@pytest.fixture
def table(s3: TcpProxy) -> Storage:
    return Storage(f"s3://lake/{uuid.uuid4().hex}", s3_options(s3.port))


def storage_lock(table: Storage, **options: object) -> LockProvider:
    return open_lock({"provider": "storage", "poll_interval_seconds": 0.05, **options}, table)


def test_an_acquisition_whose_answer_got_lost_is_found_out(table: Storage, s3: TcpProxy) -> None:
    with storage_lock(table):  # the object exists, so this request only tests the conditions
        pass
    lock, other = storage_lock(table), storage_lock(table)
    s3.lose_answer(b"PUT ")
    lock.acquire(timeout=60)
    assert lock.is_held()
    assert lock.fencing_token == 3  # contender 2 has won, too, but its answer was lost
    with pytest.raises(LockTimeoutError):
        other.acquire(timeout=0.2)
    lock.release()
    other.acquire(timeout=60)


def test_a_release_whose_answer_got_lost_is_a_release(table: Storage, s3: TcpProxy) -> None:
    lock = storage_lock(table)
    lock.acquire()
    s3.lose_answer(b"PUT ")
    lock.release()
    storage_lock(table).acquire(timeout=0)


def test_a_renewal_whose_answer_got_lost_is_a_renewal(table: Storage, s3: TcpProxy) -> None:
    lock = storage_lock(table, lease_seconds=9)
    lock.acquire()
    s3.lose_answer(b"PUT ")
    for _ in range(2):  # the request whose answer was lost, and the next one
        until_renewed(table)
    assert lock.is_held()
    lock.release()


def until_renewed(table: Storage) -> StoredObject:
    """Wait until the holder has renewed its lease; return the lock's earlier state."""
    store = ConditionalStore(table, 10)
    found = store.get(LOCK)
    assert found is not None
    deadline = time.monotonic() + 300
    while (now := store.get(LOCK)) is not None and now.etag == found.etag:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_renewal_refuses_who_read_the_lock_before_it(table: Storage) -> None:
    holder = storage_lock(table, lease_seconds=12)
    holder.acquire()
    found = until_renewed(table)
    assert ConditionalStore(table, 10).put(LOCK, found.data, if_match=found.etag) is None
    assert holder.is_held()
    holder.release()


def test_a_lock_object_that_somebody_deleted_is_a_lost_lock(table: Storage) -> None:
    lock = storage_lock(table)
    lock.acquire()
    table.delete(LOCK)
    assert not lock.is_held()
    with pytest.raises(LockLostError):
        lock.release()


def test_nothing_but_the_lock_object_is_left(table: Storage) -> None:
    with storage_lock(table, owner="me"):
        [found] = table.list("", recursive=True)
        assert found.path == LOCK
        said = json.loads(table.read(LOCK))
    assert (said["owner"], said["fencingToken"], said["expired"]) == ("me", 1, False)
    assert json.loads(table.read(LOCK))["expired"]


def held_by_the_jvm(table: Storage, *, seconds_left: float, released: bool = False) -> None:
    until = int((time.time() + seconds_left) * 1000)
    said = {"expired": released, "validUntil": until, "owner": "0b2f-the-jvm"}
    table.put(LOCK, json.dumps(said).encode())


def test_a_holder_of_the_jvm_is_waited_for_and_named_with_its_time(table: Storage) -> None:
    held_by_the_jvm(table, seconds_left=60)
    with pytest.raises(LockTimeoutError, match=r"held by 0b2f-the-jvm, .* free from \d\d:\d\d:\d\d UTC on"):
        storage_lock(table, lease_seconds=0.5).acquire(timeout=2.5)


@pytest.mark.parametrize(("seconds_left", "released"), [(60, True), (-3, False)])
def test_what_the_jvm_has_released_or_let_expire_is_taken_with_a_larger_token(
    table: Storage, seconds_left: float, released: bool
) -> None:
    with storage_lock(table) as before:
        token = before.fencing_token
    held_by_the_jvm(table, seconds_left=seconds_left, released=released)
    with storage_lock(table) as lock:
        assert lock.fencing_token > token
        assert json.loads(table.read(LOCK))["validUntil"] > 1000 * time.time()


def test_the_jvm_took_what_had_expired(table: Storage) -> None:
    lock = storage_lock(table)
    lock.acquire()
    held_by_the_jvm(table, seconds_left=60)
    assert not lock.is_held()
    with pytest.raises(LockLostError):
        lock.release()
    assert json.loads(table.read(LOCK))["owner"] == "0b2f-the-jvm"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"owner": "me"}'])
def test_an_object_that_is_no_lock_is_refused_by_name(table: Storage, content: bytes) -> None:
    table.put(LOCK, content)
    with pytest.raises(LockUnavailableError, match=r"table_lock\.json is not what Hudi"):
        storage_lock(table).acquire(timeout=0)


@pytest.mark.parametrize("header", ["if-match", "if-none-match"])
def test_a_store_that_ignores_conditions_is_refused(s3: TcpProxy, header: str) -> None:
    table = Storage(f"s3://ignores-{header}/t", s3_options(s3.port))
    table._filesystem.mkdir(f"ignores-{header}")
    with pytest.raises(InvalidConnectionError, match=f"{s3.port} ignores If-None-Match or If-Match"):
        storage_lock(table).acquire()
    assert table.list("", recursive=True) == []

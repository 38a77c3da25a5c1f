"""The metastore's lock provider alone: the blocking lock's owner, lost answers, several servers."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.exceptions import (
    InvalidConnectionError,
    LockTimeoutError,
    LockUnavailableError,
    MetastoreUnavailableError,
    NoSuchLockError,
)
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.metastore import (
    LockComponent,
    LockState,
    LockType,
    Metastore,
    TxnState,
    open_metastore,
)
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.conftest import Backend
from tests.processes.servers import TcpProxy, free_port

TWO = ["metastore-sqlite", "hive-metastore"]
# A message of the strict binary protocol: version, a call, length and name of the method.
CALL = b"\x80\x01\x00\x01\x00\x00\x00"

both = pytest.mark.parametrize("backend", TWO, indirect=True)


@pytest.fixture
def metastore(backend: Backend) -> Iterator[Metastore | ThriftMetastore]:
    """The metastore that keeps the backend's locks."""
    url = backend.config["url"]
    opened = ThriftMetastore(url) if url.startswith("thrift:") else open_metastore(url)
    yield opened
    opened.close()


@both
def test_jvm_hudis_lock_keeps_us_out(backend: Backend, metastore: Metastore | ThriftMetastore) -> None:
    # JVM Hudi's HiveMetastoreBasedLockProvider asks for this lock.
    table = LockComponent(LockType.EXCLUSIVE, "lake", backend.config["table"])
    theirs = metastore.lock([table], "hudi", "spark-7")
    assert theirs.state is LockState.ACQUIRED
    with pytest.raises(LockTimeoutError, match=r"held by hudi@spark-7 \(") as raised:
        backend.lock().acquire(timeout=0.3)
    assert raised.value.details["holder"].startswith("hudi@spark-7")
    metastore.unlock(theirs.lock_id)
    with backend.lock() as lock:
        assert lock.fencing_token > theirs.lock_id
        waiting = metastore.lock([table], "hudi", "spark-7")
        assert waiting.state is LockState.WAITING
        assert lock.waiters() == [f"hudi@spark-7 ({metastore.show_locks('lake')[-1].agent or 'Unknown'})"]
    assert metastore.check_lock(waiting.lock_id) is LockState.ACQUIRED
    metastore.unlock(waiting.lock_id)


@both
def test_who_reads_the_table_by_hive_keeps_us_out_and_who_reads_its_database_does_not(
    backend: Backend, metastore: Metastore | ThriftMetastore
) -> None:
    of_database = metastore.lock([LockComponent(LockType.SHARED_READ, "lake")], "hive", "here")
    table = backend.config["table"]
    with backend.lock() as lock:
        assert lock.holder() is not None
    reading = metastore.lock([LockComponent(LockType.SHARED_READ, "lake", table)], "hive", "here")
    with pytest.raises(LockTimeoutError, match="held by hive@here"):
        backend.lock().acquire(timeout=0)
    metastore.unlock(reading.lock_id)
    backend.lock().acquire(timeout=0)
    metastore.unlock(of_database.lock_id)


@both
def test_who_gave_up_is_not_in_the_line_any_more(backend: Backend) -> None:
    holder, waiter = backend.lock(owner="holder"), backend.lock(owner="waiter")
    holder.acquire()
    with pytest.raises(LockTimeoutError, match="held by holder"):
        waiter.acquire(timeout=0.2)
    assert holder.waiters() == []
    with pytest.raises(LockTimeoutError, match="held by holder"):
        holder.acquire(timeout=0.2)  # not re-entrant
    assert holder.is_held()
    assert holder.waiters() == []
    holder.release()
    waiter.acquire(timeout=0)
    waiter.release()


@pytest.mark.parametrize("backend", ["hive-metastore"], indirect=True)
def test_a_lost_answer_is_not_a_lock_that_nobody_owns(
    backend: Backend, metastore: ThriftMetastore, hive: TcpProxy
) -> None:
    with backend.lock():
        pass
    lock = backend.lock()
    hive.lose_answer(CALL + b"\x04lock")
    lock.acquire(timeout=60)
    shown = metastore.show_locks("lake", backend.config["table"])
    assert [info.lock_id for info in shown] == [lock.fencing_token]
    for method in (b"\x0acheck_lock", b"\x06unlock"):
        hive.lose_answer(CALL + method)
        if method.endswith(b"check_lock"):
            assert lock.is_held()  # the client has sent the request again
        else:
            lock.release()
    assert metastore.show_locks("lake", backend.config["table"]) == []


@pytest.mark.parametrize("backend", ["hive-metastore"], indirect=True)
def test_the_next_server_is_asked_when_one_is_away(backend: Backend, hive: TcpProxy) -> None:
    second = TcpProxy(hive.target)
    url = f"thrift://127.0.0.1:{free_port()},127.0.0.1:{second.port},127.0.0.1:{hive.port}"
    lock = backend.lock(url=url)
    lock.acquire()
    second.cut()
    try:
        assert lock.is_held()
        lock.release()
        with backend.lock(url=url) as other:
            assert other.is_held()
    finally:
        second.close()


@pytest.mark.parametrize("backend", ["hive-metastore"], indirect=True)
def test_a_request_that_must_not_be_repeated_is_not(
    backend: Backend, metastore: ThriftMetastore, hive: TcpProxy
) -> None:
    table = [LockComponent(LockType.SHARED_READ, "lake", backend.config["table"])]
    first = metastore.lock(table, "me", "here")
    hive.lose_answer(CALL + b"\x04lock")
    with pytest.raises(MetastoreUnavailableError, match=r"no answer to lock .* whether it was done is not"):
        metastore.lock(table, "me", "here")
    shown = [info.lock_id for info in metastore.show_locks("lake", backend.config["table"])]
    assert len(shown) == 2
    hive.lose_answer(CALL + b"\x0ashow_locks")
    assert len(metastore.show_locks("lake", backend.config["table"])) == 2
    for lock_id in shown:
        metastore.unlock(lock_id)
    with pytest.raises(NoSuchLockError, match="No such lock"):
        metastore.check_lock(first.lock_id)


@both
def test_the_lock_is_on_the_tables_name(
    backend: Backend, metastore: Metastore | ThriftMetastore, tmp_path: Path
) -> None:
    HudiTable.create(
        str(tmp_path / "flights of a year"),
        name="Flights",
        schema=pa.schema([("id", pa.int64())]),
        record_key=["id"],
    )
    config = {name: value for name, value in backend.config.items() if name not in {"table", "database"}}
    with open_lock(config, Storage(str(tmp_path / "flights of a year"))):
        [info] = metastore.show_locks("default", "flights")
        assert info.state is LockState.ACQUIRED
        assert info.component == LockComponent(LockType.EXCLUSIVE, "default", "flights")


def metastore_lock(root: str, **options: object) -> LockProvider:
    return open_lock({"provider": "metastore", **options}, Storage(root))


def test_a_newer_metastore_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/metastore.db"
    metastore = open_metastore(url)
    metastore.close()
    with sqlite3.connect(tmp_path / "metastore.db") as database:
        database.execute("UPDATE metastore_schema_version SET version_num = '9999'")
    with pytest.raises(LockUnavailableError, match="written by a newer release"):
        metastore_lock("/lake/t", url=url).acquire(timeout=10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'url'"),
        ({"url": "thrift://"}, "option 'url'.*thrift://host:port"),
        ({"url": "thrift://u:geheim-7@h:9083"}, "option 'url'.*in clear text"),
        ({"url": "thrift://h:port"}, "option 'url'.*thrift://host:port"),
        ({"url": "thrift://h:1", "password": "geheim-7"}, "option 'url'.*needs a user and a password"),
        ({"url": "mysql://u:geheim-7@h/d"}, "option 'url'.*'mysql'"),
        ({"url": "sqlite:///relative.db"}, "option 'url'.*absolute path"),
        ({"url": "postgresql+psycopg2://u:geheim-7@h/d"}, "driver 'psycopg2' is not installed"),
    ],
)
def test_options_that_cannot_work_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConnectionError, match=message) as raised:
        metastore_lock("/lake/t", **options)
    assert "geheim-7" not in str(raised.value)


def test_a_hive_aborts_who_is_silent_for_too_long(hive: TcpProxy) -> None:
    metastore = ThriftMetastore(f"thrift://127.0.0.1:{hive.port}")
    silent = metastore.open_txn("me", "here")
    while metastore.get_txn(silent).state is TxnState.OPEN:
        time.sleep(0.2)
    assert metastore.get_txn(silent).state is TxnState.ABORTED
    metastore.close()

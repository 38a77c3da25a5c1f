"""Locks without a service that this package shares with the JVM's Hudi: the JVM's own classes take them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider.exceptions import LockTimeoutError
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.storage.storage import Storage
from tests.processes.servers import s3_endpoint
from tests.real_hudi.beside.storage_lock import LockOfTheJvm
from tests.real_hudi.in_turn.shared_table import SharedTable, rows
from tests.real_hudi.jvm import HudiError, Jvm, Session

PROVIDER = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
LOCK_OBJECT = ".hoodie/.locks/table_lock.json"

OF_THE_JVM = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": PROVIDER,
    "hoodie.write.lock.filesystem.expire": "1",
}
OURS = {"provider": "hudi_filesystem", "expire_seconds": 60.0}

TRY_LOCK = """
hudi = spark._jvm.org.apache.hudi
properties = hudi.common.config.TypedProperties()
properties.setProperty("hoodie.base.path", location)
properties.setProperty("hoodie.write.lock.filesystem.expire", "1")
configuration = hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
wrapped = hudi.common.config.LockConfiguration(properties)
provider = hudi.client.transaction.lock.FileSystemBasedLockProvider(wrapped, configuration)
import builtins
builtins.held = provider
result = provider.tryLock(1, spark._jvm.java.util.concurrent.TimeUnit.SECONDS)
"""
UNLOCK = "import builtins; builtins.held.unlock(); builtins.held.close()"

LOCK_FILE = "file = spark._jvm.org.apache.hudi.client.transaction.lock.models.StorageLockFile\n"
READ = f"""{LOCK_FILE}
content = spark._jvm.java.io.ByteArrayInputStream(bytearray(content))
found = file.createFromStream(content, "etag")
result = [found.isExpired(), found.getValidUntilMs(), found.getOwner()]
"""
WRITE = f"""{LOCK_FILE}
data = spark._jvm.org.apache.hudi.client.transaction.lock.models.StorageLockData(expired, until, owner)
result = bytes(file.toByteArray(data))
"""


def test_the_lock_file_is_the_jvms(hudi: Session, location: Path) -> None:
    (location / ".hoodie").mkdir(parents=True)
    ours = open_lock(OURS, Storage(str(location)))
    with ours:
        assert not hudi.run(TRY_LOCK, location=str(location))
        assert ours.is_held()
    assert hudi.run(TRY_LOCK, location=str(location))
    with pytest.raises(LockTimeoutError, match="held by another Hudi writer"):
        ours.acquire(timeout=0.3)
    hudi.run(UNLOCK)
    ours.acquire(timeout=0)
    ours.release()


def test_both_write_at_once_under_the_lock_file(hudi: Session, jvm: Jvm, location: Path) -> None:
    shared = SharedTable.of_the_jvm(hudi, location, rows(range(60), 0), OF_THE_JVM)
    other = jvm.session()
    theirs = SharedTable(other, location, OF_THE_JVM)
    failures: list[BaseException] = []

    def write(turn: int) -> None:
        try:
            theirs.theirs(rows(range(100 + turn, 130, 4), turn, 10), "upsert")
        except HudiError as error:  # our write has won, so the JVM's write runs again, on the present rows
            if "conflict" not in str(error):
                raise
            write(turn)

    def write_all() -> None:
        try:
            for turn in range(4):
                write(turn)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write_all, daemon=True)
    thread.start()
    for turn in range(8):
        lock = open_lock(OURS, shared.table.storage)
        changed = rows(range(200 + turn % 4, 230, 4), turn, 10 + turn)
        shared.ours(changed, lock=lock, on_conflict="rebase", max_rebases=100)
    thread.join()
    other.close()
    assert failures == []
    shared.model |= theirs.model
    shared.check()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Storage]:
    with s3_endpoint(tmp_path / "s3.log") as port:
        endpoint = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "eu-central-1"}
        options = {"key": "somebody", "secret": "something", "client_kwargs": endpoint}
        storage = Storage(f"s3://lake/{uuid.uuid4().hex}", options)
        storage._filesystem.mkdir("lake")
        yield storage


@pytest.fixture
def of_the_jvm(hudi: Session, table: Storage) -> Iterator[LockOfTheJvm]:
    endpoint = table.options["client_kwargs"]["endpoint_url"]
    url = f"{endpoint}/{table.root.removeprefix('s3://')}/{LOCK_OBJECT}"
    lock = LockOfTheJvm(hudi, table.root, url)
    yield lock
    lock.close()


def of_ours(table: Storage) -> LockProvider:
    return open_lock({"provider": "storage", "owner": "ours", "lease_seconds": 20}, table)


def test_the_jvms_provider_and_ours_exclude_each_other(of_the_jvm: LockOfTheJvm, table: Storage) -> None:
    with of_ours(table) as ours:
        assert not of_the_jvm.try_lock()
        assert ours.is_held()
    assert of_the_jvm.try_lock()
    with pytest.raises(LockTimeoutError, match="held by the JVM"):
        of_ours(table).acquire(timeout=0.3)
    of_the_jvm.unlock()
    with of_ours(table) as ours:
        assert ours.is_held()


def test_the_jvm_renews_its_lease(of_the_jvm: LockOfTheJvm, table: Storage) -> None:
    """It is five minutes long, and renewed each second."""

    def valid_until() -> int:
        return int(json.loads(table.read(LOCK_OBJECT))["validUntil"])

    assert of_the_jvm.try_lock()
    first = valid_until()
    while valid_until() == first:
        time.sleep(0.1)
    with pytest.raises(LockTimeoutError, match="held by the JVM"):
        of_ours(table).acquire(timeout=0.3)
    of_the_jvm.unlock()


def test_no_increment_of_either_side_is_lost(of_the_jvm: LockOfTheJvm, table: Storage) -> None:
    table.put("count", b"0")

    def increment() -> None:
        count = int(table.read("count"))
        time.sleep(0.01)
        table.put("count", b"%d" % (count + 1))

    def theirs() -> None:
        for _ in range(10):
            while not of_the_jvm.try_lock():
                time.sleep(0.02)
            increment()
            of_the_jvm.unlock()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(theirs)
        for _ in range(10):
            with of_ours(table):
                increment()
        other.result()
    assert table.read("count") == b"20"


def test_the_jvm_reads_our_lock_object_and_ours_reads_its(hudi: Session, table: Storage) -> None:
    begun = time.time()
    with of_ours(table):
        expired, until, owner = hudi.run(READ, content=table.read(LOCK_OBJECT))
        assert (expired, owner) == (False, "ours")
        assert 1000 * (begun + 19) < until < 1000 * (time.time() + 21)
    assert hudi.run(READ, content=table.read(LOCK_OBJECT))[0]

    until = int(1000 * (time.time() + 60))
    table.put(LOCK_OBJECT, hudi.run(WRITE, expired=False, until=until, owner="the JVM"))
    assert set(json.loads(table.read(LOCK_OBJECT))) == {"expired", "validUntil", "owner"}
    with pytest.raises(LockTimeoutError, match="held by the JVM"):
        of_ours(table).acquire(timeout=0.3)
    table.put(LOCK_OBJECT, hudi.run(WRITE, expired=True, until=until, owner="the JVM"))
    with of_ours(table) as ours:
        assert ours.is_held()


def test_the_lock_object_is_where_the_jvm_looks(hudi: Session) -> None:
    client = "spark._jvm.org.apache.hudi.client.transaction.lock.StorageLockClient"
    folder = hudi.run(f'result = {client}.getLockFolderPath("s3://lake/t")')
    name = "spark._jvm.org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    file = hudi.run(f"result = {name}.DEFAULT_TABLE_LOCK_FILE_NAME")
    assert f"{folder}/{file}" == f"s3://lake/t/{LOCK_OBJECT}"

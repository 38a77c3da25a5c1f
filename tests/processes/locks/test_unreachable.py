"""Backends that do not exist: an error at once, which names the problem and no secret."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import InvalidConnectionError, LockUnavailableError
from airflow_provider.locks import open_lock
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.conftest import BUSY, s3_options
from tests.processes.servers import TcpProxy, free_port

SECRET = "geheim-7"


@pytest.mark.parametrize(
    "provider",
    [
        "zookeeper",
        "postgresql",
        "sqlite",
        "storage",
        "filesystem",
        "hudi_filesystem",
        "metastore-thrift",
        "metastore-postgresql",
        "metastore-sqlite",
    ],
)
def test_nothing_there(provider: str, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "file").touch()
    root, options = str(tmp_path / "t"), {}
    config: dict[str, Any] = {"provider": "database", "connection_timeout_seconds": 1}
    named = f"127.0.0.1:{port}"
    match provider:
        case "zookeeper":
            config |= {"provider": "zookeeper", "hosts": named}
            config |= {"authentication": "digest", "username": "hudi", "password": SECRET}
        case "postgresql":
            config |= {"url": f"postgresql+psycopg://hudi@{named}/lake", "password": SECRET}
        case "sqlite":
            named = str(tmp_path / "no folder" / "locks.db")
            config |= {"url": f"sqlite:///{named}"}
        case "storage":
            config |= {"provider": "storage"}
            root, options = "s3://lake/t", s3_options(port)
        case "metastore-thrift":
            config |= {"provider": "metastore", "url": f"thrift://{named}"}
        case "metastore-postgresql":
            config |= {"provider": "metastore", "password": SECRET}
            config |= {"url": f"postgresql+psycopg://hudi@{named}/lake"}
        case "metastore-sqlite":
            named = str(tmp_path / "file" / "metastore.db")
            config |= {"provider": "metastore", "url": f"sqlite:///{named}"}
        case "filesystem" | "hudi_filesystem":
            config = {"provider": provider}
            root = named = str(tmp_path / "file")
    lock = open_lock(config, Storage(root, options))
    begun = time.monotonic()
    with pytest.raises(LockUnavailableError) as raised:
        lock.acquire()
    assert time.monotonic() - begun < BUSY
    assert named in str(raised.value)
    assert root in str(raised.value)
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(vars(raised.value))
    assert raised.value.__cause__ is None or SECRET not in repr(raised.value.__cause__)
    assert not lock.is_held()


@pytest.mark.parametrize("provider", ["zookeeper", "metastore-thrift", "metastore-postgresql"])
def test_a_server_that_accepts_and_is_silent(provider: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        config: dict[str, Any] = {"provider": "metastore", "connection_timeout_seconds": 1}
        match provider:
            case "zookeeper":
                config |= {"provider": "zookeeper", "hosts": hosts}
            case "metastore-thrift":
                config |= {"url": f"thrift://{hosts}"}
            case "metastore-postgresql":
                config |= {"url": f"postgresql+psycopg://hudi@{hosts}/lake"}
        begun = time.monotonic()
        with pytest.raises(LockUnavailableError, match=hosts):
            open_lock(config, Storage(str(tmp_path))).acquire()
        assert time.monotonic() - begun < BUSY


def test_a_bucket_that_does_not_exist(s3: TcpProxy) -> None:
    lock = open_lock({"provider": "storage"}, Storage("s3://nowhere/t", s3_options(s3.port)))
    begun = time.monotonic()
    with pytest.raises(LockUnavailableError, match=r"s3://nowhere/t.*bucket"):
        lock.acquire()
    assert time.monotonic() - begun < BUSY


def test_storage_that_has_no_conditional_writes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConnectionError, match="writes on a condition"):
        open_lock({"provider": "storage"}, Storage(str(tmp_path)))

"""Every lock provider that works between processes, each on a real backend."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.contender import Contender
from tests.processes.locks.curator import java_gateway
from tests.processes.metastore.hive_metastore import hive_metastore
from tests.processes.metastore.metastore_service import metastore_service
from tests.processes.servers import (
    Postgres,
    TcpProxy,
    ZookeeperServer,
    free_port,
    postgresql,
    s3_endpoint,
    zookeeper,
)

METASTORES = ["metastore-sqlite", "metastore-postgresql", "metastore-service", "hive-metastore"]
PROVIDERS = ["filesystem", "hudi_filesystem", "sqlite", "postgresql", "storage", "zookeeper", *METASTORES]
SERVERS = [
    "postgresql",
    "storage",
    "zookeeper",
    "metastore-postgresql",
    "metastore-service",
    "hive-metastore",
]
LOCK_TIMEOUT_SECONDS = 8
"""Seconds for which a silent holder keeps its lock, if the metastore decides that."""

BUSY = 45.0
"""Seconds of delay on a busy machine that a test accepts; fewer than the timeout that would end its wait."""

FAIR = ["filesystem", "sqlite", "postgresql", "zookeeper", *METASTORES]


@dataclass
class Backend:
    """The backend of a provider's locks, with a table of its own.

    :param config: provider and options.
    :param root: the table's location.
    :param storage_options: options of the table's storage.
    :param slack: seconds by which this backend may find an expired lease later than other backends.
    :param longest_lease: the most seconds for which the backend lets a silent holder keep its lock.
    """

    config: Mapping[str, Any]
    root: str
    processes: ForkServerContext
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    slack: float = 0.0
    longest_lease: float = 60.0
    stop: Callable[[], None] = lambda: None
    start: Callable[[], object] = lambda: None
    contenders: list[Contender] = field(default_factory=list)

    def contender(self, **options: Any) -> Contender:
        """A contender in a process of its own, which ends with the test."""
        contender = Contender(self.processes, {**self.config, **options}, self.root, self.storage_options)
        self.contenders.append(contender)
        return contender

    def lock(self, **options: Any) -> LockProvider:
        """A contender in this process."""
        return open_lock({**self.config, **options}, Storage(self.root, self.storage_options))


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def jvm() -> Iterator[JavaGateway]:
    with java_gateway() as gateway:
        yield gateway


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpProxy]:
    """An S3 endpoint with a bucket ``lake``, behind a proxy."""
    with s3_endpoint(tmp_path_factory.mktemp("s3") / "server.log") as port:
        proxy = TcpProxy(port)
        Storage("s3://lake/t", s3_options(port))._filesystem.mkdir("lake")
        yield proxy
        proxy.close()


@pytest.fixture(scope="session")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpProxy]:
    """A Hive Metastore behind a proxy."""
    with hive_metastore(tmp_path_factory.mktemp("hive"), txn_timeout=LOCK_TIMEOUT_SECONDS) as port:
        proxy = TcpProxy(port)
        yield proxy
        proxy.close()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpProxy]:
    """Our metastore as a service of two processes, behind a proxy."""
    folder = tmp_path_factory.mktemp("service")
    options = ["--processes", "2", "--txn-timeout", str(LOCK_TIMEOUT_SECONDS), "--housekeeping-interval", "1"]
    with metastore_service(folder, f"sqlite:///{folder}/m.db", *options, port=free_port()) as running:
        proxy = TcpProxy(running.port)
        yield proxy
        proxy.close()


def s3_options(port: int) -> dict[str, Any]:
    return {
        "key": "somebody",
        "secret": "geheim-7",
        "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "eu-central-1"},
    }


@pytest.fixture
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, processes: ForkServerContext
) -> Iterator[Backend]:
    """The backend of a provider; tests parametrize it with a name of PROVIDERS."""
    made = _make(request, request.param, tmp_path, processes)
    yield made
    for contender in made.contenders:
        contender.kill()


def _make(request: pytest.FixtureRequest, name: str, folder: Path, processes: ForkServerContext) -> Backend:
    if name in METASTORES:
        return _make_metastore(request, name, folder, processes)
    if name in ("filesystem", "hudi_filesystem"):
        return Backend({"provider": name}, str(folder / "t"), processes)
    if name == "sqlite":
        config = {"provider": "database", "url": f"sqlite:///{folder}/locks.db"}
        return Backend(config, str(folder / "t"), processes)
    if name == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        config = {"provider": "database", "url": postgres.url}
        return Backend(config, str(folder / "t"), processes, stop=postgres.stop, start=postgres.start)
    if name == "storage":
        proxy: TcpProxy = request.getfixturevalue("s3")
        return Backend(
            {"provider": "storage", "poll_interval_seconds": 0.1},
            f"s3://lake/{uuid.uuid4().hex}",
            processes,
            s3_options(proxy.port),
            slack=2.0,  # S3's dates have whole seconds
            stop=proxy.cut,
            start=proxy.mend,
        )
    server: ZookeeperServer = request.getfixturevalue("zookeeper_server")

    def start() -> None:
        server.start()
        server.wait()

    config = {"provider": "zookeeper", "hosts": server.hosts}
    return Backend(config, str(folder / "t"), processes, slack=1.0, stop=server.kill, start=start)


def _make_metastore(
    request: pytest.FixtureRequest, name: str, folder: Path, processes: ForkServerContext
) -> Backend:
    config: dict[str, Any] = {"provider": "metastore", "database": "lake", "table": f"t_{uuid.uuid4().hex}"}
    root = str(folder / "t")
    if name == "metastore-sqlite":
        return Backend({**config, "url": f"sqlite:///{folder}/metastore.db"}, root, processes)
    if name == "metastore-postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        config["url"] = postgres.url
        return Backend(config, root, processes, stop=postgres.stop, start=postgres.start)
    proxy: TcpProxy = request.getfixturevalue("hive" if name == "hive-metastore" else "service")
    lease = LOCK_TIMEOUT_SECONDS * 0.75
    config |= {"url": f"thrift://127.0.0.1:{proxy.port}", "lease_seconds": lease}
    # A dead holder's lock lasts as long as the server says.
    slack = LOCK_TIMEOUT_SECONDS + 1
    return Backend(
        config, root, processes, slack=slack, longest_lease=lease, stop=proxy.cut, start=proxy.mend
    )

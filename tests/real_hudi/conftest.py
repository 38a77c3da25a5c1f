"""One JVM with the real Hudi for all tests here."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.servers import ZookeeperServer, zookeeper

from .jvm import Jvm, Session, running
from .one_lock import OneLock


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    # The path of a socket has a hundred characters at most, and pytest's folders are long.
    with tempfile.TemporaryDirectory(prefix="real-hudi-") as folder, running(Path(folder)) as jvm:
        yield jvm


@pytest.fixture
def hudi(jvm: Jvm) -> Iterator[Session]:
    """A Spark session of the test's own, in the JVM that all share."""
    session = jvm.session()
    yield session
    session.close()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZookeeperServer]:
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as folder, zookeeper(Path(folder)) as server:
        yield server


@pytest.fixture
def one_lock(zookeeper_server: ZookeeperServer, location: Path) -> OneLock:
    """A lock that both sides share."""
    return OneLock(zookeeper_server.hosts, location.name)


@pytest.fixture
def location(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where a test's table is; its name is no other test's, because the JVM has one catalog."""
    return tmp_path / re.sub(r"\W+", "_", request.node.name).strip("_")

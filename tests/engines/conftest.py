"""Real Hives 4.0.1, and one of our services for all tests here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.metastore_servers import postgresql
from tests.engines.hive.hive4 import hive4_metastore
from tests.processes.metastore.metastore_service import metastore_service


@dataclass(frozen=True)
class Server:
    """A metastore server that is ready.

    :param port: its port on the loopback interface.
    :param warehouse: URL of its warehouse.
    """

    port: int
    warehouse: str

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def hive4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The Hive of all tests that do not mind what another client has left in it."""
    with new_hive4(tmp_path_factory.mktemp("hive4")) as server:
        yield server


@contextmanager
def new_hive4(folder: Path) -> Iterator[Server]:
    """A Hive of its own, with an empty database.

    :param folder: for its log and its warehouse.
    """
    # Not in pytest's folders: for root the PostgreSQL runs as a user of its own.
    with tempfile.TemporaryDirectory(prefix="postgresql-") as data:
        Path(data).chmod(0o755)
        with postgresql(Path(data)) as database, hive4_metastore(folder, database.url) as port:
            yield Server(port, f"file:{folder}/warehouse")


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ours")
    warehouse = f"file:{folder}/warehouse"
    options = ("--warehouse", warehouse, "--manage-folders")
    with metastore_service(folder, f"sqlite:///{folder}/metastore.db", *options) as service:
        yield Server(service.port, warehouse)

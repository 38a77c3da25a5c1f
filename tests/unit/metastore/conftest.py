"""A metastore in a new SQLite file for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_provider.metastore import AnyMetastore, Column, Metastore, open_metastore
from airflow_provider.metastore.api.metastore import open_embedded_metastore
from airflow_provider.metastore.cache.cached_store import CachedStore
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from tests.unit.metastore.database.database_rows import change_rows

only_database = pytest.mark.parametrize("metastore", ["database"], indirect=True)
"""The mark of tests for features that Hive's protocol lacks, and for tests about the database."""


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a metastore with only the table ``lake.flights``."""
    file = tmp_path_factory.mktemp("metastore") / "new.db"
    create_flights(f"sqlite:///{file}")
    return file


def create_flights(url: str) -> None:
    """Make a metastore with the table ``lake.flights``."""
    metastore = open_metastore(url)
    metastore.create_database("lake")
    metastore.create_table(
        "lake",
        "flights",
        location="/lake/flights",
        schema=[Column("id", "bigint"), Column("dest", "string", "airport")],
        partition_keys=[Column("year", "int"), Column("month", "int")],
        parameters={"provider": "hudi"},
    )
    metastore.close()


@pytest.fixture
def empty_url(tmp_path: Path) -> str:
    """URL of an empty database."""
    return f"sqlite:///{tmp_path}/empty.db"


@pytest.fixture
def url(new_database: Path, tmp_path: Path) -> str:
    """URL of a copy of :func:`new_database`; its last event is 2."""
    file = tmp_path / "metastore.db"
    shutil.copy(new_database, file)
    return f"sqlite:///{file}"


@pytest.fixture
def by_database(url: str) -> Iterator[Metastore]:
    """An open metastore with the table ``lake.flights``, by its database."""
    opened = open_embedded_metastore(url, timeout_seconds=10)
    yield opened
    opened.close()


@pytest.fixture(params=["database", "server"])
def metastore(request: pytest.FixtureRequest, url: str) -> Iterator[AnyMetastore]:
    """An open metastore with the table ``lake.flights``; its last event is 2.

    Each test runs by its database, and by a server of it: both must act alike (:data:`only_database`).
    """
    with ExitStack() as stack:
        if request.param == "server":
            server = stack.enter_context(served(ServiceOptions(url, port=0), housekeeping=False))
            url = f"thrift://127.0.0.1:{server.port}"
        opened = open_metastore(url, timeout_seconds=60)
        stack.callback(opened.close)
        yield opened


@pytest.fixture
def silence(url: str) -> Callable[[int, float], None]:
    """A function that moves a transaction's last heartbeat into the past: ``silence(txn_id, seconds)``."""

    def silence(txn_id: int, seconds: float) -> None:
        moved = change_rows(
            url,
            "UPDATE metastore_txns SET heartbeat_at = heartbeat_at - :millis WHERE id = :id",
            millis=int(seconds * 1000),
            id=txn_id,
        )
        assert moved == 1

    return silence


@pytest.fixture
def replica(url: str) -> Iterator[Callable[..., CachedStore]]:
    """A function that makes a replica, which has begun and takes a step only when the test asks for one."""
    opened: list[CachedStore] = []

    def replica(name: str = "r1", **options: object) -> CachedStore:
        store = CachedStore(open_metastore(url), name, **options)  # type: ignore[arg-type]
        store.updater.begin()
        opened.append(store)
        return store

    yield replica
    for store in opened:
        store.close()


@pytest.fixture
def r1(replica: Callable[..., CachedStore]) -> CachedStore:
    """A replica that has ``lake.flights`` and its partitions in memory."""
    store = replica()
    store.updater.prewarm()
    return store

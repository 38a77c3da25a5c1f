"""A metastore in a new database of one PostgreSQL for each test, and a server of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from airflow_provider.metastore import AnyMetastore, open_metastore
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from tests.processes.servers import postgresql
from tests.unit.metastore.conftest import by_database, create_flights, r1, replica, silence

__all__ = ["by_database", "r1", "replica", "silence"]

_NUMBERS = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect tests that use no database: the unit tests run them."""
    here = Path(__file__).parent
    items[:] = [
        item
        for item in items
        if here not in item.path.parents or {"url", "empty_url"} & set(getattr(item, "fixturenames", ()))
    ]


@pytest.fixture(scope="session")
def server_of_databases() -> Iterator[Engine]:
    """A PostgreSQL server with the database ``flights``, which each test copies."""
    with postgresql() as running:
        engine = create_engine(running.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            # The test needs no durability: the machine stays on.
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        create_flights(_create(engine, "flights", template="template1"))
        yield engine
        engine.dispose()


@pytest.fixture
def url(server_of_databases: Engine) -> Iterator[str]:
    """URL of a metastore with the table ``lake.flights`` and 2 as the last event, as in the unit tests."""
    with new_database(server_of_databases, template="flights") as url:
        yield url


@pytest.fixture
def empty_url(server_of_databases: Engine) -> Iterator[str]:
    """URL of an empty database."""
    with new_database(server_of_databases, template="template1") as url:
        yield url


@pytest.fixture
def metastore(request: pytest.FixtureRequest, url: str) -> Iterator[AnyMetastore]:
    """The metastore by a server, except in tests marked ``only_database``."""
    if getattr(request, "param", "server") == "database":
        opened = open_metastore(url)
        yield opened
        opened.close()
        return
    with served(ServiceOptions(url, port=0), housekeeping=False) as server:
        opened = open_metastore(f"thrift://127.0.0.1:{server.port}", timeout_seconds=60)
        yield opened
        opened.close()


@contextmanager
def new_database(engine: Engine, *, template: str) -> Iterator[str]:
    name = f"test{next(_NUMBERS)}"
    yield _create(engine, name, template=template)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def _create(engine: Engine, name: str, *, template: str) -> str:
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"))
    return make_url(engine.url).set(database=name).render_as_string(hide_password=False)

"""A PostgreSQL that does not answer for a moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_provider.exceptions import MetastoreUnavailableError
from airflow_provider.metastore import Metastore
from airflow_provider.metastore.api import open_embedded_metastore
from tests.processes.servers import Postgres, postgresql


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgresql() as running:
        yield running


@contextmanager
def away(database: Postgres, metastore: Metastore) -> Iterator[None]:
    """Stop the database, and start it again a second later."""
    assert metastore.list_databases()
    database.stop()
    back = threading.Timer(1.0, database.start)
    back.start()
    try:
        yield
    finally:
        back.join()


def test_what_was_not_done_waits_for_it(database: Postgres) -> None:
    metastore = open_embedded_metastore(database.url)
    metastore.sql.outlast(60)
    with away(database, metastore):
        assert metastore.create_database("mart").name == "mart"
    with away(database, metastore):
        assert metastore.open_txn("me", "here") == 1
    with away(database, metastore):
        assert metastore.list_databases() == ["default", "mart"]
    metastore.close()


def test_without_patience_it_fails_at_once(database: Postgres) -> None:
    metastore = open_embedded_metastore(database.url)
    with away(database, metastore), pytest.raises(MetastoreUnavailableError):
        metastore.create_database("other")
    assert "other" not in metastore.list_databases()
    metastore.close()

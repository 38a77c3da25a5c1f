"""As on SQLite."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.processes.postgresql.conftest import new_database
from tests.unit.replication.by_servers.test_by_servers import *  # noqa: F403


@pytest.fixture
def pair_urls(server_of_databases: Engine, empty_url: str) -> Iterator[tuple[str, str]]:
    with new_database(server_of_databases, template="template1") as other:
        yield empty_url, other

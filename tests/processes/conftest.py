"""One Spark for all tests with processes: clients connect and are killed, the server stays."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.context import ForkServerContext

import pytest
from pyspark.sql.connect.session import SparkSession

from dags_examples.demo.spark_server import spark_connect_server
from tests.processes.forks import FORKS


@pytest.fixture(scope="session")
def spark_remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Spark Connect server."""
    with spark_connect_server(tmp_path_factory.mktemp("spark") / "server.log") as port:
        yield f"sc://127.0.0.1:{port}"
        # At exit, a session that outlives its server tries for minutes to reach it.
        if session := SparkSession.getActiveSession():
            session.stop()


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    return FORKS

"""A commit that another Hudi writer makes while it holds the real lock, and our writer that waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from airflow_provider.exceptions import WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import open_lock
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.instant import format_time, parse_time
from tests.processes.locks.curator import Curator
from tests.processes.servers import ZookeeperServer
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import (
    Jvm,
    create_trips,
    fares,
    only_file,
    rows,
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


@pytest.fixture
def config(zookeeper_server: ZookeeperServer, tmp_path: Path) -> dict[str, Any]:
    return {"provider": "zookeeper", "hosts": zookeeper_server.hosts, "base_path": f"/{tmp_path.name}"}


@pytest.fixture
def curator(jvm: JavaGateway, config: dict[str, Any]) -> Iterator[Curator]:
    curator = Curator(jvm, config["hosts"], f"{config['base_path']}/trips")
    yield curator
    curator.close()


class OurWriter(threading.Thread):
    """An ingestion of this package that waits for the lock."""

    def __init__(self, table: HudiTable, config: dict[str, Any], on_conflict: str) -> None:
        super().__init__()
        self.table, self.on_conflict = table, on_conflict
        self.lock = open_lock({**config, "owner": "ours"}, table.storage)
        self.result: dict[str, Any] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = ingest_arrow(
                self.table, rows({1: 10.0}), lock=self.lock, on_conflict=self.on_conflict
            )
        except WriteConflictError as error:
            self.error = error


@pytest.mark.parametrize("on_conflict", ["raise", "rebase"])
def test_a_commit_made_under_curators_lock_is_met_by_who_waits_for_it(
    table: HudiTable, config: dict[str, Any], curator: Curator, on_conflict: str
) -> None:
    observer = open_lock(config, table.storage)
    other = Jvm(table)
    other.completion_time = _in_an_hour(other.instant)  # the other writer's clock is ahead
    assert curator.acquire(5000)
    ours = OurWriter(table, config, on_conflict)
    assert ours.lock.excludes_hudi
    ours.start()
    while observer.waiters() != ["ours"]:
        assert ours.is_alive()
        time.sleep(0.01)
    other.upsert({2: 5.0}, into=only_file(table))
    assert fares(table) == {1: 1.0, 2: 5.0}
    curator.mutex.release()
    ours.join()
    if on_conflict == "raise":
        assert f"UPSERT {other.instant} by another Hudi writer" in str(ours.error)
        assert fares(table) == {1: 1.0, 2: 5.0}
    else:
        assert ours.result["rebases"] == 1
        assert ours.result["completion_time"] > other.completion_time
        assert fares(table) == {1: 10.0, 2: 5.0}


def _in_an_hour(instant: str) -> str:
    return format_time(parse_time(instant) + timedelta(hours=1))

"""A large batch, and an ingestion that keeps committing into the same file groups: both get through."""

from __future__ import annotations

from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.locks import open_lock
from airflow_provider.table import HudiTable
from tests.processes.table import services
from tests.processes.table.agreement import check
from tests.processes.table.services import Rows

BATCH, STEADY = range(40_000), range(300)
BACKFILLS = 3
PARTITIONS = "pqr"


def rows(ids: range, value: int) -> Rows:
    return {f"{number:06}": (value, PARTITIONS[number % len(PARTITIONS)]) for number in ids}


def upsert(location: str, name: str, batch: Rows, priority: str) -> None:
    table = HudiTable.open(location)
    usual: dict[str, Any] = {"heartbeat_interval": 10.0, "tolerable_misses": 6}
    lock = open_lock({"timeout_seconds": 300.0}, table.storage)
    services.upsert(table, name, batch, priority=PRIORITIES[priority], lock=lock, **usual)


def _steady(location: str, begun: Event, stop: Event, told: Queue[tuple[int, list[str]]]) -> None:
    """Upsert into every partition, without a pause."""
    commits, failures = 0, []
    while not stop.is_set():
        try:
            upsert(location, f"steady-{commits}", rows(STEADY, commits), "ingestion")
            commits += 1
            begun.set()
        except Exception as error:
            failures.append(repr(error))
    told.put((commits, failures))


def test_a_backfill_ends_beside_steady_ingestion(processes: ForkServerContext, tmp_path: Path) -> None:
    location = services.create(str(tmp_path / "t")).location
    backfills = {f"backfill-{number}": rows(BATCH, -1 - number) for number in range(BACKFILLS + 1)}
    upsert(location, "backfill-0", backfills["backfill-0"], "backfill")
    begun, stop, told = processes.Event(), processes.Event(), processes.Queue()
    steady = processes.Process(target=_steady, args=(location, begun, stop, told))
    steady.start()
    try:
        assert begun.wait(300)
        for number in range(1, BACKFILLS + 1):
            name = f"backfill-{number}"
            upsert(location, name, backfills[name], "backfill")
    finally:
        stop.set()
        commits, failures = told.get(timeout=300)
        steady.join()
    assert failures == []
    print(f"{commits} commits of the ingestion beside {BACKFILLS} of the backfill")
    ingested = {f"steady-{number}": rows(STEADY, number) for number in range(commits)}
    check(HudiTable.open(location), backfills | ingested, [*backfills, *ingested])

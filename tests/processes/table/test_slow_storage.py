"""A slow storage that fails at any operation, before or after the operation takes effect.

Writers upsert on it. With every fourth seed a clusterer, a cleaner, a process that rolls dead writers back
and an index build run beside them. Now and then an operation, in any thread, takes longer than lease and
heartbeat last.

``EXAMPLES`` says how many seeds there are.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from airflow_provider.concurrency import rollback_dead_writers
from airflow_provider.exceptions import TableServiceError
from airflow_provider.table import HudiTable
from tests.processes.table import services
from tests.processes.table.agreement import check, recover
from tests.processes.table.faults import Act, with_faults
from tests.processes.table.services import Rows

SEEDS = range(int(os.environ.get("EXAMPLES", "8")))
WRITERS = 3
WRITES, WRITES_BESIDE_SERVICES = 8, 4
SLOW, SLOWEST_SECONDS = 0.05, 0.01
STUCK = 0.0002
FAILING = 0.003

FIRST: Rows = {f"k{n}": (0, "pq"[n % 2]) for n in range(6)}


def _slow_and_failing(location: str, chance: random.Random) -> HudiTable:
    def fault(moment: str) -> Act:
        def act(operation: str, path: str) -> None:
            if chance.random() < SLOW:
                time.sleep(chance.uniform(0, SLOWEST_SECONDS))
            if chance.random() < STUCK:
                time.sleep(services.SILENT_SECONDS)
            if chance.random() < FAILING:
                raise OSError(errno.EIO, f"{moment} {operation}", path)

        return act

    return with_faults(location, fault("before"), fault("after"))


def _write(location: str, seed: int, writer: int, writes: int, told: Queue[tuple[str, Rows, str]]) -> None:
    chance = random.Random(f"{seed} {writer}")
    table = _slow_and_failing(location, chance)
    for number in range(writes):
        name = f"{writer}-{number}"
        keys = [*chance.sample(sorted(FIRST), 2), f"new-{chance.randrange(6)}", name]
        rows = {key: (100 * writer + number, FIRST.get(key, (0, "p"))[1]) for key in keys}
        try:
            services.upsert(table, name, rows)
        except (OSError, TableServiceError) as error:
            told.put((name, rows, repr(error)))
        else:
            told.put((name, rows, ""))


INDEXES = ("files", "column_stats", "record_index")
SERVICES: dict[str, Callable[[HudiTable, random.Random], object]] = {
    "clustering": lambda table, chance: services.cluster(table, f"part={chance.choice('pq')}"),
    "cleaning": lambda table, chance: services.clean(table),
    "rollback": lambda table, chance: rollback_dead_writers(table),
    "index build": lambda table, chance: services.build_index(table, chance.choice(INDEXES)),
}


def _serve(
    location: str, seed: int, service: str, stopped: Event, told: Queue[tuple[str, Counter[str]]]
) -> None:
    chance = random.Random(f"{seed} {service}")
    table = _slow_and_failing(location, chance)
    ends: Counter[str] = Counter()
    while not stopped.wait(chance.uniform(0, 0.1)):
        try:
            services.carry_out_plans(table)
            ends["done" if SERVICES[service](table, chance) else "nothing to do"] += 1
        except (OSError, TableServiceError) as error:
            ends[type(error).__name__] += 1
    told.put((service, ends))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_there_and_nothing_by_halves(
    seed: int, processes: ForkServerContext, tmp_path: Path
) -> None:
    table = services.create(str(tmp_path / "t"))
    services.upsert(table, "first", FIRST)
    told = processes.Queue()
    served_by = SERVICES if seed % 4 == 0 else {}
    writes_each = WRITES_BESIDE_SERVICES if served_by else WRITES
    writers = [
        processes.Process(target=_write, args=(table.location, seed, writer, writes_each, told))
        for writer in range(WRITERS)
    ]
    stopped, served = processes.Event(), processes.Queue()
    servants = [
        processes.Process(target=_serve, args=(table.location, seed, service, stopped, served))
        for service in served_by
    ]
    for each in (*writers, *servants):
        each.start()
    outcomes = [told.get(timeout=400) for _ in range(WRITERS * writes_each)]
    stopped.set()
    ends = dict(served.get(timeout=400) for _ in servants)
    for each in (*writers, *servants):
        each.join()
    writes = {name: rows for name, rows, _ in outcomes} | {"first": FIRST}
    acknowledged = {name for name, _, error in outcomes if not error} | {"first"}
    failed = [error for _, _, error in outcomes if error]
    print(f"seed {seed}: {len(acknowledged)} acknowledged, failed: {failed}; services: {ends}")
    assert failed or any("OSError" in each for each in ends.values()), "no fault came through"
    recover(table)
    check(table, writes, acknowledged)

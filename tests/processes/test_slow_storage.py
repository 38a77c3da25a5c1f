"""A storage that is slow and fails, at any operation, before or after it was done.

``EXAMPLES`` says how many seeds there are.
"""

from __future__ import annotations

import errno
import os
import random
import time
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from airflow_provider.exceptions import TableServiceError

from . import services
from .agreement import check, recover
from .faults import Act, with_faults
from .services import Rows

SEEDS = range(int(os.environ.get("EXAMPLES", "8")))
WRITERS = 3
WRITES = 8
SLOW, SLOWEST_SECONDS = 0.05, 0.01
FAILING = 0.003

FIRST: Rows = {f"k{n}": (0, "pq"[n % 2]) for n in range(6)}


def _write(location: str, seed: int, writer: int, told: Queue[tuple[str, Rows, str]]) -> None:
    chance = random.Random(f"{seed} {writer}")

    def fault(moment: str) -> Act:
        def act(operation: str, path: str) -> None:
            if chance.random() < SLOW:
                time.sleep(chance.uniform(0, SLOWEST_SECONDS))
            if chance.random() < FAILING:
                raise OSError(errno.EIO, f"{moment} {operation}", path)

        return act

    table = with_faults(location, fault("before"), fault("after"))
    for number in range(WRITES):
        name = f"{writer}-{number}"
        keys = [*chance.sample(sorted(FIRST), 2), f"new-{chance.randrange(6)}", name]
        rows = {key: (100 * writer + number, FIRST.get(key, (0, "p"))[1]) for key in keys}
        try:
            services.upsert(table, name, rows, heartbeat_interval=1.0)
        except (OSError, TableServiceError) as error:
            told.put((name, rows, repr(error)))
        else:
            told.put((name, rows, ""))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_there_and_nothing_by_halves(
    seed: int, processes: ForkServerContext, tmp_path: Path
) -> None:
    table = services.create(str(tmp_path / "t"))
    services.upsert(table, "first", FIRST)
    told = processes.Queue()
    writers = [
        processes.Process(target=_write, args=(table.location, seed, writer, told))
        for writer in range(WRITERS)
    ]
    for each in writers:
        each.start()
    outcomes = [told.get(timeout=120) for _ in range(WRITERS * WRITES)]
    for each in writers:
        each.join()
    writes = {name: rows for name, rows, _ in outcomes} | {"first": FIRST}
    acknowledged = {name for name, _, error in outcomes if not error} | {"first"}
    failed = [error for _, _, error in outcomes if error]
    print(f"seed {seed}: {len(acknowledged)} acknowledged, failed: {failed}")
    assert failed, "no fault came through"
    recover(table)
    check(table, writes, acknowledged)

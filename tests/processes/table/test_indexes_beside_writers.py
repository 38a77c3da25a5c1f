"""Indexes are built, dropped and built again beside writers, a clusterer and a cleaner.

All of them are killed at random moments. At the end every key is found through the index, and nothing else.

``SOAK=1`` kills for half an hour instead of a quarter of a minute.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from airflow_provider.exceptions import TableServiceError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.locks import open_lock
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from tests.processes.table import services
from tests.processes.table.agreement import by_log, check, committed, recover
from tests.processes.table.services import Rows

KILLS = 1600 if os.environ.get("SOAK") else 14
WRITES = 11
"""The least number of commits, however long they take."""

KEYS = 60
INDEXES = list(MetadataPartition)


def rows_of(name: str) -> Rows:
    """The rows that the write of this name upserts; a key is always in the same partition."""
    chosen = random.Random(name)
    keys = chosen.sample(range(KEYS), chosen.randint(1, 6))
    return {f"k{key}": (chosen.randrange(10**6), "pq"[key % 2]) for key in keys}


def write(location: str, life: str) -> None:
    table = HudiTable.open(location)
    number = 0
    while True:
        name = f"{life}-{number}"
        with suppress(TableServiceError):
            services.upsert(table, name, rows_of(name), max_rebases=50)
        number += 1


def cluster(location: str, life: str) -> None:
    table, chosen = HudiTable.open(location), random.Random(life)
    while True:
        with suppress(TableServiceError):
            services.carry_out_plans(table)
            services.cluster(table, f"part={chosen.choice('pq')}")
        time.sleep(0.2)


def clean(location: str, life: str) -> None:
    while True:
        with suppress(TableServiceError):
            services.clean(HudiTable.open(location))
        time.sleep(0.3)


def index(location: str, life: str) -> None:
    chosen = random.Random(life)
    while True:
        table = HudiTable.open(location)
        with suppress(TableServiceError):
            if chosen.random() < 0.2:
                drop_index(table, [chosen.choice(INDEXES)], lock=open_lock(services.LOCK, table.storage))
            services.build_index(table, "record_index", *chosen.sample(INDEXES, 2), "column_stats")
            services.carry_out_plans(table)


ROLES: dict[str, Callable[[str, str], None]] = {
    "writer": write,
    "another writer": write,
    "clusterer": cluster,
    "cleaner": clean,
    "indexer": index,
}


def test_every_key_is_found_and_nothing_else(tmp_path: Path, processes: ForkServerContext) -> None:
    table = services.create(str(tmp_path / "t"))
    services.upsert(table, "first", rows_of("first"))
    chosen, lives, kills = random.Random(0), 0, 0
    running: dict[str, BaseProcess] = {}

    def begin(role: str) -> None:
        nonlocal lives
        lives += 1
        running[role] = processes.Process(target=ROLES[role], args=(table.location, f"{role} {lives}"))
        running[role].start()

    try:
        for role in ROLES:
            begin(role)
        while kills < KILLS or len(names_of_writes(table)) < WRITES:
            time.sleep(chosen.uniform(0.2, 2.0))
            role = chosen.choice(["indexer", *ROLES])
            assert running[role].is_alive(), f"{role} ended by itself"
            running[role].kill()
            running[role].join()
            begin(role)
            kills += 1
    finally:
        for process in running.values():
            process.kill()
            process.join()
    recover(table)
    for names in (INDEXES, ["record_index"]):
        services.build_index(table, *names)
    writes = {name: rows_of(name) for name in names_of_writes(table)}
    assert len(writes) >= WRITES
    check(table, writes, ["first"])
    found = dict(MetadataTable(metadata_storage(table.storage)).look_up("record_index", _all_keys()))
    assert found.keys() == by_log(table, writes).keys()


def names_of_writes(table: HudiTable) -> list[str]:
    return [name for _, name in committed(table) if name]


def _all_keys() -> list[str]:
    return [f"k{key}" for key in range(KEYS)]

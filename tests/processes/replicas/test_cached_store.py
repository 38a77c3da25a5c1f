"""Replicas in processes of their own over one PostgreSQL, with writers and readers; some are killed.

The test kills eight replicas, and shuts PostgreSQL down once and crashes it once; with ``SOAK=1`` fifteen
times as often.
"""

from __future__ import annotations

import os
import pickle
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.metastore import Column, Metastore, PartitionSpec, ReaderSession
from airflow_provider.metastore.api.metastore import open_embedded_metastore
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from tests.processes.forks import FORKS
from tests.processes.replicas.processes import (
    DATABASE,
    TABLES,
    TAG,
    Replica,
    read,
    shown,
    shown_partitions,
    write,
)
from tests.processes.replicas.serial_history import SerialHistory
from tests.processes.servers import Postgres, postgresql

KILLS = 120 if os.environ.get("SOAK") else 8
REPLICAS, WRITERS, READERS = 4, 8, 8


@pytest.fixture
def database() -> Iterator[Postgres]:
    with postgresql() as server:
        yield server


@pytest.fixture
def metastore(database: Postgres) -> Iterator[Metastore]:
    opened = open_embedded_metastore(database.url)
    opened.create_database(DATABASE)
    for name in TABLES:
        opened.create_table(
            DATABASE,
            name,
            location=f"/{name}",
            schema=[Column("id", "bigint")],
            partition_keys=[Column("part", "string")],
        )
    yield opened
    opened.close()


@pytest.fixture
def replicas(database: Postgres, metastore: Metastore) -> Iterator[list[Replica]]:
    with ExitStack() as stack:
        started = []
        for number in range(REPLICAS):
            started.append(Replica(database.url, f"r{number}"))
            stack.callback(started[-1].stop)
        yield started


def history(metastore: Metastore) -> SerialHistory:
    def events() -> Iterator[Any]:
        after = 0
        while page := metastore.next_events(after, 2_000):
            yield from page
            after = page[-1].event_id

    return SerialHistory(events())


def test_a_serial_history_explains_every_read(
    database: Postgres, metastore: Metastore, replicas: list[Replica], tmp_path: Path
) -> None:
    stop, uris = FORKS.Event(), [one.uri for one in replicas]
    roles = {f"w{number}": write for number in range(WRITERS)} | {
        f"r{number}": read for number in range(READERS)
    }
    running = [
        FORKS.Process(target=role, args=(uris, name, stop, tmp_path / name), daemon=True)
        for name, role in roles.items()
    ]
    for one in running:
        one.start()
    begun, chance = time.monotonic(), random.Random(5)
    for number in range(KILLS):
        time.sleep(1)
        if number % 4 == 1:
            (database.stop if number % 8 == 1 else database.crash)()
            time.sleep(0.5)
            database.start()
        victim = chance.choice(replicas)
        victim.kill()
        victim.start()
    until = time.monotonic() + 300
    while not any(one.hits for one in replicas) and time.monotonic() < until:
        time.sleep(0.1)
    stop.set()
    for one in running:
        one.join(300)
        assert one.exitcode == 0

    told = history(metastore)
    reads, transactions = 0, 0
    for name, role in roles.items():
        found = pickle.loads((tmp_path / name).read_bytes())
        if role is read:
            reads += len(found)
            told.check(found)
        else:
            transactions += len(found.transactions)
            told.check_reported(found)
    assert told.last == metastore.current_event_id()
    for table in TABLES:
        partitions = shown_partitions(metastore.get_partitions(DATABASE, table))
        assert told.agrees(table, metastore.get_table(DATABASE, table).owner, partitions)
    hits, misses = (sum(getattr(one, what) for one in replicas) for what in ("hits", "misses"))
    # The reads that a replica reported before it was killed. The number of hits depends on the machine. A
    # check below makes sure that memory answers all reads when no process is killed any more.
    assert hits, f"no read answered from memory, {misses} by the database"
    print(
        f"\nin {time.monotonic() - begun:.0f} s {reads} reads, {hits} from memory and {misses} not, "
        "by the replicas' count, "
        f"{told.from_memory} of them older than the database, {transactions} "
        f"transactions, {told.last} events, {KILLS} replicas killed, PostgreSQL away {KILLS // 4} times"
    )
    _check_in_peace(database, metastore, replicas)


class _Rounds:
    """Ends a reader after some rounds."""

    def __init__(self, left: int) -> None:
        self._left = left

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self, timeout: float) -> None:
        """Do not wait."""


@pytest.mark.parametrize("is_sabotaged", [False, True])
def test_a_replica_that_answers_from_stale_copies_is_found(
    database: Postgres, metastore: Metastore, tmp_path: Path, is_sabotaged: bool
) -> None:
    """The readers and the check are the same as above."""
    replica = Replica(database.url, "r0", is_sabotaged=is_sabotaged)
    try:
        seen = metastore.read_snapshot([(DATABASE, table) for table in TABLES]).tables
        with closing(ThriftMetastore(replica.uri, timeout_seconds=60)) as server:
            for table in TABLES:  # this read fills the replica's memory
                shown([server], table, seen[f"{DATABASE}.{table}"], True, ReaderSession())
        for table in TABLES:
            metastore.alter_table(DATABASE, table, owner="new")
            metastore.add_partitions(DATABASE, table, [PartitionSpec(("p",), f"/{table}/p", {TAG: table})])
        read([replica.uri], "r1", _Rounds(5), tmp_path / "r1")
    finally:
        replica.stop()
    reads, told = pickle.loads((tmp_path / "r1").read_bytes()), history(metastore)
    if is_sabotaged:
        with pytest.raises(AssertionError, match="no state from event"):
            told.check(reads)
    else:
        told.check(reads)


def _check_in_peace(database: Postgres, metastore: Metastore, replicas: list[Replica]) -> None:
    """After all kills and pauses, each replica reaches the log's end, and then needs no database."""
    head = {one.name: metastore.current_event_id() for one in replicas}
    until = time.monotonic() + 300
    while {one.name: one.event_id for one in metastore.consumers()} != head:
        assert time.monotonic() < until, f"at {metastore.consumers()}, not at {head}"
        time.sleep(0.1)
    seen = metastore.read_snapshot([(DATABASE, table) for table in TABLES]).tables
    there = {table: shown_partitions(metastore.get_partitions(DATABASE, table)) for table in TABLES}

    def found(replica: Replica) -> dict[str, str]:
        with closing(ThriftMetastore(replica.uri, timeout_seconds=60)) as server:
            return {
                table: shown([server], table, seen[f"{DATABASE}.{table}"], True, ReaderSession())
                for table in TABLES
            }

    assert all(found(replica) == there for replica in replicas)
    database.stop()
    try:
        assert all(found(replica) == there for replica in replicas)
    finally:
        database.start()

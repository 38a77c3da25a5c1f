"""Replicas in processes of their own over one PostgreSQL, among writers and readers, and killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider.metastore import (
    Column,
    Metastore,
    PartitionSpec,
    ReadSnapshot,
    ValidWriteIdList,
    open_metastore,
)
from airflow_provider.metastore.cached_store import CacheStatistics, Reader
from tests.processes.replicas import PROCESSES, TABLES, Replica, write
from tests.processes.servers import postgresql
from tests.unit.metastore.first_schema import check_upgrade

READS = 150


@pytest.fixture
def url() -> Iterator[str]:
    with postgresql() as server:
        yield server.url


@pytest.fixture
def metastore(url: str) -> Iterator[Metastore]:
    opened = open_metastore(url)
    opened.create_database("lake")
    for name in (*TABLES, "notes"):
        opened.create_table(
            "lake",
            name,
            location=f"/lake/{name}",
            schema=[Column("id", "bigint")],
            partition_keys=[Column("writer", "string"), Column("write_id", "bigint")],
        )
    yield opened
    opened.close()


def reader_of(snapshot: ReadSnapshot, table: str) -> Reader:
    one = snapshot.tables[f"lake.{table}"]
    return {"valid_write_ids": one.write_ids, "table_id": one.table_id}


def write_ids_in(partitions: list[Any]) -> set[int]:
    return {int(one.values[1]) for one in partitions}


def visible(write_ids: ValidWriteIdList) -> set[int]:
    return {one for one in range(1, write_ids.high_watermark + 1) if write_ids.is_valid(one)}


def check_read(metastore: Metastore, replica: Replica, seen: dict[str, set[int]], table: str) -> None:
    """One reader goes from replica to replica, each time with a snapshot of now."""
    snapshot = metastore.read_snapshot([("lake", table)])
    reader = reader_of(snapshot, table)
    assert reader["valid_write_ids"] is not None
    shown = write_ids_in(replica.ask("get_partitions", "lake", table, **reader))
    wanted = visible(reader["valid_write_ids"])
    assert wanted <= shown
    # Nothing that was committed and seen is lost.
    assert seen[table] <= wanted
    seen[table] = wanted


def check_own_write(metastore: Metastore, replicas: list[Replica], table: str) -> None:
    """What a transaction wrote, and did not commit, through every replica."""
    txn_id = metastore.open_txn("reader", "here")
    write_id = metastore.allocate_table_write_id(txn_id, "lake", table)
    spec = PartitionSpec(("reader", str(write_id)), "/p")
    metastore.add_partitions("lake", table, [spec], txn_id=txn_id)
    own = reader_of(metastore.read_snapshot([("lake", table)], txn_id), table)
    for replica in replicas:
        assert write_id in write_ids_in(replica.ask("get_partitions", "lake", table, **own))
    metastore.commit_txn(txn_id)


def test_replicas_killed_among_writers_show_what_readers_see(url: str, metastore: Metastore) -> None:
    replicas = [Replica(url, f"r{number}") for number in range(3)]
    for replica in replicas:
        replica.ask("catch_up")
    stop = PROCESSES.Event()
    writers = [
        PROCESSES.Process(target=write, args=(url, f"w{number}", stop), daemon=True) for number in (0, 1)
    ]
    for writer in writers:
        writer.start()
    seen: dict[str, set[int]] = {table: set() for table in TABLES}
    chance = random.Random(5)
    for number in range(1, READS + 1):
        check_read(metastore, chance.choice(replicas), seen, chance.choice(TABLES))
        if number % 20 == 0:
            check_own_write(metastore, replicas, chance.choice(TABLES))
        if number in (READS // 3, READS // 2):
            victim = chance.choice(replicas)
            victim.kill()
            victim.start()
    stop.set()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert min(map(len, seen.values())) > READS // 20
    events = [event.event_id for event in metastore.next_events(0, 1_000_000)]
    assert events == list(range(1, len(events) + 1))
    # In peace, memory answers; and who waits for the replicas sees how far they are.
    snapshot = metastore.read_snapshot([("lake", table) for table in TABLES])
    for replica in replicas:
        assert replica.ask("catch_up") == events[-1]
        for table in TABLES:
            replica.ask("get_partitions", "lake", table, **reader_of(snapshot, table))
            before: CacheStatistics = replica.ask("statistics")
            shown = replica.ask("get_partitions", "lake", table, **reader_of(snapshot, table))
            assert shown == metastore.get_partitions("lake", table)
            assert replica.ask("statistics").hits == before.hits + 1
    assert {one.name: one.event_id for one in metastore.consumers()} == dict.fromkeys(
        ("r0", "r1", "r2"), events[-1]
    )
    for replica in replicas:
        replica.stop()


def test_a_database_of_the_first_schema_keeps_its_data() -> None:
    with postgresql() as server:
        check_upgrade(server.url)

"""Consumers of a table with concurrent real writers in threads: rebases, reverts, clustering."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.exceptions import CommitError
from airflow_provider.table import Order, increment, snapshot
from airflow_provider.table.timeline.instant import Action
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string()})


def batch(ids: range | list[int], value: str, part: str = "a") -> list[dict[str, Any]]:
    return [{"id": number, "part": part, "value": value} for number in ids]


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.create(SCHEMA, partition_by=["part"])
    made.ingest("bulk_insert", [*batch(range(20), "old"), *batch(range(20), "old", "b")])
    return made


class Consumer:
    def __init__(self, table: LakeTable, order: Order) -> None:
        self.table = table.table
        self.order = order
        self.checkpoint: str | None = None
        self.copy: dict[tuple[str, int], str] = {}
        self.told: list[str] = []

    def poll(self) -> None:
        found = increment(self.table, self.checkpoint, order=self.order)
        for row in found.scanner().to_table().to_pylist():
            self.copy[row["part"], row["id"]] = row["value"]
        self.told += [i.requested_time for i in found.commits if i.action is not Action.REPLACE_COMMIT]
        self.checkpoint = found.end

    def caught_up(self) -> None:
        self.poll()
        rows = snapshot(self.table).to_table().to_pylist()
        assert self.copy == {(row["part"], row["id"]): row["value"] for row in rows}
        commits = {i.requested_time for i in self.table.timeline().commits() if i.action is Action.COMMIT}
        assert set(self.told) >= commits
        if self.order is not Order.REQUESTED:
            assert len(self.told) == len(set(self.told))


@pytest.mark.parametrize("order", list(Order))
def test_a_rebased_write_and_what_it_was_merged_on(table: LakeTable, order: Order) -> None:
    """The real rebase: the later request completes first, the earlier one goes into a new file group."""
    consumer = Consumer(table, order)
    consumer.poll()

    def overtake() -> None:
        table.ingest("upsert", batch([1, 2], "overtook"))
        consumer.poll()

    result = table.ingest(
        "upsert", batch([2, 3], "rebased"), lock=MeetingLock(overtake), on_conflict="rebase"
    )
    assert result["action"] == "replacecommit"
    consumer.caught_up()
    assert [consumer.copy["a", number] for number in (1, 2, 3, 4)] == [
        "overtook",
        "rebased",
        "rebased",
        "old",
    ]


@pytest.mark.parametrize("order", list(Order))
def test_a_rewrite_that_was_read_and_is_reverted(table: LakeTable, order: Order) -> None:
    consumer = Consumer(table, order)
    clustering = Clustering(table.table, "part=a")

    def cluster_and_read() -> None:
        clustering.commit()
        consumer.poll()

    table.ingest("upsert", batch([3], "new"), lock=MeetingLock(cluster_and_read), on_rewrite="revert")
    assert table.table.timeline().find(clustering.instant) is None
    consumer.caught_up()
    assert consumer.copy["a", 3] == "new"


def test_consumers_among_writers(table: LakeTable) -> None:
    failures: list[BaseException] = []

    def work(act: Callable[[random.Random, int], object], seed: int, times: int) -> None:
        chance = random.Random(seed)
        for number in range(times):
            try:
                act(chance, number)
            except BaseException as error:
                failures.append(error)
                raise

    def write(seed: int) -> Callable[[random.Random, int], object]:
        options = {"on_conflict": "rebase", "max_rebases": 100}
        if seed % 2:
            options |= {"on_rewrite": "revert", "priority": PRIORITIES["ingestion"] + 1}

        def act(chance: random.Random, number: int) -> None:
            ids = sorted(chance.sample(range(30), 4))
            rows = batch(ids, f"{seed}.{number}", chance.choice("ab"))
            table.ingest("upsert", rows, on_higher_priority="wait", **options)

        return act

    def cluster(chance: random.Random, number: int) -> None:
        with suppress(CommitError):
            Clustering(table.table, f"part={chance.choice('ab')}").commit()

    threads = [threading.Thread(target=work, args=(write(seed), seed, 6)) for seed in range(4)]
    threads.append(threading.Thread(target=work, args=(cluster, 9, 6)))
    consumers = [Consumer(table, order) for order in Order]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for consumer in consumers:
            consumer.poll()
    for thread in threads:
        thread.join()
    assert not failures
    for consumer in consumers:
        consumer.caught_up()

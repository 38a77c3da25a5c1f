"""A clustering that splits buckets, killed before each of its changes of the storage."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.services.clustering import ClusteringSettings
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.table_options import change_options
from airflow_provider.table.bucket_index import HASHING_METADATA
from airflow_provider.table.storage import Storage
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.sweep import share_of
from tests.unit.ingestion.buckets.test_bucket_resizing import SPLITS, resize
from tests.unit.ingestion.buckets.test_consistent_buckets import check_places, make, ring, rows

KEYS = [f"k{n}" for n in range(60)]
CHANGES = ("put", "put_if_absent", "move_if_absent", "delete", "create")


class KilledError(BaseException):
    """Raised where the process dies: no later operation of it has an effect."""


class Kill:
    """A storage that ends this process, as far as the storage can see, before one of its changes."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int) -> None:
        self.left, self.made = at, 0
        for name in CHANGES:
            patch.setattr(Storage, name, self._counting(getattr(Storage, name)))

    def _counting(self, change: Any) -> Any:
        def changed(storage: Storage, *given: Any, **named: Any) -> Any:
            if self.left <= 0:
                raise KilledError
            self.left, self.made = self.left - 1, self.made + 1
            return change(storage, *given, **named)

        return changed


def planned(lake: Lake) -> LakeTable:
    table = make(lake)
    table.ingest("insert", [*rows(KEYS, "1"), *rows(KEYS[:9], "1", "b")])
    change_options(table.table, SPLITS)
    assert schedule_clustering(table.table, ClusteringSettings()) is not None
    return table


def changes(lake: Lake) -> int:
    with pytest.MonkeyPatch.context() as patch:
        table = planned(lake)
        kill = Kill(patch, 10_000)
        assert cluster_in_process(table.table) is not None
    return kill.made


@pytest.mark.parametrize("killed_at", share_of(range(1, 40)))
def test_it_is_undone_or_done_and_the_next_one_goes_on(lake: Lake, killed_at: int) -> None:
    table = planned(lake)
    before = ring(table)
    with pytest.MonkeyPatch.context() as patch:
        kill = Kill(patch, killed_at)
        with suppress(KilledError):
            cluster_in_process(table.table)
        assert kill.made <= killed_at
    for beat in (Path(table.location) / HEARTBEAT_FOLDER).glob("*"):
        os.utime(beat, (0, 0))
    assert table.rows() == in_order([*rows(KEYS, "1"), *rows(KEYS[:9], "1", "b")])
    table.ingest("upsert", [*rows(KEYS[::2], "2"), *rows(KEYS[:9], "2", "b")], on_conflict="rebase")
    check_places(table.table)
    now = ring(table)
    for partition in ("p=a", "p=b"):
        folder = Path(table.location) / HASHING_METADATA / partition
        there = {each.name.partition(".")[0] for each in folder.iterdir()}
        assert there == {before.instant, now.instant}
    table.check_now([*rows(KEYS[::2], "2"), *rows(KEYS[1::2], "1"), *rows(KEYS[:9], "2", "b")])
    if now == before:
        resize(table, SPLITS)
    assert len(ring(table).nodes) == 4
    check_places(table.table)


def test_the_sweep_reaches_its_end(lake: Lake) -> None:
    assert 10 < changes(lake) <= 40

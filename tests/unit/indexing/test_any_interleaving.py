"""Indexes are planned, built and dropped beside actors that begin, pause and die anywhere.

The number of runs is a tenth of ``INTERLEAVINGS``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from airflow_provider.concurrency.conflicts import pending_writes
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.services.cleaning.cleaning import pending_cleans, run_clean
from airflow_provider.services.compaction import compact
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.table.file_groups.view import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from tests.unit.concurrency.simulation.actors import add_writer
from tests.unit.concurrency.simulation.rows import read_snapshot
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.concurrency.simulation.test_any_interleaving import (
    STEPS,
    TURNS,
    UPSERTS,
    Interleaving,
    OnAnObjectStore,
    Upsert,
)
from tests.unit.indexing.test_killed import complete, drops, drops_all, indexes_of, runs, schedules
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

WORK: dict[str, Callable[[HudiTable], object]] = {
    "planner": schedules,
    "builder": runs,
    "dropper": drops,
    "dropper of all": drops_all,
    "compactor": partial(compact, settings=CompactionSettings(max_delta_commits=1), lock=NoLock()),
}


@cache
def indexed(done: int, *, merge_on_read: bool = False) -> Simulation:
    """A table with three commits, and between them nothing, an indexing plan, or a plan and its run."""
    simulation = Simulation(merge_on_read=merge_on_read)
    for number, keys in enumerate("abc"):
        add_writer(simulation, f"first-{keys}", keys)
        simulation.run([])
        for work in [(), (schedules, runs)[:done], ()][number]:
            simulation.add(work.__name__, _tolerant(work))
            simulation.run([])
    return simulation


class IndexedInterleaving(Interleaving):
    """The machine without indexes, with two actors of each kind that changes the indexes."""

    @initialize(done=st.integers(0, 2), upsert=st.sampled_from(UPSERTS), merge_on_read=st.booleans())
    def a_table(self, done: int, upsert: Upsert, merge_on_read: bool) -> None:
        self.simulation = indexed(done, merge_on_read=merge_on_read).copy()
        self.simulation.moves_atomically = self.moves_atomically
        self._begin_upsert(upsert)

    @rule(kind=st.sampled_from(sorted(WORK)), turns=TURNS)
    def indexer_begins(self, kind: str, turns: bytes) -> None:
        self._count.setdefault(kind, 0)
        if self._count[kind] < 2:
            self.simulation.add(self._named(kind), _tolerant(WORK[kind]))
        self.go_on(turns)

    def teardown(self) -> None:
        super().teardown()
        table = HudiTable.at(self.simulation.table().storage)
        by_listing = FileSystemView(table.storage, table.timeline())
        assert read_snapshot(table.storage, table.view()) == read_snapshot(table.storage, by_listing)
        for instant in pending_cleans(table):  # until then, the index lists files that are already deleted
            run_clean(table, instant, lock=NoLock())
        assert_indexes_equal_a_rebuild(table)
        whole = complete(self.simulation)
        assert_indexes_equal_a_rebuild(whole, indexes_of(whole))


class IndexedOnAnObjectStore(IndexedInterleaving, OnAnObjectStore):
    """The same on storage that moves no file in one step and may lose answers."""

    moves_atomically = False


def _tolerant(work: Callable[[HudiTable], object]) -> Callable[[HudiTable, Actor], None]:
    def act(table: HudiTable, actor: Actor) -> None:
        with suppress(NoSuchInstantError):  # its indexes are dropped
            work(table)

    return act


@pytest.mark.parametrize("machine", [IndexedInterleaving, IndexedOnAnObjectStore])
def test_any_interleaving(machine: type[IndexedInterleaving], monkeypatch: pytest.MonkeyPatch) -> None:
    tried = max(12, int(os.environ.get("INTERLEAVINGS", "0")) // 10)
    monkeypatch.setattr(pending_writes, "_LOOK_EVERY_SECONDS", 0.0)  # each look is a step already
    run_state_machine_as_test(
        machine, settings=settings(max_examples=tried, stateful_step_count=STEPS, deadline=None)
    )

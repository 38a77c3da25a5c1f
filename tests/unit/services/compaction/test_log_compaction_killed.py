"""A log compaction of a merge-on-read table, killed, doubled or overtaken before each storage operation."""

from __future__ import annotations

from functools import cache

import pytest

from airflow_provider.services.table_compaction.log_compaction import LogCompactionSettings, compact_logs
from airflow_provider.table.files.log_file import HeaderKey
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.slices import file_slices
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import REBASE, add_log_compactor, add_writer
from tests.unit.concurrency.simulation.invariants import check, recover
from tests.unit.concurrency.simulation.rows import read_snapshot
from tests.unit.concurrency.simulation.scheduler import NoLock, Simulation

TWO = LogCompactionSettings(blocks=2)
SEEN = {"a": ["w0", "w1", "w2"], "b": ["w0"], "c": ["w0", "w2", "w3"]}
SEEN_AFTER = {**SEEN, "a": [*SEEN["a"], "w4"], "b": [*SEEN["b"], "w4"]}


def written() -> Simulation:
    """A table with two file groups, and two log files in both."""
    return _written().copy()


@cache
def _written() -> Simulation:
    simulation = Simulation(merge_on_read=True)
    for name, keys in (("w0", "ab"), ("w0", "c"), ("w1", "a"), ("w2", "ac"), ("w3", "c")):
        add_writer(simulation, name, keys)
        simulation.run([])
    return simulation


@cache
def operations() -> int:
    simulation = written()
    before = len(simulation.trace)
    add_log_compactor(simulation, "compactor")
    simulation.run([])
    assert blocks(simulation) == [1, 1]
    return len(simulation.trace) - before


def seen(simulation: Simulation) -> dict[str, list[str]]:
    table = simulation.table()
    return read_snapshot(table.storage, table.view())


def blocks(simulation: Simulation) -> list[int]:
    """The numbers of log blocks that readers merge, of each file group."""
    table = simulation.table()
    reader = SliceReader.of(table, table.view())
    return [len(reader.blocks(each)) for each in file_slices(table)]


def compacted(simulation: Simulation) -> int:
    """The number of log blocks that replace others."""
    table = simulation.table()
    reader = SliceReader.of(table, table.view())
    return sum(
        HeaderKey.COMPACTED_BLOCK_TIMES in block.header
        for each in file_slices(table)
        for block in reader.blocks(each)
    )


@pytest.mark.parametrize("killed_at", share_of(range(operations())))
def test_a_killed_log_compaction_is_undone_or_done_and_the_next_one_goes_on(killed_at: int) -> None:
    simulation = written()
    add_log_compactor(simulation, "compactor")
    simulation.run([0] * killed_at + [900])
    assert seen(simulation) == SEEN
    recover(simulation)
    compact_logs(simulation.table(), TWO, lock=NoLock())
    assert blocks(simulation) == [1, 1]
    assert seen(simulation) == SEEN
    check(simulation)
    assert compact_logs(simulation.table(), TWO, lock=NoLock()) == []


@pytest.mark.parametrize("overtaken_at", share_of(range(0, operations(), 2)))
def test_two_log_compactors_complete_a_plan_once(overtaken_at: int) -> None:
    simulation = written()
    add_log_compactor(simulation, "compactor")
    add_log_compactor(simulation, "executor")
    simulation.run([0] * overtaken_at + [1] * 500)
    assert blocks(simulation) == [1, 1]
    assert compacted(simulation) == 2
    assert seen(simulation) == SEEN
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(operations())))
def test_an_upsert_that_overtakes_a_log_compaction_loses_nothing_and_waits_for_nobody(
    overtaken_at: int,
) -> None:
    simulation = written()
    add_log_compactor(simulation, "compactor")
    add_writer(simulation, "w4", "ab", policy=REBASE)
    simulation.run([0] * overtaken_at + [1] * 500)
    assert "w4" in simulation.committed()
    assert seen(simulation) == SEEN_AFTER
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(0, 40, 2)))
def test_an_upsert_that_a_log_compaction_overtakes_comes_after_it_or_begins_again(overtaken_at: int) -> None:
    simulation = written()
    add_writer(simulation, "w4", "ab", policy=REBASE)
    add_log_compactor(simulation, "compactor")
    simulation.run([0] * overtaken_at + [1] * 500)
    if "w4" not in simulation.committed():
        # The compacted block has the later requested time. Ingestion then begins its write again, too.
        assert seen(simulation) == SEEN
        add_writer(simulation, "w4", "ab", policy=REBASE)
        simulation.run([])
    assert seen(simulation) == SEEN_AFTER
    check(simulation)

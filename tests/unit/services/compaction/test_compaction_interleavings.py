"""Compactors beside writers and all other services, one storage operation at a time."""

from __future__ import annotations

import os
from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from airflow_provider.concurrency.log.log_entry import Revert, Rollback
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.cleaning.cleaning import pending_cleans, run_clean
from airflow_provider.services.compaction import pending_compactions
from airflow_provider.table import HudiTable
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.records import FileList
from tests.unit.concurrency.simulation.actors import (
    REVERT,
    add_archiver,
    add_clusterer,
    add_compactor,
    add_writer,
)
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.reading_actors import add_reader
from tests.unit.concurrency.simulation.rows import PARTITION
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.concurrency.simulation.test_any_interleaving import (
    STEPS,
    TURNS,
    UPSERTS,
    Interleaving,
    Upsert,
)

SHARES = 4


def index_files(simulation: Simulation) -> None:
    """Give a table the index ``files``."""

    def work(table: HudiTable, actor: Actor) -> None:
        instant = schedule_index(table, [MetadataPartition.FILES], lock=NoLock())
        assert instant is not None
        run_index(table, instant, lock=NoLock())

    simulation.add("indexer", work)
    simulation.run([])


@cache
def indexed() -> Simulation:
    """A table with an index and three commits, a file group each."""
    simulation = Simulation()
    index_files(simulation)
    for keys in "abc":
        add_writer(simulation, f"first-{keys}", keys)
        simulation.run([])
    return simulation


@cache
def compacted() -> Simulation:
    """That table with archived instants, also of the metadata table, and a later commit."""
    simulation = indexed().copy()
    for name in ("first", "second"):
        for add in (add_archiver, add_compactor):
            add(simulation, name)
            simulation.run([])
        add_writer(simulation, f"after the {name}", "a")
        simulation.run([])
    return simulation


def check_index(simulation: Simulation) -> None:
    """After :func:`check`: check that the index lists exactly the data files, and none of a dead writer."""
    table = simulation.table()
    for instant in pending_cleans(table):  # its files may be deleted already
        run_clean(table, instant, lock=NoLock())
    dead = {entry.rolls_back for entry in simulation.entries() if isinstance(entry, Rollback | Revert)}
    found: dict[str, int] = {}
    for status in table.storage.list(PARTITION):
        parsed = parse_base_file_name(status.name)
        if parsed is not None and parsed[2] not in dead:
            found[status.name] = status.size
    records = dict(MetadataTable(metadata_storage(table.storage)).records(MetadataPartition.FILES))
    listed = records.get(PARTITION, FileList({}))
    assert isinstance(listed, FileList)
    said = {name: size for name, size in listed.sizes().items() if _instant(name) not in dead}
    assert said == found


def _instant(name: str) -> str:
    return (parse_base_file_name(name) or ("", "", ""))[2]


class CompactedInterleaving(Interleaving):
    """The machine without an index, with its rules, and compactors among the actors."""

    @initialize(upsert=st.sampled_from(UPSERTS))
    def a_table(self, upsert: Upsert) -> None:
        self.simulation = indexed().copy()
        self._begin_upsert(upsert)

    @rule(turns=TURNS)
    def compactor_begins(self, turns: bytes) -> None:
        self._count.setdefault("compactor", 0)
        if self._count["compactor"] < 4:
            add_compactor(self.simulation, self._named("compactor"))
        self.go_on(turns)

    def teardown(self) -> None:
        super().teardown()
        check_index(self.simulation)


@pytest.mark.parametrize("share", range(SHARES))
def test_any_interleaving_of_compactors_keeps_the_index(share: int) -> None:
    examples = max(1, int(os.environ.get("INTERLEAVINGS", "400")) // (10 * SHARES))
    machine = settings(max_examples=examples, stateful_step_count=STEPS)
    run_state_machine_as_test(CompactedInterleaving, settings=machine)  # type: ignore[no-untyped-call]


def test_a_clustering_is_undone_while_a_writer_that_is_rebased_onto_it_lists_the_files() -> None:
    """The index lacks the files of the clustering by then, and the writer's moment shows no others."""
    simulation = indexed().copy()
    add_writer(simulation, "first", "a")
    simulation.run([])
    for name in "bc":
        add_writer(simulation, f"upserts {name}", name, policy=REVERT)
        simulation.go_on_to(simulation.actors[-1], ".inflight")
        add_clusterer(simulation, f"clusterer of {name}")
        simulation.go_on(simulation.actors[-1])
    _, listing, _, reverting, _ = simulation.actors
    simulation.go_on_to(reverting, "put_if_absent .hoodie/commit_log/0")
    simulation.go_on_to(listing, "list .hoodie/metadata/files")
    simulation.go_on_to(reverting, "rollback.requested")
    simulation.run([])
    check(simulation)
    check_index(simulation)


def test_two_compactors_and_a_writer_take_turns() -> None:
    for ahead in range(0, 80, 4):
        simulation = Simulation()
        index_files(simulation)
        for name in ("w1", "w2"):
            add_writer(simulation, name, "ab")
            simulation.run([])
        add_compactor(simulation, "first")
        add_compactor(simulation, "second")
        add_writer(simulation, "w3", "a")
        add_reader(simulation)
        simulation.run([0] * ahead + [1] * (100 - ahead))
        check(simulation)
        check_index(simulation)
        assert pending_compactions(simulation.table()) == []


def test_the_metadata_table_may_be_dropped_at_any_moment() -> None:
    stands_still_at = 0
    while True:
        simulation = compacted().copy()
        add_compactor(simulation, "compactor")
        (compactor,) = simulation.running()
        simulation.go_on(compactor, stands_still_at)
        if compactor.done:
            break
        drop_index(simulation.table(), [MetadataPartition.FILES], lock=NoLock())
        simulation.run([])
        assert compactor.failure is None or isinstance(compactor.failure, NoSuchInstantError)
        stands_still_at += 1
    assert stands_still_at > 20

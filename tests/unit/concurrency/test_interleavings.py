"""Any interleaving, with kills and pauses at any storage operation, keeps the invariants."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.concurrency import rollback_dead_writers
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.hudi_table import HudiTable

from .invariants import check
from .simulation import Actor, Simulation

A, B, C = FileGroupId("p", "a-0"), FileGroupId("p", "b-0"), FileGroupId("q", "c-0")

steps = st.one_of(st.integers(0, 899), st.integers(0, 899), st.integers(0, 899), st.integers(900, 999))


def run(groups: list[set[FileGroupId]], schedule: list[int]) -> Simulation:
    simulation = Simulation()
    for number, wanted in enumerate(groups):
        simulation.add_writer(f"w{number}", wanted)
    simulation.add("sweeper", _sweep)
    simulation.add_reader("reader", {A, B, C}, times=4)
    simulation.run(schedule)
    check(simulation)
    return simulation


def _sweep(table: HudiTable, actor: Actor) -> None:
    rollback_dead_writers(table)


@settings(max_examples=int(os.environ.get("INTERLEAVINGS", "150")))
@given(
    groups=st.lists(st.sets(st.sampled_from([A, B, C]), min_size=1), min_size=2, max_size=3),
    schedule=st.lists(steps, max_size=250),
)
def test_any_interleaving_keeps_the_invariants(groups: list[set[FileGroupId]], schedule: list[int]) -> None:
    run(groups, schedule)


def test_a_writer_alone_commits() -> None:
    simulation = run([{A, B}], [])
    assert [acknowledged.writer for acknowledged in simulation.acknowledged] == ["w0"]


def test_of_two_writers_of_one_file_group_one_wins() -> None:
    simulation = run([{A}, {A}], [0, 1] * 200)
    assert len(simulation.acknowledged) == 1


def test_writers_of_different_file_groups_both_commit() -> None:
    simulation = run([{A}, {B}, {C}], [0, 1, 2] * 200)
    assert len(simulation.acknowledged) == 3


# A commit is 24 storage operations.
@pytest.mark.parametrize("killed_at", range(24))
def test_killed_at_every_operation(killed_at: int) -> None:
    simulation = run([{A, C}, {B}], [0] * killed_at + [900])
    assert "w1" in {acknowledged.writer for acknowledged in simulation.acknowledged}


@pytest.mark.parametrize("killed_at", range(24))
@pytest.mark.parametrize("other_at", [9, 12, 16])
def test_killed_at_every_operation_beside_a_writer_under_way(killed_at: int, other_at: int) -> None:
    # w1 has begun already, so that only its own commit can find what w0 left unpublished.
    simulation = run([{A, C}, {B}], [1] * other_at + [0] * killed_at + [900] + [0] * 80)
    assert "w1" in {acknowledged.writer for acknowledged in simulation.acknowledged}


@pytest.mark.parametrize("paused_at", range(24))
@pytest.mark.parametrize("groups_of_other", [{A}, {B}], ids=["same-group", "other-group"])
def test_paused_past_its_heartbeat_at_every_operation(
    paused_at: int, groups_of_other: set[FileGroupId]
) -> None:
    # w0 stands still after `paused_at` operations; its heartbeat expires; w1 comes, rolls it
    # back and commits; then w0 wakes up and has to lose, whatever the groups are.
    simulation = run([{A}, groups_of_other], [0] * paused_at + [950] + [1] * 120)
    writers = {acknowledged.writer for acknowledged in simulation.acknowledged}
    assert "w1" in writers
    # Its requested time is taken in operation 9, its log entry put in operation 17.
    assert ("w0" in writers) == (not 9 <= paused_at <= 16) or groups_of_other == {A}
    assert "w0" not in writers or not 9 <= paused_at <= 16


@pytest.mark.parametrize("paused_at", range(12, 18))
@pytest.mark.parametrize("swept", range(1, 24))
def test_a_rollback_races_a_commit(paused_at: int, swept: int) -> None:
    # w0 wakes up in the middle of its rollback, before and after the rollback's log entry:
    # its data files may be gone only if it can no more commit.
    run([{A}], [0] * paused_at + [950] + [1] * swept + [0] * 60)

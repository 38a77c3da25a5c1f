"""Any interleaving, with kills and pauses at any storage operation, keeps the invariants."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
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


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@pytest.mark.parametrize("killed_at", range(60))
def test_killed_at_every_operation(killed_at: int) -> None:
    simulation = run([{A, C}, {B}], [0] * killed_at + [900])
    assert "w1" in {acknowledged.writer for acknowledged in simulation.acknowledged}


@pytest.mark.parametrize("paused_at", range(45))
def test_paused_past_its_heartbeat_at_every_operation(paused_at: int) -> None:
    # w0 stands still after `paused_at` operations; its heartbeat expires; w1 comes, rolls it
    # back and commits; then w0 wakes up.
    run([{A}, {A}], [0] * paused_at + [950] + [1] * 120)

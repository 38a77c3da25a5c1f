"""Clusterings that the JVM's Hudi has planned, or this package, and the engine that executes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import WriteConflictError
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    pending_clusterings,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table.timeline.instant import Action
from tests.real_hudi.in_turn.shared_table import SharedTable, rows
from tests.real_hudi.jvm import HudiError, Session

PLANNED = rows(range(5, 25), 100, 2)
"""Rows that go into file groups of the plan."""


@pytest.fixture
def shared(hudi: Session, location: Path) -> SharedTable:
    """A table with two file groups in each partition, written by the JVM and by this package."""
    shared = SharedTable.of_the_jvm(hudi, location, rows(range(20), 0))
    shared.theirs(rows(range(20, 30), 0), "bulk_insert")
    shared.ours(rows(range(30, 34), 0), "bulk_insert")
    return shared


def theirs(shared: SharedTable, what: str) -> list[dict[str, Any]]:
    return shared.sql(f"call run_clustering(table => '{{t}}', op => '{what}')")


def the_jvm_plans(shared: SharedTable) -> None:
    theirs(shared, "schedule")  # it returns the part that is left to execute, and not always the whole plan
    pending = [each.action for each in shared.table.timeline().pending()]
    assert pending == [Action.CLUSTERING]


def test_ours_does_not_write_into_what_the_jvm_has_planned(shared: SharedTable) -> None:
    the_jvm_plans(shared)
    with pytest.raises(WriteConflictError):
        shared.ours(PLANNED)
    shared.check()
    theirs(shared, "execute")
    shared.check()
    shared.ours(PLANNED)
    shared.check()


def test_the_jvm_does_not_either(shared: SharedTable) -> None:
    the_jvm_plans(shared)
    with pytest.raises(HudiError, match=r"[Cc]lustering"):
        shared.theirs(PLANNED)
    theirs(shared, "execute")
    shared.check()


def test_ours_deletes_nothing_of_what_the_jvm_has_planned(shared: SharedTable) -> None:
    the_jvm_plans(shared)
    with pytest.raises(WriteConflictError):
        shared.ours_deletes(["k0001"])
    theirs(shared, "execute")
    shared.check()


def test_the_jvm_does_not_write_into_what_ours_has_planned(shared: SharedTable) -> None:
    assert schedule_clustering(shared.table, ClusteringSettings())
    with pytest.raises(HudiError, match=r"[Cc]lustering"):
        shared.theirs(PLANNED)
    shared.check()
    cluster_in_process(shared.table)
    shared.check()
    shared.theirs(PLANNED)
    shared.check()


def test_the_jvm_carries_out_what_ours_has_planned(shared: SharedTable) -> None:
    assert schedule_clustering(shared.table, ClusteringSettings())
    theirs(shared, "execute")
    shared.check()
    assert not pending_clusterings(shared.table)
    shared.ours(PLANNED)
    shared.check()


def test_ours_plans_nothing_of_what_the_jvm_has_planned(shared: SharedTable) -> None:
    the_jvm_plans(shared)
    assert schedule_clustering(shared.table, ClusteringSettings()) is None
    theirs(shared, "execute")
    shared.check()


def test_the_jvm_finds_nothing_of_ours_to_carry_out_where_ours_has_written_since(shared: SharedTable) -> None:
    assert schedule_clustering(shared.table, ClusteringSettings())
    shared.ours(PLANNED)
    theirs(shared, "execute")
    shared.check()

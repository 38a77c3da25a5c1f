"""A replicator that is killed at any step, or runs twice from there: the next one continues without harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider.exceptions import ReplicationLeaseError
from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.metastore import PartitionSpec
from airflow_provider.replication import Replicator
from tests.unit.replication.pair import Pair
from tests.unit.replication.tables.test_table_services import cluster
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SAMPLE = 1 if os.environ.get("SOAK") else 29
"""The test tries one of this many steps."""


class KilledError(BaseException):
    """Raised where the process dies."""


def history(pair: Pair) -> None:
    """A history with a change of every kind."""
    lake = pair.lake
    early, aborted = lake.begin(), lake.begin()
    lake.write("trips", {200: 1}, early)
    lake.write("riders", {100: 7}, aborted)
    for key in (1, 2):
        lake.write("trips", {key: key}, operation="bulk_insert")
    lake.abort(aborted)
    cluster(lake.tables["trips"])
    pair.source.add_partitions("lake", "trips", [PartitionSpec(("sf",), f"{pair.root}/source/trips/city=sf")])
    lake.write("trips", {1: 11})
    lake.commit(early)
    pair.source.rename_table("lake", "riders", "lake", "drivers")
    pair.source.create_function("lake", "f", "F")


def prepare(root: Path, *, is_following: bool) -> Pair:
    root.mkdir()
    pair = Pair(root)
    pair.lake.write("trips", {100: 5})
    schedule_index(pair.lake.tables["trips"], ["files", "record_index"])
    run_index(pair.lake.tables["trips"])
    if is_following:
        pair.replicate()
    history(pair)
    return pair


def check(pair: Pair) -> None:
    pair.replicate()
    pair.check_equal()
    assert_indexes_equal_a_rebuild(pair.copy_of("trips"))
    assert pair.mapped() == {}
    assert pair.replicate().bytes_copied == 0


def at_step(number: int, do: Callable[[], None]) -> tuple[Callable[[str], None], list[str]]:
    """A ``step`` that calls a function once, at a certain number, and records the names of the steps."""
    names: list[str] = []

    def step(name: str) -> None:
        names.append(name)
        if len(names) - 1 == number:
            do()

    return step, names


def killed() -> None:
    raise KilledError


@pytest.mark.parametrize("is_following", [False, True], ids=["bootstrap", "following"])
def test_killed_at_any_step(tmp_path: Path, is_following: bool) -> None:
    pair = prepare(tmp_path / "counted", is_following=is_following)
    step, names = at_step(-1, killed)
    pair.replicator(step).run()
    check(pair)
    for number in range(0, len(names), SAMPLE):
        pair = prepare(tmp_path / f"{number}", is_following=is_following)
        step, _ = at_step(number, killed)
        with pytest.raises(KilledError):
            pair.replicator(step).run()
        copied = pair.bytes_at_target()
        check(pair)
        assert pair.replicator().status().bytes_copied <= pair.bytes_at_target(), (number, copied)


@pytest.mark.parametrize("is_following", [False, True], ids=["bootstrap", "following"])
def test_doubled_at_any_step(tmp_path: Path, is_following: bool) -> None:
    """One replicator pauses, a second one does its work without the lease, and the first one goes on."""
    count = 10**6
    number = SAMPLE // 2
    while number < count:
        pair = prepare(tmp_path / f"{number}", is_following=is_following)
        first = pair.replicator()
        second = pair.replicator()
        second.owner = first.owner
        step, names = at_step(number, lambda second=second: run(second))
        first.step = first._copier.step = step
        first.run()
        check(pair)
        count = len(names)
        number += SAMPLE


def run(replicator: Replicator) -> None:
    replicator.run()


def test_two_at_once_are_kept_apart_by_the_lease(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    refused = []

    def step(name: str) -> None:
        if not refused:
            with pytest.raises(ReplicationLeaseError, match="is at it"):
                pair.replicate()
            refused.append(name)

    pair.replicator(step).run()
    assert refused
    pair.replicate()

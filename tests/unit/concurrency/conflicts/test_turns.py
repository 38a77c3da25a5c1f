"""A commit waits for the lock only if another process holds it: the log alone makes a commit safe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES, CommitLog
from airflow_provider.concurrency.conflicts.turns import TURN_SECONDS, turn_seconds, why_no_turn_helps
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER
from airflow_provider.exceptions import LockTimeoutError, LockUnavailableError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import InProcessLockProvider, LockHolder
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.storage.storage import Storage

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


class Counting(InProcessLockProvider):
    """A lock that counts how often it is acquired."""

    taken = 0

    def acquire(self, timeout: float | None = None) -> None:
        super().acquire(timeout)
        self.taken += 1


class Overtaken(Storage):
    """A storage on which another writer puts an entry before each put of this writer, this many times."""

    times = 0
    overtake: Callable[[], object]

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.times and path.startswith(f"{COMMIT_LOG_FOLDER}/"):
            self.times -= 1
            self.overtake()
        return super().put_if_absent(path, data)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    ingest_arrow(made, rows(1))
    return made


@pytest.fixture
def lock() -> Counting:
    return Counting(f"lock {id(object())}")


def rows(key: int, city: str = "sf") -> pa.Table:
    return pa.table({"id": [key], "city": [city]}, SCHEMA)


def keys(table: HudiTable) -> list[int]:
    return sorted(snapshot(table).to_table()["id"].to_pylist())


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_who_is_alone_takes_no_lock(table: HudiTable, lock: Counting, operation: str) -> None:
    ingest_arrow(table, rows(2), operation, lock=lock)
    assert (keys(table), lock.taken) == ([1, 2], 0)


def test_a_lock_that_other_hudi_writers_share_is_always_taken(table: HudiTable, lock: Counting) -> None:
    lock.excludes_hudi = True
    ingest_arrow(table, rows(2), lock=lock)
    assert (keys(table), lock.taken) == ([1, 2], 2)  # at its begin, and at its commit


def test_a_backend_that_does_not_answer_at_once_is_waited_for(table: HudiTable) -> None:
    class Unreachable(Counting):
        def holder(self) -> LockHolder | None:
            raise LockUnavailableError("the backend is restarted")

    ingest_arrow(table, rows(2), lock=(lock := Unreachable("unreachable")))
    assert (keys(table), lock.taken) == ([1, 2], 1)


def test_while_somebody_has_it_nobody_commits(table: HudiTable) -> None:
    head, mine = CommitLog(table.storage).head(), InProcessLockProvider("held", timeout_seconds=0.05)
    with InProcessLockProvider("held"), pytest.raises(LockTimeoutError, match="held by"):
        ingest_arrow(table, rows(2), lock=mine)
    (rolled_back,) = CommitLog(table.storage).after(head)
    assert rolled_back.rolls_back
    assert keys(table) == [1]


@pytest.mark.parametrize(("times", "turns"), [(1, 0), (4, 0), (5, 1), (20, 1)])
def test_who_loses_its_place_again_and_again_waits_for_its_turn(
    table: HudiTable, lock: Counting, times: int, turns: int
) -> None:
    """A writer that read the log before a turn began may still overtake the writer that has the turn."""
    others = iter(range(100, 200))
    storage = Overtaken(table.location)
    storage.overtake = lambda: ingest_arrow(table, rows(next(others), "la"))
    storage.times = times
    result = ingest_arrow(HudiTable(storage, table.config), rows(2), lock=lock)
    assert (lock.taken, result["rebases"]) == (turns, 0)
    assert keys(table) == [1, 2, *range(100, 100 + times)]


@pytest.mark.parametrize("overtaken", range(1, 7))
def test_a_conflict_is_met_whichever_entry_it_is_with(
    table: HudiTable, lock: Counting, overtaken: int
) -> None:
    """Each try checks only the entries since the previous try."""
    storage, cities = Overtaken(table.location), iter(["la"] * (overtaken - 1) + ["sf"])
    keys_ = iter(range(100, 200))
    storage.overtake = lambda: ingest_arrow(table, rows(next(keys_), next(cities)))
    storage.times = overtaken
    result = ingest_arrow(HudiTable(storage, table.config), rows(2), lock=lock, on_conflict="rebase")
    assert (lock.taken, result["rebases"]) == (1, 1)
    assert keys(table) == [1, 2, *range(100, 100 + overtaken)]


@pytest.mark.parametrize("name", PRIORITIES)
def test_a_turn_is_as_long_as_that_of_the_next_lower_named_priority(name: str) -> None:
    assert turn_seconds(PRIORITIES[name]) == turn_seconds(PRIORITIES[name] + 1) == TURN_SECONDS[name]


def test_below_all_names_a_turn_is_that_of_the_lowest() -> None:
    lowest = min(PRIORITIES, key=PRIORITIES.__getitem__)
    assert turn_seconds(PRIORITIES[lowest] - 1) == TURN_SECONDS[lowest]


def test_only_a_merge_that_takes_longer_than_its_turn_is_told_so() -> None:
    assert why_no_turn_helps(30.0, 30.0) == ""
    assert "takes about 31 s" in why_no_turn_helps(31.0, 30.0)
    assert "for 30 s at most" in why_no_turn_helps(31.0, 30.0)

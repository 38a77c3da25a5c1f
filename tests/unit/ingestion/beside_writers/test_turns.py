"""A batch that others overtake again and again gets through; other writers wait for it, up to a limit."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES, WriteSettings, begin_write
from airflow_provider.concurrency.conflicts import turns
from airflow_provider.concurrency.conflicts.turns import LOSSES_BEFORE_A_TURN, turn_seconds
from airflow_provider.concurrency.write import committing
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import InProcessLockProvider, LockHolder
from airflow_provider.table import HudiTable
from tests.ingestion_contract.lake import Lake, LakeTable

NOT_FILLED = {"small_file_limit": 0}
BACKFILL: dict[str, Any] = {"priority": PRIORITIES["backfill"], "on_conflict": "rebase", **NOT_FILLED}

SCHEMA = pa.schema({"id": pa.int64(), "value": pa.string()})


def row(id_: int, value: str) -> dict[str, Any]:
    return {"id": id_, "value": value}


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.create(SCHEMA)
    made.ingest("upsert", [row(1, "old"), row(2, "old"), row(3, "old")])
    return made


class AlwaysLate(InProcessLockProvider):
    """The lock of a write that another writer overtakes whenever the write does not hold it.

    :param other: the action of the other writer.
    """

    def __init__(self, other: Callable[[], object]) -> None:
        super().__init__(f"always late {id(self)}")
        self._other = other

    def holder(self) -> LockHolder:
        return LockHolder("another", 0, 0.0)

    def acquire(self, timeout: float | None = None) -> None:
        self._other()
        super().acquire(timeout)


@pytest.fixture
def merges_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make merges take too long for the lock without a turn, but not too long for a turn."""
    monkeypatch.setattr(committing, "SHORT_TURN_SECONDS", -1.0)


def overtaker(table: LakeTable) -> Callable[[], object]:
    values = itertools.count()
    return lambda: table.ingest("upsert", [row(1, f"theirs-{next(values)}"), row(2, "theirs")])


@pytest.mark.usefixtures("merges_take_long")
def test_who_is_overtaken_each_time_takes_a_turn(table: LakeTable) -> None:
    mine = [row(1, "mine"), row(3, "mine")]
    late = AlwaysLate(overtaker(table))
    result = ingest_arrow(table.location, table.arrow(mine), "upsert", lock=late, **BACKFILL)
    assert result["rebases"] == LOSSES_BEFORE_A_TURN + 1
    table.check_now([*mine, row(2, "theirs")])


@pytest.mark.usefixtures("merges_take_long")
def test_no_turn_is_longer_than_the_bound_of_its_priority(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(turns.TURN_SECONDS, "backfill", 0.0)
    late = AlwaysLate(overtaker(table))
    with pytest.raises(WriteConflictError, match=r"after 10 rebases.* 0 s at most, so load fewer rows"):
        ingest_arrow(table.location, table.arrow([row(1, "mine")]), "upsert", lock=late, **BACKFILL)


@pytest.fixture
def steady(table: LakeTable) -> Iterator[Callable[[], None]]:
    """An ingestion of higher priority that is always in flight on the same file group."""
    opened = HudiTable.open(table.location)
    group = opened.view().all_base_files()[0].file_group
    writers = []

    def begins() -> None:
        writer = begin_write(
            opened, operation="UPSERT", settings=WriteSettings(priority=PRIORITIES["ingestion"])
        )
        writer.plan([group], early_check=False)
        writers.append(writer)

    begins()
    yield begins
    for writer in writers:
        writer.abort()


def test_who_gives_way_each_time_goes_first_in_the_end(
    table: LakeTable, steady: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gave_way = []

    def ends(table: HudiTable, instant: str, timeout: float) -> bool:
        gave_way.append(instant)
        steady()  # and the next one has begun
        return True

    for module in ("airflow_provider.concurrency.write.committing", "airflow_provider.ingestion.write_rows"):
        monkeypatch.setattr(f"{module}.wait_for_instant", ends)
    ingest_arrow(table.location, table.arrow([row(1, "mine")]), "upsert", **BACKFILL)
    assert len(gave_way) == LOSSES_BEFORE_A_TURN
    assert table.rows() == [row(1, "mine"), row(2, "old"), row(3, "old")]


def test_who_finds_a_turn_waits_for_it(table: LakeTable) -> None:
    """A commit looks for the holder of the lock, and waits while that holder merges."""
    lock, other = InProcessLockProvider("the table"), InProcessLockProvider("the table")
    lock.acquire()
    done = threading.Thread(
        target=lambda: ingest_arrow(table.location, table.arrow([row(1, "new")]), "upsert", lock=other)
    )
    done.start()
    while not lock.waiters() and done.is_alive():
        pass
    assert done.is_alive()
    lock.release()
    done.join()
    table.check_now([row(1, "new"), row(2, "old"), row(3, "old")])


@pytest.mark.parametrize(
    ("priority", "seconds"),
    [(900, 10.0), (400, 10.0), (399, 30.0), (300, 30.0), (200, 10.0), (100, 1.0), (0, 1.0)],
)
def test_the_bound_follows_from_the_priority(priority: int, seconds: float) -> None:
    assert turn_seconds(priority) == seconds

"""A write waits for writers of higher priority before it begins: the writers, and the limit of the wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES, Writer, WriteSettings, begin_write, pending_instants
from airflow_provider.concurrency.conflicts import yielding
from airflow_provider.concurrency.conflicts.pending_writes import writers_above
from airflow_provider.concurrency.conflicts.yielding import wait_for_higher_priority, writers_ahead
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path
from airflow_provider.exceptions import LockUnavailableError
from airflow_provider.locks import InProcessLockProvider
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.timeline.instant import Action, State
from tests.unit.concurrency.log.test_one_clock import silent_for

SCHEMA = pa.schema({"id": pa.int64()})
INGESTION, BACKFILL = PRIORITIES["ingestion"], PRIORITIES["backfill"]


class Lock(InProcessLockProvider):
    """A table lock with waiters."""

    waiting: Callable[[], list[str]] = staticmethod(lambda: [])

    def waiters(self) -> list[str]:
        return self.waiting()


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])


@pytest.fixture
def lock() -> Lock:
    return Lock("t")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yielding, "_LOOK_EVERY_SECONDS", 0.001)


def ingestion(table: HudiTable) -> Writer:
    return begin_write(table, operation="UPSERT", settings=WriteSettings(priority=INGESTION))


def test_only_live_writers_of_higher_priority_go_first(table: HudiTable, lock: Lock) -> None:
    with ingestion(table) as writer:
        (ahead,) = writers_ahead(table.storage, BACKFILL, lock)
        assert writer.instant in ahead
        assert writers_ahead(table.storage, INGESTION, lock) == []
        silent_for(table, heartbeat_path(writer.instant), 3600.0)
        assert writers_ahead(table.storage, BACKFILL, lock) == []


@pytest.mark.parametrize(
    ("operation", "action"), [("UPSERT", Action.COMMIT), ("INSERT_OVERWRITE", Action.REPLACE_COMMIT)]
)
def test_a_writer_of_higher_priority_says_its_file_groups_once_it_has_planned(
    table: HudiTable, operation: str, action: Action
) -> None:
    settings = WriteSettings(priority=INGESTION)
    with begin_write(table, operation=operation, action=action, settings=settings) as writer:
        (requested,) = writers_above(table.storage, BACKFILL)
        assert (requested.state, requested.file_groups) == (State.REQUESTED, frozenset())
        group = FileGroupId("", "a-0")
        writer.plan([group])
        (inflight,) = writers_above(table.storage, BACKFILL)
        assert (inflight.state, inflight.file_groups) == (State.INFLIGHT, {group})
        assert (inflight.instant, inflight.operation, inflight.priority, inflight.alive, inflight.owner) == (
            writer.instant,
            operation,
            INGESTION,
            True,
            writer.info.owner,
        )


def test_a_heartbeat_of_another_hudi_writer_that_has_no_instant_yet_is_a_pending_commit(
    table: HudiTable,
) -> None:
    table.storage.put(heartbeat_path("20260101000000000"), b"")
    (pending,) = pending_instants(table)
    assert (pending.instant, pending.action) == ("20260101000000000", Action.COMMIT)
    assert pending.age_seconds is not None


def test_a_heartbeat_that_a_completed_commit_left_is_no_pending_instant(table: HudiTable) -> None:
    completed = []
    for _ in range(2):
        with begin_write(table, operation="UPSERT") as writer:
            writer.plan([])
            writer.commit([])
        completed.append(writer.instant)
    table.storage.put(heartbeat_path(completed[0]), b"")
    assert pending_instants(table) == []


def test_who_waits_for_the_lock_goes_first_unless_its_heartbeat_says_its_priority(
    table: HudiTable, lock: Lock
) -> None:
    with begin_write(table, operation="UPSERT", settings=WriteSettings(priority=BACKFILL)) as writer:
        lock.waiting = lambda: ["a JVM", writer.info.owner]
        assert writers_ahead(table.storage, BACKFILL, lock) == ["a JVM, who waits for the table lock"]


def test_where_the_lock_does_not_answer_the_heartbeats_say_who_goes_first(
    table: HudiTable, lock: Lock
) -> None:
    def does_not_answer() -> list[str]:
        raise LockUnavailableError("it does not answer")

    lock.waiting = does_not_answer
    with ingestion(table) as writer:
        (ahead,) = writers_ahead(table.storage, BACKFILL, lock)
        assert writer.instant in ahead


def test_where_nobody_goes_first_nobody_waits(table: HudiTable, lock: Lock) -> None:
    told: list[list[str]] = []
    assert wait_for_higher_priority(table.storage, BACKFILL, lock, patience=60.0, on_wait=told.append) == 0.0
    assert told == []


def test_who_makes_way_waits_until_all_have_gone_first_and_tells_each_change(
    table: HudiTable, lock: Lock
) -> None:
    told: list[list[str]] = []
    looks = iter([["one", "other"], ["one", "other"], ["other"], []])
    lock.waiting = lambda: next(looks)
    waited = wait_for_higher_priority(table.storage, BACKFILL, lock, patience=60.0, on_wait=told.append)
    assert 0.0 < waited < 60.0
    assert [len(ahead) for ahead in told] == [2, 1]
    assert list(looks) == []


def test_without_patience_nobody_waits(table: HudiTable, lock: Lock) -> None:
    told: list[list[str]] = []
    lock.waiting = lambda: ["a JVM"]
    assert wait_for_higher_priority(table.storage, BACKFILL, lock, patience=0.0, on_wait=told.append) == 0.0
    assert told == []


def test_patience_ends(table: HudiTable, lock: Lock) -> None:
    lock.waiting = lambda: ["a JVM"]
    assert wait_for_higher_priority(table.storage, BACKFILL, lock, patience=0.05) >= 0.05


def test_who_is_stopped_waits_no_longer(table: HudiTable, lock: Lock) -> None:
    told: list[list[str]] = []
    lock.waiting = lambda: ["a JVM"]
    wait_for_higher_priority(
        table.storage, BACKFILL, lock, patience=600.0, is_stopped=lambda: bool(told), on_wait=told.append
    )
    assert len(told) == 1

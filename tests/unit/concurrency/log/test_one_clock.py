"""Only the storage's clock tells how old a file is, not this machine's clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import begin_write, pending_instants, rollback_dead_writers
from airflow_provider.concurrency.heartbeats.heartbeat import heartbeat_path, observe_above
from airflow_provider.concurrency.readers import reader_lease, register_consumer, registered_consumers
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import plan_archival
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.table import HudiTable, snapshot

SCHEMA = pa.schema({"id": pa.int64(), "value": pa.int64()})
EVERYTHING = Retention("KEEP_LATEST_FILE_VERSIONS", 1)

HOUR, MONTH = 3600.0, 30 * 24 * 3600.0

Wrong = Callable[[float], None]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])


@pytest.fixture
def clock_is_ahead(monkeypatch: pytest.MonkeyPatch) -> Wrong:
    """Make this machine's clock wrong by this many seconds."""
    right = time.time

    def wrong(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: right() + seconds)

    return wrong


def upsert(table: HudiTable, value: int) -> None:
    ingest_arrow(HudiTable.open(table.location), pa.Table.from_pylist([{"id": 1, "value": value}]), "upsert")


def silent_for(table: HudiTable, path: str, seconds: float) -> None:
    status = table.storage.stat(path)
    assert status is not None
    os.utime(table.storage.url(path), (status.modified - seconds, status.modified - seconds))


@pytest.mark.parametrize("ahead", [70.0, MONTH, -70.0, -MONTH])
def test_a_writer_that_lives_is_not_rolled_back(
    table: HudiTable, clock_is_ahead: Wrong, ahead: float
) -> None:
    with begin_write(table, operation="UPSERT") as writer:
        writer.plan((), [""])
        clock_is_ahead(ahead)
        other = HudiTable.open(table.location)
        assert rollback_dead_writers(other) == []
        assert [pending.alive for pending in pending_instants(other)] == [True]
        assert observe_above(other.storage, 0)[writer.instant].alive
        assert writer.commit([]).instant == writer.instant


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_a_writer_that_is_dead_is_rolled_back(table: HudiTable, clock_is_ahead: Wrong, ahead: float) -> None:
    writer = begin_write(table, operation="UPSERT")
    writer.heartbeat.stop()
    silent_for(table, heartbeat_path(writer.instant), 70.0)
    clock_is_ahead(ahead)
    other = HudiTable.open(table.location)
    assert not observe_above(other.storage, 0)[writer.instant].alive
    assert rollback_dead_writers(other) == [writer.instant]


@pytest.mark.parametrize("ahead", [70.0, MONTH])
def test_what_a_reader_with_a_lease_reads_is_not_cleaned(
    table: HudiTable, clock_is_ahead: Wrong, ahead: float
) -> None:
    upsert(table, 1)
    with reader_lease(table) as lease:
        rows = snapshot(table)
        upsert(table, 2)
        clock_is_ahead(ahead)
        assert clean(HudiTable.open(table.location), EVERYTHING) == []
        assert rows.to_table()["value"].to_pylist() == [1]
        lease.check()


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_a_consumer_expires_by_the_storages_clock(
    table: HudiTable, clock_is_ahead: Wrong, ahead: float
) -> None:
    for name in ("lives", "has gone"):
        register_consumer(table, name.replace(" ", "-"), "20240101000000000", expires_after=HOUR)
    silent_for(table, ".hoodie/.consumers/has-gone", 2 * HOUR)
    clock_is_ahead(ahead)
    found = registered_consumers(HudiTable.open(table.location).storage)
    assert {consumer.name: consumer.is_expired for consumer in found} == {"has-gone": True, "lives": False}


def test_nobody_is_dead_on_the_word_of_an_older_look_at_the_clock(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of this process jumps, as when a virtual machine is moved."""
    right = time.monotonic
    other = HudiTable.open(table.location)
    with begin_write(table, operation="UPSERT") as writer:
        assert rollback_dead_writers(other) == []
        monkeypatch.setattr(other.storage, "_clock", (right() - 30.0, time.time() + HOUR))
        assert rollback_dead_writers(other) == []
        assert writer.commit([]).instant == writer.instant


def test_who_may_only_read_is_told_by_this_machines_clock(table: HudiTable) -> None:
    storage = HudiTable.open(table.location).storage

    def refuses(path: str, data: bytes) -> None:
        raise PermissionError(path)

    storage.put = refuses  # type: ignore[method-assign]
    assert storage.clock() == pytest.approx(time.time(), abs=300)


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_archival_waits_for_a_dead_writer_by_the_storages_clock(
    table: HudiTable, clock_is_ahead: Wrong, ahead: float
) -> None:
    upsert(table, 0)
    dead = begin_write(table, operation="UPSERT")
    dead.abort()
    for value in range(1, 5):
        upsert(table, value)
    clock_is_ahead(ahead)
    clean(HudiTable.open(table.location), EVERYTHING)
    plan = plan_archival(HudiTable.open(table.location), keep_min=1, keep_max=2)
    assert str(plan.held_by).startswith(f"{dead.instant} was rolled back only ")
    assert plan_archival(table, keep_min=1, keep_max=2, dead_writer_seconds=0).held_by is None


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_the_last_hours_are_kept_by_the_storages_clock(
    table: HudiTable, clock_is_ahead: Wrong, ahead: float
) -> None:
    for value in range(3):
        upsert(table, value)
    clock_is_ahead(ahead)
    assert clean(HudiTable.open(table.location), Retention("KEEP_LATEST_BY_HOURS", 1)) == []

"""The measurements of the commit protocol: each event once, whichever process caused it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider import metrics
from airflow_provider.concurrency import PRIORITIES, begin_write
from airflow_provider.concurrency.conflicts import wait_for_clustering, wait_for_instant
from airflow_provider.concurrency.conflicts.yielding import wait_for_higher_priority
from airflow_provider.concurrency.plans.service_failures import Service, stopping_itself
from airflow_provider.exceptions import ServiceStoppedError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import InProcessLockProvider, LockHolder
from airflow_provider.metrics import Measurement
from airflow_provider.table import HudiTable

ROWS = pa.table({"id": [1, 2, 3], "value": ["a", "b", "c"]})


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=ROWS.schema, record_key=["id"])


@pytest.fixture
def heard() -> Iterator[list[Measurement]]:
    found: list[Measurement] = []
    with metrics.listening(found.append):
        yield found


def total(heard: list[Measurement], name: str, **tags: str) -> float:
    """The sum of all measurements with this name and these tags, and maybe others."""
    return sum(each.value for each in heard if each.name == name and tags.items() <= each.tags.items())


def names(heard: list[Measurement], kind: str) -> set[str]:
    return {each.name for each in heard if each.kind == kind}


def test_a_commit_counts_its_rows_and_bytes(table: HudiTable, heard: list[Measurement]) -> None:
    result = ingest_arrow(table, ROWS, "insert")
    about = {"table": table.location, "action": "commit", "priority": "400"}
    assert total(heard, "commits", **about) == total(heard, "commits") == 1
    assert total(heard, "rows", **about) == 3
    assert total(heard, "bytes", **about) == result["bytes_written"]
    ingest_arrow(table, ROWS.slice(0, 1), "upsert", priority=PRIORITIES["backfill"])
    assert total(heard, "rows", priority="300") == 1  # and not the rows that were only copied into its file
    assert names(heard, "timer") == {"commit", "publish"}


def test_a_conflict_is_counted_once_by_who_met_whom(table: HudiTable, heard: list[Measurement]) -> None:
    ingest_arrow(table, ROWS, "insert")
    loser = begin_write(table, operation="UPSERT")
    [group] = loser.view.all_base_files()
    loser.plan([group.file_group])
    ingest_arrow(table, ROWS.slice(0, 1), "upsert")
    for _ in range(2):
        with pytest.raises(WriteConflictError):
            loser.check([group.file_group])
    with pytest.raises(WriteConflictError):
        loser.commit([], replaced={group.partition_path: [group.file_group.file_id]})
    assert total(heard, "conflicts", kind="ingestion/ingestion") == total(heard, "conflicts") == 1
    assert total(heard, "rollbacks", action="rollback") == 1


def test_a_rebase_is_counted(table: HudiTable, heard: list[Measurement]) -> None:
    ingest_arrow(table, ROWS, "insert")
    other = threading.Event()

    class Late(InProcessLockProvider):
        """The lock of a write that another write overtakes once."""

        def holder(self) -> LockHolder | None:
            if not other.is_set():
                other.set()
                ingest_arrow(table, ROWS.slice(1, 1), "upsert")
            return super().holder()

    lock = Late(table.location)
    result = ingest_arrow(table, ROWS.slice(0, 1), "upsert", lock=lock, on_conflict="rebase")
    assert total(heard, "rebases") == result["rebases"] == 1
    assert total(heard, "rebases", table=table.location, action="commit") == 1
    assert total(heard, "conflicts", kind="ingestion/ingestion") == 1
    assert total(heard, "conflicts", table=table.location, action="commit") == 1
    assert "lock_wait" in names(heard, "timer")


def test_a_service_that_has_stopped_is_counted(table: HudiTable, heard: list[Measurement]) -> None:
    for error in (ZeroDivisionError, ServiceStoppedError):
        with (
            pytest.raises(error),
            stopping_itself(table, Service.CLEANING, input_of=lambda: "the same", most=1),
        ):
            raise ZeroDivisionError
    assert total(heard, "services_stopped", service="cleaning", table=table.location) == 1


def test_what_a_job_collects_is_told_once_where_it_is_told_again(heard: list[Measurement]) -> None:
    with metrics.collected() as outer, metrics.collected() as inner:
        metrics.count("commits", table="t")
    assert (heard, outer) == ([], [])
    metrics.tell_again(inner)
    assert heard == [Measurement("counter", "commits", 1, {"table": "t"})]


def test_a_wait_for_another_writer_is_measured(table: HudiTable, heard: list[Measurement]) -> None:
    with begin_write(table, operation="UPSERT") as writer:
        assert not wait_for_instant(table, writer.instant, 0.0)
        assert not wait_for_clustering(table, writer.instant, 0.0)
    waits = [each.tags for each in heard if each.name == "yield_wait"]
    assert waits == [{"table": table.location}] * 2


def test_making_way_is_measured_with_the_priority_that_waits(
    table: HudiTable, heard: list[Measurement]
) -> None:
    told: list[list[str]] = []
    with begin_write(table, operation="UPSERT"):
        waited = wait_for_higher_priority(
            table.storage,
            PRIORITIES["backfill"],
            InProcessLockProvider("t"),
            patience=10.0,
            is_stopped=lambda: bool(told),
            on_wait=told.append,
        )
    (measured,) = (each for each in heard if each.name == "yield_wait")
    assert (measured.value, measured.tags) == (
        waited,
        {"table": table.storage.root, "priority": str(PRIORITIES["backfill"])},
    )

"""Requested times beside another engine: no two instants of a table have one.

The JVM's Hudi takes the present millisecond under the lock, waits 200 milliseconds, and releases the lock
once its instant is on the timeline (``BaseHoodieWriteClient.startCommit``, ``SkewAdjustingTimeGenerator``).
It does not look whether the time is taken. If two instants have one time, each engine takes the files of the
one for those of the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider.concurrency import begin_write, rollback
from airflow_provider.concurrency.log import instant_time
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.instant import Action, Instant, State, after, now
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import (
    Jvm,
    SharedLock,
    create_trips,
    ingest,
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    table = create_trips(str(tmp_path / "trips"))
    jvm = Jvm(table)
    ingest(table, {5: 5.0}, lambda: jvm.upsert({7: 7.0}))
    return table


@pytest.fixture
def present(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> str:
    """The millisecond at which the clock of this package stands still."""
    return stands_still(later(max(now(), table.timeline().newest_completion), 20), monkeypatch)


def stands_still(moment: str, monkeypatch: pytest.MonkeyPatch) -> str:
    moment = moment if int(moment) % 2 == 0 else after(moment)
    monkeypatch.setattr(instant_time, "now", lambda _: moment)
    return moment


def later(moment: str, milliseconds: int) -> str:
    for _ in range(milliseconds):
        moment = after(moment)
    return moment


@pytest.fixture
def its_lock(table: HudiTable) -> Iterator[SharedLock]:
    """The lock, which the other engine holds."""
    lock = SharedLock(table, lambda: None)
    lock.acquire()
    yield lock
    if lock.is_held():
        lock.release()


def test_a_write_begins_once_the_other_engines_time_is_on_the_timeline(
    table: HudiTable, present: str, its_lock: SharedLock
) -> None:
    jvm, own_lock = Jvm(table, requested=present), SharedLock(table, lambda: None)
    with ThreadPoolExecutor(1) as pool:
        beginning = pool.submit(begin_write, table, operation="UPSERT", lock=own_lock)
        while not its_lock.waiters() and not beginning.done():
            time.sleep(0.001)
        jvm.plan_clustering(table.view().base_files("city=sf"))
        its_lock.release()
        writer = beginning.result()
    assert writer.instant > present
    assert table.timeline().find(present) == Instant(present, Action.CLUSTERING, State.REQUESTED)
    writer.abort("the test has ended")


def test_a_rollback_needs_no_lock_and_takes_no_time_that_the_other_engine_has_taken(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin_write(table, operation="UPSERT", lock=SharedLock(table, lambda: None))
    present = stands_still(later(begun.instant, 20), monkeypatch)
    jvm = Jvm(table, requested=present)
    entry = rollback(table, begun.instant, reason="the test wants it")
    jvm.plan_clustering(table.view().base_files("city=sf"))
    assert entry is not None
    assert begun.instant < entry.instant < entry.completion_time < present
    for instant, action in ((entry.instant, Action.ROLLBACK), (present, Action.CLUSTERING)):
        found = table.timeline().find(instant)
        assert found is not None
        assert found.action is action

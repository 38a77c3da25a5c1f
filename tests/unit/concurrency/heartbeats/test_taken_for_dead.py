"""Writers that others wrongly considered dead, and their heartbeats.

Killing and pausing real processes found each of these cases.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import (
    CommitLog,
    HeartbeatSettings,
    ServicePlan,
    Writer,
    WriteSettings,
    begin_write,
    pending_instants,
    rollback,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.conflicts.pending_writes import PendingInstant
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER, heartbeat_path, observe
from airflow_provider.concurrency.log.log_entry import Plan, Revert, Rollback
from airflow_provider.exceptions import HeartbeatExpiredError, InstantRolledBackError
from airflow_provider.locks import InProcessLockProvider, LockHolder
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId, FileSystemView
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action, format_time
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.concurrency.simulation.actors import REVERT, add_clusterer, add_writer
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.rows import PARTITION
from tests.unit.concurrency.simulation.scheduler import Actor
from tests.unit.concurrency.simulation.test_interleavings import BEGUN, table_with


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    """An empty table with one commit."""
    made = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=pa.schema([("id", pa.string())]), record_key=["id"]
    )
    with begin_write(made, operation="INSERT") as writer:
        writer.plan([])
        writer.commit([])
    return made


def test_a_rewrite_that_was_planned_and_carried_out_meanwhile_is_reverted() -> None:
    # The plan is a log entry of the same instant; the revert concerns the commit.
    simulation = table_with("a", "b")
    add_writer(simulation, "w0", "ab", policy=REVERT)
    add_clusterer(simulation, "clusterer")
    simulation.run([0] * BEGUN + [1] * 200)
    check(simulation)
    assert any(isinstance(entry, Revert) for entry in CommitLog(simulation.table().storage).after(0))


def test_a_beat_says_on_what_the_write_is_based(table: HudiTable) -> None:
    # A cleaner would keep everything from the beginning of the log.
    with begin_write(
        table, operation="INSERT", settings=WriteSettings(heartbeat=HeartbeatSettings(0.01, 6_000))
    ) as writer:
        path = f"{HEARTBEAT_FOLDER}/{writer.instant}"
        begun = Path(table.storage.url(path)).stat().st_mtime_ns
        while Path(table.storage.url(path)).stat().st_mtime_ns == begun:
            time.sleep(0.005)
        assert observe(Storage(table.location))[writer.instant].info.base == 1


class _SlowBeats(Storage):
    """A storage on which a heartbeat waits a moment between its look and its write."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.beating = threading.Event()

    def put(self, path: str, data: bytes) -> None:
        if path.startswith(HEARTBEAT_FOLDER):
            self.beating.set()
            time.sleep(0.2)
        super().put(path, data)


def test_no_beat_comes_after_the_publication(table: HudiTable) -> None:
    # The late beat would bring back the heartbeat of a write that has ended.
    storage = _SlowBeats(table.location)
    with begin_write(
        HudiTable(storage, table.config),
        operation="INSERT",
        settings=WriteSettings(heartbeat=HeartbeatSettings(0.5, 6_000)),
    ) as writer:
        writer.plan([])
        assert storage.beating.wait(300)
        writer.commit([])
    assert table.storage.list(HEARTBEAT_FOLDER) == []


def test_a_planner_that_was_taken_for_dead_plans_anew(table: HudiTable) -> None:
    class StandsStill(Storage):
        """A writer whose instant another process rolls back while the writer stages its plan."""

        rolled_back = ""

        def put(self, path: str, data: bytes) -> None:
            super().put(path, data)
            if "staged" in path and not self.rolled_back:
                [self.rolled_back] = observe(self)
                rollback(table, self.rolled_back)

    def planner(view: FileSystemView, taken: frozenset[FileGroupId]) -> ServicePlan:
        return ServicePlan(frozenset(), b"plan")

    storage = StandsStill(table.location)
    instant = schedule(
        HudiTable(storage, table.config), planner, action=Action.CLUSTERING, operation="CLUSTER", priority=200
    )
    assert storage.rolled_back
    entries = list(CommitLog(table.storage).after(0))
    assert [entry.instant for entry in entries if isinstance(entry, Plan)] == [instant]
    assert instant != storage.rolled_back


def test_what_a_planner_staged_that_failed_goes_with_the_next_writer(table: HudiTable) -> None:
    class Fails(Storage):
        """A storage that refuses every entry."""

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.startswith(".hoodie/commit_log/"):
                raise OSError(errno.EIO, "no entry is taken", path)
            return super().put_if_absent(path, data)

    failing = HudiTable(Fails(table.location), table.config)
    with pytest.raises(OSError, match="no entry is taken"):
        schedule(
            failing,
            lambda view, taken: ServicePlan(frozenset(), b"plan"),
            action=Action.CLUSTERING,
            operation="CLUSTER",
            priority=200,
        )
    [instant] = observe(table.storage)
    path = table.storage.url(heartbeat_path(instant))
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    assert rollback_dead_writers(table) == [instant]
    assert table.storage.list(".hoodie/commit_log/staged") == []
    assert table.storage.list(HEARTBEAT_FOLDER) == []


def test_a_rollback_that_was_taken_for_dead_takes_another_instant(table: HudiTable) -> None:
    class StandsStill(Storage):
        """A writer whose instant another process rolls back before the writer puts its entry."""

        rolled_back = ""

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.startswith(".hoodie/commit_log/") and not self.rolled_back:
                self.rolled_back = json.loads(data)["instant"]
                rollback(table, self.rolled_back)
            return super().put_if_absent(path, data)

    storage = StandsStill(table.location)
    writer = begin_write(table, operation="INSERT")
    entry = rollback(HudiTable(storage, table.config), writer.instant)
    assert entry is not None
    assert entry.instant != storage.rolled_back
    writer.abort()
    entries = list(CommitLog(table.storage).after(0))
    assert storage.rolled_back in {undone for entry in entries for undone in entry.undone}
    assert storage.rolled_back not in {entry.instant for entry in entries}
    assert table.timeline().pending() == ()
    assert table.storage.list(HEARTBEAT_FOLDER) == []


def _rolled_back_meanwhile(table: HudiTable, then: Callable[[Writer], object]) -> None:
    with begin_write(table, operation="INSERT") as writer:
        writer.plan([], [""])
        rollback(table, writer.instant)
        then(writer)


def test_who_misses_its_files_is_told_that_it_was_rolled_back(table: HudiTable) -> None:
    with pytest.raises(InstantRolledBackError):
        _rolled_back_meanwhile(table, lambda writer: table.storage.read("0.parquet"))


def test_who_reports_files_that_were_removed_is_told_that_it_was_rolled_back(table: HudiTable) -> None:
    def commit(writer: Writer) -> None:
        writer.commit([WriteStat("f-0", "", f"f-0_0-0-0_{writer.instant}.parquet")])

    with pytest.raises(InstantRolledBackError):
        _rolled_back_meanwhile(table, commit)


def test_who_was_taken_for_dead_leaves_no_staged_metadata(table: HudiTable) -> None:
    with pytest.raises(InstantRolledBackError):
        _rolled_back_meanwhile(table, lambda writer: writer.commit([]))
    assert table.storage.list(".hoodie/commit_log/staged") == []


# --- writers that count themselves dead -----------------------------------------------------


class _NoBeats(Storage):
    """A storage that accepts a writer's beats until the test makes it refuse them."""

    refuses = False

    def put(self, path: str, data: bytes) -> None:
        if self.refuses and path.startswith(HEARTBEAT_FOLDER):
            raise OSError(errno.EIO, "no beat is taken", path)
        super().put(path, data)


class _LongOnItsWay(InProcessLockProvider):
    """A lock whose waiters are silent past their deadline when they get it."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__(f"lock {id(self)}")
        self._wait = wait

    def holder(self) -> LockHolder | None:
        return LockHolder("another", 0, 0.0)

    def acquire(self, timeout: float | None = None) -> None:
        super().acquire(timeout)
        self._wait()


@pytest.mark.parametrize("silent", ["before it plans", "before it commits", "under the lock"])
def test_who_was_silent_for_too_long_gives_up_though_nobody_has_rolled_it_back(
    table: HudiTable, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, clock = _NoBeats(table.location), time.monotonic
    passed: list[str] = []

    def come_to(moment: str) -> None:
        passed.append(moment)
        if moment == silent:
            storage.refuses = True
            monkeypatch.setattr(time, "monotonic", lambda: clock() + 100.0)

    def write(writer: Writer) -> None:
        with writer:
            come_to("before it plans")
            writer.plan([], [""])
            come_to("before it commits")
            writer.commit([])

    writer = begin_write(
        HudiTable(storage, table.config),
        operation="INSERT",
        lock=_LongOnItsWay(lambda: come_to("under the lock")),
        settings=WriteSettings(heartbeat=HeartbeatSettings(10.0, tolerable_misses=6)),
    )
    with pytest.raises(HeartbeatExpiredError, match="no beat for"):
        write(writer)
    assert silent in passed
    assert (passed == ["before it plans"]) == (silent == "before it plans")
    _assert_rolled_back(table, writer.instant)


def test_a_writer_ends_with_the_process_that_it_belongs_to(table: HudiTable) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as driven:
        writer = begin_write(
            table,
            operation="INSERT",
            settings=WriteSettings(heartbeat=HeartbeatSettings(0.05, tolerable_misses=10_000)),
            is_alive=lambda: driven.poll() is None,
        )
        writer.plan([], [""])
        begun = _beat(table, writer)
        _until(lambda: _beat(table, writer) != begun)
        driven.kill()
        driven.wait()
        _until(lambda: _is_lost(writer))
    last = _beat(table, writer)
    time.sleep(0.3)
    assert _beat(table, writer) == last
    with pytest.raises(HeartbeatExpiredError, match="the process that this writer belongs to is gone"):
        writer.commit([])
    _assert_rolled_back(table, writer.instant)


def _beat(table: HudiTable, writer: Writer) -> int:
    return Path(table.storage.url(heartbeat_path(writer.instant))).stat().st_mtime_ns


def _is_lost(writer: Writer) -> bool:
    try:
        writer.check([])
    except HeartbeatExpiredError:
        return True
    return False


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _assert_rolled_back(table: HudiTable, instant: str) -> None:
    entries = list(CommitLog(table.storage).after(0))
    assert [entry.rolls_back for entry in entries if isinstance(entry, Rollback | Revert)] == [instant]
    assert instant not in {entry.instant for entry in entries}
    assert table.timeline().pending() == ()
    assert table.storage.list(HEARTBEAT_FOLDER) == []


def test_who_begins_in_the_moment_of_a_look_is_seen_to_live() -> None:
    # Otherwise no index could be built beside it: it would look like another Hudi writer's write.
    operations = 0
    while True:
        simulation = table_with("a")
        found: list[PendingInstant] = []

        def look(table: HudiTable, _: Actor, found: list[PendingInstant] = found) -> None:
            found.extend(pending_instants(table))

        simulation.add("looks", look)
        (looks,) = simulation.running()
        simulation.go_on(looks, operations)
        if looks.done:
            break
        add_writer(simulation, "begins", "b")
        writer = simulation.actors[-1]
        simulation.go_on_to(writer, f"put {PARTITION}/")
        simulation.go_on(looks)
        assert all(each.alive for each in found)
        operations += 1
    assert operations > 3


def test_the_time_of_a_dead_writer_whose_clock_was_ahead_is_not_taken_again(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A writer that took a dead writer's time would be both committed and rolled back.
    with monkeypatch.context() as patched:
        ahead = format_time(datetime.now(UTC) + timedelta(seconds=30))
        patched.setattr("airflow_provider.concurrency.log.instant_time.now", lambda _: ahead)
        dead = begin_write(table, operation="INSERT").instant
    rolled_back = rollback(table, dead)
    assert rolled_back is not None
    assert rolled_back.instant > dead
    with begin_write(table, operation="INSERT") as writer:
        assert writer.instant > dead
        writer.plan([])
        writer.commit([])

"""Writers that others took for dead, and heartbeats that say what others have to know.

Each of these was found by killing and stopping real processes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog, ServicePlan, Writer, begin_write, rollback, schedule
from airflow_provider.concurrency.heartbeat import HEARTBEAT_FOLDER, observe
from airflow_provider.exceptions import InstantRolledBackError
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups import FileGroupId, FileSystemView
from airflow_provider.table.instant import Action
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.storage import Storage

from .actors import REVERT, add_clusterer, add_writer
from .invariants import check
from .test_interleavings import BEGUN, table_with


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
    # The plan is a log entry of the same instant; what is to be reverted is the commit.
    simulation = table_with("a", "b")
    add_writer(simulation, "w0", "ab", policy=REVERT)
    add_clusterer(simulation, "clusterer")
    simulation.run([0] * BEGUN + [1] * 200)
    check(simulation)
    assert any(entry.reverts for entry in CommitLog(simulation.table().storage).after(0))


def test_a_beat_says_on_what_the_write_is_based(table: HudiTable) -> None:
    # A cleaner would keep everything from the beginning of the log.
    with begin_write(table, operation="INSERT", heartbeat_interval=0.01) as writer:
        path = f"{HEARTBEAT_FOLDER}/{writer.instant}"
        begun = Path(table.storage.url(path)).stat().st_mtime_ns
        while Path(table.storage.url(path)).stat().st_mtime_ns == begun:
            time.sleep(0.005)
        assert observe(Storage(table.location))[writer.instant].info.base == 1


class _SlowBeats(Storage):
    """A beat waits a moment between its look and its write."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.beating = threading.Event()

    def put(self, path: str, data: bytes) -> None:
        if path.startswith(HEARTBEAT_FOLDER):
            self.beating.set()
            time.sleep(0.2)
        super().put(path, data)


def test_no_beat_comes_after_the_publication(table: HudiTable) -> None:
    # It would bring the heartbeat back of a write that has ended.
    storage = _SlowBeats(table.location)
    with begin_write(HudiTable(storage, table.config), operation="INSERT", heartbeat_interval=0.5) as writer:
        writer.plan([])
        assert storage.beating.wait(10)
        writer.commit([])
    assert table.storage.list(HEARTBEAT_FOLDER) == []


def test_a_planner_that_was_taken_for_dead_plans_anew(table: HudiTable) -> None:
    class StandsStill(Storage):
        """While it stages the plan, another one rolls its instant back."""

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
    assert [entry.instant for entry in entries if entry.plans] == [instant]
    assert instant != storage.rolled_back


def test_a_rollback_that_was_taken_for_dead_takes_another_instant(table: HudiTable) -> None:
    class StandsStill(Storage):
        """Before it puts its entry, another one rolls its instant back."""

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
    assert storage.rolled_back in {entry.rolls_back for entry in entries}
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

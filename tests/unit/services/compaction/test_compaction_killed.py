"""Compactors that are killed, or paused, at any storage operation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.concurrency.log.log_entry import Plan
from airflow_provider.exceptions import InstantRolledBackError
from airflow_provider.services.archival import archive
from airflow_provider.services.compaction import compact, pending_compactions
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.archived_timeline import archived_instants
from airflow_provider.table.timeline.instant import Action
from tests.sweep import share_of
from tests.unit.concurrency.simulation.scheduler import Killed, NoLock
from tests.unit.services.indexed_table import EVERY_COMMIT, check_indexes, commit, indexed_table, rows

COMMITS = 5
STEPS = 180  # more operations than a compactor takes; a test checks that
_OPERATIONS = (
    "put_if_absent",
    "move_if_absent",
    "put",
    "read",
    "read_range",
    "list",
    "names",
    "stat",
    "delete",
)


class InterruptedStorage(Storage):
    """A storage that calls a function before one of its operations, counted over all such storages."""

    left = -1

    @staticmethod
    def happens() -> None:
        raise NotImplementedError

    def within(self, folder: str) -> Storage:
        return InterruptedStorage(self.url(folder))

    def __getattribute__(self, name: str) -> Any:
        if name in _OPERATIONS:
            InterruptedStorage.left -= 1
            if InterruptedStorage.left == -1:
                InterruptedStorage.happens()
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    """A table whose metadata table has a superseded slice, and instants that are due for archival."""
    table = indexed_table(tmp_path_factory.mktemp("lake") / "trips")
    for number in range(COMMITS):
        commit(table, number)
        if number in (0, 2):
            compact(table, EVERY_COMMIT, lock=NoLock())
    archive(table, keep_min=1, keep_max=2, lock=NoLock())
    return table


@pytest.fixture
def table(made: HudiTable, tmp_path: Path) -> HudiTable:
    return HudiTable.open(str(shutil.copytree(made.location, tmp_path / "trips")))


@pytest.fixture
def compacts(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], bool]:
    """Run a compactor; return whether it reached the chosen operation."""
    storage = InterruptedStorage(table.location)

    def work(at: int, happens: Callable[[], None]) -> bool:
        came = []

        def there() -> None:
            came.append(at)
            happens()

        monkeypatch.setattr(InterruptedStorage, "happens", staticmethod(there))
        InterruptedStorage.left = at
        # The log refuses a plan's put at a place that was trimmed meanwhile.
        with suppress(Killed, InstantRolledBackError):
            compact(HudiTable(storage, table.config), EVERY_COMMIT, lock=NoLock())
        InterruptedStorage.left = -1
        return bool(came)

    return work


def compactions(table: HudiTable) -> list[str]:
    storage = metadata_storage(table.storage)
    found = [*archived_instants(storage), *Timeline.load(storage).commits()]
    return sorted(each.requested_time for each in found if each.action is Action.COMMIT)


def check_small(table: HudiTable) -> None:
    """Check that no leftover remains, and that files that no reader needs are deleted."""
    assert pending_compactions(table) == []
    storage = metadata_storage(table.storage)
    assert not Timeline.load(storage).pending()
    assert not [path for path in table.storage.names(".hoodie/commit_log/staged") if "avro" in path]
    assert not list(table.storage.names(HEARTBEAT_FOLDER))
    for partition in ("files", "record_index"):
        for group in MetadataTable(storage).file_groups(partition):
            assert len(group.base_files) <= 2
            assert group.uncommitted == ()


def killed() -> None:
    InterruptedStorage.left = 0  # the next operation fails too, so that no `finally` has an effect
    raise Killed


@pytest.mark.parametrize("at", share_of(range(STEPS)))
def test_killed_at_every_operation(at: int, table: HudiTable, compacts: Any) -> None:
    before = compactions(table)
    if not compacts(at, killed):
        assert at > STEPS // 2, "it hardly did anything"
        return
    assert at < STEPS - 1, "a compactor takes more operations than are tested: raise STEPS"
    check_indexes(table)
    assert rows(table) == list(range(COMMITS)), "every reader sees all of it at any moment"
    for name in table.storage.names(HEARTBEAT_FOLDER):
        os.utime(f"{table.location}/{HEARTBEAT_FOLDER}/{name}", (0, 0))
    commit(table, COMMITS)  # it finishes a begun compaction, or rolls it back
    compact(table, EVERY_COMMIT, lock=NoLock())
    check_indexes(table)
    check_small(table)
    assert len(compactions(table)) - len(before) in (1, 2)
    plans = (e for e in CommitLog(table.storage).backwards() if isinstance(e, Plan))
    planned = {plan.instant for plan in plans if plan.on_metadata_table}
    assert planned <= {*compactions(table)}, "none is lost"
    assert rows(table) == list(range(COMMITS + 1))


@pytest.mark.parametrize("at", share_of(range(0, STEPS, 5)))
def test_standing_still_at_an_operation(at: int, table: HudiTable, compacts: Any) -> None:
    """Others commit, compact, clean and archive during the pause, until the compaction is archived."""

    def meanwhile() -> None:
        for number in range(3):
            compact(table, EVERY_COMMIT, lock=NoLock())
            commit(table, COMMITS + number)
        archive(table, keep_min=1, keep_max=2, lock=NoLock())
        compact(table, EVERY_COMMIT, lock=NoLock())
        check_indexes(table)

    if not compacts(at, meanwhile):
        return
    check_indexes(table)
    assert rows(table) == list(range(COMMITS + 3))
    commit(table, 99)
    compact(table, EVERY_COMMIT, lock=NoLock())
    commit(table, 99)
    compact(table, EVERY_COMMIT, lock=NoLock())
    check_small(table)
    check_indexes(table)
    found = compactions(table)
    assert len(found) == len(set(found))
    assert rows(table) == [*range(COMMITS + 3), 99]

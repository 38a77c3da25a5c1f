"""Archivers that are killed, or paused, at any storage operation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER, CommitLog
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.storage.storage import CLOCK_PREFIX, Storage
from airflow_provider.table.timeline.archived_timeline import archived_instants
from airflow_provider.table.timeline.instant import Action
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import add_archiver, add_writer
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.rows import read_snapshot
from tests.unit.concurrency.simulation.scheduler import Killed, NoLock, Simulation

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
COMMITS = 6
STEPS = 110  # more operations than an archiver takes; a test checks that
_OPERATIONS = ("put_if_absent", "put", "read", "list", "names", "stat", "delete")


class DyingStorage(Storage):
    """A storage that counts operations, and ends the process before one of them."""

    def __init__(self, root: str, dies_at: int) -> None:
        super().__init__(root)
        self.left = dies_at

    def __getattribute__(self, name: str) -> Any:
        if name in _OPERATIONS:
            self.left -= 1
            if self.left < 0:
                raise Killed
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    location = tmp_path_factory.mktemp("lake") / "trips"
    table = HudiTable.create(
        str(location), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    for number in range(COMMITS):
        ingest_arrow(table, pa.table({"id": [number], "city": ["sf"]}, SCHEMA))
    return table


def archives(table: HudiTable) -> None:
    archive(table, keep_min=2, keep_max=3, lock=NoLock())


def rows(location: str) -> list[int]:
    """The rows that hudi-rs and this package read; they must be equal."""
    batches = HudiTableBuilder.from_base_uri(location).build().read()
    theirs = pa.Table.from_batches(batches)["id"].to_pylist() if batches else []
    assert sorted(snapshot(HudiTable.open(location)).to_table()["id"].to_pylist()) == sorted(theirs)
    return sorted(theirs)


def files(location: str) -> dict[str, bytes]:
    """All files, without the time of the archival's entry, and without the clock's files."""
    folder = Path(location)
    paths = (p for p in folder.rglob("*") if p.is_file() and CLOCK_PREFIX not in str(p))
    found = {str(p.relative_to(folder)): p.read_bytes() for p in paths}
    for entry in CommitLog(Storage(location)).backwards():
        if entry.action is Action.ARCHIVE:
            found[f"{COMMIT_LOG_FOLDER}/{entry.sequence:020d}.json"] = entry.archived.encode()
    return found


@pytest.fixture(scope="module")
def archived_table(table: HudiTable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the table after an archival that was not killed."""
    copy = str(shutil.copytree(table.location, tmp_path_factory.mktemp("whole") / "trips"))
    archives(HudiTable.open(copy))
    assert len(list(archived_instants(Storage(copy)))) == COMMITS - 2
    return files(copy)


@pytest.mark.parametrize("dies_at", share_of(range(STEPS)))
def test_killed_at_every_operation(
    dies_at: int, table: HudiTable, archived_table: dict[str, bytes], tmp_path: Path
) -> None:
    copy = str(shutil.copytree(table.location, tmp_path / "trips"))
    dying = HudiTable(DyingStorage(copy, dies_at), table.config)
    try:
        archives(dying)
        assert dies_at > STEPS // 2, "it hardly did anything"
    except Killed:
        assert dies_at < STEPS - 1, "an archiver takes more operations than are tested: raise STEPS"
    assert rows(copy) == list(range(COMMITS)), "every reader sees all of it at any moment"
    # Once there is an entry the next archiver continues, even if nothing would be due any more.
    begun = CommitLog(Storage(copy)).head() > COMMITS
    archive(HudiTable.open(copy), lock=NoLock()) if begun else archives(HudiTable.open(copy))
    assert files(copy) == archived_table
    assert rows(copy) == list(range(COMMITS))


def of_commits(count: int) -> Simulation:
    simulation = Simulation()
    for number in range(count):
        add_writer(simulation, f"w{number}", str(number))
        simulation.run([])
    return simulation


def state(simulation: Simulation) -> dict[str, bytes]:
    return {path: data for path, (data, _) in simulation.files.items()}


@pytest.mark.parametrize("stands_still_at", range(0, STEPS, 6))
def test_two_at_once(stands_still_at: int) -> None:
    """One archiver pauses at any operation while another does all the work; then the first continues."""
    alone = of_commits(5)
    add_archiver(alone, "alone")
    alone.run([])

    simulation = of_commits(5)
    before = read_snapshot(simulation.table().storage, simulation.table().view())
    add_archiver(simulation, "first")
    add_archiver(simulation, "second")
    first, second = simulation.running()

    def steps(actor: Any, done: Callable[[], bool]) -> None:
        while not actor.done and not done():
            simulation.step(actor)
            assert read_snapshot(simulation.table().storage, simulation.table().view()) == before

    count = 0

    def enough() -> bool:
        nonlocal count
        count += 1
        return count > stands_still_at

    steps(first, enough)
    steps(second, lambda: False)
    steps(first, lambda: False)
    check(simulation)
    assert len(state(simulation)) == len(state(alone))
    found = [each.requested_time for each in archived_instants(simulation.table().storage)]
    assert len(found) == len(set(found)) == 4


def test_a_reader_that_lists_while_instants_leave(monkeypatch: pytest.MonkeyPatch, table: HudiTable) -> None:
    """A listing of many pages may show an instant that left before the one that it does not show."""
    monkeypatch.setattr("airflow_provider.table.timeline.active._ONE_PAGE", 3)
    names = sorted(name for name in table.storage.names(".hoodie/timeline") if name != "history")
    torn = [names[:3] + names[9:], names[6:], names[6:]]

    class Listing(Storage):
        def names(self, path: str) -> list[str]:
            return torn.pop(0) if path == ".hoodie/timeline" else list(super().names(path))

        def stat(self, path: str) -> Any:
            return None if path.rpartition("/")[2] in names[:6] else super().stat(path)

    reader = HudiTable(Listing(table.location), table.config)
    view = reader.view()
    assert len(view.timeline.commits()) == COMMITS - 2
    assert len(view.all_base_files()) == len(table.view().all_base_files())
    assert torn == []

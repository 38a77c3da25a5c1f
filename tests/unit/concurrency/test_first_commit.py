"""The first write of a table dies: readers must not take its late files for those of an archived commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import begin_write, pending_instants, rollback
from airflow_provider.concurrency.undo.first_commit import ensure_commit_before
from airflow_provider.services.archival import archive
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.timeline.instant import after
from tests.ingestion_contract.lake import Lake
from tests.sweep import share_of

from .actors import add_writer
from .invariants import check
from .simulation import Simulation
from .test_interleavings import BEGUN, COMMITTED

LONG_AGO = "20240101000000000"
ROLLED_BACK = 48
"""More steps than it takes to roll a first write back."""


def died_first(at: int) -> Simulation:
    """The first writer of a table stands still before an operation, and counts as dead."""
    simulation = Simulation()
    add_writer(simulation, "w0", "a")
    (w0,) = simulation.actors
    simulation.go_on(w0, at)
    simulation.expire_heartbeats()
    return simulation


@pytest.mark.parametrize("paused_at", share_of(range(BEGUN, COMMITTED)))
@pytest.mark.parametrize("woken", [1, 4, 8])
def test_what_it_writes_after_its_rollback_is_never_seen(paused_at: int, woken: int) -> None:
    simulation = died_first(paused_at)
    (w0,) = simulation.actors
    add_writer(simulation, "w1", "b")
    simulation.go_on(simulation.actors[1])
    simulation.go_on(w0, woken)
    if not w0.done:
        simulation.kill(w0)  # before it finds out, and cleans up
    check(simulation)
    assert "w1" in simulation.committed()


@pytest.mark.parametrize("killed_at", share_of(range(0, ROLLED_BACK, 2)))
def test_who_rolls_it_back_dies_too(killed_at: int) -> None:
    simulation = died_first(COMMITTED - 6)
    (w0,) = simulation.actors
    add_writer(simulation, "w1", "b")
    w1 = simulation.actors[1]
    simulation.go_on(w1, killed_at)
    if not w1.done:
        simulation.kill(w1)
    simulation.expire_heartbeats()
    add_writer(simulation, "w2", "c")
    simulation.go_on(simulation.actors[2])
    simulation.step(w0)
    simulation.kill(w0)
    check(simulation)


@pytest.mark.parametrize("overtaken_at", share_of(range(0, ROLLED_BACK, 2)))
def test_two_roll_it_back(overtaken_at: int) -> None:
    simulation = died_first(COMMITTED - 6)
    for name, keys in (("w1", "b"), ("w2", "c")):
        add_writer(simulation, name, keys)
    w0, w1, w2 = simulation.actors
    simulation.go_on(w1, overtaken_at)
    for actor in (w2, w1, w0):
        simulation.go_on(actor)
    check(simulation)
    assert {"w1", "w2"} <= simulation.committed()


def test_a_commit_fits_between_the_archive_and_an_instant_of_the_next_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Interleavings met such an instant, two milliseconds later: its rollback never ended."""
    made = Lake(tmp_path).create(pa.schema([("id", pa.string())]))
    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider.concurrency.log.instant_time.now", lambda _: LONG_AGO)
        begin_write(made.table, operation="INSERT").commit(())
    for each in "abc":
        made.ingest("insert", [{"id": each}])
    archived = archive(made.table, keep_min=2, keep_max=3).instants
    assert [each.requested_time for each in archived][:1] == [LONG_AGO]
    newest = archived[-1].requested_time
    ensure_commit_before(made.table.storage, after(after(newest)))
    assert made.table.timeline().starts == after(newest)
    made.check_readers(None, [{"id": each} for each in "abc"])
    assert "no commit can be put" not in caplog.text
    ensure_commit_before(made.table.storage, after(newest))
    assert "no commit can be put between the archive and" in caplog.text
    made.ingest("insert", [{"id": "d"}])
    made.check_readers(None, [{"id": each} for each in "abcd"])
    assert pending_instants(made.table) == []


def test_hudi_rs_does_not_see_it_either(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    made, donor = (lake.create(pa.schema([("id", pa.string())])) for _ in range(2))
    donor.ingest("insert", [{"id": "a"}])
    first = begin_write(made.table, operation="INSERT")
    first.plan((), [""])
    rollback(made.table, first.instant)
    (source,) = donor.table.view().all_base_files()
    late = base_file_name("late-0", "0-0-0", first.instant)
    made.table.storage.put(late, donor.table.storage.read(source.path))
    made.check_readers(None, [])
    made.ingest("insert", [{"id": "b"}])
    made.check_readers(None, [{"id": "b"}])
    assert made.rows() == [{"id": "b"}]

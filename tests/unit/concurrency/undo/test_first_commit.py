"""The first write of a table dies: readers must not treat its late files as an archived commit's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog, begin_write, pending_instants, rollback
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER, HeartbeatInfo, heartbeat_path
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.concurrency.undo.first_commit import ensure_commit_before
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.locks.owner import describe_owner
from airflow_provider.services.archival import archive
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, before
from airflow_provider.table.timeline.metadata import decode_commit_metadata
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.sweep import share_of
from tests.unit.concurrency.simulation.actors import add_writer
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.scheduler import Simulation
from tests.unit.concurrency.simulation.test_interleavings import BEGUN, COMMITTED
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

LONG_AGO = "20240101000000000"
ROLLED_BACK = 48
"""More steps than the rollback of a first write takes."""


@pytest.fixture
def made(tmp_path: Path) -> LakeTable:
    return Lake(tmp_path).create(pa.schema([("id", pa.string())]))


def died_first(at: int) -> Simulation:
    """Pause the first writer of a table before an operation, until it counts as dead."""
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
        simulation.kill(w0)  # before the writer finds this out, and cleans up
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
    """The random interleavings found such an instant, two milliseconds later, whose rollback never ended."""
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


def test_it_is_an_insert_of_nothing_by_who_rolls_back(
    made: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, beats = Storage.put_if_absent, list[HeartbeatInfo]()

    def watched(self: Storage, path: str, data: bytes) -> bool:
        if path.startswith(HEARTBEAT_FOLDER):
            beats.append(HeartbeatInfo.from_json(data))
        return put(self, path, data)

    storage = made.table.storage
    dead = begin_write(made.table, operation="UPSERT").instant
    monkeypatch.setattr(Storage, "put_if_absent", watched)
    ensure_commit_before(storage, dead)
    entry = CommitLog(storage).newest()
    assert isinstance(entry, Commit)
    assert entry == Commit(
        instant=before(before(dead)),
        action=Action.COMMIT,
        operation="INSERT",
        priority=0,
        completion_time=entry.completion_time,
        owner=describe_owner(),
        indexes=(),
        properties=entry.properties,
        metadata_path=entry.metadata_path,
    )
    assert beats == [HeartbeatInfo(describe_owner(), "commit", "INSERT", 0, 10.0, 6)]
    found = made.table.find_commit(entry.instant)
    assert found is not None
    assert (found[1].write_stats, dict(found[1].replaced)) == ((), {})
    assert found[1].extra_metadata == {"priority": "0", "schema": made.table.config.create_schema}
    requested, planned = (
        storage.read(instant_path(Instant(entry.instant, Action.COMMIT, state)))
        for state in (State.REQUESTED, State.INFLIGHT)
    )
    assert requested == b""
    assert decode_commit_metadata(planned).operation_type == "INSERT"
    assert storage.stat(heartbeat_path(entry.instant)) is None


def test_a_time_that_another_instant_has_or_had_is_passed_over(made: LakeTable) -> None:
    storage = made.table.storage
    dead = "20260131120000500"
    storage.put(heartbeat_path(dead), b"")
    rolled_back, committed, of_another, free = (f"{int(dead) - 2 * number}" for number in range(1, 5))
    storage.put(heartbeat_path(rolled_back), b"")
    rollback(made.table, rolled_back)
    (commit,) = made.table.timeline().commits()  # that came before it
    assert commit.requested_time == committed
    storage.delete(instant_path(commit))
    storage.put(instant_path(Instant(of_another, Action.COMMIT, State.REQUESTED)), b"")
    ensure_commit_before(storage, dead)
    newest = CommitLog(storage).newest()
    assert newest is not None
    assert newest.instant == free
    assert storage.names(HEARTBEAT_FOLDER) == [dead]


def test_indexes_that_the_table_has_already_know_of_it(made: LakeTable) -> None:
    planned = schedule_index(made.table, ["files", "column_stats"])
    assert planned is not None
    run_index(made.table, planned)
    with begin_write(made.table, operation="INSERT"):
        pass
    assert [each.action for each in made.table.timeline().commits()] == [Action.COMMIT]
    assert_indexes_equal_a_rebuild(made.table)
    made.ingest("insert", [{"id": "a"}])
    assert_indexes_equal_a_rebuild(made.table)


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

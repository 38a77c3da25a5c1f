"""Writers of either side are paused or killed, and the other side continues."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.exceptions import TableServiceError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import open_lock
from airflow_provider.services.failed_writes import rollback_failed_writes
from tests.real_hudi.beside.our_writer import DECIDED, LOCKED, PUT, WRITTEN, OurWriter, table_that_meets
from tests.real_hudi.in_turn.shared_table import SCHEMA, SharedTable, row, rows
from tests.real_hudi.jvm import Jvm, Session, running
from tests.real_hudi.one_lock import OneLock, let_heartbeats_expire
from tests.real_hudi.services_and_columns.test_their_services import ARCHIVES_SOON

NEW = [row(500 + number, 2, 2, part="p9") for number in range(5)]
"""New keys in a new partition."""


@pytest.fixture
def shared(hudi: Session, location: Path) -> SharedTable:
    """A table on which the JVM assumes that it is alone, and rolls pending writes back at once."""
    return SharedTable.of_the_jvm(hudi, location, rows(range(20), 0))


@pytest.fixture
def locked(hudi: Session, location: Path, one_lock: OneLock) -> SharedTable:
    """A table on which both sides share a lock."""
    return SharedTable.of_the_jvm(hudi, location, rows(range(20), 0), one_lock.theirs)


def ours_under(lock: OneLock, shared: SharedTable, changed: list[dict[str, object]]) -> None:
    shared.ours(changed, lock=open_lock(lock.ours, shared.table.storage), on_conflict="rebase")


def pending(shared: SharedTable) -> list[str]:
    return [each.requested_time for each in shared.table.timeline().pending()]


LAZY = {"hoodie.clean.failed.writes.policy": "LAZY"}
"""Otherwise the JVM rolls back every pending instant when it begins."""


def data_files(shared: SharedTable, instant: str) -> list[str]:
    return [file.name for file in Path(shared.location).glob("part=*/*.parquet") if instant in file.name]


# --- the JVM commits between our steps ---------------------------------------------------------


@pytest.mark.parametrize("next_by", ["ours", "theirs"])
def test_a_commit_of_the_jvm_between_our_data_files_and_our_lock(
    next_by: str, locked: SharedTable, one_lock: OneLock
) -> None:
    """The JVM rolls back every pending instant of the metadata table."""
    mine = [*(each for each in rows(range(8, 20), 200, 2) if each["part"] == "p1"), row(100, 2, 2, part="p1")]
    writer = OurWriter(locked.location, mine, LOCKED, signal.SIGSTOP, one_lock.ours)
    writer.wait_for_the_point()
    locked.theirs([row(0, 300, 3)])
    assert writer.go_on().error is None
    locked.add(mine)
    locked.check()
    also = [row(1, 400, 4)]  # in the same file group
    locked.theirs(also) if next_by == "theirs" else ours_under(one_lock, locked, also)
    locked.check()


def test_a_commit_of_the_jvm_beside_a_lock_that_it_does_not_share_is_warned_of(
    shared: SharedTable, caplog: pytest.LogCaptureFixture
) -> None:
    meets = table_that_meets(shared.location, WRITTEN, lambda: shared.theirs([row(0, 300, 3)], options=LAZY))
    mine = [row(1, 200, 2)]
    ingest_arrow(meets, pa.Table.from_pylist(mine, SCHEMA))
    shared.add(mine)
    *_, theirs, _ = shared.table.timeline().commits()
    [warning] = [each.getMessage() for each in caplog.records if theirs.requested_time in each.getMessage()]
    assert "the same lock" in warning
    shared.check()


@pytest.mark.parametrize("point", [DECIDED, PUT], ids=["before its entry", "after its entry"])
def test_ours_stands_still_under_the_lock_until_the_jvm_rolls_it_back(
    point: object, locked: SharedTable, one_lock: OneLock
) -> None:
    """The pause is longer than lease and heartbeat. Writes that this package acknowledges afterwards stay."""
    mine = [*rows(range(5, 15), 200, 2), *NEW]
    lock = {**one_lock.ours, "lease_seconds": 3.0}
    writer = OurWriter(locked.location, mine, point, signal.SIGSTOP, lock)
    writer.wait_for_the_point()
    [instant] = pending(locked)
    one_lock.wait_until_nobody_holds_it(locked.table)
    let_heartbeats_expire(locked.location)
    locked.theirs([*rows(range(10, 18), 300, 3), *NEW[:2]])
    told = writer.go_on()
    assert told.error is not None
    assert instant in told.error
    locked.check()
    ours_under(one_lock, locked, rows(range(3, 12), 400, 4))
    locked.check()
    assert not data_files(locked, instant)


# --- ours is killed ------------------------------------------------------------------------------


def kill_ours(shared: SharedTable, point: object) -> str:
    """Kill a write of new keys; return its instant."""
    writer = OurWriter(shared.location, NEW, point, signal.SIGKILL)
    writer.wait_for_the_point()
    [instant] = pending(shared)
    return instant


def test_the_jvm_rolls_a_dead_write_of_ours_back_and_archives_what_came_before(shared: SharedTable) -> None:
    """The markers name the files to delete: without the metadata table readers show any file that exists."""
    instant = kill_ours(shared, WRITTEN)
    shared.theirs(rows(range(8, 12), 300, 3))
    assert not data_files(shared, instant)
    for turn in range(4, 9):
        shared.theirs(rows(range(8, 12), 300, turn), options=ARCHIVES_SOON)
    shared.check()
    shared.ours(rows(range(4), 400, 10))
    shared.check()
    rollback_failed_writes(shared.table)
    shared.check()


def test_the_jvm_rolls_back_what_ours_has_decided_and_inserts_the_same_keys(shared: SharedTable) -> None:
    instant = kill_ours(shared, PUT)
    shared.theirs([{**each, "v": 3, "ts": 3} for each in NEW])
    shared.check()
    shared.ours(rows(range(4), 400, 4))
    shared.check()
    assert not data_files(shared, instant)
    shared.theirs([{**each, "v": 5, "ts": 5} for each in NEW])
    shared.check()


# --- the JVM is killed ---------------------------------------------------------------------------


@pytest.fixture
def another_jvm() -> Iterator[Jvm]:
    with tempfile.TemporaryDirectory(prefix="real-hudi-") as folder, running(Path(folder)) as jvm:
        yield jvm


def has_written_data(shared: SharedTable, before: set[Path]) -> bool:
    return len({*Path(shared.location).glob("part=*/*.parquet")} - before) >= 2


def has_completed_in_the_metadata_table(shared: SharedTable, before: set[Path]) -> bool:
    return bool({*Path(shared.location).glob(".hoodie/metadata/.hoodie/timeline/*_*.deltacommit")} - before)


Point = Callable[[SharedTable, set[Path]], bool]


def kill_theirs(another: Jvm, shared: SharedTable, point: Point) -> str:
    """Kill a write of the JVM as soon as it is at the point; return its instant."""
    victim = SharedTable(another.session(), shared.location, shared.options)
    instants: list[str] = []
    while not instants:
        before = {*Path(shared.location).rglob("*")}
        done = threading.Event()

        def write(done: threading.Event = done) -> None:
            try:
                victim.theirs([*rows(range(5, 25), 200, 2), *NEW])
            except (EOFError, OSError):
                pass  # killed
            else:
                done.set()

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        while not point(shared, before) and not done.is_set():
            time.sleep(0.001)
        another.signal(signal.SIGSTOP)
        instants = pending(shared)
        if not instants:  # the write was faster than the signal
            another.signal(signal.SIGCONT)
            thread.join()
            shared.model |= victim.model
    another.kill()
    thread.join()
    [instant] = instants
    return instant


@pytest.mark.parametrize("point", [has_written_data, has_completed_in_the_metadata_table])
def test_a_jvm_that_was_alone_is_killed(point: Point, shared: SharedTable, another_jvm: Jvm) -> None:
    """The JVM could not roll its write back below a later commit, nor write again: this package refuses."""
    instant = kill_theirs(another_jvm, shared, point)
    shared.check()
    with pytest.raises(TableServiceError, match=instant):
        shared.ours([*rows(range(8, 12), 400, 4), row(600, 4, 4, part="p9")])
    shared.check()
    shared.theirs([*rows(range(14), 600, 6), row(600, 6, 6, part="p9")])
    shared.check()
    shared.ours(rows(range(6), 700, 7))
    shared.check()
    assert not data_files(shared, instant)


@pytest.mark.parametrize("point", [has_written_data, has_completed_in_the_metadata_table])
def test_a_jvm_that_shares_the_lock_is_killed(
    point: Point, locked: SharedTable, another_jvm: Jvm, one_lock: OneLock
) -> None:
    instant = kill_theirs(another_jvm, locked, point)
    locked.check()
    changed = [*rows(range(8, 12), 400, 4), row(600, 4, 4, part="p9")]
    ours_under(one_lock, locked, changed)
    locked.check()
    let_heartbeats_expire(locked.location)
    ours_under(one_lock, locked, rows(range(8, 12), 500, 5))
    locked.check()
    locked.theirs([*rows(range(14), 600, 6), row(600, 6, 6, part="p9")])
    locked.check()
    ours_under(one_lock, locked, rows(range(6), 700, 7))
    locked.check()
    assert not data_files(locked, instant)

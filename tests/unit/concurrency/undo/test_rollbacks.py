"""The rollback of writes that did not commit: the dead writers, the entry, and the refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider.concurrency import (
    CommitLog,
    ServicePlan,
    Writer,
    WriteSettings,
    begin_write,
    rollback,
    rollback_dead_writers,
    schedule,
)
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, heartbeat_path, observe
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER
from airflow_provider.concurrency.log.fate import Fate
from airflow_provider.concurrency.log.log_entry import Rollback
from airflow_provider.concurrency.undo.rollbacks import _delete_leftovers, _is_for_anybody
from airflow_provider.exceptions import NoSuchInstantError, TableError
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.concurrency.log.test_one_clock import silent_for
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm, create_trips

FAR_AHEAD = "29990101000000000"

Begin = Callable[[], Writer]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


def newest(table: HudiTable) -> Rollback:
    entry = CommitLog(table.storage).newest()
    assert isinstance(entry, Rollback)
    return entry


@pytest.fixture
def begun(table: HudiTable) -> Iterator[Begin]:
    """Begins a write, which has planned, and renews its heartbeat until the test ends."""
    writers: list[Writer] = []

    def begin() -> Writer:
        writers.append(begin_write(table, operation="INSERT", settings=WriteSettings(priority=300)))
        writers[-1].plan((), ["city=sf"])
        return writers[-1]

    yield begin
    for writer in writers:
        writer.heartbeat.stop()


def beats(table: HudiTable, instant: str, info: HeartbeatInfo | None) -> None:
    """Put a heartbeat file of an hour ago; an empty file is the JVM's."""
    table.storage.put(heartbeat_path(instant), info.to_json() if info else b"")
    silent_for(table, heartbeat_path(instant), 3600.0)


def pending(table: HudiTable) -> set[str]:
    return {each.requested_time for each in table.timeline().pending()}


def test_its_entry_tells_who_was_rolled_back_by_whom_and_why(table: HudiTable, begun: Begin) -> None:
    dead = begun().instant
    entry = rollback(table, dead, reason="x" * 600)
    assert entry == newest(table)
    assert entry == Rollback(
        instant=entry.instant,
        priority=0,
        completion_time=entry.completion_time,
        owner=describe_owner(),
        indexes=(),
        properties=entry.properties,
        rolls_back=dead,
        rolled_back_action=Action.COMMIT,
        reason="x" * 500,
        dead_owner=describe_owner(),
        dead_operation="INSERT",
        dead_priority=300,
    )
    assert (pending(table), observe(table.storage)) == (set(), {})


@pytest.mark.parametrize("info", [None, HeartbeatInfo()], ids=["the JVM's", "one that says nothing"])
def test_of_a_writer_that_did_not_say_who_it_is_nothing_is_told(
    table: HudiTable, info: HeartbeatInfo | None
) -> None:
    """The writer's clock was ahead: the rollback's time is later all the same, so it is not taken twice."""
    beats(table, FAR_AHEAD, info)
    entry = rollback(table, FAR_AHEAD)
    assert entry is not None
    assert FAR_AHEAD < entry.instant < entry.completion_time
    assert (entry.rolled_back_action, entry.reason) == (Action.COMMIT, "asked for")
    assert (entry.dead_owner, entry.dead_operation, entry.dead_priority) == ("", "", 0)


@pytest.mark.parametrize("asked_for", [True, False])
def test_of_a_writer_that_has_no_instant_yet_the_heartbeat_tells_the_action(
    table: HudiTable, asked_for: bool
) -> None:
    beats(table, FAR_AHEAD, HeartbeatInfo("me", Action.CLUSTERING, "CLUSTER", 100))
    if asked_for:
        rollback(table, FAR_AHEAD)
    else:
        assert rollback_dead_writers(table) == [FAR_AHEAD]
    entry = newest(table)
    assert (entry.rolls_back, entry.rolled_back_action) == (FAR_AHEAD, Action.CLUSTERING)
    assert (entry.dead_owner, entry.dead_operation, entry.dead_priority) == ("me", "CLUSTER", 100)


def test_of_a_writer_that_has_an_instant_that_tells_the_action(table: HudiTable) -> None:
    dead = Instant(FAR_AHEAD, Action.DELTA_COMMIT, State.REQUESTED)
    for once_more in (False, True):
        beats(table, FAR_AHEAD, HeartbeatInfo("me", Action.COMMIT, "UPSERT"))
        table.storage.put(instant_path(dead), b"")
        assert rollback_dead_writers(table) == ([] if once_more else [FAR_AHEAD])
        assert newest(table).rolled_back_action is Action.DELTA_COMMIT
        assert (pending(table), observe(table.storage)) == (set(), {})


def test_who_rolls_back_beats_as_such_until_that_is_done(table: HudiTable, begun: Begin) -> None:
    class Watched(Storage):
        seen: dict[str, HeartbeatInfo]

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.startswith(f"{COMMIT_LOG_FOLDER}/0"):
                self.seen = {each: heartbeat.info for each, heartbeat in observe(self).items()}
            return super().put_if_absent(path, data)

    dead, storage = begun().instant, Watched(table.location)
    rollback(HudiTable.at(storage), dead)
    said = HeartbeatInfo(describe_owner(), Action.ROLLBACK, "ROLLBACK", 0, 10.0, 6, base=1)
    assert storage.seen[newest(table).instant] == said


def test_only_to_find_out_changes_nothing(table: HudiTable, begun: Begin) -> None:
    dead, before = begun().instant, CommitLog(table.storage).head()
    assert rollback(table, dead, dry_run=True) is None
    assert (CommitLog(table.storage).head(), pending(table)) == (before, {dead})


def test_what_has_completed_or_is_for_anybody_or_is_not_there_is_not_rolled_back(table: HudiTable) -> None:
    (completed,) = table.timeline().commits()
    with pytest.raises(TableError, match=f"instant {completed.requested_time} has completed"):
        rollback(table, completed.requested_time)
    with pytest.raises(NoSuchInstantError, match=f"no pending instant {FAR_AHEAD}"):
        rollback(table, FAR_AHEAD)
    theirs = Jvm(table)
    theirs.upsert({3: 3.0})
    with pytest.raises(TableError, match=f"instant {theirs.instant} has completed"):
        rollback(table, theirs.instant)
    plan = schedule_index(table, ["files"])
    assert plan is not None
    with pytest.raises(TableError, match=f"indexing plan {plan} is not rolled back"):
        rollback(table, plan)
    clean = Instant(FAR_AHEAD, Action.CLEAN, State.REQUESTED)
    table.storage.put(instant_path(clean), b"")
    with pytest.raises(TableError, match=f"clean {FAR_AHEAD} may have deleted files"):
        rollback(table, FAR_AHEAD)


def test_of_all_writers_those_that_are_dead_are_rolled_back_and_of_others_what_is_left_goes(
    table: HudiTable, begun: Begin
) -> None:
    storage, (completed,) = table.storage, table.timeline().commits()
    alive = begun().instant
    ended = begun().instant
    rollback(table, ended)
    silent = begun()
    silent.heartbeat.stop()
    dead = silent.instant
    silent_for(table, heartbeat_path(dead), 3600.0)
    clean, foreign = (Instant(f"2999010100000000{each}", Action.CLEAN, State.REQUESTED) for each in (2, 4))
    late = Instant(ended, Action.COMMIT, State.REQUESTED)
    info = HeartbeatInfo("me", Action.COMMIT, "UPSERT")
    beats(table, completed.requested_time, info)  # killed before it deleted its heartbeat
    beats(table, ended, info)  # the writer did not know that it is dead
    for each in (clean, foreign, late):
        storage.put(instant_path(each), b"")
    beats(table, clean.requested_time, info)
    assert rollback_dead_writers(table) == [dead]
    assert set(observe(storage)) == {alive}
    assert pending(table) == {alive, clean.requested_time, foreign.requested_time}
    assert table.timeline().commits()[-1] == completed
    storage.put(instant_path(late), b"")  # the writer writes its file once more, without a heartbeat
    assert rollback_dead_writers(table) == []
    assert pending(table) == {alive, clean.requested_time, foreign.requested_time}


@pytest.mark.parametrize(
    ("action", "is_for_anybody"), [(Action.CLEAN, True), (Action.INDEXING, True), (Action.CLUSTERING, False)]
)
def test_a_plan_that_is_finished_by_whomever_is_for_anybody(
    table: HudiTable, action: Action, is_for_anybody: bool
) -> None:
    plan = schedule(
        table,
        lambda view, taken: ServicePlan(frozenset(), b"plan"),
        action=action,
        operation=action.upper(),
        priority=0,
    )
    assert plan is not None
    assert _is_for_anybody(table.storage, plan) is is_for_anybody
    assert not _is_for_anybody(table.storage, table.timeline().commits()[0].requested_time)


@pytest.mark.parametrize("fate", [Fate.COMPLETED, Fate.ARCHIVED, Fate.UNDONE])
def test_of_what_has_completed_only_what_came_too_late_goes(table: HudiTable, fate: Fate) -> None:
    """While a commit is being published its pending files are correct."""
    (completed,) = table.timeline().commits()
    files = [each.path for each in table.view().all_base_files()]
    beats(table, completed.requested_time, HeartbeatInfo("me", Action.COMMIT, "UPSERT"))
    _delete_leftovers(table.storage, completed.requested_time, Action.COMMIT, fate)
    left = [
        state
        for state in (State.REQUESTED, State.INFLIGHT)
        if table.storage.stat(instant_path(Instant(completed.requested_time, Action.COMMIT, state)))
    ]
    assert left == ([State.REQUESTED, State.INFLIGHT] if fate is Fate.COMPLETED else [])
    assert observe(table.storage) == {}
    assert [each.path for each in table.view().all_base_files()] == files

"""A snapshot as of a moment, while writers are paused: once read, it stays the same."""

from __future__ import annotations

from datetime import tzinfo
from itertools import count

import pytest

from airflow_provider.concurrency import rollback_dead_writers
from airflow_provider.concurrency.log import instant_time
from airflow_provider.concurrency.log.log_entry import Rollback
from airflow_provider.exceptions import NoSuchInstantError, SnapshotNotSettledError, from_dict, to_dict
from airflow_provider.services.clustering.clustering import schedule_clustering
from airflow_provider.services.restore import restore
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import time_travel
from airflow_provider.table.timeline.instant import after, before, now
from tests.unit.concurrency.simulation.actors import PACK_IN_PAIRS, REBASE, add_executor, add_writer
from tests.unit.concurrency.simulation.invariants import check
from tests.unit.concurrency.simulation.rows import read_rows, read_snapshot
from tests.unit.concurrency.simulation.scheduler import Actor, NoLock, Simulation
from tests.unit.concurrency.simulation.test_interleavings import table_with

ENTRY = "put_if_absent .hoodie/commit_log/0"


class Clock:
    """A clock that advances by a millisecond whenever a writer reads it."""

    def __init__(self) -> None:
        self.time = now()

    def __call__(self, _: tzinfo) -> str:
        self.time = after(self.time)
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(instant_time, "now", made)
    monkeypatch.setattr(time_travel, "now", lambda _: made.time)
    return made


def told(simulation: Simulation, moment: str) -> dict[str, list[str]] | None:
    """The rows as of a moment; None if the reader raises because the moment is not settled."""
    table = simulation.table()
    try:
        files = table.select_files(as_of=moment).base_files
    except SnapshotNotSettledError:
        return None
    rows = {key: row for file in files for key, row in read_rows(table.storage, file.path).items()}
    assert read_snapshot(table.storage, table.view(moment)) == {k: list(r.history) for k, r in rows.items()}
    return {key: list(row.history) for key, row in rows.items()}


def standing_before_its_entry(simulation: Simulation, keys: str = "a") -> Actor:
    """A writer that has decided on its completion time, and has not put its entry."""
    add_writer(simulation, "slow", keys)
    slow = simulation.actors[-1]
    simulation.go_on_to(slow, ENTRY)
    return slow


def later_than_its_completion(clock: Clock) -> str:
    """A moment after that completion time, and before any later completion time."""
    clock.time = after(after(after(clock.time)))
    return clock.time


def test_a_moment_after_a_commit_that_has_no_entry_yet_is_told_when_it_has_one(clock: Clock) -> None:
    simulation = table_with("a", "b")
    slow = standing_before_its_entry(simulation)
    moment = later_than_its_completion(clock)
    first = told(simulation, moment)
    simulation.go_on(slow)
    assert simulation.entries()[-1].completion_time <= moment
    second = told(simulation, moment)
    assert second == {"a": ["first-a", "slow"], "b": ["first-b"]}
    assert first is None, f"as of {moment} a reader was told {first} first and {second} later"


def test_a_moment_after_a_commit_that_is_not_published_is_told_when_it_is(clock: Clock) -> None:
    simulation = table_with("a", "b")
    slow = standing_before_its_entry(simulation)
    simulation.step(slow)
    moment = later_than_its_completion(clock)
    assert simulation.entries()[-1].completion_time <= moment
    simulation.kill(slow)
    assert told(simulation, moment) is None
    add_writer(simulation, "next", "b")  # publishes what it finds
    simulation.go_on(simulation.actors[-1])
    assert told(simulation, moment) == {"a": ["first-a", "slow"], "b": ["first-b"]}
    check(simulation)


def test_a_moment_after_a_dead_writers_request_is_told_when_it_was_rolled_back(clock: Clock) -> None:
    simulation = table_with("a", "b")
    slow = standing_before_its_entry(simulation)
    moment = later_than_its_completion(clock)
    simulation.kill(slow)
    with pytest.raises(SnapshotNotSettledError, match=f"as of {moment} is not settled yet") as caught:
        simulation.table().view(moment)
    (pending,) = simulation.table().timeline().pending()
    newest = simulation.table().timeline().commits()[-1]
    assert f"commit {pending.requested_time} is inflight" in str(caught.value)
    assert f"read without as_of, or as of {newest.completion_time}, its newest commit" in str(caught.value)
    again = from_dict(to_dict(caught.value))
    assert isinstance(again, SnapshotNotSettledError)
    assert again.retryable
    assert again.details == {"instant": moment, "pending": pending.requested_time}
    simulation.expire_heartbeats()
    assert told(simulation, moment) is None  # a writer that counts as dead may still put its entry
    rollback_dead_writers(simulation.table())
    assert isinstance(simulation.entries()[-1], Rollback)
    assert told(simulation, moment) == {"a": ["first-a"], "b": ["first-b"]}


def test_what_completed_is_told_while_a_writer_stands_still(clock: Clock) -> None:
    simulation = table_with("a", "b")
    standing_before_its_entry(simulation)
    first, second = simulation.table().timeline().commits()
    for moment in (first.requested_time, first.completion_time, before(second.requested_time)):
        assert told(simulation, moment) == {"a": ["first-a"]}
    for moment in (second.requested_time, second.completion_time):
        assert told(simulation, moment) == {"a": ["first-a"], "b": ["first-b"]}


def test_a_moment_is_told_once_anything_has_completed_after_it(clock: Clock) -> None:
    simulation = table_with("a", "b")
    slow = standing_before_its_entry(simulation)
    moment = later_than_its_completion(clock)
    add_writer(simulation, "quick", "b")
    simulation.go_on(simulation.actors[-1])  # so the slow writer has lost its place, and its completion time
    expected = {"a": ["first-a"], "b": ["first-b"]}
    assert told(simulation, moment) == expected
    simulation.go_on(slow)
    assert simulation.committed() >= {"slow", "quick"}
    assert told(simulation, moment) == expected


def test_a_clustering_that_stands_still_holds_no_moment_up(clock: Clock) -> None:
    simulation = table_with("a", "b")
    assert schedule_clustering(simulation.table(), PACK_IN_PAIRS, lock=NoLock()) is not None
    moment = later_than_its_completion(clock)
    expected = {"a": ["first-a"], "b": ["first-b"]}
    assert told(simulation, moment) == expected
    add_executor(simulation, "executor")
    executor = simulation.actors[-1]
    simulation.go_on_to(executor, ENTRY)
    moment = later_than_its_completion(clock)
    assert told(simulation, moment) == expected
    simulation.go_on(executor)
    assert simulation.entries()[-1].completion_time <= moment
    assert told(simulation, moment) == expected


def test_a_moment_before_the_first_commit_has_its_entry_is_not_settled(clock: Clock) -> None:
    simulation = Simulation()
    slow = standing_before_its_entry(simulation)
    moment = later_than_its_completion(clock)
    assert told(simulation, moment) is None
    with pytest.raises(NoSuchInstantError):
        told(simulation, "20200101000000000")
    simulation.go_on(slow)
    assert told(simulation, moment) == {"a": ["slow"]}


@pytest.mark.parametrize("turns", [(1, 1), (1, 3), (3, 1), (7, 7), (40, 40), (1000, 1)])
def test_what_a_reader_was_told_once_stays_true(clock: Clock, turns: tuple[int, int]) -> None:
    simulation = table_with("a", "b")
    add_writer(simulation, "one", "ab", policy=REBASE)
    add_writer(simulation, "other", "bc", policy=REBASE)
    answers: dict[str, dict[str, list[str]]] = {}
    for turn in count():
        actor = simulation.actors[-2 + turn % 2]
        for _ in range(turns[turn % 2]):
            if actor.done:
                break
            simulation.step(actor)
            for moment, rows in answers.items():
                assert told(simulation, moment) in (rows, None)
            passed = before(clock.time)
            if (
                passed[-1] in "02468"
            ):  # the moment may be a requested time, and name a writer that has only its heartbeat
                passed = before(passed)
            found = told(simulation, passed)
            if found is not None:
                answers[passed] = found
        if not simulation.running():
            break
    check(simulation)
    assert simulation.committed() >= {"one", "other"}
    assert all(told(simulation, moment) == rows for moment, rows in answers.items())
    assert len({str(rows) for rows in answers.values()}) > 1


def test_an_undone_commit_that_looks_pending_holds_no_moment_up(clock: Clock) -> None:
    simulation = table_with("a", "b", "c")
    oldest, kept, undone = simulation.table().timeline().commits()

    def work(table: HudiTable, _: Actor) -> None:
        restore(table, kept.requested_time, lock=NoLock())

    simulation.add("restores", work)
    restorer = simulation.actors[-1]
    simulation.go_on_to(restorer, f"delete .hoodie/timeline/{undone.requested_time}.inflight")
    moment = later_than_its_completion(clock)
    assert (
        simulation.table().timeline().find(undone.requested_time) in simulation.table().timeline().pending()
    )
    assert told(simulation, moment) == {"a": ["first-a"], "b": ["first-b"]}
    simulation.go_on(restorer)
    assert restorer.failure is None
    assert told(simulation, moment) == {"a": ["first-a"], "b": ["first-b"]}
    assert told(simulation, oldest.requested_time) == {"a": ["first-a"]}

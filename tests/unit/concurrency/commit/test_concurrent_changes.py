"""A moment of a table, and the commits between two moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit.commit_point import commit
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.heartbeats import HeartbeatInfo, observe
from airflow_provider.concurrency.log.log_entry import Archival, Commit, Restore, Revert, Savepoint
from airflow_provider.exceptions import InstantRolledBackError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks.owner import describe_owner
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm, create_trips, rows

FAR_AHEAD = "29990101000000000"


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


def upsert(table: HudiTable, key: int = 1) -> Commit:
    ingest_arrow(table, rows({key: 9.0}))
    newest = CommitLog(table.storage).newest()
    assert isinstance(newest, Commit)
    return newest


def looked(moment: Moment) -> Moment:
    """A moment that has loaded its timeline."""
    assert moment.timeline is moment.known_timeline
    return moment


def undoes(commit: Commit, by: str, *, by_another: bool) -> Revert:
    return Revert(
        instant=by, priority=400, rolls_back=commit.instant, reverts=commit.sequence, by_another=by_another
    )


# --- one moment -----------------------------------------------------------------------------


def test_the_moment_of_an_entry_shows_what_had_completed_then(table: HudiTable) -> None:
    first, second = upsert(table), upsert(table)
    shown = [each.requested_time for each in Moment.at(table.storage, first).timeline.commits()]
    assert shown[-1] == first.instant
    assert Moment.at(table.storage, second).timeline.commits()[-1].requested_time == second.instant


def test_a_moment_before_a_time_shows_nothing_that_completed_at_it(table: HudiTable) -> None:
    first, second = upsert(table), upsert(table)
    moment = Moment(table.storage, second, before=second.completion_time)
    assert moment.timeline.commits()[-1].requested_time == first.instant
    assert Moment(table.storage, second, before=FAR_AHEAD).timeline.commits()[-1].requested_time == (
        second.instant
    )


def test_the_snapshot_of_a_moment_lacks_what_came_later(table: HudiTable) -> None:
    moment = looked(Moment.now(table.storage))
    (before,) = moment.view().base_files("city=sf")
    upsert(table)
    assert moment.view().base_files("city=sf") == [before]
    late = Moment(table.storage, moment.newest)  # reads the timeline only now
    assert late.view().base_files("city=sf") == [before]
    (now,) = Moment.now(table.storage).view().base_files("city=sf")
    assert now != before


def test_a_requested_time_is_claimed_for_a_minute_in_the_name_of_who_asks(table: HudiTable) -> None:
    moment = Moment.now(table.storage)
    instants = [
        moment.request_instant(Action.CLEAN, "CLEAN"),
        moment.request_instant(Action.COMMIT, "UPSERT", priority=300, later_than=FAR_AHEAD),
    ]
    found = {each: heartbeat.info for each, heartbeat in observe(table.storage).items()}
    assert found == {
        instants[0]: HeartbeatInfo(describe_owner(), Action.CLEAN, "CLEAN", 0, 10.0, 6, base=1),
        instants[1]: HeartbeatInfo(describe_owner(), Action.COMMIT, "UPSERT", 300, 10.0, 6, base=1),
    }
    assert instants[1] > FAR_AHEAD
    kept = Commit(instant=instants[0], action=Action.CLEAN, operation="CLEAN", priority=0)
    moment.keep_requested(Archival(priority=0))
    assert set(observe(table.storage)) == set(instants)
    moment.keep_requested(kept)
    assert set(observe(table.storage)) == {instants[1]}
    moment.give_up_requested()
    assert observe(table.storage) == {}


def test_a_requested_time_that_another_hudi_writer_has_taken_is_passed_over(table: HudiTable) -> None:
    theirs = Instant(str(int(FAR_AHEAD) + 2), Action.COMMIT, State.REQUESTED)
    table.storage.put(instant_path(theirs), b"")
    taken = Moment.now(table.storage).request_instant(Action.CLEAN, "CLEAN", later_than=FAR_AHEAD)
    assert taken == str(int(FAR_AHEAD) + 4)
    assert set(observe(table.storage)) == {taken}


# --- between two moments --------------------------------------------------------------------


def test_what_others_committed_is_told_in_the_order_of_completion(table: HudiTable) -> None:
    base = looked(Moment.now(table.storage))
    first = upsert(table)
    jvm = Jvm(table)
    jvm.upsert({7: 7.0})
    commit(table.storage, lambda moment: Archival(priority=100))
    last = upsert(table)
    since = looked(Moment.now(table.storage)).changes_since(base)
    assert [each.entry.instant for each in since] == [first.instant, jvm.instant, last.instant]
    assert since[1].metadata.write_stats[0].num_inserts == 1
    assert Moment.now(table.storage).changes_since(Moment.now(table.storage)) == []


def test_a_commit_of_another_that_was_kept_by_a_savepoint_is_told(table: HudiTable) -> None:
    """The savepoint has the requested time of the commit."""
    base = looked(Moment.now(table.storage))
    jvm = Jvm(table)
    jvm.upsert({7: 7.0})
    create_savepoint(table, jvm.instant)
    since = looked(Moment.now(table.storage)).changes_since(base)
    assert [(type(each.entry), each.entry.instant) for each in since] == [
        (Commit, jvm.instant),
        (Savepoint, jvm.instant),
    ]


def test_a_restore_of_another_is_told_beside_what_the_log_says_of_it(table: HudiTable) -> None:
    undone = upsert(table)
    base = looked(Moment.now(table.storage))
    jvm = Jvm(table)
    jvm.restore([undone.instant])
    upsert(table)
    since = looked(Moment.now(table.storage)).changes_since(base)
    kinds = {type(each.entry) for each in since if each.entry.instant == jvm.instant}
    assert kinds == {Restore, Revert}


def test_who_stood_still_while_the_log_was_trimmed_past_its_base_is_told(table: HudiTable) -> None:
    stood_still = HudiTable.open(table.location).storage
    base, known = Moment.now(stood_still), Moment.now(table.storage)
    for _ in range(3):
        upsert(table)
    commit_log = CommitLog(table.storage)
    commit_log.trim(commit_log.head() - 1)
    assert len(Moment.now(table.storage).changes_since(known)) == 3, "who has read the entries knows them"
    with pytest.raises(InstantRolledBackError, match=f"based on entry {base.sequence} of the commit log"):
        Moment.now(stood_still).changes_since(base)


@pytest.mark.parametrize(
    ("is_newest_lost", "is_of_newest", "shows"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_who_began_when_the_newest_commit_was_not_shown_any_more_does_not_lose_to_its_undoing(
    table: HudiTable, is_newest_lost: bool, is_of_newest: bool, shows: bool
) -> None:
    older, newest = upsert(table), upsert(table)
    moment = Moment(table.storage, newest)
    moment.is_newest_lost = is_newest_lost
    undone = newest if is_of_newest else older
    assert moment.shows_undone(undoes(undone, FAR_AHEAD, by_another=True)) is shows
    assert not moment.shows_undone(newest)


def test_who_has_seen_the_rollback_of_another_does_not_lose_to_what_the_log_says_of_it(
    table: HudiTable,
) -> None:
    undone, newest = upsert(table), upsert(table)
    jvm, unseen = Jvm(table), looked(Moment(table.storage, newest))
    jvm.begin_rollback_of(undone.instant)
    moment = looked(Moment(table.storage, newest))
    assert moment.shows_undone(undoes(undone, jvm.instant, by_another=True))
    assert not moment.shows_undone(undoes(undone, jvm.instant, by_another=False)), "one of ours is new"
    assert not moment.shows_undone(undoes(undone, newest.instant, by_another=True)), "that is a commit"
    assert not unseen.shows_undone(undoes(undone, jvm.instant, by_another=True))
    assert not Moment(table.storage, newest).shows_undone(undoes(undone, jvm.instant, by_another=True))

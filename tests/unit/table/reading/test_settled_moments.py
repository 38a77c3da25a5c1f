"""Settled and unsettled moments beside pending instants, case by case, in real files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider.exceptions import InvalidInputError, NoSuchInstantError, SnapshotNotSettledError
from airflow_provider.metastore import ValidWriteIdList
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading.explanation import explain
from airflow_provider.table.reading.incremental import increment
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, before
from tests.unit.table.histories import History

ROWS = {("a", 1): "first"}
FAR_AHEAD = "29991231235959999"


def told(history: History, moment: str) -> list[str]:
    return sorted(snapshot(history.table, as_of=moment).to_table()["v"].to_pylist())


def pend(history: History, action: Action, state: State = State.REQUESTED) -> str:
    """Put a pending instant on the timeline; return its requested time."""
    instant = history.tick()
    history.storage.put(instant_path(Instant(instant, action, state)), b"")
    return instant


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_a_moment_after_the_request_of_a_pending_write_is_not_settled(
    history: History, action: Action, state: State
) -> None:
    done = history.commit(ROWS)
    pending = pend(history, action, state)
    moment = history.tick()
    remedy = f"{action} {pending} is {state} .* without as_of, or as of {done.completion_time}, its newest"
    with pytest.raises(SnapshotNotSettledError, match=remedy):
        snapshot(history.table, as_of=moment)


@pytest.mark.parametrize(
    "action",
    [
        *(Action.CLUSTERING, Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.ROLLBACK),
        *(Action.INDEXING, Action.SAVEPOINT),
    ],
)
def test_what_changes_no_row_holds_no_moment_up(history: History, action: Action) -> None:
    history.commit(ROWS)
    pend(history, action)
    assert told(history, history.tick()) == ["first"]


def test_a_moment_before_the_request_of_a_pending_write_is_settled(history: History) -> None:
    history.commit(ROWS)
    moment = history.tick()
    pending = history.begin({("a", 2): "second"})
    assert told(history, moment) == ["first"]
    history.complete(pending)
    assert told(history, moment) == ["first"]


def test_a_moment_up_to_the_newest_completion_is_settled(history: History) -> None:
    history.commit(ROWS)
    pending = history.begin({("a", 2): "slow"})
    between = history.tick()
    newest = history.commit({("a", 3): "quick"})
    moments = {
        between: ["first"],
        newest.instant: ["first", "quick"],
        newest.completion_time: ["first", "quick"],
    }
    assert {moment: told(history, moment) for moment in moments} == moments
    with pytest.raises(SnapshotNotSettledError):
        told(history, after(newest.completion_time))
    history.complete(pending)
    assert {moment: told(history, moment) for moment in moments} == moments


@pytest.mark.parametrize("is_clustering", [False, True])
def test_a_moment_that_names_a_pending_instant_means_right_after_it(
    history: History, is_clustering: bool
) -> None:
    history.commit(ROWS)
    pending = history.begin_clustering("p=a") if is_clustering else history.begin({("a", 2): "slow"})
    history.commit({("b", 3): "quick"})
    assert told(history, before(pending.instant)) == ["first"]
    with pytest.raises(SnapshotNotSettledError, match=f"{pending.action} {pending.instant} is inflight"):
        told(history, pending.instant)
    history.complete(pending)
    later = ["first", "quick"] if is_clustering else ["first", "quick", "slow"]
    assert told(history, pending.instant) == later


def test_a_moment_that_names_a_pending_clean_is_any_moment(history: History) -> None:
    history.commit(ROWS)
    pending = pend(history, Action.CLEAN)
    assert told(history, pending) == ["first"]


def test_a_moment_is_settled_by_whatever_completes_after_it(history: History) -> None:
    history.commit(ROWS)
    history.begin({("a", 2): "slow"})
    moment = history.tick()
    clean = Instant(history.tick(), Action.CLEAN, State.COMPLETED, history.tick())
    with pytest.raises(SnapshotNotSettledError):
        told(history, moment)
    history.storage.put(instant_path(clean), b"")
    assert history.table.timeline().newest_completion > moment
    view = history.table.view(moment)
    assert [each.instant for each in view.all_base_files()] == [history.commits[0].instant]


def test_before_the_first_commit(history: History) -> None:
    moment = history.tick()
    history.begin(ROWS)
    with pytest.raises(NoSuchInstantError, match="there is no commit"):
        told(history, moment)
    with pytest.raises(SnapshotNotSettledError, match="read without as_of, or again once"):
        told(history, history.tick())
    with pytest.raises(InvalidInputError, match="yyyyMMddHHmmssSSS"):
        told(history, "yesterday")


@pytest.mark.parametrize(
    "read",
    [
        snapshot,
        HudiTable.view,
        HudiTable.base_files,
        file_slices,
        lambda table, moment: explain(table, None, moment),
        lambda table, moment: snapshot(table, moment, valid_write_ids=ValidWriteIdList(None, 9)),
    ],
)
def test_every_reader_is_told(history: History, read: Callable[[HudiTable, str], object]) -> None:
    done = history.commit(ROWS)
    pending = history.begin({("a", 2): "slow"})
    moment = history.tick()
    read(history.table, done.completion_time)
    with pytest.raises(SnapshotNotSettledError, match=pending.instant):
        read(history.table, moment)
    history.roll_back(pending)
    read(history.table, moment)


def test_an_increment_says_itself_how_far_it_goes(history: History) -> None:
    start = history.commit(ROWS).completion_time
    done = history.commit({("a", 2): "second"})
    pending = history.begin({("a", 3): "slow"})
    end = FAR_AHEAD
    window = increment(history.table, start, end=end)
    assert window.end == done.completion_time < end
    completed = history.complete(pending).completion_time
    assert increment(history.table, start, end=window.end).commits == window.commits
    following = increment(history.table, window.end, end=end)
    assert [each.completion_time for each in following.commits] == [completed]

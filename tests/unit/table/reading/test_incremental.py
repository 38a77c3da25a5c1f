"""Incremental reads, case by case; any history at all is in test_incremental_model.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.compute as pc
import pytest

from airflow_provider.exceptions import CheckpointExpiredError, CorruptTableError, InvalidInputError
from airflow_provider.table import HudiTable
from airflow_provider.table.reading.incremental import Increment, Order, increment, movable_checkpoint
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import TIMELINE_FOLDER
from airflow_provider.table.timeline.archived_timeline import HISTORY_FOLDER
from airflow_provider.table.timeline.instant import Action
from tests.unit.table.histories import History, at, rows_of

BEGINNING = "20000101000000000"


def values(found: Increment) -> dict[tuple[str, int], str]:
    rows = found.scanner().to_table().to_pylist()
    assert len(rows) == len({(row["p"], row["k"]) for row in rows}), "a row came twice"
    return {(row["p"], row["k"]): row["v"] for row in rows}


def requests(found: Increment) -> list[str]:
    return [instant.requested_time for instant in found.commits]


class WatchedStorage(Storage):
    """A storage that records its reads, and lets a test act before a listing or a read."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.was_read: list[str] = []
        self.before_read: Callable[[str], None] = lambda path: None
        self.listed: Callable[[str, Iterable[str]], Iterable[str]] = lambda path, names: names

    def read(self, path: str) -> bytes:
        self.before_read(path)
        self.was_read.append(path)
        return super().read(path)

    def names(self, path: str) -> Iterable[str]:
        return self.listed(path, super().names(path))


def watched(history: History) -> tuple[HudiTable, WatchedStorage]:
    storage = WatchedStorage(history.table.location)
    return HudiTable(storage, history.table.config), storage


# --- in completion order ---------------------------------------------------------------


def test_a_late_commit_is_neither_lost_nor_repeated(history: History) -> None:
    history.commit({("a", 1): "1"})
    late = history.begin({("a", 2): "2"})
    early = history.commit({("a", 3): "3"})
    first = increment(history.table)
    assert values(first) == {("a", 1): "1", ("a", 3): "3"}
    assert first.end == early.completion_time
    history.complete(late)
    second = increment(history.table, first.end)
    assert values(second) == {("a", 2): "2"}
    assert requests(second) == [late.instant]
    third = increment(history.table, second.end)
    assert (third.commits, third.end, values(third)) == ((), second.end, {})


def test_the_row_is_told_once_in_its_newest_state(history: History) -> None:
    start = history.commit({("a", 1): "1", ("a", 2): "2"}).completion_time
    history.commit({("a", 1): "old"})
    history.commit({("a", 1): "new"})
    assert values(increment(history.table, start)) == {("a", 1): "new"}


def test_rows_that_a_merge_or_a_clustering_only_copies_are_not_told(history: History) -> None:
    start = history.commit({("a", 1): "1", ("a", 2): "2"}).completion_time
    history.commit({("a", 1): "x"})
    assert values(increment(history.table, start)) == {("a", 1): "x"}
    history.cluster("p=a")
    assert values(increment(history.table, start)) == {("a", 1): "x"}
    clustered = increment(history.table, history.commits[-2].completion_time)
    assert [i.action for i in clustered.commits] == [Action.REPLACE_COMMIT]
    assert clustered.paths == (), "a clustering alone has no rows to open a file for"


def test_deletes_open_no_file(history: History) -> None:
    start = history.commit({("a", 1): "1", ("a", 2): "2"}).completion_time
    history.commit({("a", 1): None})
    found = increment(history.table, start)
    assert (len(found.commits), found.paths) == (1, ())


def test_what_an_overwrite_took_out_is_gone(history: History) -> None:
    start = history.commit({("b", 1): "1"}).completion_time
    history.commit({("a", 1): "1"})
    history.commit({("a", 2): "2"}, overwrites="a")
    assert values(increment(history.table, start)) == {("a", 2): "2"}


def test_a_rebased_write_with_an_earlier_time_is_told_from_its_new_file_group(history: History) -> None:
    start = history.commit({("a", 1): "1", ("a", 2): "2"}).completion_time
    rebased = history.begin({("a", 1): "rebased"})
    history.commit({("a", 2): "meanwhile"})
    between = increment(history.table, start)
    history.complete(rebased)
    assert rebased.replaced
    assert rebased.instant < between.commits[0].requested_time
    assert values(increment(history.table, between.end)) == {("a", 1): "rebased"}
    both = increment(history.table, start)
    assert values(both) == {("a", 1): "rebased", ("a", 2): "meanwhile"}
    assert len(both.paths) == 1


def test_a_rolled_back_instant_is_never_told(history: History) -> None:
    history.commit({("a", 1): "1"})
    dead = history.begin({("a", 2): "2"})
    found = increment(history.table)
    history.roll_back(dead)
    for order in Order:
        assert increment(history.table, order=order).held_by is None
    assert increment(history.table, found.end).commits == ()


def test_a_checkpoint_outlives_the_clustering_that_it_names(history: History) -> None:
    start = history.commit({("a", 1): "1"}).completion_time
    clustering = history.cluster("p=a")
    found = increment(history.table, start)
    assert found.end == clustering.completion_time
    assert history.revert(clustering)
    assert increment(history.table, found.end).commits == ()
    history.commit({("a", 2): "2"})
    assert values(increment(history.table, found.end)) == {("a", 2): "2"}
    assert values(increment(history.table, start)) == {("a", 2): "2"}


def test_a_commit_that_is_reverted_during_the_look_is_left_out(history: History) -> None:
    start = history.commit({("a", 1): "1"}).completion_time
    history.commit({("a", 1): "2"})
    clustering = history.cluster("p=a")
    table, storage = watched(history)

    def revert(path: str) -> None:
        if clustering in history.commits and path.endswith(".replacecommit"):
            assert history.revert(clustering)

    storage.before_read = revert
    found = increment(table, start)
    assert values(found) == {("a", 1): "2"}
    assert len(found.commits) == 1


def test_a_window_can_be_read_again_and_in_parts(history: History) -> None:
    ends = [history.commit({("a", 1): text}).completion_time for text in "xyz"]
    assert values(increment(history.table, ends[0], end=ends[1])) == {("a", 1): "y"}
    assert values(increment(history.table, None, end=ends[0])) == {("a", 1): "x"}
    # No commit is in between, so the checkpoint does not move beyond the last commit that was read.
    assert increment(history.table, ends[0], end=at(3)).end == ends[0]
    assert increment(history.table, ends[1], end=at(999)).end == ends[2]


def test_a_snapshot_of_the_past_leaves_out_what_was_requested_first(history: History) -> None:
    late = history.begin({("a", 1): "late"})
    early = history.commit({("a", 2): "early"})
    history.complete(late)
    assert values(increment(history.table, end=early.completion_time)) == {("a", 2): "early"}


def test_an_empty_table_has_no_checkpoint(history: History) -> None:
    history.begin({("a", 1): "1"})
    for order in Order:
        found = increment(history.table, order=order)
        assert (found.end, found.commits, found.held_by) == (None, (), None)
        assert values(found) == {}
        assert found.scanner(meta_columns=True).to_table().num_rows == 0


def test_columns_and_filters_of_a_scan(history: History) -> None:
    start = history.commit({("a", 1): "1"}).completion_time
    history.commit({("a", 2): "2", ("b", 3): "3"})
    found = increment(history.table, start)
    table = found.scanner(["k"], pc.field("p") == "b").to_table()
    assert table.to_pydict() == {"k": [3]}
    assert found.scanner(meta_columns=True).to_table().schema.names[0] == "_hoodie_commit_time"
    assert found.scanner().to_table().schema == history.table.schema
    assert found.scanner().count_rows() == 2


# --- a listing is no snapshot ----------------------------------------------------------


def test_a_torn_listing_loses_no_commit(history: History) -> None:
    """A listing that runs while commits complete may show a later commit and miss an earlier one."""
    start = history.commit({("a", 1): "1"}).completion_time
    missed = history.commit({("a", 2): "2"})
    history.commit({("a", 3): "3"})
    table, storage = watched(history)
    looks: list[str] = []

    def tear(path: str, names: Iterable[str]) -> Iterable[str]:
        if path == TIMELINE_FOLDER:
            looks.append(path)
            if len(looks) == 1:
                return [name for name in names if not name.startswith(missed.instant)]
        return names

    storage.listed = tear
    assert values(increment(table, start)) == {("a", 2): "2", ("a", 3): "3"}


def test_what_completes_during_the_look_waits_for_the_next(history: History) -> None:
    start = history.commit({("a", 1): "1"}).completion_time
    known = history.commit({("a", 2): "2"})
    earlier, later = history.begin({("a", 3): "3"}), history.begin({("a", 4): "4"})
    table, storage = watched(history)
    looks: list[str] = []

    def complete(path: str, names: Iterable[str]) -> Iterable[str]:
        if path != TIMELINE_FOLDER:
            return names
        looks.append(path)
        if len(looks) != 2:
            return names
        history.complete(earlier)
        history.complete(later)
        found = Storage(history.table.location).names(TIMELINE_FOLDER)
        return [name for name in found if not name.startswith(f"{earlier.instant}_")]

    storage.listed = complete
    found = increment(table, start)
    assert found.end == known.completion_time
    assert values(increment(table, found.end)) == {("a", 3): "3", ("a", 4): "4"}


# --- fenced ----------------------------------------------------------------------------


def test_the_fence_stops_before_the_first_commit_in_flight(history: History) -> None:
    first = history.commit({("a", 1): "1"})
    straggler = history.begin({("a", 2): "2"})
    withheld = history.commit({("a", 1): "3"})
    found = increment(history.table, order="fenced")
    assert values(found) == {("a", 1): "1"}, "the state before what is withheld"
    assert found.end == first.instant
    assert found.held_by is not None
    assert found.held_by.requested_time == straggler.instant
    assert increment(history.table, found.end, order="fenced").commits == ()
    history.complete(straggler)
    rest = increment(history.table, found.end, order="fenced")
    assert values(rest) == {("a", 1): "3", ("a", 2): "2"}
    assert (rest.end, rest.held_by) == (withheld.instant, None)


def test_a_writer_holds_the_fence_from_its_heartbeat_on(history: History) -> None:
    first = history.commit({("a", 1): "1"})
    straggler = history.begin({("a", 2): "2"}, requested=False)
    history.commit({("a", 3): "3"})
    found = increment(history.table, first.instant, order="fenced")
    assert found.commits == ()
    assert found.held_by is not None
    assert found.held_by.requested_time == straggler.instant


def test_a_heartbeat_from_before_the_timeline_holds_nothing(history: History) -> None:
    history.tick()
    history.commit({("a", 1): "1"})
    history.storage.put(f".hoodie/.heartbeat/{at(1)}", b"")  # its instant was archived
    assert len(increment(history.table, order="fenced").commits) == 1


def test_a_scheduled_clustering_does_not_hold_the_fence(history: History) -> None:
    history.commit({("a", 1): "1"})
    clustering = history.begin_clustering("p=a")
    newest = history.commit({("a", 2): "2"})
    found = increment(history.table, order="fenced")
    assert (found.end, found.held_by) == (newest.instant, None)
    history.complete(clustering)
    changed = history.commit({("a", 1): "x"})
    assert values(increment(history.table, found.end, order="fenced")) == {("a", 1): "x"}
    assert requests(increment(history.table, found.end, order="fenced")) == [changed.instant]


def test_a_commit_that_was_merged_on_a_withheld_one_is_withheld_too(history: History) -> None:
    first = history.commit({("a", 1): "1"})
    rebased = history.begin({("a", 1): "rebased"})
    straggler = history.begin({("b", 1): "b"})
    history.commit({("a", 2): "2", ("a", 1): "overwritten"})
    history.complete(rebased)
    assert rebased.replaced
    found = increment(history.table, first.instant, order="fenced")
    assert found.commits == ()
    assert found.held_by is not None
    assert found.held_by.requested_time == straggler.instant
    history.complete(straggler)
    rest = increment(history.table, found.end, order="fenced")
    assert values(rest) == {("a", 1): "rebased", ("a", 2): "2", ("b", 1): "b"}


def test_a_fenced_window_in_parts(history: History) -> None:
    first, second, third = (history.commit({("a", 1): text}) for text in "xyz")
    found = increment(history.table, first.instant, order="fenced", end=second.instant)
    assert (values(found), found.end, found.held_by) == ({("a", 1): "y"}, second.instant, None)
    assert increment(history.table, found.end, order="fenced").end == third.instant


# --- in requested order ----------------------------------------------------------------


def test_what_lies_beyond_the_checkpoint_is_told_again(history: History) -> None:
    first = history.commit({("a", 1): "1"})
    straggler = history.begin({("a", 2): "2"})
    history.commit({("a", 3): "3"})
    found = increment(history.table, first.instant, order="requested")
    assert values(found) == {("a", 3): "3"}
    assert found.end == first.instant == movable_checkpoint(history.table, first.instant)
    assert found.held_by is not None
    assert found.held_by.requested_time == straggler.instant
    newest = history.commit({("a", 3): "4"})
    history.complete(straggler)
    again = increment(history.table, found.end, order="requested")
    assert values(again) == {("a", 2): "2", ("a", 3): "4"}
    assert again.end == newest.instant == movable_checkpoint(history.table, found.end)
    assert again.held_by is None
    assert movable_checkpoint(history.table) == newest.instant


def test_a_window_in_requested_order_has_no_end(history: History) -> None:
    with pytest.raises(InvalidInputError, match="have no end"):
        increment(history.table, order="requested", end=at(1))


# --- what cannot be read ---------------------------------------------------------------


def test_a_damaged_manifest_of_the_archived_timeline_is_named(history: History) -> None:
    history.storage.put(f"{HISTORY_FOLDER}/_version_", b"3")
    history.storage.put(f"{HISTORY_FOLDER}/manifest_3", json.dumps({"files": [{}]}).encode())
    with pytest.raises(CorruptTableError, match="manifest_3"):
        increment(history.table, BEGINNING)


def test_a_window_whose_files_were_cleaned_has_expired(history: History) -> None:
    start = history.commit({("a", 1): "1"}).completion_time
    old = history.commit({("a", 1): "2"})
    newest = history.commit({("a", 1): "3"})
    (cleaned,) = increment(history.table, start, end=old.completion_time).paths
    history.storage.delete(cleaned)
    with pytest.raises(CheckpointExpiredError, match=rf"{cleaned} of its window was cleaned.*start=None"):
        increment(history.table, start, end=old.completion_time)
    # The newest state does not need the cleaned slice.
    assert values(increment(history.table, start)) == {("a", 1): "3"}
    assert increment(history.table, start).end == newest.completion_time


@pytest.mark.parametrize("replaced", [False, True], ids=["rewritten", "replaced"])
def test_a_snapshot_of_the_past_whose_files_were_cleaned_has_expired(
    history: History, replaced: bool
) -> None:
    history.commit({("a", 1): "1"})
    old = history.commit({("a", 1): "2"})
    history.commit({("a", 1): "3"}, overwrites="a" if replaced else None)
    past = increment(history.table, end=old.completion_time)
    assert values(past) == {("a", 1): "2"}
    history.storage.delete(past.paths[0])
    with pytest.raises(CheckpointExpiredError, match=r"a snapshot of the past.*was cleaned"):
        increment(history.table, end=old.completion_time)
    assert values(increment(history.table)) == {("a", 1): "3"}


def test_a_snapshot_of_the_past_needs_the_files_of_archived_commits_too(history: History) -> None:
    archived = history.commit({("a", 1): "1"})
    (path,) = increment(history.table).paths
    past = history.commit({("b", 1): "1"})
    history.commit({("a", 1): "2"})
    for name in history.storage.names(TIMELINE_FOLDER):
        if name.startswith(archived.instant):
            history.storage.delete(f"{TIMELINE_FOLDER}/{name}")
    assert len(values(increment(history.table, end=past.completion_time))) == 2
    history.storage.delete(path)
    with pytest.raises(CheckpointExpiredError, match=r"file group p=a/f1-0 of its snapshot was cleaned"):
        increment(history.table, end=past.completion_time)


def test_a_fenced_window_whose_files_were_cleaned_has_expired(history: History) -> None:
    first = history.commit({("a", 1): "1"})
    second = history.commit({("a", 1): "2"})
    history.begin({("a", 2): "straggler"})
    history.commit({("a", 1): "3"})
    (path,) = increment(history.table, first.instant, order="fenced").paths
    assert second.instant in path
    history.storage.delete(path)
    with pytest.raises(CheckpointExpiredError, match="was cleaned"):
        increment(history.table, first.instant, order="fenced")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "yesterday"}, r"start: .*'yesterday'.*give the 'end' of an increment"),
        ({"start": BEGINNING, "end": "0"}, r"end: .*'0'"),
        ({"order": "random"}, r"'random' is unknown; known: completion, fenced, requested"),
    ],
)
def test_arguments_that_cannot_work_are_named(
    history: History, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        increment(history.table, **arguments)


# --- what it costs ---------------------------------------------------------------------


@pytest.mark.parametrize("order", list(Order))
def test_only_the_commits_of_the_window_are_read(history: History, order: Order) -> None:
    history.commit({("a", 1): "1", ("b", 1): "1"})
    history.commit({("b", 2): "2"}, overwrites="b")
    before = history.commit({("a", 2): "2"})
    history.commit({("a", 3): "3"})
    history.cluster("p=a")
    table, storage = watched(history)
    start = before.completion_time if order is Order.COMPLETION else before.instant
    found = increment(table, start, order=order)
    read = [path for path in storage.was_read if path.startswith(TIMELINE_FOLDER)]
    window = {write.instant for write in history.commits if write.instant > before.instant}
    metadata = {path.rpartition("/")[2].partition("_")[0] for path in read if "history" not in path}
    assert metadata == window
    assert len(read) == len(set(read))
    assert all(path.startswith("p=a/") for path in found.paths)


@pytest.mark.parametrize("order", [Order.FENCED, Order.REQUESTED])
def test_a_key_that_came_back_is_not_told_without_its_deletion(history: History, order: Order) -> None:
    """The commit was requested before the deletion, and completed after it, in a file group of its own."""
    history.commit({("b", 1): "first"})
    again = history.begin({("a", 1): "again"})
    history.commit({("a", 1): "before"})
    held_by = history.begin({("b", 1): "later"})
    history.commit({("a", 1): None})
    history.complete(again)
    found = increment(history.table, None, order=order)
    rows = rows_of(found.scanner(meta_columns=True).to_table())
    assert [key for key, _ in rows] == sorted({key for key, _ in rows})
    assert found.held_by is not None
    assert found.held_by.requested_time == held_by.instant
    history.complete(held_by)
    after = rows_of(increment(history.table, found.end, order=order).scanner(meta_columns=True).to_table())
    assert dict([*rows, *after]) == history.state(history.commits)

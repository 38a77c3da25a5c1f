"""The indexes of a snapshot agree with its files after any history; otherwise readers do not use them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider.exceptions import SnapshotUnavailableError
from airflow_provider.table.file_groups.view import FileGroupId, FileSystemView
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, MetadataTable, metadata_storage
from airflow_provider.table.metadata_table.usable import UsableIndexes
from airflow_provider.table.properties import PROPERTIES_PATH, dump_properties
from airflow_provider.table.storage.storage import Storage
from tests.unit.table.histories import Key
from tests.unit.table.skipping.indexed import ALL, IndexedHistory, build_indexes

keys = st.integers(0, 11).map(lambda number: ("ab"[number % 2], number))
batches = st.dictionaries(keys, st.booleans(), min_size=1, max_size=4)
positions = st.integers(0, 5)


def by_listing(history: IndexedHistory, as_of: str | None = None) -> FileSystemView:
    timeline = history.table.timeline()
    return FileSystemView(history.storage, timeline if as_of is None else timeline.as_of(as_of))


def never_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error for each later listing of a data folder, and for each request for a file's size."""
    names, stat = Storage.names, Storage.stat

    def only_of_hudi(self: Storage, path: str, then: Callable[[Storage, str], Any]) -> Any:
        assert path.startswith(".hoodie"), f"{path} was looked at"
        return then(self, path)

    def no_folders(self: Storage, *names: str) -> Any:
        raise AssertionError("all folders were walked")

    monkeypatch.setattr(Storage, "names", lambda self, path: only_of_hudi(self, path, names))
    monkeypatch.setattr(Storage, "stat", lambda self, path: only_of_hudi(self, path, stat))
    monkeypatch.setattr(Storage, "folders_holding", no_folders)


@pytest.fixture
def indexed(tmp_path: Path) -> IndexedHistory:
    return IndexedHistory(tmp_path)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.history = IndexedHistory(Path(self._folder.name))
        self.moments: dict[str, dict[Key, FileGroupId]] = {}
        self.version = 0

    @initialize(rows=batches, first=st.sampled_from([(), ALL]))
    def first_commit(self, rows: dict[Key, bool], first: tuple[str, ...]) -> None:
        self.commit(rows)
        if first:
            self.history.build(*first)
            self._moment()

    @rule(rows=batches, requested=st.booleans())
    def begin(self, rows: dict[Key, bool], requested: bool) -> None:
        self.history.begin(self._values(rows), requested=requested)

    @rule(partition=st.sampled_from("ab"), numbers=st.sets(st.integers(0, 5), min_size=1, max_size=3))
    def begin_overwrite(self, partition: str, numbers: set[int]) -> None:
        rows = {(partition, 2 * number + "ab".index(partition)): True for number in numbers}
        self.history.begin(self._values(rows), overwrites=partition)

    @rule(partition=st.sampled_from("ab"))
    def begin_clustering(self, partition: str) -> None:
        self.history.begin_clustering(f"p={partition}")

    @rule(rows=batches)
    def commit(self, rows: dict[Key, bool]) -> None:
        self.history.commit(self._values(rows))
        self._moment()

    @precondition(lambda self: self.history.in_flight)
    @rule(position=positions)
    def complete(self, position: int) -> None:
        self.history.complete(self.history.in_flight[position % len(self.history.in_flight)])
        self._moment()

    @precondition(lambda self: self.history.in_flight)
    @rule(position=positions)
    def roll_back(self, position: int) -> None:
        self.history.roll_back(self.history.in_flight[position % len(self.history.in_flight)])

    @precondition(lambda self: any(write.is_rewrite for write in self.history.commits))
    @rule(position=positions)
    def revert(self, position: int) -> None:
        rewrites = [write for write in self.history.commits if write.is_rewrite]
        if self.history.revert(rewrites[position % len(rewrites)]):
            self.moments.clear()  # of what was before the snapshots have changed
            self._moment()

    @rule()
    def clean(self) -> None:
        self.history.clean()
        self._moment()

    @precondition(lambda self: self.history.indexes)
    @rule()
    def compact(self) -> None:
        self.history.compact()

    @rule(index=st.sampled_from(ALL))
    def build(self, index: str) -> None:
        if index not in self.history.indexes:
            self.history.build(index)
            self._moment()

    @invariant()
    def the_same_files_as_by_listing(self) -> None:
        table = self.history.opened
        for as_of in [None, *(commit.completion_time for commit in table.timeline().commits()[-4:])]:
            view, listed = table.view(as_of), by_listing(self.history, as_of)
            assert view.partitions() == listed.partitions()
            for partition in ("p=a", "p=b", "p=none"):
                assert _sorted(view, partition) == _sorted(listed, partition)

    @invariant()
    def the_record_index_says_where_every_key_is(self) -> None:
        every = {str(number) for number in range(12)}
        for moment, expected in self.moments.items():
            indexes = UsableIndexes(self.history.storage, self.history.table.timeline().until(moment))
            found = indexes.locations(every)
            is_now = moment == self.history.table.timeline().newest_completion
            assert found is not None or not is_now or "record_index" not in self.history.indexes
            if found is not None:
                places = {key: (each.partition_path, each.file_id) for key, each in found.items()}
                assert places == {str(key[1]): tuple(group) for key, group in expected.items()}
                keys = [*every, *every]
                which, locations = indexes.locate(pa.array(keys)) or ([], [])
                places = {key: locations[at] for key, at in zip(keys, which, strict=True) if at >= 0}
                assert places == found

    @invariant()
    def statistics_are_known_of_every_file(self) -> None:
        view = self.history.opened.view()
        paths = [base_file.path for base_file in view.all_base_files()]
        found = view.indexes.column_stats(paths, ["k"]) if view.indexes else None
        assert (found is not None) == ("column_stats" in self.history.indexes)
        assert found is None or set(found) == set(paths)

    def teardown(self) -> None:
        self._folder.cleanup()

    def _moment(self) -> None:
        places = {key: group for group, each in self.history.live.items() for key in each.rows}
        self.moments[self.history.table.timeline().newest_completion] = places

    def _values(self, rows: dict[Key, bool]) -> dict[Key, str | None]:
        self.version += 1
        return {key: f"{self.version}" if keep else None for key, keep in rows.items()}


def _sorted(view: FileSystemView, partition: str) -> list[tuple[str, int]]:
    return sorted((each.path, each.size) for each in view.base_files(partition))


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=15)


def test_no_folder_is_listed(indexed: IndexedHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed.commit({("a", 2): "x"})
    indexed.build("files")
    indexed.commit({("b", 1): "y", ("a", 2): "z"})
    expected = by_listing(indexed).all_base_files()
    never_listed(monkeypatch)
    assert indexed.opened.base_files() == expected


def test_an_index_in_flight_is_not_used(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x"})
    instant = indexed.tick()
    build_indexes(indexed.table, ["files", "record_index"], instant, indexed.tick(), is_complete=False)
    indexes = UsableIndexes(indexed.storage, indexed.table.timeline())
    assert not indexes.has("files")
    assert not indexes.has("record_index")
    assert not indexes.has("column_stats"), "it is not there"
    assert indexes.files(["p=a"]) is None
    assert len(indexed.opened.base_files()) == 1


def test_an_index_that_misses_a_commit_is_not_used(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x"})
    indexed.build("files", "record_index")
    indexed.is_forgetful = True
    indexed.commit({("b", 1): "y"})
    table = indexed.opened
    assert [each.partition_path for each in table.base_files()] == ["p=a", "p=b"]
    indexes = table.view().indexes
    assert indexes is not None
    assert indexes.locations(["1"]) is None


def test_an_index_that_was_dropped_since_the_table_was_opened_is_not_used(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x"})
    indexed.build("files")
    opened = indexed.opened
    config = opened.config.with_metadata_partitions([])
    indexed.storage.put(PROPERTIES_PATH, dump_properties(config.to_properties()).encode())
    indexed.indexes = ()
    indexed.commit({("b", 1): "y"})
    assert [each.partition_path for each in opened.base_files()] == ["p=a", "p=b"]


def test_an_index_that_goes_away_while_it_is_read_is_done_without(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x", ("b", 1): "y"})
    indexed.build("files")
    view = indexed.opened.view()
    assert view.indexes is not None
    assert view.indexes.has("files")
    for status in indexed.storage.list(f"{METADATA_FOLDER}/files"):
        indexed.storage.delete(status.path)
    assert [each.partition_path for each in view.all_base_files()] == ["p=a", "p=b"]


def test_the_record_index_is_not_asked_of_a_moment_before_it(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x"})
    before = indexed.table.timeline()
    indexed.commit({("a", 4): "y"})
    indexed.build("record_index")
    assert UsableIndexes(indexed.storage, before).locations(["2", "4"]) is None
    after = indexed.table.timeline()
    indexed.commit({("a", 6): "z"})
    assert set(UsableIndexes(indexed.storage, after).locations(["2", "4", "6"]) or ()) == {"2", "4"}


def test_what_instants_have_logged_is_told_until_it_is_compacted(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x"})
    indexed.build("record_index")
    first = indexed.commit({("a", 4): "y", ("a", 2): "z"})
    second = indexed.commit({("a", 4): None, ("b", 1): "y"})
    instants = [first.instant, second.instant]
    storage = metadata_storage(indexed.storage)
    came, went = MetadataTable(storage).logged_by("record_index", instants)
    assert set(came) == {"4"}, "the other key has stayed where it was"
    assert (went["4"], set(went)) == (None, {"4", "1"})
    indexed.compact()
    with pytest.raises(SnapshotUnavailableError, match="compacted"):
        MetadataTable(storage).logged_by("record_index", instants)
    assert set(UsableIndexes(indexed.storage, indexed.table.timeline()).locations(["1", "2", "4"]) or ()) == {
        "1",
        "2",
    }


def test_a_moment_is_told_until_it_has_been_compacted_twice(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x"})
    indexed.build("record_index")
    moment = indexed.table.timeline()

    def told() -> list[str]:
        table = MetadataTable(metadata_storage(indexed.storage), as_of=moment.newest_completion)
        return [key for key, _ in table.records("record_index")]

    assert told() == ["2"]
    indexed.commit({("a", 4): "y"})
    assert told() == ["2"], "what came later does not count"
    indexed.compact()
    assert told() == ["2"]
    indexed.commit({("a", 6): "y"})
    indexed.compact()
    with pytest.raises(SnapshotUnavailableError, match="read a later moment"):
        told()
    assert UsableIndexes(indexed.storage, moment).locations(["2"]) is None


def test_an_index_that_cannot_be_complete_is_not_used(indexed: IndexedHistory) -> None:
    indexed.commit({("a", 2): "x"})
    build_indexes(indexed.table, ["files", "record_index"], indexed.tick(), indexed.tick())
    timeline = indexed.table.timeline()
    assert UsableIndexes(indexed.storage, timeline).has("record_index")
    indexes = UsableIndexes(indexed.storage, timeline, known=["files"])
    assert indexes.has("files")
    assert not indexes.has("record_index")

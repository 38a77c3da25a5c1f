"""The base files of a new index count once, under a name that is unique."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency.indexes.first_base_files import (
    BaseFiles,
    are_there,
    complete_base_files,
    drop_base_files,
    initial_base_files,
    stage_base_files,
    staged_base_files,
)
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.services.archival import archived_content
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, metadata_storage
from airflow_provider.table.metadata_table.records import schema_text
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline, instant_path
from airflow_provider.table.timeline.archive_files import append_history
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import WriteStat

PLAN, LATER_PLAN, COMPLETED = "20240101000000002", "20240101000000004", "20240101000000003"
FIRST, SECOND = "0" * 17, "0" * 16 + "1"
ENTRY = Commit(instant=PLAN, action=Action.INDEXING, operation="INDEX", priority=0, completion_time=COMPLETED)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    schema = pa.schema({"id": pa.int64()})
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"]).storage


def staged(
    storage: Storage,
    partition: str = "files",
    initial: str = FIRST,
    plan: str = PLAN,
    *,
    written: bool = True,
) -> BaseFiles:
    base_files = BaseFiles(plan, partition, initial)
    stat = WriteStat("a-0", partition, f"{partition}/a-0_0-0-0_{initial}.hfile")
    if written:
        metadata_storage(storage).put(stat.path, b"")
    stage_base_files(storage, base_files, [stat])
    return base_files


def in_state(state: State, initial: str = FIRST) -> str:
    return instant_path(Instant(initial, Action.DELTA_COMMIT, state))


def test_they_are_found_by_the_plan_that_they_are_of(storage: Storage) -> None:
    second, first = staged(storage, "record_index", SECOND), staged(storage)
    other = staged(storage, "files", SECOND, LATER_PLAN)
    assert staged_base_files(storage, PLAN) == [first, second]
    assert staged_base_files(storage, LATER_PLAN) == [other]


def test_who_drops_an_index_forgets_its_base_files_and_no_later_plans(storage: Storage) -> None:
    kept = staged(storage, "record_index", SECOND)
    staged(storage)
    later = staged(storage, "files", SECOND, LATER_PLAN)
    drop_base_files(storage, ["files"], PLAN)  # a plan of the same moment is rolled back, too
    assert staged_base_files(storage, PLAN) == [kept]
    assert staged_base_files(storage, LATER_PLAN) == [later]


def test_they_can_be_counted_while_all_are_there_and_nobody_has_taken_their_name(storage: Storage) -> None:
    assert are_there(storage, staged(storage))
    assert not are_there(storage, BaseFiles(PLAN, "files", SECOND)), "nothing is staged"
    assert not are_there(storage, staged(storage, initial=SECOND, written=False))
    metadata_storage(storage).put(in_state(State.REQUESTED), b"")
    assert not are_there(storage, staged(storage))


class ObjectStore(Storage):
    """A storage that moves no file in one step, so that a file of an archived instant may come late."""

    moves_atomically = False  # type: ignore[assignment]

    def within(self, folder: str) -> Storage:
        return ObjectStore(self.url(folder))


def test_a_name_that_is_archived_is_taken_as_long_as_its_file_is_there(storage: Storage) -> None:
    staged(storage)
    complete_base_files(storage, ENTRY, ["files"])
    metadata_table = metadata_storage(storage)
    contents = (archived_content(metadata_table, each) for each in Timeline.load(metadata_table).instants)
    append_history(metadata_table, [each for each in contents if each is not None])
    store = ObjectStore(storage.root)
    assert Timeline.load(metadata_storage(store)).instants == ()
    assert are_there(store, staged(storage)), "it is taken by the plan itself"
    assert not are_there(store, staged(storage, plan=LATER_PLAN))


def test_they_count_once_they_are_completed_and_twice_does_no_harm(storage: Storage) -> None:
    staged(storage)
    for _ in range(2):
        assert complete_base_files(storage, ENTRY, ["files", "record_index"]) == {"files"}
    (instant,) = Timeline.load(metadata_storage(storage)).instants
    assert (instant.requested_time, instant.state) == (FIRST, State.COMPLETED)
    assert instant.completion_time == COMPLETED
    assert staged_base_files(storage, PLAN) == []
    (stat,) = initial_base_files(storage, PLAN)
    assert stat.path == f"files/a-0_0-0-0_{FIRST}.hfile"
    assert initial_base_files(storage, LATER_PLAN) == []
    metadata = Timeline.load(metadata_storage(storage)).commit_metadata(instant)
    assert metadata.extra_metadata == {"schema": schema_text(), "indexing": PLAN}
    assert are_there(storage, staged(storage)), "the name is taken by themselves"


def test_who_stood_still_after_it_had_taken_the_name_goes_on(storage: Storage) -> None:
    staged(storage)
    content = storage.read(BaseFiles(PLAN, "files", FIRST).path)
    metadata_storage(storage).put(in_state(State.REQUESTED), content)
    assert complete_base_files(storage, ENTRY, ["files"]) == {"files"}


@pytest.mark.parametrize("taken", [b"", b"of the other engine"])
def test_a_name_that_another_has_taken_stays_its_own(storage: Storage, taken: bytes) -> None:
    base_files, metadata_table = staged(storage), metadata_storage(storage)
    metadata_table.put(in_state(State.REQUESTED), taken)
    assert complete_base_files(storage, ENTRY, ["files"]) == set()
    assert storage.stat(base_files.path) is None
    assert metadata_table.read(in_state(State.REQUESTED)) == taken
    assert metadata_table.stat(in_state(State.INFLIGHT)) is None


def test_a_name_that_another_takes_in_the_last_moment_stays_its_own(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_files, metadata_table, put = staged(storage), metadata_storage(storage), Storage.put_if_absent

    def overtaken(self: Storage, path: str, data: bytes) -> bool:
        if path == in_state(State.REQUESTED):
            self.put(path, b"")
        return put(self, path, data)

    monkeypatch.setattr(Storage, "put_if_absent", overtaken)
    assert complete_base_files(storage, ENTRY, ["files"]) == set()
    assert storage.stat(base_files.path) is not None, "the next try takes it away"
    assert metadata_table.stat(in_state(State.INFLIGHT)) is None


def test_what_the_plan_does_not_make_any_more_is_forgotten(storage: Storage) -> None:
    unwanted, gone = staged(storage), staged(storage, "column_stats", SECOND, written=False)
    assert complete_base_files(storage, ENTRY, ["column_stats"]) == set()
    assert [storage.stat(each.path) for each in (unwanted, gone)] == [None, None]
    assert not list(storage.names(f"{METADATA_FOLDER}/.hoodie/timeline"))

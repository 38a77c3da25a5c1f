"""The one function that appends to the commit log: its calls of ``decide``, and the state that it leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit.commit_point import commit
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.concurrency.log.commit_log import COMMIT_LOG_FOLDER
from airflow_provider.concurrency.log.log_entry import Archival, LogEntry
from airflow_provider.exceptions import InstantRolledBackError, NoSuchInstantError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import TIMELINE_FOLDER
from airflow_provider.table.timeline.instant import Action

SCHEMA = pa.schema({"id": pa.int64()})
ENTRY = Archival(priority=100)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])
    write(made)
    return made


def write(table: HudiTable, key: int = 0) -> str:
    return str(ingest_arrow(table, pa.table({"id": [key]}, schema=SCHEMA))["instant"])


def decide_after(
    others: Callable[[], object], times: int, seen: list[Moment]
) -> Callable[[Moment], Archival]:
    """Decides on an entry, while another writer puts one each time, ``times`` times."""

    def decide(moment: Moment) -> Archival:
        seen.append(moment)
        if len(seen) <= times:
            others()
        return ENTRY

    return decide


def test_an_entry_follows_the_moment_on_which_it_was_decided(table: HudiTable) -> None:
    before, put = CommitLog(table.storage).newest(), []
    entry = commit(table.storage, lambda moment: ENTRY, once_put=put.append)
    assert before is not None
    assert entry is not None
    assert (entry.sequence, entry) == (before.sequence + 1, CommitLog(table.storage).newest())
    assert entry.completion_time > before.completion_time
    assert put == [entry]


def test_who_has_lost_the_place_decides_again_on_what_is_true_then(table: HudiTable) -> None:
    seen: list[Moment] = []
    entry = commit(table.storage, decide_after(lambda: write(table), 2, seen))
    assert entry is not None
    assert [moment.sequence for moment in seen] == [1, 2, 3]
    assert entry.sequence == 4


def test_who_may_lose_a_number_of_places_gives_up_after_them(table: HudiTable) -> None:
    seen: list[Moment] = []
    assert commit(table.storage, decide_after(lambda: write(table), 5, seen), tries=2) is None
    assert [moment.sequence for moment in seen] == [1, 2]
    entry = commit(table.storage, decide_after(lambda: write(table), 0, []), tries=1)
    assert entry is not None


def test_who_knows_a_moment_goes_on_from_there(table: HudiTable) -> None:
    known, seen = Moment.now(table.storage), list[Moment]()
    write(table)
    entry = commit(table.storage, decide_after(lambda: None, 0, seen), since=known)
    assert entry is not None
    assert [moment.sequence for moment in seen] == [known.sequence + 1]


def test_who_has_nothing_to_say_leaves_nothing_behind(table: HudiTable) -> None:
    storage = table.storage
    taken: list[str] = []

    def decide(moment: Moment) -> LogEntry | None:
        taken.append(moment.request_instant(Action.COMMIT, "UPSERT", priority=300))
        storage.put(staged_metadata_path(taken[0]), b"staged")
        storage.put(staged_plan_path(taken[0]), b"staged")
        return None

    assert commit(storage, decide) is None
    assert CommitLog(storage).head() == 1
    assert list(storage.names(HEARTBEAT_FOLDER)) == []
    assert storage.stat(staged_metadata_path(taken[0])) is None
    assert storage.stat(staged_plan_path(taken[0])) is None


def test_a_decision_that_fails_leaves_nothing_behind(table: HudiTable) -> None:
    def decide(moment: Moment) -> LogEntry | None:
        moment.request_instant(Action.COMMIT, "UPSERT")
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        commit(table.storage, decide)
    assert CommitLog(table.storage).head() == 1
    assert list(table.storage.names(HEARTBEAT_FOLDER)) == []


def test_a_requested_time_goes_with_the_place_that_was_lost(table: HudiTable) -> None:
    taken: list[str] = []

    def decide(moment: Moment) -> Archival:
        taken.append(moment.request_instant(Action.COMMIT, "UPSERT"))
        if len(taken) == 1:
            write(table)
        else:
            assert list(table.storage.names(HEARTBEAT_FOLDER)) == taken[1:]
        return ENTRY

    commit(table.storage, decide)
    assert len(taken) == 2


@pytest.mark.parametrize("error", [NoSuchInstantError, FileNotFoundError, ValueError])
def test_what_a_decision_does_not_find_is_missing_if_nobody_has_put_an_entry_since(
    table: HudiTable, error: type[Exception]
) -> None:
    asked: list[int] = []

    def decide(moment: Moment) -> LogEntry | None:
        asked.append(moment.sequence)
        raise error("it is not there")

    with pytest.raises(error, match="it is not there"):
        commit(table.storage, decide)
    assert asked == [1]


def fails_once(table: HudiTable, error: type[Exception], seen: list[int]) -> Callable[[Moment], None]:
    """Fails the first time, because of a concurrent entry; the second time it decides on no entry."""

    def decide(moment: Moment) -> None:
        seen.append(moment.sequence)
        if len(seen) == 1:
            write(table)
            raise error("it is not there")

    return decide


@pytest.mark.parametrize("error", [NoSuchInstantError, FileNotFoundError])
def test_what_a_decision_does_not_find_others_may_have_undone_since(
    table: HudiTable, error: type[Exception]
) -> None:
    seen: list[int] = []
    commit(table.storage, fails_once(table, error, seen))
    assert seen == [1, 2]


def test_any_other_failure_of_a_decision_ends_the_commit_whatever_others_do(table: HudiTable) -> None:
    seen: list[int] = []
    with pytest.raises(ValueError, match="it is not there"):
        commit(table.storage, fails_once(table, ValueError, seen))
    assert seen == [1]


def test_from_a_moment_that_was_trimmed_nobody_goes_on(table: HudiTable) -> None:
    known, commit_log = Moment.now(table.storage), CommitLog(table.storage)

    def decide(moment: Moment) -> LogEntry | None:
        for key in (1, 2, 3):
            write(table, key)
        commit_log.trim(commit_log.head() - 1)
        raise NoSuchInstantError("archived since")

    with pytest.raises(NoSuchInstantError, match="archived since"):
        commit(table.storage, decide, since=known)


class Unpublishable(Storage):
    """A storage that moves no file to the timeline."""

    def move_if_absent(self, source: str, target: str) -> bool:
        if target.startswith(TIMELINE_FOLDER):
            raise OSError("the storage does not answer")
        return super().move_if_absent(source, target)


def test_a_commit_whose_publication_fails_is_done_and_the_next_one_publishes_it(table: HudiTable) -> None:
    instant = write(HudiTable.at(Unpublishable(table.location)), 1)
    assert table.timeline().find(instant) not in table.timeline().completed()
    assert write(table, 2) > instant
    assert instant in {each.requested_time for each in table.timeline().completed()}


def test_who_comes_after_the_entry_of_another_is_told_its_archival_and_its_indexes(table: HudiTable) -> None:
    run_index(table, schedule_index(table, ["files"]))
    indexed = CommitLog(table.storage).newest()
    assert indexed is not None
    first = commit(table.storage, lambda moment: Archival(priority=100, archived="20200101000000000"))
    second = commit(table.storage, lambda moment: ENTRY)
    assert first is not None
    assert second is not None
    assert first.indexes == second.indexes == indexed.indexes
    assert [index.is_complete for index in second.indexes or ()] == [True]
    assert second.archived == "20200101000000000"


def test_an_archival_completes_later_than_what_it_archives_was_requested(table: HudiTable) -> None:
    entry = commit(table.storage, lambda moment: Archival(priority=100, archived="29990101000000000"))
    assert entry is not None
    assert entry.completion_time == "29990101000000001"


def test_an_entry_says_by_which_properties_its_indexes_are_so_unless_it_changes_them(
    table: HudiTable,
) -> None:
    run_index(table, schedule_index(table, ["files"]))
    write(table)
    _, plan, completes, after = CommitLog(table.storage).after(0)
    assert (plan.properties != "", completes.properties) == (True, "")
    assert after.properties == Moment.now(table.storage).table_indexes.properties != plan.properties


def test_who_stood_still_while_the_log_was_trimmed_past_its_place_has_not_committed(table: HudiTable) -> None:
    class Sleeps(Storage):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path == f"{COMMIT_LOG_FOLDER}/{2:020d}.json":
                for key in (1, 2, 3):
                    write(HudiTable.open(self.root), key)
                log = CommitLog(Storage(self.root))
                log.trim(log.head() - 1)
            return super().put_if_absent(path, data)

    def decide(moment: Moment) -> Archival:
        table.storage.put(staged_plan_path(moment.request_instant(Action.COMMIT, "UPSERT")), b"staged")
        return ENTRY

    put: list[LogEntry] = []
    with pytest.raises(InstantRolledBackError):
        commit(Sleeps(table.location), decide, once_put=put.append)
    assert put == []
    assert list(table.storage.names(HEARTBEAT_FOLDER)) == []
    assert not [name for name in table.storage.names(f"{COMMIT_LOG_FOLDER}/staged") if "requested" in name]

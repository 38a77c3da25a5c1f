"""A snapshot of the past never changes once a reader has read it, also beside a paused writer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import begin_write, rollback
from airflow_provider.exceptions import (
    SnapshotNotSettledError,
    SnapshotUnavailableError,
    from_dict,
    to_dict,
)
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import schedule_clean
from airflow_provider.services.clustering.clustering import schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State, after, now
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})


def row(id_: int) -> dict[str, Any]:
    return {"id": id_, "v": 0}


@pytest.fixture
def made(tmp_path: Path) -> LakeTable:
    table = Lake(tmp_path).create(SCHEMA)
    for number in range(3):
        table.ingest("bulk_insert", [row(number)])
    return table


def a_later_moment(than: str) -> str:
    """A past moment that is later than another one."""
    while now() <= (moment := after(after(than))):
        time.sleep(0.001)
    return moment


def ids(made: LakeTable, as_of: str) -> list[int]:
    return sorted(each["id"] for each in made.rows(as_of))


@pytest.mark.parametrize(
    ("step", "where"),
    [("put_if_absent", "commit_log/0"), ("move_if_absent", "commit_log/staged")],
    ids=["before-its-entry", "before-its-publication"],
)
def test_who_stands_still_between_its_completion_time_and_its_commit(
    made: LakeTable, monkeypatch: pytest.MonkeyPatch, step: str, where: str
) -> None:
    newest = made.table.timeline().newest_completion
    do: Callable[..., Any] = getattr(Storage, step)
    asked: list[str] = []

    def stands_still(storage: Storage, path: str, *more: Any) -> Any:
        if where in path and not asked and threading.current_thread() is threading.main_thread():
            moment = a_later_moment(now())
            asked.append(moment)
            (pending,) = made.table.timeline().pending()
            with pytest.raises(SnapshotNotSettledError, match=f"as of {newest}, its newest commit") as raised:
                made.rows(moment)
            assert raised.value.details["pending"] == pending.requested_time
            assert pending.requested_time in str(raised.value)
            assert ids(made, newest) == [0, 1, 2]
            assert len(made.rows()) == 3
        return do(storage, path, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, step, stands_still)
        made.ingest("bulk_insert", [row(3)])
    assert ids(made, asked[0]) == [0, 1, 2, 3]
    assert ids(made, newest) == [0, 1, 2]


def test_beside_a_writer_everything_up_to_the_newest_commit_is_told(made: LakeTable) -> None:
    earlier = a_later_moment(made.table.timeline().newest_completion)
    writer = begin_write(made.table, operation="UPSERT")
    assert ids(made, earlier) == [0, 1, 2], "it was requested later"
    between = a_later_moment(writer.instant)
    while now() <= after(between):
        time.sleep(0.001)
    made.ingest("bulk_insert", [row(3)])
    for number, commit in enumerate(made.table.timeline().commits()):
        seen = list(range(number + 1))
        assert ids(made, commit.requested_time) == ids(made, commit.completion_time or "") == seen
    assert ids(made, between) == [0, 1, 2], "what it commits from now on completes later than the newest"
    with pytest.raises(SnapshotNotSettledError, match=f"commit {writer.instant} is "):
        made.rows(a_later_moment(made.table.timeline().newest_completion))
    writer.abort()


def test_table_services_do_not_hold_an_answer_back(made: LakeTable) -> None:
    schedule_clean(made.table, Retention("KEEP_LATEST_FILE_VERSIONS", 1))
    schedule_clustering(made.table, ClusteringSettings(("id",)))
    schedule_index(made.table, ["files"])
    pending = {instant.action for instant in made.table.timeline().pending()}
    assert {Action.CLUSTERING, Action.INDEXING} <= pending
    newest = made.table.timeline().newest_completion
    assert ids(made, a_later_moment(max(newest, now()))) == [0, 1, 2]


def test_a_dead_writer_holds_it_until_it_is_rolled_back(made: LakeTable) -> None:
    writer = begin_write(made.table, operation="UPSERT")
    writer.heartbeat.stop()
    moment = a_later_moment(writer.instant)
    with pytest.raises(SnapshotNotSettledError) as raised:
        made.rows(moment)
    again = from_dict(to_dict(raised.value))
    assert (type(again), again.retryable) == (SnapshotNotSettledError, True)
    assert isinstance(again, SnapshotUnavailableError)
    rollback(made.table, writer.instant)
    assert ids(made, moment) == [0, 1, 2]


def test_a_moment_that_has_not_come_has_no_answer_yet(made: LakeTable) -> None:
    with pytest.raises(SnapshotNotSettledError, match="that moment has not come"):
        made.rows("29991231235959999")


def test_what_somebody_put_late_of_an_archived_instant_holds_nothing_back(made: LakeTable) -> None:
    late, *_ = made.table.timeline().commits()
    archive(made.table, keep_min=1, keep_max=2)
    path = instant_path(Instant(late.requested_time, Action.COMMIT, State.INFLIGHT))
    made.table.storage.put(path, b"")
    assert made.table.base_files(a_later_moment(now()))


def test_a_moment_by_which_something_archived_had_completed_is_settled(made: LakeTable) -> None:
    """The newest entry is an archival, so that the last commit to complete may leave the timeline."""
    lock = MeetingLock(lambda: made.ingest("bulk_insert", [row(8)]))
    last = made.ingest("bulk_insert", [row(9)], lock=lock)
    archive(made.table, keep_min=3, keep_max=4)
    archive(made.table, keep_min=1, keep_max=2)
    (left,) = made.table.timeline().commits()
    assert last["instant"] < left.requested_time < (left.completion_time or "") < last["completion_time"]
    another = Instant(after(left.completion_time or ""), Action.COMMIT, State.REQUESTED)
    made.table.storage.put(instant_path(another), b"")
    assert ids(made, last["completion_time"]) == [0, 1, 2, 8, 9]
    with pytest.raises(SnapshotNotSettledError):
        made.rows(after(last["completion_time"]))

"""The files that a write puts before its entry: its plan, once, and the metadata of its data files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.concurrency.commit.commit_content import CommitContent
from airflow_provider.concurrency.commit.staged_metadata import StagedWrite
from airflow_provider.concurrency.commit.staged_paths import staged_metadata_path, staged_plan_path
from airflow_provider.concurrency.heartbeats import HeartbeatInfo
from airflow_provider.exceptions import CommitError, InvalidInputError
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.files.markers import MarkerType, write_marker
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
)

INSTANT = "20240101000000004"
INFO = HeartbeatInfo("me", Action.COMMIT, "UPSERT", 300)
A, B, C = (FileGroupId("p", f"{name}-0") for name in "abc")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    schema = pa.schema({"id": pa.int64()})
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"]).storage


def staged_write(storage: Storage) -> StagedWrite:
    return StagedWrite(storage, INSTANT, Action.COMMIT, INFO)


def planned(storage: Storage) -> CommitMetadata:
    return decode_commit_metadata(storage.read(instant_path(Instant(INSTANT, Action.COMMIT, State.INFLIGHT))))


def stat(group: FileGroupId, on: str = "null", *, name: str = "0-0-0") -> WriteStat:
    path = f"p/{base_file_name(group.file_id, name, INSTANT)}"
    return WriteStat(group.file_id, "p", path, on)


def content(*stats: WriteStat, replaced: tuple[str, ...] = ()) -> CommitContent:
    return CommitContent(stats, {"p": replaced} if replaced else {}, {})


def test_the_plan_names_file_groups_new_ones_partitions_and_the_priority(storage: Storage) -> None:
    write = staged_write(storage)
    write.plan([B, A], ["q", "p"], [B])
    said = [WriteStat("a-0", "p", ""), WriteStat("b-0", "p", "", log_files=()), WriteStat("", "q", "")]
    assert planned(storage) == CommitMetadata("UPSERT", tuple(said), {}, {"priority": "300"})
    write.extend_plan([A, C])
    assert {each.file_id for each in planned(storage).write_stats} == {"a-0", "b-0", "c-0", ""}


def test_a_write_is_planned_once(storage: Storage) -> None:
    write = staged_write(storage)
    write.plan([A], [])
    with pytest.raises(InvalidInputError, match=f"{INSTANT} is planned already") as caught:
        write.plan([A], [])
    assert caught.value.details == {"instant": INSTANT}
    with pytest.raises(InvalidInputError, match="is planned already"):
        staged_write(storage).plan([B], [])


def test_a_plan_whose_put_was_sent_again_is_its_own(storage: Storage) -> None:
    staged_write(storage).plan([A], [])
    staged_write(storage).plan([A], [])  # the second process finds the plan of the first one
    assert [each.file_id for each in planned(storage).write_stats] == ["a-0"]


def test_what_was_merged_on_a_later_slice_would_be_hidden(storage: Storage) -> None:
    for on in ("null", "20240101000000002", INSTANT):
        merged = stat(A, on)
        storage.put(merged.path, b"")
        staged_write(storage).stage(content(merged))
    with pytest.raises(CommitError, match="hidden behind the slice of 20240101000000006"):
        staged_write(storage).stage(content(stat(A, "20240101000000006")))


def test_a_file_that_was_not_reported_goes_and_one_that_is_not_there_is_told(storage: Storage) -> None:
    reported, failed, missing = stat(A), stat(A, name="1-0-0"), stat(B)
    for each in (reported, failed):
        write_marker(storage, INSTANT, each.path, MarkerType.CREATE)
        storage.put(each.path, b"")
    staged_write(storage).stage(content(reported))
    assert storage.stat(reported.path)
    assert storage.stat(failed.path) is None
    with pytest.raises(CommitError, match="was reported as written but is not there") as caught:
        staged_write(storage).stage(content(reported, missing))
    assert caught.value.details == {"instant": INSTANT, "missing": [missing.path]}
    many = [stat(FileGroupId("p", f"{name}-1")) for name in "abcde"]
    for each in many[:-1]:
        storage.put(each.path, b"")
    with pytest.raises(CommitError, match="is not there") as caught:
        staged_write(storage).stage(content(reported, *many))
    assert caught.value.details == {"instant": INSTANT, "missing": [many[-1].path]}


def test_where_it_takes_file_groups_out_its_later_name_is_staged_too(storage: Storage) -> None:
    write = staged_write(storage)
    write.stage(content())
    assert storage.stat(staged_metadata_path(INSTANT))
    assert storage.stat(staged_plan_path(INSTANT)) is None
    write.stage(content(replaced=("c-0",)))
    assert storage.stat(staged_plan_path(INSTANT))

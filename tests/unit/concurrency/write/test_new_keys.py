"""The record keys of two writes: whether their files may share a key, and which files the check reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.concurrency.commit import CommitContent, CompletedEntry
from airflow_provider.concurrency.conflicts import ConflictPolicy, WriteDescription
from airflow_provider.concurrency.log.log_entry import Commit
from airflow_provider.concurrency.write.new_keys import _by_record_index, _WrittenKeys
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.metadata_table import RecordLocation
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.instant import Action, State
from airflow_provider.table.timeline.metadata import WriteStat

INSTANT, EARLIER = "20260101000000002", "20250101000000000"
SCHEMA = pa.schema([("id", pa.string())])
ALL = ("hoodie_min_record_key", "hoodie_max_record_key", "org.apache.hudi.bloomfilter")
"""The entries of a base file's footer about its keys."""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "t"))


def written(
    storage: Storage, *keys: str, without: tuple[str, ...] = (), instant: str = INSTANT
) -> _WrittenKeys:
    """Write a base file with these keys, whose footer lacks some entries."""
    with BaseFileWriter(
        storage,
        partition_path="p",
        file_id=f"{'-'.join(keys)}-0",
        write_token="0-0-0",
        instant=instant,
        schema=SCHEMA,
        table_name="t",
    ) as sink:
        sink.write(pa.table({"id": list(keys)}, SCHEMA), pa.array(keys))
        path = sink.close().path
    local = f"{storage.root}/{path}"
    rows = pq.read_table(local)
    left = {
        name: text
        for name, text in (rows.schema.metadata or {}).items()
        if not name.decode().startswith(tuple(without)) or not without
    }
    pq.write_table(rows.replace_schema_metadata(left), local)
    return _WrittenKeys(storage, WriteStat("f-0", "p", path), INSTANT)


@pytest.mark.parametrize(("theirs", "may"), [("ab", True), ("bc", True), ("cd", False), ("xy", False)])
@pytest.mark.parametrize("without", [(), ALL[2:]], ids=["with a bloom filter", "by key ranges alone"])
def test_two_files_may_share_keys_where_their_ranges_meet(
    storage: Storage, theirs: str, may: bool, without: tuple[str, ...]
) -> None:
    mine, other = written(storage, "a", "b"), written(storage, *theirs, without=without)
    assert mine.may_share(other) is may
    if not without:
        assert other.may_share(mine) is may


def test_within_a_range_the_bloom_filter_tells(storage: Storage) -> None:
    mine = written(storage, "b")
    assert not mine.may_share(written(storage, "a", "c"))
    assert mine.may_share(written(storage, "a", "z", without=ALL[2:]))


@pytest.mark.parametrize("without", [ALL[:1], ALL[1:2], ALL[:2]], ids=["no first key", "no last key", "none"])
def test_where_a_range_is_not_known_the_bloom_filter_tells(
    storage: Storage, without: tuple[str, ...]
) -> None:
    mine, same = written(storage, "a", "b"), written(storage, "b", "c", without=without)
    assert mine.may_share(same)
    assert same.may_share(mine)
    assert not mine.may_share(written(storage, "c", "d", without=without))


def test_only_what_the_instant_wrote_counts_and_what_is_there_twice_is_found(storage: Storage) -> None:
    assert written(storage, "a", "b").keys.to_pylist() == ["a", "b"]
    assert written(storage, "a", "b").repeated() == []
    assert written(storage, "a", "b", "b").repeated() == ["b"]
    kept = written(storage, "c", "c", instant=EARLIER)  # rows of an earlier commit
    assert kept.keys.to_pylist() == []
    assert kept.repeated() == []


# --- by the record index ------------------------------------------------------------------------

OF_P = WriteDescription("2", "UPSERT", 400, State.INFLIGHT)
THEIRS = Commit(instant="1", action=Action.COMMIT, operation="UPSERT", priority=0, completion_time="3")


@pytest.mark.parametrize(
    ("at", "added_to", "is_conflict"),
    [
        (None, "new-0", False),  # it was deleted
        ("new-0", "new-0", False),
        ("other-0", "new-0", True),
        ("taken-0", "merged-0", False),
        ("taken-0", "new-0", True),
        ("gone-0", "new-0", False),
    ],
)
def test_a_key_is_elsewhere_where_its_rows_are_after_the_write(
    storage: Storage, at: str | None, added_to: str, is_conflict: bool
) -> None:
    """The write merges one file group into a new one, and replaces another one without its rows."""
    keys = written(storage, "k")
    keys.stat = replace(keys.stat, file_id=added_to)
    before = base_file_name("taken-0", "0-0-0", EARLIER)
    merged = WriteStat("merged-0", "p", "p/merged", prev_base_file=before)
    content = CommitContent((merged, keys.stat), {"p": ("taken-0", "gone-0")}, {})
    change = CompletedEntry(storage, THEIRS)
    came = {"k": (change, RecordLocation("p", at, 1) if at else None)}
    found = _by_record_index(OF_P, content, [keys], came, (), ConflictPolicy())
    groups = frozenset({FileGroupId("p", added_to)})
    told = [(each.other.instant, each.file_groups, each.keys) for each in found]
    assert told == ([("1", groups, ("k",))] if is_conflict else [])
    again = _by_record_index(OF_P, content, [keys], came, {"k"}, ConflictPolicy())
    assert [each.keys for each in again] == [("k",)], "the write itself adds it twice"
    overwrites = replace(OF_P, operation="INSERT_OVERWRITE", file_groups=groups)
    assert overwrites.overwrites == {"p"}
    assert _by_record_index(overwrites, content, [keys], came, (), ConflictPolicy()) == []

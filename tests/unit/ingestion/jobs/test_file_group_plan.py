"""The plan of a write, from counts and sizes only: the file group of each row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from airflow_provider.ingestion.file_groups import (
    FileGroupPlan,
    Target,
    add_shares,
    bytes_per_row,
    plan_tagged,
    plan_without_tagging,
)
from airflow_provider.ingestion.ingest_job import MIB, IngestJob
from airflow_provider.table.file_groups.view import BaseFile, FileSystemView
from airflow_provider.table.hudi_table import HudiTable


class Live:
    """The part of a view that planning uses."""

    def __init__(self, **sizes: list[int]) -> None:
        self._files = {
            partition: [
                BaseFile(partition, f"{partition}{n}", "0-0-0", "20240101000000000", f"{partition}/{n}", size)
                for n, size in enumerate(found)
            ]
            for partition, found in sizes.items()
        }

    def look_at(self, partitions: Iterable[str]) -> None: ...

    def base_files(self, partition: str) -> list[BaseFile]:
        return self._files.get(partition, [])


def _plan(operation: str, rows: dict[str, int], live: Live, **sizes: int | None) -> FileGroupPlan:
    settings = {"target_file_size": 1000, "small_file_limit": 800} | sizes
    job = IngestJob.of(location="/t", operation=operation, **settings)  # type: ignore[arg-type]
    return plan_without_tagging(job, cast(FileSystemView, live), rows, row_bytes=10)


def _shares(plan: FileGroupPlan, partition: str) -> list[tuple[str | None, int]]:
    """For each file group its file id, or None if it is new, and its rows."""
    shares = [(plan.targets[number], count) for number, count in plan.shares[partition]]
    return [(target.file_id if target.base_file else None, count) for target, count in shares]


def test_inserts_fill_the_smallest_file_groups_first() -> None:
    plan = _plan("insert", {"a": 150}, Live(a=[790, 300, 900]))
    assert _shares(plan, "a") == [("a1", 70), ("a0", 21), (None, 59)]
    assert [group.file_id for group in plan.file_groups] == ["a1", "a0"]
    assert plan.new_in == ["a"]


def test_no_more_file_groups_are_rewritten_than_needed() -> None:
    assert _shares(_plan("insert", {"a": 60}, Live(a=[300, 300])), "a") == [("a0", 60)]


def test_new_file_groups_share_the_rows_evenly() -> None:
    assert _shares(_plan("bulk_insert", {"a": 250}, Live(a=[1])), "a") == [(None, 84)] * 3


def test_small_files_are_left_alone_when_the_limit_is_zero() -> None:
    assert _shares(_plan("insert", {"a": 5}, Live(a=[10]), small_file_limit=0), "a") == [(None, 5)]


def test_a_few_rows_do_not_rewrite_a_large_file_unless_a_limit_is_set() -> None:
    # Ten bytes a row: the file of 20 MiB is worth a rewrite from 1 MiB of rows on, and those of 4 MiB always.
    live = Live(a=[20 * MIB, 4 * MIB], b=[20 * MIB], c=[4 * MIB])
    few, enough = MIB // 10 - 1, MIB // 10 + 1
    defaults: dict[str, Any] = {"target_file_size": 120 * MIB, "small_file_limit": None}
    plan = _plan("insert", {"a": few, "b": few, "c": 1}, live, **defaults)
    assert [_shares(plan, each) for each in "abc"] == [[("a1", few)], [(None, few)], [("c0", 1)]]
    assert [each.file_id for each in plan.not_filled] == ["b0"]
    assert _shares(_plan("insert", {"b": enough}, live, **defaults), "b") == [("b0", enough)]
    as_hudi = _plan("insert", {"b": few}, live, target_file_size=120 * MIB, small_file_limit=100 * MIB)
    assert (_shares(as_hudi, "b"), as_hudi.not_filled) == ([("b0", few)], [])


def test_new_rows_of_an_upsert_join_a_large_file_that_is_rewritten_anyway() -> None:
    live = Live(a=[20 * MIB, 30 * MIB])
    job = IngestJob.of(location="/t")
    plan = plan_without_tagging(job, cast(FileSystemView, live), {"a": 3}, row_bytes=10)
    plan_tagged(plan, job, {"a": 3}, {live.base_files("a")[1]: 2}, row_bytes=10)
    assert _shares(plan, "a") == [("a1", 1)]
    assert [each.file_id for each in plan.not_filled] == ["a0"]


@pytest.mark.parametrize("operation", ["insert_overwrite", "insert_overwrite_table"])
def test_replacing_operations_open_new_file_groups(operation: str) -> None:
    plan = _plan(operation, {"a": 5}, Live(a=[10]))
    assert _shares(plan, "a") == [(None, 5)]
    assert plan.file_groups == []


def test_one_file_group_that_takes_everything_needs_no_look_up() -> None:
    plan = _plan("upsert", {"a": 20, "b": 20, "c": 20, "d": 20}, Live(a=[500], b=[10, 10], c=[950]))
    assert _shares(plan, "a") == [("a0", 20)]
    assert set(plan.to_tag) == {"b", "c"}, "several groups; one that is full"
    assert _shares(plan, "d") == [(None, 20)]


def test_deletes_add_nothing() -> None:
    plan = _plan("delete", {"a": 10_000, "gone": 3}, Live(a=[999]))
    assert _shares(plan, "a") == [("a0", 10_000)]
    assert "gone" not in plan.shares
    assert plan.new_in == []


def test_a_file_group_is_one_task_whatever_it_gets() -> None:
    live = Live(a=[100, 900])
    plan = _plan("upsert", {"a": 50}, live)
    small, full = live.base_files("a")
    for base_file in (small, full):
        plan.updates[base_file.file_group] = plan.add(Target.existing(base_file))
    job = IngestJob.of(location="/t", target_file_size=1000, small_file_limit=800)
    add_shares(plan, job, "a", 120, live.base_files("a"), row_bytes=10)
    assert _shares(plan, "a") == [("a0", 90), (None, 30)]
    assert len(plan.targets) == 3


def test_the_size_of_a_row_is_guessed_by_its_types(tmp_path: Path) -> None:
    def guess(**columns: Any) -> float:
        schema = pa.schema({"id": pa.string(), **columns})
        location = tmp_path / str(len(list(tmp_path.iterdir())))
        table = HudiTable.create(str(location), name="t", schema=schema, record_key=["id"])
        return bytes_per_row(table.timeline, table.schema)

    narrow = guess()
    assert narrow > 0
    wide = guess(a=pa.int64(), b=pa.struct([("x", pa.float64()), ("y", pa.list_(pa.int32()))]))
    assert narrow < guess(a=pa.int32()) < guess(a=pa.int64()) < wide

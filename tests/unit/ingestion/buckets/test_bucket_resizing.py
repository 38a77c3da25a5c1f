"""Buckets by consistent hashing are split and merged by clusterings, as the JVM's Hudi does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.concurrency import CommitLog, rollback
from airflow_provider.concurrency.log import Commit
from airflow_provider.concurrency.undo import revert_rewrite
from airflow_provider.exceptions import InvalidInputError, WriteConflictError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering import ClusteringJob, ClusteringSettings, run_clustering
from airflow_provider.services.clustering.bucket_resizing import Resizing, merge, mergeable, split
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    pending_plan,
    schedule_clustering,
    write_group,
)
from airflow_provider.services.restore import restore
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.bucket_index import HASHING_METADATA, REPLACE, HashingMetadata, HashingNode
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.ingestion_contract.merge_on_read import CONSISTENT
from tests.unit.ingestion.buckets.test_consistent_buckets import KEYS, check_places, make, ring, rows

FIXTURES = Path(__file__).parents[3] / "fixtures"
SAID = json.loads((FIXTURES / "consistent_hashing.json").read_text())
MANY = [f"k{n}" for n in range(300)]
PLENTY = {"hoodie.bucket.index.min.num.buckets": 1, "hoodie.bucket.index.max.num.buckets": 64}
SPLITS = PLENTY | {"hoodie.parquet.max.file.size": 1, "hoodie.parquet.small.file.limit": 0}
MERGES = PLENTY | {"hoodie.parquet.max.file.size": 2**40}


def told(nodes: list[HashingNode]) -> list[list[Any]]:
    return [[node.value, node.tag] for node in nodes]


def resize(table: LakeTable, options: dict[str, Any], priority: int = 200, **settings: Any) -> dict[str, Any]:
    """The result of a clustering with these options of the table."""
    change_options(table.table, options)
    chosen = ClusteringSettings(**settings)
    assert schedule_clustering(table.table, chosen, priority=priority) is not None
    result = cluster_in_process(table.table)
    assert result is not None
    return result


def test_splits_and_merges_are_those_of_the_jvm() -> None:
    metadata = HashingMetadata.first("part=p0", 3)
    assert [told(split(metadata, number)) for number in range(3)] == SAID["splits"]
    assert told(merge(metadata, [2, 0])) == SAID["merge"]
    assert split(HashingMetadata("p", 1, (HashingNode(3, "a"), HashingNode(4, "b"))), 1) == []


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=9, unique=True), st.data())
def test_a_split_bucket_has_its_keys_in_the_two_halves(values: list[int], data: st.DataObject) -> None:
    nodes = tuple(HashingNode(value, f"f{value}") for value in sorted(values))
    metadata, number = HashingMetadata("p", len(nodes), nodes), data.draw(st.integers(0, len(nodes) - 1))
    made = split(metadata, number)
    after = metadata.with_nodes(made, "1")
    for hash_ in data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20)):
        if made and metadata.number_of(hash_) == number:
            [of] = Resizing(tuple(made), 0).made_of(pa.array([hash_]).to_numpy()).tolist()
            assert after.nodes[after.number_of(hash_)].file_id_prefix == made[of].file_id_prefix
        elif made:
            untouched = after.nodes[after.number_of(hash_)]
            assert untouched == metadata.nodes[metadata.number_of(hash_)]


@pytest.mark.parametrize(
    ("sizes", "slots", "found"),
    [
        ([1, 1, 1, 1], 9, [[1, 2, 3, 0]]),
        ([1, 1, 1, 1], 2, [[2, 3, 0]]),
        ([1, 1, 1, 1], 0, []),
        ([1, 1, 1, 1], -1, []),
        ([1, 99, 1, 1], 9, [[2, 3, 0]]),
        ([None, 1, 1, None], 9, [[1, 2]]),
        ([6, 6, 6, 6], 9, [[3, 0], [1, 2]]),
        ([1], 9, []),
        ([99, 99], 9, []),
    ],
)
def test_neighbours_that_are_small_together_are_merged(
    sizes: list[int | None], slots: int, found: list[list[int]]
) -> None:
    assert list(mergeable(sizes, 10, slots)) == found


def test_buckets_are_split_and_merged_again(lake: Lake) -> None:
    table = make(lake)
    table.ingest("insert", [*rows(MANY, "1"), *rows(KEYS, "1", "b")])
    table.ingest("upsert", rows(MANY[:50], "2"))
    result = resize(table, SPLITS)
    assert (result["groups_done"], result["files_replaced"], result["files_written"]) == (4, 4, 8)
    assert (len(ring(table).nodes), len(ring(table, "p=b").nodes)) == (4, 4)
    expected = [*rows(MANY[:50], "2"), *rows(MANY[50:], "1"), *rows(KEYS, "1", "b")]
    check_places(table.table)
    table.check(expected)
    table.ingest("upsert", rows(MANY[50:100], "3"))
    resize(table, SPLITS, partitions=("p=a",), sort_by=("id",))
    assert len(ring(table).nodes) == 8
    resize(table, MERGES)
    assert (len(ring(table).nodes), ring(table).seq_no, len(ring(table, "p=b").nodes)) == (1, 3, 1)
    table.ingest("delete", rows(MANY[:50], ""))
    check_places(table.table)
    table.check([*rows(MANY[50:100], "3"), *rows(MANY[100:], "1"), *rows(KEYS, "1", "b")])


def test_the_numbers_of_buckets_are_bounds(lake: Lake) -> None:
    table = make(lake, 3)
    table.ingest("insert", rows(MANY, "1"))
    change_options(table.table, SPLITS | {"hoodie.bucket.index.max.num.buckets": 3})
    assert schedule_clustering(table.table, ClusteringSettings()) is None
    resize(table, SPLITS | {"hoodie.bucket.index.max.num.buckets": 5})
    assert len(ring(table).nodes) == 5
    resize(table, MERGES | {"hoodie.bucket.index.min.num.buckets": 2})
    assert len(ring(table).nodes) == 2
    check_places(table.table)
    with pytest.raises(InvalidInputError, match=r"num.buckets=3 must be"):
        change_options(table.table, {"hoodie.bucket.index.max.num.buckets": 2})


def test_the_plan_is_read_as_it_was_made(lake: Lake) -> None:
    table = make(lake)
    table.ingest("insert", rows(MANY, "1"))
    change_options(table.table, SPLITS)
    instant = schedule_clustering(table.table, ClusteringSettings())
    assert instant is not None
    plan = pending_plan(table.table, instant)
    assert plan.resizes
    assert [len(group.resizing.made) for group in plan.groups if group.resizing] == [2, 2]
    assert schedule_clustering(table.table, ClusteringSettings()) is None  # one at a time


@pytest.mark.parametrize("beside", [KEYS[:1], KEYS])
def test_a_write_after_the_plan_keeps_its_buckets_as_they_are(lake: Lake, beside: list[str]) -> None:
    table = make(lake)
    table.ingest("insert", rows(MANY, "1"))
    change_options(table.table, SPLITS)
    instant = schedule_clustering(table.table, ClusteringSettings())
    table.ingest("upsert", rows(beside, "2"))
    if len(beside) == 1:
        result = cluster_in_process(table.table, instant)
        assert result is not None
        assert (result["groups_done"], result["groups_left_out"]) == (1, 1)
        assert len(ring(table).nodes) == 3
    else:
        with pytest.raises(WriteConflictError):
            cluster_in_process(table.table, instant)
        assert len(ring(table).nodes) == 2
    table.check_now([*rows(beside, "2"), *rows([key for key in MANY if key not in beside], "1")])
    check_places(table.table)


def test_a_write_during_the_clustering_takes_its_bucket_out_at_the_commit(lake: Lake) -> None:
    table = make(lake)
    table.ingest("insert", [*rows(MANY, "1"), *rows(KEYS, "1", "b")])
    change_options(table.table, SPLITS)
    schedule_clustering(table.table, ClusteringSettings())
    lock = MeetingLock(lambda: table.ingest("upsert", rows(KEYS, "2", "b")))
    result = run_clustering(ClusteringJob.of(table.location), table.table, write_group, lock=lock)
    assert result is not None
    assert (result["groups_done"], result["groups_left_out"]) == (2, 2)
    assert (len(ring(table).nodes), len(ring(table, "p=b").nodes)) == (4, 2)
    folder = Path(table.location) / HASHING_METADATA / "p=b"
    assert len(list(folder.iterdir())) == 2
    check_places(table.table)
    table.check_now([*rows(MANY, "1"), *rows(KEYS, "2", "b")])


@pytest.mark.parametrize("operation", ["upsert", "delete", "insert_overwrite"])
@pytest.mark.parametrize("options", [SPLITS, MERGES])
def test_a_write_that_a_resizing_overtakes_is_rebased_onto_the_new_buckets(
    lake: Lake, operation: str, options: dict[str, Any]
) -> None:
    table = make(lake, 4)
    table.ingest("insert", rows(MANY, "1"))

    def meanwhile() -> None:
        resize(table, options, priority=500)

    changed = MANY[::3]
    result = table.ingest(operation, rows(changed, "2"), on_conflict="rebase", lock=MeetingLock(meanwhile))
    assert result["rebases"] >= 1
    kept = [] if operation == "insert_overwrite" else [key for key in MANY if key not in changed]
    expected = rows(kept, "1") + (rows(changed, "2") if operation != "delete" else [])
    table.check_now(expected)
    check_places(table.table)
    table.ingest("upsert", rows(MANY, "3"))
    table.check_now(rows(MANY, "3"))
    check_places(table.table)


def test_a_resizing_that_is_reverted_leaves_the_buckets_of_before(lake: Lake) -> None:
    table = make(lake)
    table.ingest("insert", rows(MANY, "1"))
    before = ring(table)
    resize(table, SPLITS)
    entry = CommitLog(table.table.storage).newest()
    assert isinstance(entry, Commit)
    assert revert_rewrite(table.table.storage, entry) is None
    assert ring(table) == before
    assert len(list((Path(table.location) / HASHING_METADATA / "p=a").iterdir())) == 2
    table.ingest("upsert", rows(MANY[:30], "3"))
    assert table.rows() == in_order([*rows(MANY[:30], "3"), *rows(MANY[30:], "1")])
    table.check_readers(None, table.rows())
    check_places(table.table)


def test_a_restore_takes_the_buckets_back(lake: Lake) -> None:
    table = make(lake)
    table.ingest("insert", rows(MANY, "1"))
    before = ring(table)
    saved = create_savepoint(table.table).instant
    resize(table, SPLITS)
    table.ingest("insert_overwrite", rows(KEYS, "2"))
    restore(table.table, saved)
    assert ring(table) == before
    assert len(list((Path(table.location) / HASHING_METADATA / "p=a").iterdir())) == 2
    table.ingest("upsert", rows(MANY[:30], "3"))
    table.check_now([*rows(MANY[:30], "3"), *rows(MANY[30:], "1")])
    check_places(table.table)


def test_a_plan_that_is_rolled_back_changes_nothing(lake: Lake) -> None:
    table = make(lake)
    table.ingest("insert", rows(MANY, "1"))
    before = ring(table)
    change_options(table.table, SPLITS)
    instant = schedule_clustering(table.table, ClusteringSettings())
    assert instant is not None
    rollback(table.table, instant)
    assert ring(table) == before
    assert resize(table, SPLITS)["groups_done"] == 2
    table.check_now(rows(MANY, "1"))


def test_an_executor_that_dies_before_its_entry_leaves_no_hashing_metadata(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake)
    table.ingest("insert", rows(MANY, "1"))
    change_options(table.table, SPLITS)
    schedule_clustering(table.table, ClusteringSettings())
    before = ring(table)

    def dies() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_clustering(ClusteringJob.of(table.location), table.table, write_group, lock=MeetingLock(dies))
    assert ring(table) == before
    assert len(list((Path(table.location) / HASHING_METADATA / "p=a").iterdir())) == 2
    assert resize(table, SPLITS)["groups_done"] == 2
    table.check_now(rows(MANY, "1"))
    check_places(table.table)


def test_a_bucket_that_gets_no_row_is_opened_by_its_first_write(lake: Lake) -> None:
    table = make(lake, 1)
    table.ingest("insert", rows(KEYS[:1], "1"))
    for _ in range(3):
        resize(table, SPLITS)
    assert len(ring(table).nodes) == 4
    assert sum(node.tag == REPLACE for node in ring(table).nodes) == 0
    table.ingest("upsert", rows(KEYS, "2"))
    table.check(rows(KEYS, "2"))
    check_places(table.table)


def test_what_the_jvm_has_planned_to_split_is_left_to_it(tmp_path: Path) -> None:
    with ZipFile(FIXTURES / "real_hudi" / "mor_resizing_planned.zip") as packed:
        packed.extractall(tmp_path)
    table = change_options(HudiTable.open(str(tmp_path)), CONSISTENT | SPLITS)
    pending = table.timeline().pending()
    there = snapshot(table).to_table()
    with pytest.raises(WriteConflictError, match="CLUSTER"):
        ingest_arrow(table, there, "upsert")
    new = pa.Table.from_pylist([{**there.to_pylist()[0], "part": "p9"}], there.schema)
    ingest_arrow(table, new, "upsert")
    # Only the new partition may be split now.
    instant = schedule_clustering(table, ClusteringSettings())
    assert instant is not None
    assert {group.partition_path for group in pending_plan(table, instant).groups} == {"part=p9"}
    rollback(table, instant)
    assert table.timeline().pending() == pending
    assert snapshot(table).to_table().num_rows == there.num_rows + 1

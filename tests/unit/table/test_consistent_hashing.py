"""Buckets by consistent hashing equal the JVM's: file ids, places of keys, and the valid metadata file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table import HudiTable
from airflow_provider.table.bucket_index import (
    DELETE,
    REPLACE,
    ConsistentBucketIndex,
    HashingMetadata,
    HashingNode,
    bucket_index_of,
    delete_hashing_metadata,
    load_hashing_metadata,
    put_hashing_metadata,
)
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.properties import TableConfig

FIXTURES = Path(__file__).parents[2] / "fixtures"
SAID = json.loads((FIXTURES / "consistent_hashing.json").read_text())
CONFIG = TableConfig(
    name="t",
    table_type="MERGE_ON_READ",
    record_key_fields=("id",),
    raw={
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": "2",
    },
)


@pytest.fixture
def made_by_the_jvm(tmp_path: Path) -> Iterator[HudiTable]:
    """A table whose buckets the JVM has resized; in ``part=p1`` two became one."""
    with ZipFile(FIXTURES / "real_hudi" / "mor_consistent_buckets.zip") as packed:
        packed.extractall(tmp_path)
    return HudiTable.open(str(tmp_path))


def bound(partition: str, metadata: HashingMetadata, fields: str = "id") -> ConsistentBucketIndex:
    return ConsistentBucketIndex("t", len(metadata.nodes), tuple(fields.split(",")), {partition: metadata})


@pytest.mark.parametrize("which", SAID["nodes"])
def test_the_first_buckets_of_a_partition_are_those_of_the_jvm(which: str) -> None:
    partition, _, buckets = which.partition("|")
    found = HashingMetadata.first(partition, int(buckets.split()[0]))
    nodes = [[node.value, node.file_id_prefix] for node in found.nodes]
    if "some" in which:
        nodes = [nodes[number] for number in (0, 1, 100, 255)]
    assert nodes == SAID["nodes"][which]


@pytest.mark.parametrize(("key", "fields", "values"), [(v[0], v[1], v[2:]) for v in SAID["vectors"]])
def test_the_bucket_is_the_one_of_the_jvm(key: str, fields: str, values: list[int]) -> None:
    for buckets, value in zip(SAID["buckets"], values, strict=True):
        metadata = HashingMetadata.first("p", buckets)
        index = bound("p", metadata, fields)
        [number] = index.of_rows(pa.array([key]), ["p"], np.zeros(1, np.int64)).tolist()
        assert metadata.nodes[number].value == value


@given(st.lists(st.tuples(st.text(max_size=9), st.integers(0, 2)), min_size=1, max_size=9))
def test_rows_of_several_partitions_at_once(rows: list[tuple[str, int]]) -> None:
    paths = ["a", "b", "c"]
    found = {path: HashingMetadata.first(path, 1 + 3 * at) for at, path in enumerate(paths)}
    index = ConsistentBucketIndex("t", 7, ("id",), found)
    keys, codes = pa.array([key for key, _ in rows]), np.array([code for _, code in rows])
    hashes = index.hashes(keys).tolist()
    wanted = [found[paths[code]].number_of(at) for (_, code), at in zip(rows, hashes, strict=True)]
    assert index.of_rows(keys, paths, codes).tolist() == wanted


def test_what_is_above_the_last_node_belongs_to_the_first() -> None:
    ring = HashingMetadata("p", 2, (HashingNode(10, "a"), HashingNode(20, "b")))
    assert [ring.number_of(at) for at in (0, 10, 11, 20, 21, 2**31 - 1)] == [0, 0, 1, 1, 0, 0]


def test_a_resizing_replaces_and_deletes_nodes() -> None:
    before = HashingMetadata.first("p", 2)
    one, two = before.nodes
    changed = [HashingNode(one.value, None, DELETE), HashingNode(two.value, "x", REPLACE)]
    after = before.with_nodes([*changed, HashingNode(5, "y", REPLACE)], "20260101000000001")
    assert after.nodes == (HashingNode(5, "y"), HashingNode(two.value, "x"))
    assert (after.instant, after.seq_no, after.buckets) == ("20260101000000001", 1, 2)
    assert HashingMetadata.from_json(after.to_json()) == after


def test_the_jvms_resizing_is_read_once_it_has_completed(made_by_the_jvm: HudiTable) -> None:
    table, resizing = made_by_the_jvm, "20261125014802300"
    now, before = table.view(), table.view("20261125014759611")
    after = load_hashing_metadata(table.storage, now, "part=p1")
    assert after is not None
    assert (after.instant, after.seq_no, len(after.nodes)) == (resizing, 1, 1)
    first = load_hashing_metadata(table.storage, before, "part=p1")
    assert first == HashingMetadata.first("part=p1", 2)
    assert load_hashing_metadata(table.storage, now, "part=p7") is None
    delete_hashing_metadata(table.storage, resizing, ["part=p1"])
    assert load_hashing_metadata(table.storage, now, "part=p1") == first


def test_a_resizing_that_has_not_completed_does_not_count(made_by_the_jvm: HudiTable) -> None:
    table = made_by_the_jvm
    view = table.view()
    now = load_hashing_metadata(table.storage, view, "part=p0")
    assert now is not None
    later = now.with_nodes([HashingNode(7, "x", REPLACE)], "20261125014802999")
    table.storage.put(later.path, later.to_json())
    table.storage.put(later.commit_path, b"")
    assert load_hashing_metadata(table.storage, view, "part=p0") == now


def test_an_archived_resizing_counts_by_its_base_files_as_for_the_jvm(made_by_the_jvm: HudiTable) -> None:
    table = made_by_the_jvm
    view = table.view()
    now = load_hashing_metadata(table.storage, view, "part=p0")
    assert now is not None
    old = "20251125014802999"
    for nodes, counts in ((now.nodes, True), ((HashingNode(7, "x"),), False)):
        delete_hashing_metadata(table.storage, now.instant, ["part=p0"])
        made = replace(now, nodes=nodes, instant=old)
        table.storage.put(made.path, made.to_json())
        found = load_hashing_metadata(table.storage, view, "part=p0")
        assert found == (made if counts else HashingMetadata.first("part=p0", 2))


def test_a_file_that_is_no_hashing_metadata_is_told(made_by_the_jvm: HudiTable) -> None:
    table = made_by_the_jvm
    table.storage.put(HashingMetadata.first("part=p9", 2).path, b"{}")
    with pytest.raises(
        CorruptTableError, match=r"part=p9/00000000000000.hashing_meta is no hashing metadata"
    ):
        load_hashing_metadata(table.storage, table.view(), "part=p9")


def test_two_first_writers_take_the_buckets_of_the_first(made_by_the_jvm: HudiTable) -> None:
    storage = made_by_the_jvm.storage
    one, other = HashingMetadata.first("q", 2), HashingMetadata.first("q", 5)
    assert put_hashing_metadata(storage, one) == put_hashing_metadata(storage, other) == one
    assert storage.stat(one.commit_path) is not None


def test_file_groups_that_do_not_fit_are_refused_by_name() -> None:
    metadata = HashingMetadata.first("p", 2)
    index, ids = bound("p", metadata), [node.file_id for node in metadata.nodes]
    assert index.file_groups("p", reversed(ids)) == {1: ids[1], 0: ids[0]}
    with pytest.raises(UnsupportedTableError, match=r"a9d2ca22-1-0.*is no bucket of .*hashing_meta"):
        index.file_groups("p", ["a9d2ca22-1-0"])
    with pytest.raises(UnsupportedTableError, match=r"was taken out.*insert_overwrite"):
        index.first_file_id("p", 1, {FileGroupId("p", ids[1]): "20260101000000001"})
    assert index.first_file_id("p", 1, {}) == ids[1]
    assert index.overwriting_file_id("p", 1, ()) == ids[1]
    assert index.overwriting_file_id("p", 1, [FileGroupId("p", ids[1])]) not in ids


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"table_type": "COPY_ON_WRITE"}, "merge-on-read tables alone"),
        (
            {"raw": CONFIG.raw | {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}},
            "SIMPLE",
        ),
    ],
)
def test_what_hudi_does_not_have_is_refused_by_name(changes: dict[str, object], told: str) -> None:
    assert bucket_index_of(CONFIG) == ConsistentBucketIndex("t", 2, ("id",))
    with pytest.raises(UnsupportedTableError, match=told):
        bucket_index_of(replace(CONFIG, **changes))  # type: ignore[arg-type]

"""Tables with buckets by consistent hashing: each write finds them by the partition's hashing metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider.exceptions import (
    CorruptTableError,
    InvalidInputError,
    UnsupportedTableError,
    WriteConflictError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering import ClusteringSettings
from airflow_provider.services.clustering.clustering import preview_clustering
from airflow_provider.services.table_options import change_options
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.bucket_index import (
    HASHING_METADATA,
    REPLACE,
    ConsistentBucketIndex,
    HashingMetadata,
    HashingNode,
    load_hashing_metadata,
)
from airflow_provider.table.reading import SliceReader
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.storage import Storage
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.ingestion_contract.merge_on_read import CONSISTENT, operations_one_after_the_other

SCHEMA = pa.schema({"id": pa.string(), "p": pa.string(), "value": pa.string()})
JVMS = Path(__file__).parents[3] / "fixtures" / "real_hudi" / "mor_consistent_buckets.zip"
KEYS = [f"k{n}" for n in range(20)]

Row = dict[str, Any]


def rows(keys: list[str], value: str, p: str = "a") -> list[Row]:
    return [{"id": key, "p": p, "value": value} for key in keys]


def make(lake: Lake, buckets: int = 2) -> LakeTable:
    options = CONSISTENT | {"hoodie.bucket.index.num.buckets": buckets}
    made = {"partition_by": ["p"], "table_type": "merge_on_read", "hudi_options": options}
    return lake.create(SCHEMA, **made)


def ring(table: LakeTable, partition: str = "p=a") -> HashingMetadata:
    opened = table.table
    found = load_hashing_metadata(opened.storage, opened.view(), partition)
    assert found is not None
    return found


def check_places(table: HudiTable) -> None:
    """Check that each key is only in the file group that its partition's hashing metadata names."""
    reader, view = SliceReader.of(table, table.view()), table.view()
    for each in file_slices(table):
        keys = pa.array(reader.keys(each).to_pylist())
        assert isinstance(table.bucket_index, ConsistentBucketIndex)
        index = table.bucket_index.on(table.storage, view, [each.partition_path])
        numbers = index.of_rows(keys, [each.partition_path], np.zeros(len(keys), np.int64)).tolist()
        metadata = index.partitions[each.partition_path]
        assert {metadata.nodes[number].file_id for number in numbers} <= {each.file_id}


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_operations_one_after_the_other(lake: Lake, seed: int) -> None:
    operations_one_after_the_other(lake, seed, 14, buckets="consistent")


def test_each_key_is_in_the_file_group_of_its_node(lake: Lake) -> None:
    table = make(lake, 3)
    for operation, keys in (("insert", KEYS[:9]), ("upsert", KEYS[5:15]), ("bulk_insert", KEYS[10:])):
        table.ingest(operation, [*rows(keys, operation), *rows(keys[:3], operation, "b")])
    check_places(table.table)
    assert ring(table) == HashingMetadata.first("p=a", 3)
    table.check()


def test_the_number_of_a_partition_stays_when_the_option_changes(lake: Lake) -> None:
    table = make(lake)
    table.ingest("upsert", rows(KEYS, "1"))
    change_options(table.table, {"hoodie.bucket.index.num.buckets": 5})
    table.ingest("upsert", [*rows(KEYS, "2"), *rows(KEYS, "2", "b")])
    assert (len(ring(table).nodes), len(ring(table, "p=b").nodes)) == (2, 5)
    assert {row["value"] for row in table.rows()} == {"2"}
    assert len(table.rows()) == 40
    check_places(table.table)


def test_an_overwrite_gives_its_buckets_other_file_groups(lake: Lake) -> None:
    table = make(lake)
    table.ingest("upsert", [*rows(KEYS, "1"), *rows(KEYS, "1", "b")])
    for round_ in ("2", "3"):
        table.ingest("insert_overwrite", rows(KEYS[:1], round_))
        now = ring(table)
        assert now.instant == table.table.timeline().commits()[-1].requested_time
        table.ingest("upsert", rows(KEYS[:12], f"{round_}+"))
        check_places(table.table)
        table.check([*rows(KEYS[:12], f"{round_}+"), *rows(KEYS, "1", "b")])
    assert ring(table).seq_no == 2
    assert ring(table, "p=b").seq_no == 0
    table.ingest("insert_overwrite_table", rows(KEYS[:1], "4"))
    table.ingest("upsert", rows(KEYS, "5", "b"))
    check_places(table.table)
    table.check([*rows(KEYS[:1], "4"), *rows(KEYS, "5", "b")])


def test_a_file_of_the_jvm_that_cannot_be_put_after_the_commit_fails_no_write(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake)
    table.ingest("upsert", rows(KEYS, "1"))
    put, refused = Storage.put_if_absent, []

    def fail(storage: Storage, path: str, data: bytes) -> bool:
        if path.startswith(HASHING_METADATA) and path.endswith(".commit"):
            refused.append(path)
            raise OSError("the store is away")
        return put(storage, path, data)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "put_if_absent", fail)
        table.ingest("insert_overwrite", rows(KEYS[:5], "2"))
    assert refused
    table.ingest("upsert", rows(KEYS[3:9], "3"))
    assert {each["id"] for each in table.rows()} == set(KEYS[:9])


def test_two_first_writes_of_one_bucket_meet_in_its_file_group(lake: Lake) -> None:
    table = make(lake)

    def meanwhile() -> None:
        table.ingest("upsert", rows(KEYS[:4], "theirs"))

    with pytest.raises(WriteConflictError):
        table.ingest("upsert", rows(KEYS[2:], "mine"), lock=MeetingLock(meanwhile))
    table.check_now(rows(KEYS[:4], "theirs"))
    other = make(lake)
    result = other.ingest(
        "upsert",
        rows(KEYS[2:], "mine"),
        on_conflict="rebase",
        lock=MeetingLock(lambda: other.ingest("upsert", rows(KEYS[:4], "theirs"))),
    )
    assert result["rebases"] == 1
    other.check_now([*rows(KEYS[:2], "theirs"), *rows(KEYS[2:], "mine")])
    check_places(other.table)


@pytest.mark.parametrize("keys", [KEYS[:1], KEYS])
def test_an_overwrite_beside_a_write_that_opens_a_bucket(lake: Lake, keys: list[str]) -> None:
    table = make(lake, 16)
    table.ingest("upsert", rows(KEYS[:4], "1"))
    opened = table.ingest(
        "insert_overwrite",
        rows(keys, "mine"),
        on_conflict="rebase",
        lock=MeetingLock(lambda: table.ingest("upsert", rows(KEYS, "theirs"))),
    )
    assert opened["operation"] == "insert_overwrite"
    table.check_now(rows(keys, "mine"))
    table.ingest("upsert", rows(KEYS, "later"))
    check_places(table.table)
    table.check_now(rows(KEYS, "later"))


def test_a_dead_overwrite_leaves_no_hashing_metadata(lake: Lake) -> None:
    table = make(lake)
    table.ingest("upsert", rows(KEYS, "1"))
    before = ring(table)
    with pytest.raises(WriteConflictError):
        table.ingest(
            "insert_overwrite",
            rows(KEYS[:3], "2"),
            lock=MeetingLock(lambda: table.ingest("upsert", rows(KEYS[:9], "theirs"))),
        )
    folder = Path(table.location) / HASHING_METADATA / "p=a"
    assert sorted(each.name for each in folder.iterdir()) == [
        "00000000000000.commit",
        "00000000000000.hashing_meta",
    ]
    assert ring(table) == before


def test_the_jvms_table_is_written_on_with_the_buckets_that_it_has_resized(tmp_path: Path) -> None:
    with ZipFile(JVMS) as packed:
        packed.extractall(tmp_path)
    table = change_options(HudiTable.open(str(tmp_path)), CONSISTENT)
    before = {row["id"]: row for row in snapshot(table).to_table().to_pylist()}
    new = [{**row, "v": row["v"] + 1000, "ts": 99} for row in before.values()]
    new.append({**new[0], "id": "k77", "part": "p7"})
    ingest_arrow(table, pa.Table.from_pylist(new, table.schema), "upsert")
    table = HudiTable.open(str(tmp_path))
    check_places(table)
    found = snapshot(table).to_table().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == sorted(new, key=lambda row: row["id"])
    assert len(before) + 1 == len(found)
    with pytest.raises(InvalidInputError, match=r"CONSISTENT_HASHING.*say SIMPLE"):
        change_options(table, {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"})


@pytest.mark.parametrize("operation", ["upsert", "insert", "insert_overwrite"])
def test_the_jvms_table_is_refused_where_its_options_do_not_name_its_buckets(
    tmp_path: Path, operation: str
) -> None:
    with ZipFile(JVMS) as packed:
        packed.extractall(tmp_path)
    table = HudiTable.open(str(tmp_path))
    data = snapshot(table).to_table()
    with pytest.raises(UnsupportedTableError, match=r"CONSISTENT_HASHING.*do not say so"):
        ingest_arrow(table, data, operation)
    with pytest.raises(UnsupportedTableError, match=r"CONSISTENT_HASHING.*do not say so"):
        preview_clustering(table, ClusteringSettings())
    assert not table.timeline().pending()


def test_what_the_jvms_rollback_leaves_goes_before_the_jvm_takes_it_for_valid(tmp_path: Path) -> None:
    with ZipFile(JVMS) as packed:
        packed.extractall(tmp_path)
    table = change_options(HudiTable.open(str(tmp_path)), CONSISTENT)
    data = snapshot(table).to_table()
    ingest_arrow(table, data, "upsert")
    now = load_hashing_metadata(table.storage, table.view(), "part=p0")
    assert now is not None
    dead = f"{int(now.instant) + 7}"  # between two commits
    left = now.with_nodes([HashingNode(7, "x", REPLACE)], dead)
    table.storage.put(left.path, left.to_json())
    ingest_arrow(table, data, "upsert")
    assert table.storage.stat(left.path) is None
    assert load_hashing_metadata(table.storage, table.view(), "part=p0") == now
    table.storage.put(left.path, left.to_json())
    table.storage.put(left.commit_path, b"")
    with pytest.raises(
        CorruptTableError, match=rf"{dead}.hashing_meta is of an instant that was rolled back"
    ):
        ingest_arrow(table, data, "upsert")


def test_a_partition_that_another_engine_has_emptied_is_refused_by_name(tmp_path: Path) -> None:
    with ZipFile(JVMS) as packed:
        packed.extractall(tmp_path)
    table = change_options(HudiTable.open(str(tmp_path)), CONSISTENT)
    now = load_hashing_metadata(table.storage, table.view(), "part=p0")
    assert now is not None
    # The resizing has replaced its file groups, but its hashing metadata still names them.
    first = HashingMetadata.first("part=p0", 2)
    table.storage.put(now.path, first.with_nodes((), now.instant).to_json())
    data = pa.Table.from_pylist(
        [{"id": f"k{n:02d}", "part": "p0", "v": 1, "name": "n", "ts": 99} for n in range(40)], table.schema
    )
    with pytest.raises(UnsupportedTableError, match="no bucket of"):
        ingest_arrow(table, data, "upsert")
    assert not table.timeline().pending()

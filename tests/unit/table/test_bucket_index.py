"""Buckets and file ids are those of the JVM; errors name each unsupported setting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.bucket_index import BucketIndex, bucket_index_of, bucket_of
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.file_names import is_bucket
from airflow_provider.table.java_hash import java_hashes
from airflow_provider.table.properties import TableConfig

SAID = json.loads((Path(__file__).parents[2] / "fixtures" / "bucket_identifier.json").read_text())
CONFIG = TableConfig(name="t", record_key_fields=("id", "day"))
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"}


@pytest.mark.parametrize(("key", "fields", "numbers"), [(v[0], v[1], v[2:]) for v in SAID["vectors"]])
def test_the_bucket_is_the_one_of_the_jvm(key: str, fields: str, numbers: list[int]) -> None:
    for buckets, number in zip(SAID["buckets"], numbers, strict=True):
        index = BucketIndex("t", buckets, tuple(fields.split(",")))
        assert index.of_rows(pa.array([key]), [""], np.zeros(1, np.int64)).tolist() == [number]


def java_hash(text: str) -> int:
    """``String.hashCode``, as its documentation has it."""
    encoded, found = text.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(encoded), 2):
        found = (31 * found + int.from_bytes(encoded[at : at + 2], "big")) % 2**32
    return found


@given(st.lists(st.text(max_size=12), max_size=8), st.booleans())
def test_the_hashes_of_an_array_are_those_of_its_texts(texts: list[str], is_ascii: bool) -> None:
    texts = [text.encode("ascii", "replace").decode() for text in texts] if is_ascii else texts
    for each in (texts, texts * 64):  # one by one, and at once
        assert java_hashes(pa.array(each, pa.string())).tolist() == [java_hash(text) for text in each]


def test_many_keys_at_once_are_in_the_buckets_of_each() -> None:
    keys = [vector[0] for vector in SAID["vectors"] if vector[1] == "id"]
    index = BucketIndex("t", 7, ("id",))
    at_once = index.of_rows(pa.array([*keys, *reversed(keys)]), [""], np.zeros(2 * len(keys), np.int64))
    one_by_one = [index.of_rows(pa.array([key]), [""], np.zeros(1, np.int64))[0] for key in keys]
    assert at_once.tolist() == [*one_by_one, *reversed(one_by_one)]


def test_the_first_file_id_is_the_jvms_and_after_an_overwrite_another_that_all_agree_on() -> None:
    index = BucketIndex("t", 8, ("id",))
    for number, file_id in SAID["file_ids"].items():
        assert index.first_file_id("p", int(number), {}) == file_id
    spent = {FileGroupId("p", "00000007-0000-0000-0000-000000000000-0"): "20260101000000001"}
    second = index.first_file_id("p", 7, spent)
    assert second == index.first_file_id("p", 7, dict(spent))
    assert second not in {group.file_id for group in spent}
    assert is_bucket(second)
    assert index.first_file_id("q", 7, spent) == "00000007-0000-0000-0000-000000000000-0"
    third = index.first_file_id("p", 7, {**spent, FileGroupId("p", second): "20260101000000003"})
    assert len({second, third, *(group.file_id for group in spent)}) == 3


def test_file_groups_of_one_bucket_have_their_partition_and_number_in_common() -> None:
    one, other = FileGroupId("p", "00000003-1-0"), FileGroupId("p", "00000003-2-0")
    assert bucket_of(one) == bucket_of(other) != bucket_of(FileGroupId("q", "00000003-1-0"))
    assert bucket_of(FileGroupId("p", "a0000003-1-0")) is None


def test_files_that_do_not_fit_the_index_are_refused_by_name() -> None:
    index = BucketIndex("t", 4, ("id",))
    assert index.file_groups("p", ["00000003-1-0", "00000000-1-0"]) == {3: "00000003-1-0", 0: "00000000-1-0"}
    with pytest.raises(UnsupportedTableError, match=r"00000004-1-0.*num.buckets is 4"):
        index.file_groups("p", ["00000004-1-0"])
    with pytest.raises(UnsupportedTableError, match=r"a9d2ca22-1-0.*is no bucket"):
        index.file_groups("p", ["a9d2ca22-1-0"])
    with pytest.raises(CorruptTableError, match=r"00000001-b-0.*00000001-a-0 are one bucket"):
        index.file_groups("p", ["00000001-a-0", "00000001-b-0"])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "for merge-on-read tables alone"),
        ({"hoodie.index.bucket.engine": "EXTENSIBLE"}, "say SIMPLE or CONSISTENT_HASHING"),
        ({"hoodie.bucket.index.partition.expressions": "p.*,4"}, "their own numbers of buckets"),
        ({"hoodie.bucket.index.num.buckets": "0"}, "say how many buckets"),
        ({"hoodie.bucket.index.num.buckets": "10001"}, "1 to 10000"),
        ({"hoodie.bucket.index.hash.field": "id,ts"}, "ts is no column of the record key"),
    ],
)
def test_an_index_that_is_not_known_here_is_refused_by_name(said: dict[str, str], told: str) -> None:
    with pytest.raises(UnsupportedTableError, match=told) as raised:
        bucket_index_of(replace(CONFIG, raw=BUCKET | said))
    assert next(iter(said)) in str(raised.value)


def test_the_hash_fields_are_the_record_key_where_nothing_else_is_said() -> None:
    assert bucket_index_of(CONFIG) is None
    assert bucket_index_of(replace(CONFIG, raw={"hoodie.index.type": "BLOOM"})) is None
    assert bucket_index_of(replace(CONFIG, raw=BUCKET)) == BucketIndex("t", 4, ("id", "day"))
    some = replace(CONFIG, raw=BUCKET | {"hoodie.bucket.index.hash.field": "day"})
    assert bucket_index_of(some) == BucketIndex("t", 4, ("day",))

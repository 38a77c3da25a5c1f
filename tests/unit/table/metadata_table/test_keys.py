"""Keys of the metadata table: hashes by a published specification, and the keys that the JVM wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.table.metadata_table.keys import (
    bloom_filter_key,
    column_stats_key,
    column_stats_prefix,
    file_group_index,
    file_group_indexes,
    files_key,
    partition_of_files_key,
    partition_stats_key,
)

_FILE = "c7bbe63e-fa43-40ba-94a9-03158165edc6-0_1-27-53_20260307162434124.parquet"


def test_keys_that_the_jvm_wrote() -> None:
    key = column_stats_key("currency", "region=us", _FILE)
    assert key == "/m6lxu4Dh5w=431THTTwO5Q=W7RhzS2IFnrW7FlqIkFJUw=="
    assert partition_stats_key("currency", "region=us") == "/m6lxu4Dh5w=431THTTwO5Q="
    assert column_stats_prefix("currency") == "/m6lxu4Dh5w="
    assert bloom_filter_key("region=us", _FILE) == "431THTTwO5Q=W7RhzS2IFnrW7FlqIkFJUw=="


@given(st.text(max_size=30))
def test_a_table_without_partitions_has_one_file_list(path: str) -> None:
    if path != ".":
        assert partition_of_files_key(files_key(path)) == path
    assert files_key("") == "."


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [
        ("", 0),
        ("polygenelubricants", -2_147_483_648),
        ("\U0001f600", 1_772_899),
        ("ü", 252),
    ],
)
def test_file_groups_are_chosen_by_javas_hash_code(key: str, hash_code: int) -> None:
    for groups in (2, 7, 10, 1000):
        assert file_group_index(key, groups) == abs(hash_code) % groups
    assert file_group_index(key, 1) == 0


@given(st.lists(st.text(max_size=12)), st.integers(1, 50))
def test_file_groups_of_many_keys_are_those_of_each(keys: list[str], groups: int) -> None:
    expected = [file_group_index(key, groups) for key in keys]
    array = pa.array(["", *keys], pa.string())[1:]
    assert file_group_indexes(array, groups).tolist() == expected
    chunks = pa.chunked_array([keys[:2], keys[2:]], pa.large_string())
    assert file_group_indexes(chunks, groups).tolist() == expected

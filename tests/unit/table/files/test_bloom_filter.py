from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.files.bloom_filter import DYNAMIC_V0, SIMPLE, BloomFilter
from tests.unit.table.arrow_data import texts
from tests.unit.table.conftest import JvmTables


def _jvm_filters(tables: JvmTables) -> list[tuple[pa.ChunkedArray, str, str]]:
    found = []
    for path in tables.base_files():
        footer = pq.read_metadata(path).metadata
        keys = pq.read_table(path, columns=["_hoodie_record_key"], partitioning=None)[0]
        value, code = footer[b"org.apache.hudi.bloomfilter"], footer[b"hoodie_bloom_filter_type_code"]
        found.append((keys, value.decode(), code.decode()))
    return found


def test_filters_are_the_bytes_of_the_jvm(jvm_tables: JvmTables) -> None:
    filters = _jvm_filters(jvm_tables)
    assert len(filters) >= 70
    for keys, value, code in filters:
        assert code == DYNAMIC_V0
        assert BloomFilter.build(keys).to_footer() == (value, code)


def test_a_simple_filter_is_the_row_of_a_dynamic_one(jvm_tables: JvmTables) -> None:
    # HoodieDynamicBoundedBloomFilter writes its rows as SimpleBloomFilter writes itself.
    for keys, value, _ in _jvm_filters(jvm_tables)[::10]:
        simple, code = BloomFilter.build(keys, type_code=SIMPLE).to_footer()
        assert code == SIMPLE
        assert base64.b64decode(value).endswith(base64.b64decode(simple))


def test_keys_beyond_ascii_hash_as_hadoop_hashes_them() -> None:
    # The bytes that Hadoop 3.5's BloomFilter wrote for these keys.
    keys = pa.array(["ü", "größe", "abcä", "😀", "a", "TXN-001", "ÿÿÿ"])
    bloom = BloomFilter.build(keys, type_code=SIMPLE, entries=20, false_positives=1e-2)
    assert base64.b64decode(bloom.to_footer()[0]).hex() == (
        "ffffffff0000000701000000c0a40081264008020550120828050000084440015875908206"
    )


def test_filters_of_the_jvm_are_read(jvm_tables: JvmTables) -> None:
    absent = pa.array(["no such key", "x"])
    for keys, value, code in _jvm_filters(jvm_tables)[::5]:
        bloom = BloomFilter.from_footer(value, code)
        assert bloom.might_contain(keys).all()
        assert not bloom.might_contain(absent).any()
        assert bloom.to_footer() == (value, code)


@given(
    st.lists(texts, max_size=30),
    st.lists(texts, max_size=10),
    st.sampled_from([SIMPLE, DYNAMIC_V0]),
    st.integers(1, 12),
    st.integers(1, 40),
    st.integers(0, 3),
)
@example(["", "a", "äöüß", "\0"], [], SIMPLE, 1, 1, 0)
def test_a_key_in_the_set_is_never_denied(
    keys: list[str], others: list[str], code: str, entries: int, most: int, offset: int
) -> None:
    array = pa.array(["before"] * offset + keys, pa.string())[offset:]
    bloom = BloomFilter.build(array, type_code=code, entries=entries, max_entries=most, false_positives=1e-3)
    again = BloomFilter.from_footer(*bloom.to_footer())
    for each in (bloom, again):
        assert each.might_contain(array).all()
        answers = each.might_contain(pa.array(keys + others, pa.string()))
        assert answers[: len(keys)].all()
        # Adding keys one at a time gives the same filter as adding all at once.
        alone = [each.might_contain(pa.array([key]))[0] for key in others]
        assert answers[len(keys) :].tolist() == alone


def test_hashes_of_long_keys_and_odd_lengths() -> None:
    keys = pa.array(["k" * length + chr(200 + length) for length in range(40)])
    bloom = BloomFilter.build(keys)
    assert bloom.might_contain(keys).all()
    assert bloom.might_contain(keys.cast(pa.large_string())).all()
    ones = np.unpackbits(bloom.rows[0]).sum()
    assert 0.98 * 40 * 30 < ones <= 40 * 30


def test_rows_are_added_until_the_most_entries() -> None:
    keys = pa.array([f"key {number}" for number in range(1000)])

    def rows(count: int) -> tuple[int, int]:
        bloom = BloomFilter.build(keys[:count], entries=100, max_entries=250)
        assert bloom.might_contain(keys[:count]).all()
        return len(bloom.rows), bloom.last_row_entries

    # Hudi continues to count in the last row once it adds no more rows.
    expected = {0: (1, 0), 1: (1, 1), 100: (1, 100), 101: (2, 1), 250: (3, 50), 300: (3, 100), 1000: (3, 800)}
    assert {count: rows(count) for count in expected} == expected


def test_a_full_dynamic_filter_fills_its_rows_in_turn() -> None:
    keys = pa.array([f"key {number}" for number in range(28)])
    bloom = BloomFilter.build(keys, entries=10, max_entries=20)
    # Twenty keys fill two rows; the next goes to the first, and then each in turn from the first.
    first = [*range(10), 20, 21, 23, 25, 27]
    second = [*range(10, 20), 22, 24, 26]
    for row, members in zip(bloom.rows, (first, second), strict=True):
        alone = BloomFilter.build(keys.take(members), type_code=SIMPLE, entries=10)
        assert row.tobytes() == alone.rows[0].tobytes()


@pytest.mark.parametrize("rate", [1e-2, 1e-4])
def test_wrong_answers_are_as_rare_as_asked(rate: float) -> None:
    inside = pa.array([f"in-{number:07d}" for number in range(20_000)])
    outside = pa.array([f"out-{number:07d}" for number in range(200_000)])
    bloom = BloomFilter.build(inside, entries=20_000, max_entries=20_000, false_positives=rate)
    wrong = np.count_nonzero(bloom.might_contain(outside))
    assert 0.5 * rate * 200_000 < wrong < 1.5 * rate * 200_000


def test_null_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 record keys are null"):
        BloomFilter.build(pa.array(["a", None]))


def test_other_types_are_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="'RIBBON' is not known"):
        BloomFilter.build(pa.array(["a"]), type_code="RIBBON")
    with pytest.raises(UnsupportedTableError, match="'RIBBON' is not known"):
        BloomFilter.from_footer("", "RIBBON")


@given(st.binary(max_size=60), st.sampled_from([SIMPLE, DYNAMIC_V0]))
@example(b"\xff\xff\xff\xff" + b"\0" * 40, SIMPLE)
def test_damaged_filters_are_told(data: bytes, code: str) -> None:
    with pytest.raises((CorruptTableError, UnsupportedTableError), match="bloom filter"):
        BloomFilter.from_footer(base64.b64encode(data).decode(), code)


def test_a_filter_that_is_cut_off_is_told() -> None:
    value, code = BloomFilter.build(pa.array(["a"])).to_footer()
    with pytest.raises(CorruptTableError, match="cut off at byte"):
        BloomFilter.from_footer(value[:1000], code)
    with pytest.raises(CorruptTableError, match="cannot be read"):
        BloomFilter.from_footer("not base64!", code)


@given(st.lists(texts, min_size=1, max_size=20), st.integers(1, 40))
def test_few_keys_are_hashed_like_many(keys: list[str], entries: int) -> None:
    """Arrays hash many keys; a few keys are hashed one by one."""
    many = pa.array(keys * 12, pa.string())
    alone = [BloomFilter.build(pa.array([key]), type_code=SIMPLE, entries=entries).rows[0] for key in keys]
    together = BloomFilter.build(many, type_code=SIMPLE, entries=entries)
    assert together.rows[0].tobytes() == np.bitwise_or.reduce(alone).tobytes()
    assert together.might_contain(many)[: len(keys)].tolist() == [
        bool(together.might_contain(pa.array([key]))[0]) for key in keys
    ]

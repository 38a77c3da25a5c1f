"""Which version of a record survives, held against a model of plain dicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.ingestion.merge import Batch, Matches, latest_versions, surviving

INT64 = pa.int64()

keys = st.sampled_from("abcdef")
orderings = st.one_of(st.none(), st.integers(0, 3))


def _batch(rows: list[tuple[str, Any]], kind: pa.DataType | None = INT64) -> Batch:
    key = pa.array([key for key, _ in rows], pa.string())
    ordering = None if kind is None else pa.array([value for _, value in rows], kind)
    return Batch(pa.table({"n": range(len(rows))}), key, ordering)


def _rank(value: Any) -> float:
    if value is None:
        return -math.inf
    return math.inf if value != value else float(value)


@given(st.lists(st.tuples(keys, orderings), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_one_version_a_key_is_left(rows: list[tuple[str, Any]], random: Any) -> None:
    arrival = random.sample(range(1000), len(rows))
    expected: dict[str, int] = {}
    for number in sorted(range(len(rows)), key=lambda n: (_rank(rows[n][1]), arrival[n])):
        expected[rows[number][0]] = number
    left = latest_versions(_batch(rows), pa.array(arrival))
    assert dict(zip(left.keys.to_pylist(), left.rows["n"].to_pylist(), strict=True)) == expected
    assert left.ordering is not None
    assert left.ordering.to_pylist() == [rows[n][1] for n in left.rows["n"].to_pylist()]


@given(
    st.lists(st.tuples(keys, orderings), max_size=20),
    st.dictionaries(keys, orderings, max_size=6),
    st.integers(1, 5),
)
def test_larger_ordering_wins_and_the_incoming_of_equals(
    stored: list[tuple[str, Any]], incoming: dict[str, Any], group_rows: int
) -> None:
    batch = _batch(list(incoming.items()))
    matches = Matches.none(batch)
    kept: list[tuple[str, Any]] = []
    for first in range(0, len(stored), group_rows):
        part = stored[first : first + group_rows]
        old = pa.table(
            {
                "_hoodie_record_key": pa.array([key for key, _ in part], pa.string()),
                "ts": pa.array([value for _, value in part], pa.int64()),
            }
        )
        left = surviving(batch, old, "ts", matches)
        kept += zip(*(left[name].to_pylist() for name in left.column_names), strict=True)
    assert kept == [
        (key, value) for key, value in stored if key not in incoming or _rank(value) > _rank(incoming[key])
    ]
    known = {key for key, _ in stored}
    assert matches.found.tolist() == [key in known for key in incoming]
    beaten = {key for key, value in stored if key in incoming and _rank(value) > _rank(incoming[key])}
    assert matches.beaten.tolist() == [key in beaten for key in incoming]


def test_without_an_ordering_column_the_later_write_wins() -> None:
    batch = _batch([("a", None), ("b", None)], kind=None)
    matches = Matches.none(batch)
    old = pa.table({"_hoodie_record_key": ["a", "c"]})
    assert surviving(batch, old, None, matches)["_hoodie_record_key"].to_pylist() == ["c"]
    assert matches.found.tolist() == [True, False]
    assert not matches.beaten.any()
    latest = latest_versions(_batch([("a", None), ("a", None)], kind=None), pa.array([7, 3]))
    assert latest.rows["n"].to_pylist() == [0]


@pytest.mark.parametrize(
    ("kind", "smaller", "larger"),
    [
        (pa.float64(), 1.0, math.nan),
        (pa.float64(), math.inf, math.nan),
        (pa.string(), "a", "b"),
        (pa.timestamp("us", tz="UTC"), 1, 2),
        (pa.date32(), 1, 2),
        (pa.bool_(), False, True),
        (pa.decimal128(9, 2), 1, 2),
    ],
)
def test_ordering_columns_of_any_type(kind: pa.DataType, smaller: Any, larger: Any) -> None:
    low, high = pa.array([smaller], kind), pa.array([larger], kind)
    both = Batch(pa.table({"n": [0, 1]}), pa.array(["a", "a"]), pa.concat_arrays([high, low]))
    if smaller != math.inf:
        assert latest_versions(both, pa.array([0, 1])).rows["n"].to_pylist() == [0]
    for new, old, wins in [(low, high, smaller == math.inf), (high, low, True), (high, high, True)]:
        batch = Batch(pa.table({"n": [0]}), pa.array(["a"]), new)
        stored = pa.table({"_hoodie_record_key": ["a"], "ts": old})
        assert (surviving(batch, stored, "ts", Matches.none(batch)).num_rows == 0) == wins


def test_nothing_found_costs_no_copy() -> None:
    batch = _batch([("x", 1)])
    old = pa.table({"_hoodie_record_key": ["a"], "ts": [1]})
    assert surviving(batch, old, "ts", Matches.none(batch)) is old
    assert batch.filter(np.array([False])).rows.num_rows == 0

"""The surviving version of a record, compared with a model of plain dicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.table.merge_semantics import MergeSemantics, PartialUpdate
from airflow_provider.table.record_merge import Batch, Merge, latest_versions

INT64 = pa.int64()
BY_TS = MergeSemantics(("ts",))

keys = st.sampled_from("abcdef")
orderings = st.one_of(st.none(), st.integers(0, 3))


def _batch(rows: list[tuple[str, Any]], kind: pa.DataType | None = INT64) -> Batch:
    key = pa.array([key for key, _ in rows], pa.string())
    ordering = () if kind is None else (pa.array([value for _, value in rows], kind),)
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
    assert left.ordering[0].to_pylist() == [rows[n][1] for n in left.rows["n"].to_pylist()]


@given(
    st.lists(st.tuples(keys, orderings), max_size=20),
    st.dictionaries(keys, orderings, max_size=6),
    st.integers(1, 5),
)
def test_larger_ordering_wins_and_the_incoming_of_equals(
    stored: list[tuple[str, Any]], incoming: dict[str, Any], group_rows: int
) -> None:
    batch = _batch(list(incoming.items()))
    merge = Merge(batch, BY_TS)
    kept: list[tuple[str, Any]] = []
    for first in range(0, len(stored), group_rows):
        part = stored[first : first + group_rows]
        old = pa.table(
            {
                "_hoodie_record_key": pa.array([key for key, _ in part], pa.string()),
                "ts": pa.array([value for _, value in part], pa.int64()),
            }
        )
        left = merge.surviving(old)
        kept += zip(*(left[name].to_pylist() for name in left.column_names), strict=True)
    assert kept == [
        (key, value) for key, value in stored if key not in incoming or _rank(value) > _rank(incoming[key])
    ]
    known = {key for key, _ in stored}
    assert merge.found.tolist() == [key in known for key in incoming]
    beaten = {key for key, value in stored if key in incoming and _rank(value) > _rank(incoming[key])}
    written = [key for brought, _ in merge.written() for key in brought.keys.to_pylist()]
    assert written == [key for key in incoming if key not in beaten]


def test_without_an_ordering_column_the_later_write_wins() -> None:
    batch = _batch([("a", None), ("b", None)], kind=None)
    merge = Merge(batch, MergeSemantics())
    old = pa.table({"_hoodie_record_key": ["a", "c"]})
    assert merge.surviving(old)["_hoodie_record_key"].to_pylist() == ["c"]
    assert [(brought.keys.to_pylist(), found.tolist()) for brought, found in merge.written()] == [
        (["a", "b"], [True, False])
    ]
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
    both = Batch(pa.table({"n": [0, 1]}), pa.array(["a", "a"]), (pa.concat_arrays([high, low]),))
    if smaller != math.inf:
        assert latest_versions(both, pa.array([0, 1])).rows["n"].to_pylist() == [0]
    for new, old, wins in [(low, high, smaller == math.inf), (high, low, True), (high, high, True)]:
        batch = Batch(pa.table({"n": [0]}), pa.array(["a"]), (new,))
        stored = pa.table({"_hoodie_record_key": ["a"], "ts": old})
        assert (Merge(batch, BY_TS).surviving(stored).num_rows == 0) == wins


def test_nothing_found_costs_no_copy() -> None:
    batch = _batch([("x", 1)])
    old = pa.table({"_hoodie_record_key": ["a"], "ts": [1]})
    assert Merge(batch, BY_TS).surviving(old) is old
    assert batch.filter(np.array([False])).rows.num_rows == 0


# --- partial updates and deletions, against versions that are merged one after the other -----------

Version = tuple[str, int | None, int | None, str | None, bool]
"""Key, ordering value, two values, and whether the version deletes its record."""

versions = st.tuples(
    keys,
    orderings,
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), st.sampled_from(["x", "y", "?"])),
    st.booleans(),
)
partly = st.sampled_from(
    [
        MergeSemantics(("ts",), PartialUpdate.IGNORE_DEFAULTS),
        MergeSemantics((), PartialUpdate.IGNORE_DEFAULTS),
        MergeSemantics(("ts",), PartialUpdate.FILL_UNAVAILABLE, "?"),
        MergeSemantics((), PartialUpdate.FILL_UNAVAILABLE, "?"),
        MergeSemantics(("ts",)),
        MergeSemantics(),
    ]
)


def _together(older: Version, newer: Version, semantics: MergeSemantics) -> Version:
    """Two versions of one record, merged as Hudi's PartialUpdateHandler does it."""
    wins = not semantics.ordering_fields or _rank(newer[1]) >= _rank(older[1])
    high, low = (newer, older) if wins else (older, newer)
    if older[4] or newer[4] or semantics.partial_update is PartialUpdate.NONE:
        return high
    gap = None if semantics.partial_update is PartialUpdate.IGNORE_DEFAULTS else "?"
    filled = [there if here == gap else here for here, there in zip(high, low, strict=True)]
    return (filled[0], filled[1], filled[2], filled[3], False)


def _versions(rows: list[Version], semantics: MergeSemantics) -> Batch:
    names = ["id", "ts", "n", "text"]
    kinds = [pa.string(), INT64, INT64, pa.string()]
    columns = [pa.array([each[n] for each in rows], kind) for n, kind in enumerate(kinds)]
    ordering = (columns[1],) if semantics.ordering_fields else ()
    deletes = np.array([each[4] for each in rows], np.bool_)
    return Batch(pa.Table.from_arrays(columns, names), columns[0], ordering, deletes)


@given(st.dictionaries(keys, versions, max_size=6), st.lists(versions, min_size=1, max_size=12), partly)
def test_versions_are_merged_as_one_after_the_other(
    stored: dict[str, Version], incoming: list[Version], semantics: MergeSemantics
) -> None:
    there = {key: (key, *version[1:4], False) for key, version in stored.items()}
    latest: dict[str, Version] = {}
    for each in incoming:
        latest[each[0]] = _together(latest[each[0]], each, semantics) if each[0] in latest else each
    expected = dict(there)
    for key, version in latest.items():
        merged = _together(expected[key], version, semantics) if key in expected else version
        expected.pop(key, None)
        if not merged[4]:
            expected[key] = merged
    batch = latest_versions(_versions(incoming, semantics), pa.array(range(len(incoming))), semantics)
    merge = Merge(batch, semantics)
    old = _versions(list(there.values()), semantics).rows
    kept = merge.surviving(old.append_column("_hoodie_record_key", old["id"].combine_chunks()))
    found = {each["id"]: tuple(each[name] for name in ("id", "ts", "n", "text")) for each in kept.to_pylist()}
    unchanged = set(found)
    for brought, known in merge.written():
        for each, is_known in zip(brought.rows.to_pylist(), known.tolist(), strict=True):
            assert each["id"] not in found
            assert (each["id"] in there) == is_known
            found[each["id"]] = tuple(each.values())
    assert found == {key: version[:4] for key, version in expected.items()}
    assert all(there[key][:4] == found[key] for key in unchanged)
    assert merge.deleted == len(there.keys() - expected.keys())

"""The order of rows by columns of all types that have an order."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.services.clustering.row_order import LAYOUTS, can_order, ranks, row_order

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.decimal128(9, 2): st.decimals(-9_999_999, 9_999_999, places=2, allow_nan=False),
}


@st.composite
def columns(draw: st.DrawFn) -> list[pa.ChunkedArray]:
    """Up to five columns of any types; few values and many, nulls, in one chunk or several."""
    rows = draw(st.integers(0, 60))
    found = []
    for kind in draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5)):
        pool = draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=rows or 1))
        values = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
        cut = draw(st.integers(0, rows))
        found.append(pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)]))
    return found


def sort_key(value: Any) -> tuple[Any, ...]:
    """Null first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)


@given(columns())
def test_linear_is_python_s_own_order(given_: list[pa.ChunkedArray]) -> None:
    rows = list(zip(*(map(sort_key, column.to_pylist()) for column in given_), strict=True))
    assert row_order("linear", given_).tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@given(columns(), st.sampled_from(list(LAYOUTS)))
def test_every_layout_is_an_order_of_all_rows(given_: list[pa.ChunkedArray], layout: str) -> None:
    assert sorted(row_order(layout, given_).tolist()) == list(range(len(given_[0])))


@given(columns())
def test_ranks_say_how_many_rows_are_smaller(given_: list[pa.ChunkedArray]) -> None:
    for column in given_:
        keys = [sort_key(value) for value in column.to_pylist()]
        assert ranks(column).tolist() == [sum(other < key for other in keys) for key in keys]


def test_curves_keep_rows_together_that_are_near_in_every_column() -> None:
    random = np.random.default_rng(0)
    # One column with few values, one with outliers: each must divide the rows.
    given_ = [
        pa.chunked_array([random.choice(["ATL", "JFK", "LAX", "ORD"], 40_000)]),
        pa.chunked_array([random.lognormal(0, 4, 40_000)]),
    ]
    wanted = (ranks(given_[0]) == 0) & (ranks(given_[1]) < 10_000)
    for layout, most in (("z-order", 4), ("hilbert", 4), ("linear", 6)):
        files = np.array_split(wanted[row_order(layout, given_)], 16)
        assert sum(file.any() for file in files) <= most


def test_zeros_are_equal_and_so_are_nans() -> None:
    values = pa.array(np.array([np.nan, 0.0, -np.nan, -0.0, 1.0]))
    for copies in (1, 100):
        given_ = pa.chunked_array([values, pa.nulls(copies, pa.float64())])
        assert ranks(given_).tolist() == [copies + n for n in (3, 0, 3, 0, 2)] + [0] * copies


def test_nested_values_have_no_order() -> None:
    assert not can_order(pa.list_(pa.int64()))
    assert can_order(pa.decimal128(3, 1))


@pytest.mark.parametrize("layout", ["z-order", "hilbert"])
def test_many_columns(layout: str) -> None:
    given_ = [pa.chunked_array([np.arange(100) * sign]) for sign in (1, -1) * 8]
    assert sorted(row_order(layout, given_).tolist()) == list(range(100))


@given(columns(), st.sampled_from(list(LAYOUTS)))
def test_dictionaries_have_the_order_of_their_values(given_: list[pa.ChunkedArray], layout: str) -> None:
    strings = [each for each in given_ if each.type == pa.string()] or [
        pa.chunked_array([["b", None, "a", "b"]])
    ]
    encoded = [each.dictionary_encode() for each in strings]
    assert row_order(layout, encoded).tolist() == row_order(layout, strings).tolist()

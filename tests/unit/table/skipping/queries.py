"""Hypothesis strategies: rows with columns of every type that has statistics, and queries over them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc

UTC = dt.UTC
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "p": pa.string(),
        "i": pa.int32(),
        "x": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "u": pa.timestamp("ms"),
        "m": pa.decimal128(6, 2),
        "y": pa.binary(),
    }
)
DAY = dt.datetime(2024, 1, 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "p": st.sampled_from(["a", "b=c", "d/e", "7"]),
    "i": st.integers(-3, 3),
    "x": st.sampled_from([0.0, -0.0, 1.5, -2.5, float("nan"), float("inf"), 1e300]),
    "s": st.sampled_from(["", "a", "ab", "b", "ü", "x" * 5000, "x" * 4999 + "y"]),
    "b": st.booleans(),
    "d": st.integers(-3, 3).map(lambda days: (DAY + dt.timedelta(days)).date()),
    "t": st.integers(-3, 3).map(lambda n: (DAY + dt.timedelta(microseconds=n)).replace(tzinfo=UTC)),
    "u": st.integers(-3, 3).map(lambda n: DAY + dt.timedelta(milliseconds=n)),
    "m": st.integers(-300, 300).map(lambda n: Decimal(n) / 100),
    "y": st.binary(max_size=2),
}
rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def comparison(column: str) -> st.SearchStrategy[Any]:
    field, kind = pc.field(column), SCHEMA.field(column).type
    value = VALUES[column].map(lambda each: pa.scalar(each, kind))
    # Arrow itself misses zeros: with zero in a list, pyarrow's read_table finds no row of a file of zeros.
    in_lists = VALUES[column].filter(lambda value: value != 0) if column == "x" else VALUES[column]
    several = st.lists(in_lists, max_size=3).map(lambda each: pa.array(each, kind))
    compare = [
        lambda v: field == v,
        lambda v: field != v,
        lambda v: field < v,
        lambda v: field <= v,
        lambda v: field > v,
        lambda v: field >= v,
    ]
    found = [value.map(each) for each in compare]
    found += [several.map(field.isin), st.just(field.is_null()), st.just(field.is_valid())]
    if pa.types.is_floating(kind):
        found.append(st.just(field.is_null(nan_is_null=True)))
    return st.one_of(found)


predicates = st.recursive(
    st.sampled_from(sorted(VALUES)).flatmap(comparison),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=4,
)

"""Hypothesis strategies: columns that a table can have, and rows for them."""

from __future__ import annotations

import datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
# Parquet has text only as UTF-8, which has no lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

_decimals = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
)
flat_types = st.one_of(
    st.sampled_from(
        [
            pa.bool_(),
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.binary(),
            pa.date32(),
            pa.timestamp("us", tz="UTC"),
            pa.timestamp("ms", tz="UTC"),
            pa.timestamp("us"),
            pa.timestamp("ms"),
        ]
    ),
    _decimals,
)


def _nested(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    nullable = st.booleans()
    elements = st.builds(lambda kind, null: pa.field("element", kind, null), children, nullable)
    values = st.builds(lambda kind, null: pa.field("value", kind, null), children, nullable)
    members = st.lists(
        st.tuples(names, children, nullable), min_size=1, max_size=3, unique_by=lambda one: one[0].lower()
    )
    return st.one_of(
        elements.map(pa.list_),
        values.map(lambda value: pa.map_(pa.string(), value)),
        members.map(lambda fields: pa.struct([pa.field(*field) for field in fields])),
    )


types = st.recursive(flat_types, _nested, max_leaves=5)


@st.composite
def schemas(draw: st.DrawFn, kinds: st.SearchStrategy[pa.DataType] = types) -> pa.Schema:
    """Schemas of one to five columns in the types that tables store."""
    columns = draw(st.lists(names, min_size=1, max_size=5, unique_by=str.lower))
    return pa.schema([pa.field(name, draw(kinds), draw(st.booleans())) for name in columns])


_EPOCH = datetime.datetime(1970, 1, 1)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values of a type, without null at the top."""
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({child.name: _optional(child) for child in kind})
    if pa.types.is_list(kind):
        return st.lists(_optional(kind.value_field), max_size=3)
    if pa.types.is_map(kind):
        return st.dictionaries(texts, _optional(kind.item_field), max_size=3).map(
            lambda found: list(found.items())
        )
    if pa.types.is_decimal(kind):
        largest = 10**kind.precision - 1
        return st.integers(-largest, largest).map(lambda digits: Decimal(digits).scaleb(-kind.scale, _EXACT))
    if pa.types.is_timestamp(kind):
        step = datetime.timedelta(milliseconds=1) if kind.unit == "ms" else datetime.timedelta(microseconds=1)
        zone = datetime.UTC if kind.tz else None
        return st.integers(-(10**12), 10**13).map(lambda count: (_EPOCH + count * step).replace(tzinfo=zone))
    return _FLAT_VALUES[kind]


def _optional(field: pa.Field) -> st.SearchStrategy[Any]:
    return st.none() | values(field.type) if field.nullable else values(field.type)


_EXACT = Context(prec=60)
_FLAT_VALUES = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): texts,
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
}


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 6) -> pa.Table:
    """Tables of a random schema with random rows."""
    schema = draw(schemas())
    rows = draw(st.lists(st.fixed_dictionaries({f.name: _optional(f) for f in schema}), max_size=max_rows))
    return pa.Table.from_pylist(rows, schema=schema)

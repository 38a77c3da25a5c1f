"""Conversion of values from one type to another; the expected values are those of Hudi 1.2.0 on Spark 3.5."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.table.schema.conversion import Origin, converted

FLOATS = [1.1, 0.1, 3.4e38, 16777217.0, 5.0, -0.0, None]

READ = [
    (pa.int32(), [16777217, -5, None], pa.int64(), [16777217, -5, None]),
    (pa.int32(), [16777217, -5, None], pa.float32(), [16777216.0, -5.0, None]),
    (pa.int32(), [16777217, -5], pa.float64(), [16777217.0, -5.0]),
    (pa.int32(), [16777217, -5, None], pa.string(), ["16777217", "-5", None]),
    (pa.int64(), [9007199254740993], pa.float32(), [9007199254740992.0]),
    (pa.int64(), [9007199254740993], pa.float64(), [9007199254740992.0]),
    (pa.int64(), [9007199254740993], pa.string(), ["9007199254740993"]),
    (pa.float32(), FLOATS, pa.float64(), [1.1, 0.1, 3.4e38, 16777216.0, 5.0, -0.0, None]),
    (pa.float32(), FLOATS, pa.string(), ["1.1", "0.1", "3.4E38", "1.6777216E7", "5.0", "-0.0", None]),
    (pa.float64(), [1.1, 5.0, 1e7, 9999999.0], pa.string(), ["1.1", "5.0", "1.0E7", "9999999.0"]),
    (pa.float64(), [1e-3, 0.00099, 1e300], pa.string(), ["0.001", "9.9E-4", "1.0E300"]),
    (pa.float64(), [math.nan, math.inf, -math.inf], pa.string(), ["NaN", "Infinity", "-Infinity"]),
    (
        pa.float64(),
        [1.1, 1.005, math.nan, 1e20],
        pa.decimal128(5, 2),
        [Decimal("1.10"), Decimal("1.01"), None, None],
    ),
    (pa.int64(), [7, 10**10], pa.decimal128(5, 2), [Decimal("7.00"), None]),
    (pa.string(), ["1.5", "no", None], pa.decimal128(5, 2), [Decimal("1.50"), None, None]),
    (pa.string(), ["2024-02-29", "no", None], pa.date32(), [datetime.date(2024, 2, 29), None, None]),
    (pa.decimal128(12, 4), [Decimal("12.2500"), Decimal(-1)], pa.string(), ["12.2500", "-1.0000"]),
    (pa.decimal128(10, 2), [Decimal("12.25")], pa.decimal128(30, 10), [Decimal("12.2500000000")]),
    (pa.date32(), [datetime.date(2024, 2, 29)], pa.string(), ["2024-02-29"]),
    (pa.binary(), [b"ab", b"\xff", None], pa.string(), ["ab", "�", None]),
    (pa.string(), ["ab", None], pa.binary(), [b"ab", None]),
    (pa.large_string(), ["ab"], pa.string(), ["ab"]),
    (pa.dictionary(pa.int8(), pa.int32()), [3, None], pa.string(), ["3", None]),
    (pa.null(), [None], pa.list_(pa.int32()), [None]),
]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_float32(kind):  # Arrow refuses to round
        rounded = np.array([0.0 if value is None else value for value in values], np.float32)
        return pa.array(rounded, mask=np.array([value is None for value in values]))
    return pa.array(values, kind)


@pytest.mark.parametrize(("source", "values", "target", "expected"), READ, ids=str)
def test_values_are_read_as_hudi_reads_them(
    source: pa.DataType, values: list[Any], target: pa.DataType, expected: list[Any]
) -> None:
    found = converted(pa.chunked_array([_array(values, source)]), target)
    assert found.type.equals(target)
    assert found.to_pylist() == expected
    assert list(map(repr, found.to_pylist())) == list(map(repr, expected))  # minus zero, too


@given(st.floats(width=64))
def test_a_text_is_the_shortest_that_gives_the_number_in_javas_form(number: float) -> None:
    [text] = converted(pa.array([number]), pa.string()).to_pylist()
    if math.isnan(number):
        assert text == "NaN"
        return
    assert float(text) == number
    if math.isinf(number):
        return
    mantissa, _, exponent = text.partition("E")
    assert "." in mantissa
    assert not mantissa.endswith(".")
    assert bool(exponent) == (number != 0 and not 1e-3 <= abs(number) < 1e7)
    if exponent:
        assert 1 <= abs(float(mantissa)) < 10
    assert len(mantissa.replace(".", "").strip("-0")) <= len(repr(number).partition("e")[0].replace(".", ""))


@given(st.lists(st.floats(width=32), min_size=2, max_size=2))
def test_a_wider_float_keeps_its_digits_and_its_order(numbers: list[float]) -> None:
    narrow = pa.array(np.array(numbers, np.float32))
    wide = converted(narrow, pa.float64()).to_pylist()
    for one, other in zip(narrow.to_pylist(), wide, strict=True):
        assert (math.isnan(one) and math.isnan(other)) or np.float32(other) == np.float32(one)
    low, high = numbers
    if low < high:
        assert wide[0] < wide[1]


EXACT = [
    (pa.int64(), 2**53 + 1, pa.float64()),
    (pa.int32(), 2**24 + 1, pa.float32()),
    (pa.float64(), 1.234, pa.decimal128(5, 2)),
    (pa.int64(), 10**6, pa.decimal128(5, 2)),
    (pa.binary(), b"\xff", pa.string()),
    (pa.timestamp("us"), 1, pa.timestamp("ms")),
]


@pytest.mark.parametrize(("source", "value", "target"), EXACT, ids=str)
def test_what_is_written_has_to_come_out_as_it_went_in(
    source: pa.DataType, value: Any, target: pa.DataType
) -> None:
    with pytest.raises(pa.ArrowInvalid):
        converted(pa.array([value], source), target, exact=True)


def test_inner_columns_are_found_by_name_in_any_order() -> None:
    stored = pa.array(
        [{"a": 1, "gone": "x", "in": [{"x": 1.5}]}, None, {"a": None, "gone": "y", "in": [None]}],
        pa.struct(
            [("a", pa.int32()), ("gone", pa.string()), ("in", pa.list_(pa.struct([("x", pa.float32())])))]
        ),
    )
    kind = pa.struct(
        [
            ("in", pa.list_(pa.struct([("y", pa.string()), ("x", pa.float64())]))),
            ("a", pa.string()),
            ("b", pa.date32()),
        ]
    )
    assert converted(stored, kind).to_pylist() == [
        {"in": [{"y": None, "x": 1.5}], "a": "1", "b": None},
        None,
        {"in": [None], "a": None, "b": None},
    ]
    assert converted(stored.slice(1), kind).to_pylist() == converted(stored, kind).to_pylist()[1:]


def test_maps_and_slices_of_them() -> None:
    stored = pa.array(
        [[("k", {"x": 1})], None, [("l", None), ("m", {"x": 3})]],
        pa.map_(pa.string(), pa.struct([("x", pa.int32())])),
    )
    kind = pa.map_(pa.string(), pa.struct([("x", pa.float64()), ("y", pa.int32())]))
    expected = [[("k", {"x": 1.0, "y": None})], None, [("l", None), ("m", {"x": 3.0, "y": None})]]
    assert converted(stored, kind).to_pylist() == expected
    assert converted(stored.slice(1, 2), kind).to_pylist() == expected[1:]


def test_a_column_that_has_another_name_or_is_another_one() -> None:
    stored = pa.array([{"a": 1, "b": 2}], pa.struct([("a", pa.int32()), ("b", pa.int32())]))
    kind = pa.struct([("a", pa.int32()), ("c", pa.int64())])
    origins = {"a": Origin(None), "c": Origin("a")}
    assert converted(stored, kind, origins=origins).to_pylist() == [{"a": None, "c": 1}]
    lists = pa.array([[{"a": 1, "b": 2}]], pa.list_(stored.type))
    assert converted(lists, pa.list_(kind), origins=origins).to_pylist() == [[{"a": None, "c": 1}]]


def test_what_cannot_be_is_an_error() -> None:
    for source, target in [(pa.int32(), pa.list_(pa.int32())), (pa.struct([("a", pa.int32())]), pa.string())]:
        with pytest.raises(pa.ArrowException):
            converted(pa.array([None], source), target)

"""Conversion of values from one type to another, as Hudi's readers do it.

Sources: ``HoodieParquetFileFormatHelper`` (it converts a float to a double by way of text, so that 1.1 stays
1.1), ``HoodieAvroUtils.rewritePrimaryType``, and Spark's ``Cast`` for texts. Hudi's writer follows the same
rules when it merges old rows with new ones, so one function serves readers and writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Origin:
    """Where a column of a table lies in a file, whose columns may have other names.

    :param name: the column's name in the file; None when the file does not have the column.
    :param inner: the origins of the columns inside this one; in an array or a map those of its elements or
        values. When None, these columns have the same names in the file.
    :param value: the column's value in all rows of a file that does not have the column, as a text.
    """

    name: str | None
    inner: Origins | None = None
    value: str | None = None


Origins = Mapping[str, Origin]
"""The columns that a file has under another name, or not at all. It has any other column by its own name."""


def converted(
    column: pa.ChunkedArray | pa.Array,
    kind: pa.DataType,
    *,
    exact: bool = False,
    origins: Origins | None = None,
) -> pa.ChunkedArray:
    """Convert a column's values to another type.

    Nested columns are matched by name. A column that the values lack is null, and a column that the new type
    lacks is left out.

    :param column: the values.
    :param kind: the new type.
    :param exact: whether each value must keep its meaning. Otherwise a value may change as in Hudi's readers:
        a number is rounded, and a text that is not a number becomes null.
    :param origins: where the columns inside this one lie.
    :raises pyarrow.ArrowInvalid: when there is no such conversion, when a value would change although
        ``exact`` is true, or when a value is null that must not be.
    """
    if (
        origins is None
        and isinstance(column, pa.ChunkedArray)
        and column.type.equals(kind, check_metadata=True)
    ):
        return column
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([_converted(each, kind, exact, origins) for each in chunks], type=kind)


def _converted(values: pa.Array, kind: pa.DataType, exact: bool, origins: Origins | None) -> pa.Array:
    source = values.type
    if origins is None and source.equals(kind, check_metadata=True):
        return values
    if pa.types.is_dictionary(source):
        return _converted(values.dictionary_decode(), kind, exact, origins)
    if pa.types.is_null(source):
        return pa.nulls(len(values), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(source):
        return _struct(values, kind, exact, origins)
    if pa.types.is_map(kind) and pa.types.is_map(source):
        return _map(values, kind, exact, origins)
    if pa.types.is_list(kind) and is_list(source):
        return _list(values, kind, exact, origins)
    if pa.types.is_nested(kind) or pa.types.is_nested(source):
        raise pa.ArrowInvalid(f"{source} is not {kind}")
    return _plain(values, kind, exact)


# --- nested -----------------------------------------------------------------------------------


def _struct(values: pa.Array, kind: pa.DataType, exact: bool, origins: Origins | None) -> pa.Array:
    children = []
    for child in kind:
        origin = (origins or {}).get(child.name, Origin(child.name))
        position = -1 if origin.name is None else values.type.get_field_index(origin.name)
        if position < 0:
            found = pa.nulls(len(values), child.type)
        else:
            found = _converted(values.field(position), child.type, exact, origin.inner)
        if exact:
            _check_nulls(child, pc.and_(values.is_valid(), found.is_null()))
        children.append(found)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _list(values: pa.Array, kind: pa.DataType, exact: bool, origins: Origins | None) -> pa.Array:
    if not pa.types.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    first, end = values.offsets[0].as_py(), values.offsets[-1].as_py()  # a slice keeps all values
    items = _converted(values.values.slice(first, end - first), kind.value_type, exact, origins)
    if exact:
        _check_nulls(kind.value_field, items.is_null())
    nulls = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(pc.subtract(values.offsets, first), items, type=kind, mask=nulls)


def _map(values: pa.Array, kind: pa.DataType, exact: bool, origins: Origins | None) -> pa.Array:
    first, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
    keys, items = (each.slice(first, end - first) for each in (values.keys, values.items))
    keys = _converted(keys, kind.key_type, exact, None)
    items = _converted(items, kind.item_type, exact, origins)
    if exact:
        _check_nulls(kind.item_field, items.is_null())
    nulls = values.is_null() if values.null_count else None
    return pa.MapArray.from_arrays(pc.subtract(values.offsets, first), keys, items, type=kind, mask=nulls)


def _check_nulls(field: pa.Field, is_null: pa.BooleanArray) -> None:
    if not field.nullable and is_null.true_count:
        raise pa.ArrowInvalid(f"{field.name} must not be null, and is {is_null.true_count} times")


# --- plain ------------------------------------------------------------------------------------


def _plain(values: pa.Array, kind: pa.DataType, exact: bool) -> pa.Array:
    source = values.type
    if pa.types.is_float16(source):
        return _plain(values.cast(pa.float32()), kind, exact)
    if is_text(kind) and not is_text(source):
        return _as_text(values, exact).cast(kind)
    if pa.types.is_floating(kind) and pa.types.is_floating(source):
        # A cast to double would add digits that nobody wrote: 1.1 would become 1.10000002384...
        return values.cast(pa.string()).cast(kind) if source.bit_width < kind.bit_width else values.cast(kind)
    if pa.types.is_floating(kind) and pa.types.is_integer(source):
        return values.cast(kind, safe=exact)
    if pa.types.is_decimal(kind) and not pa.types.is_decimal(source):
        return _as_decimal(values, kind, exact)
    if pa.types.is_date32(kind) and is_text(source) and not exact:
        return pa.array([_date(text) for text in values.to_pylist()], kind)
    return values.cast(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type are bytes."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _as_text(values: pa.Array, exact: bool) -> pa.Array:
    source = values.type
    if pa.types.is_floating(source):
        return pa.array([_java_text(text) for text in values.cast(pa.string()).to_pylist()], pa.string())
    if pa.types.is_integer(source) or pa.types.is_decimal(source) or pa.types.is_date(source):
        return values.cast(pa.string())  # a decimal has the text of Java's BigDecimal.toString
    if exact or not is_bytes(source):
        return values.cast(pa.string())
    return pa.array([each and each.decode(errors="replace") for each in values.to_pylist()], pa.string())


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _java_text(text: str | None) -> str | None:
    """A floating point number as ``Double.toString`` writes it, from its shortest text."""
    if text is None or text in _NOT_FINITE:
        return _NOT_FINITE.get(text) if text else None
    number = Decimal(text)
    sign, digits, _ = number.as_tuple()
    if not number:
        return "-0.0" if sign else "0.0"
    if number.copy_abs() >= _LARGE or number.copy_abs() < _SMALL:
        shown = "".join(map(str, digits)).rstrip("0")
        return f"{'-' * sign}{shown[0]}.{shown[1:] or '0'}E{number.adjusted()}"
    plain = format(number, "f")
    return plain if "." in plain else f"{plain}.0"


_LARGE, _SMALL = Decimal("1e7"), Decimal("1e-3")


def _as_decimal(values: pa.Array, kind: pa.DataType, exact: bool) -> pa.Array:
    texts = values.cast(pa.string())
    if exact:
        return texts.cast(kind)
    return pa.array([_decimal(text, kind) for text in texts.to_pylist()], kind)


def _decimal(text: str | None, kind: pa.DataType) -> Decimal | None:
    """A text as a decimal; None when it is no number or has too many digits (Spark's ``Cast``)."""
    try:
        number = Decimal("nan" if text is None else text.strip())
        step, digits = Decimal(1).scaleb(-kind.scale), Context(kind.precision, ROUND_HALF_UP)
        return number.quantize(step, ROUND_HALF_UP, digits) if number.is_finite() else None
    except InvalidOperation:
        return None


def _date(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text.strip())
    except ValueError:
        return None

"""Column types: Arrow in memory, Avro in Hudi's metadata, and what may be written into what.

The Avro side has the shape that Spark and Hudi give it: record ``hoodie.<table>.<table>_record``,
nested types named after the path of their column, nullable as ``["null", type]``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import CorruptTableError, IncompatibleSchemaError, UnsupportedTableError

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""The columns that Hudi puts before a table's own."""

_UTC = "UTC"
_META_FIELDS = [pa.field(name, pa.string()) for name in META_COLUMNS]


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The schema of a base file of a table with these data columns."""
    return pa.schema(_META_FIELDS + list(without_meta_columns(schema)))


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The data columns of a base file's schema."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


@lru_cache  # asked for several times a commit
def arrow_to_avro(schema: pa.Schema, record_name: str) -> str:
    """Describe columns as an Avro record.

    Types without an Avro counterpart take the next wider one: 8 and 16 bit integers become
    ``int``, 32 bit unsigned ones ``long``, half floats ``float``, nanoseconds microseconds.

    :param schema: the columns; timestamps with a zone are moments, stored in UTC,
        timestamps without one are local.
    :param record_name: the table's name.
    :return: JSON.
    :raises IncompatibleSchemaError: when a name or a type cannot be stored.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "__", record_name)
    name = f"_{name}" if name[:1].isdigit() else name
    record = _avro_record(list(schema), f"{name}_record", f"hoodie.{name}", ())
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def avro_to_arrow(text: str) -> pa.Schema:
    """Read a record's columns from its Avro schema.

    :param text: JSON of an Avro record.
    :raises CorruptTableError: when it is not an Avro record.
    :raises UnsupportedTableError: when a column has a type that Arrow cannot hold.
    """
    try:
        parsed = json.loads(text)
        return pa.schema(_arrow_fields(parsed, "", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError(f"not an Avro record schema ({error!r}): {text[:200]!r}") from error


def writable_schema(incoming: pa.Schema, table: pa.Schema) -> None:
    """Hold data's columns against a table's, before any of it is written.

    A column may be missing where the table allows null, and may be narrower than the
    table's. Hudi's own columns are ignored.

    :param incoming: the data's columns.
    :param table: the table's columns, without Hudi's own.
    :raises IncompatibleSchemaError: naming the first column that does not fit, both types
        and what to do.
    """
    for field in without_meta_columns(incoming):
        matches = table.get_all_field_indices(field.name)
        if not matches:
            raise _unknown_column(field, table)
        if len(incoming.get_all_field_indices(field.name)) > 1:
            raise IncompatibleSchemaError(
                f"column {field.name!r} comes more than once in the data; select it once", column=field.name
            )
        target = table.field(matches[0])
        if not _fits(field.type, target.type):
            raise IncompatibleSchemaError(
                f"column {field.name!r} is {field.type} in the data and {target.type} in the table, and the "
                f"one does not fit into the other without loss; cast it to {target.type} in the source",
                column=field.name,
                found=str(field.type),
                expected=str(target.type),
            )
    for target in table:
        if not target.nullable and not incoming.get_all_field_indices(target.name):
            raise IncompatibleSchemaError(
                f"column {target.name!r} ({target.type}, not null) of the table is not in the data; add it",
                column=target.name,
                expected=str(target.type),
            )


def conform(table: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Bring data into a table's columns: order, types, missing columns as null.

    :param table: data that passed :func:`writable_schema`; columns that the table does
        not have are dropped.
    :param schema: the table's columns.
    :raises IncompatibleSchemaError: when a value does not fit: a null in a column that
        must not hold one, or a number that would lose digits.
    """
    columns = [_conform_column(table, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _conform_column(table: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    position = table.schema.get_field_index(field.name)
    if position < 0:
        return pa.nulls(table.num_rows, field.type)
    column = table.column(position)
    if not field.nullable and column.null_count:
        raise IncompatibleSchemaError(
            f"column {field.name!r} must not be null in the table, the data has {column.null_count} nulls "
            "in it; filter or fill them in the source",
            column=field.name,
            nulls=column.null_count,
        )
    if column.type.equals(field.type, check_metadata=True):
        return column
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    try:
        # Arrow casts into nested types by field name, but not from nullable into not null.
        cast = chunked.cast(_relaxed(field.type))
        return pa.chunked_array([_named_as(chunk, field.type) for chunk in cast.chunks], type=field.type)
    except pa.ArrowException as error:
        raise IncompatibleSchemaError(
            f"column {field.name!r} of type {column.type} has a value that does not fit into {field.type} "
            f"({error}); cast it in the source",
            column=field.name,
            found=str(column.type),
            expected=str(field.type),
        ) from error


def _relaxed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _relaxed(child.type)) for child in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _relaxed(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _relaxed(kind.item_type))
    return kind


def _named_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values under a type that differs in names, and in what must not be null.

    What has no parent may be null all the same: that is why it is no :meth:`pyarrow.Array.view`.
    """
    if array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_struct(kind):
        children = [_named_as(array.field(number), child.type) for number, child in enumerate(kind)]
        for child, values in zip(kind, children, strict=True):
            _check_nulls(child, pc.and_(array.is_valid(), values.is_null()))
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()  # of a slice it has all values
    offsets, nulls = pc.subtract(array.offsets, first), array.is_null() if array.null_count else None
    if pa.types.is_map(kind):
        keys, items = (each.slice(first, end - first) for each in (array.keys, array.items))
        items = _named_as(items, kind.item_type)
        _check_nulls(kind.item_field, items.is_null())
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)
    items = _named_as(array.values.slice(first, end - first), kind.value_type)
    _check_nulls(kind.value_field, items.is_null())
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=nulls)


def _check_nulls(field: pa.Field, is_null: pa.BooleanArray) -> None:
    if not field.nullable and is_null.true_count:
        raise pa.ArrowInvalid(f"{field.name} must not be null, and is {is_null.true_count} times")


def _unknown_column(field: pa.Field, table: pa.Schema) -> IncompatibleSchemaError:
    close = difflib.get_close_matches(field.name, table.names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return IncompatibleSchemaError(
        f"column {field.name!r} ({field.type}) of the data is not in the table, which has "
        f"{', '.join(table.names)}{hint}; drop or rename it in the source",
        column=field.name,
        found=str(field.type),
    )


# --- what fits into what ------------------------------------------------------------


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_dictionary(source):
        return _fits(source.value_type, target)
    if source.equals(target) or pa.types.is_null(source):
        return True
    return any(rule(source, target) for rule in (_number_fits, _text_fits, _time_fits, _nested_fits))


_FLOAT_DIGITS = {16: 11, 32: 24, 64: 53}  # bits of the significand


def _number_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_decimal(target):
        before_point = target.precision - target.scale
        if pa.types.is_decimal(source):
            return bool(target.scale >= source.scale and before_point >= source.precision - source.scale)
        return bool(pa.types.is_integer(source) and before_point >= len(str(2 ** _value_bits(source))))
    if pa.types.is_floating(target):
        if pa.types.is_floating(source):
            return bool(source.bit_width <= target.bit_width)
        return bool(pa.types.is_integer(source) and _value_bits(source) <= _FLOAT_DIGITS[target.bit_width])
    if pa.types.is_integer(target) and pa.types.is_integer(source):
        signs_agree = pa.types.is_signed_integer(target) or pa.types.is_unsigned_integer(source)
        return bool(signs_agree and _value_bits(source) <= _value_bits(target))
    return False


def _value_bits(kind: pa.DataType) -> int:
    return int(kind.bit_width) - (1 if pa.types.is_signed_integer(kind) else 0)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _text_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(target):
        return False  # only from the same width, which is equality
    return (_is_text(source) and _is_text(target)) or (_is_bytes(source) and _is_bytes(target))


_RESOLUTION = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def _time_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_date(target):
        return bool(pa.types.is_date(source))
    if not (pa.types.is_timestamp(source) and pa.types.is_timestamp(target)):
        return False
    if (source.tz is None) != (target.tz is None):
        return False
    # pandas only has nanoseconds, no table has; digits that do not fit are found by the cast.
    return source.unit == "ns" or _RESOLUTION[source.unit] <= _RESOLUTION[target.unit]


def _nested_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_list(target):
        return _is_list(source) and _fits(source.value_type, target.value_type)
    if pa.types.is_map(target) and pa.types.is_map(source):
        return _fits(source.key_type, target.key_type) and _fits(source.item_type, target.item_type)
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        targets = {child.name: child for child in target}
        sources = {child.name: child for child in source}
        known = all(
            name in targets and _fits(child.type, targets[name].type) for name, child in sources.items()
        )
        return known and all(child.nullable for name, child in targets.items() if name not in sources)
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


# --- Arrow to Avro ------------------------------------------------------------------

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_PRECISION = 38  # Spark's and Hudi's


def _avro_record(fields: list[pa.Field], name: str, namespace: str, path: tuple[str, ...]) -> dict[str, Any]:
    inner = f"{namespace}.{name}"
    seen: set[str] = set()
    columns = []
    for field in fields:
        here = (*path, field.name)
        if not _AVRO_NAME.fullmatch(field.name):
            raise IncompatibleSchemaError(
                f"column {'.'.join(here)!r} cannot be stored: names are letters, digits and underscores, not "
                "starting with a digit; rename it in the source",
                column=".".join(here),
            )
        if field.name.lower() in seen:  # Spark and Hive do not see case
            raise IncompatibleSchemaError(
                f"column {'.'.join(here)!r} comes more than once, or differs from another only in upper and "
                "lower case; rename it in the source",
                column=".".join(here),
            )
        seen.add(field.name.lower())
        column: dict[str, Any] = {"name": field.name, "type": _avro_union(field, inner, here)}
        if not path and field.name in META_COLUMNS:
            column["doc"] = ""
        if field.nullable:
            column["default"] = None
        columns.append(column)
    return {"type": "record", "name": name, "namespace": namespace, "fields": columns}


def _avro_union(field: pa.Field, namespace: str, path: tuple[str, ...]) -> Any:
    avro = _avro_type(field.type, namespace, path)
    return ["null", avro] if field.nullable else avro


def _avro_type(kind: pa.DataType, namespace: str, path: tuple[str, ...]) -> Any:
    if pa.types.is_dictionary(kind):
        return _avro_type(kind.value_type, namespace, path)
    for accepts, avro in _PLAIN:
        if accepts(kind):
            return avro
    if pa.types.is_timestamp(kind):
        unit = "millis" if kind.unit in ("s", "ms") else "micros"
        return {"type": "long", "logicalType": f"{'local-' if kind.tz is None else ''}timestamp-{unit}"}
    if pa.types.is_decimal(kind) and kind.precision <= _MAX_PRECISION and 0 <= kind.scale <= kind.precision:
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{path[-1]}",
            "size": _decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pa.types.is_struct(kind) and kind.num_fields:
        return _avro_record([kind.field(i) for i in range(kind.num_fields)], path[-1], namespace, path)
    if _is_list(kind):
        return {"type": "array", "items": _avro_union(kind.value_field, namespace, path)}
    if pa.types.is_map(kind) and _is_text(kind.key_type):
        return {"type": "map", "values": _avro_union(kind.item_field, namespace, path)}
    raise IncompatibleSchemaError(
        f"column {'.'.join(path)!r} has type {kind}, which a Hudi table cannot store; cast it in the source "
        "(integers to int64, times of day to strings, decimals to at most 38 digits, map keys to strings)",
        column=".".join(path),
        found=str(kind),
    )


def _is_long(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_uint32(kind))


def _is_int(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and not _is_long(kind) and not pa.types.is_uint64(kind))


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float16(kind) or pa.types.is_float32(kind))


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_boolean, "boolean"),
    (_is_int, "int"),
    (_is_long, "long"),
    (_is_float, "float"),
    (pa.types.is_float64, "double"),
    (_is_text, "string"),
    (_is_bytes, "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
)


def _decimal_bytes(precision: int) -> int:
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8  # one more bit for the sign


# --- Avro to Arrow ------------------------------------------------------------------

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
}

# Logical types that change how a value is stored; the others say only what it means.
_LOGICAL: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", tz=_UTC),
    "timestamp-micros": pa.timestamp("us", tz=_UTC),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def _arrow_fields(record: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType]) -> list[pa.Field]:
    if record["type"] != "record":
        raise ValueError(f"a {record['type']}, not a record")
    inner = _full_name(record, namespace).rpartition(".")[0]
    return [_arrow_field(column["name"], column["type"], inner, named) for column in record["fields"]]


def _full_name(avro: Mapping[str, Any], namespace: str) -> str:
    if "." in avro["name"]:
        return str(avro["name"])
    return f"{avro.get('namespace', namespace)}.{avro['name']}".lstrip(".")


def _arrow_field(name: str, avro: Any, namespace: str, named: dict[str, pa.DataType]) -> pa.Field:
    branches = avro if isinstance(avro, list) else [avro]
    types = [branch for branch in branches if branch != "null"]
    if len(types) != 1:
        raise UnsupportedTableError(
            f"column {name!r} is an Avro union {avro}; only type or null is supported"
        )
    return pa.field(name, _arrow_type(name, types[0], namespace, named), nullable="null" in branches)


def _arrow_type(name: str, avro: Any, namespace: str, named: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(avro, str):
        if avro in _PRIMITIVES:
            return _PRIMITIVES[avro]
        return named[avro if "." in avro else f"{namespace}.{avro}".lstrip(".")]
    kind, logical = avro["type"], avro.get("logicalType")
    if isinstance(kind, (dict, list)):
        return _arrow_type(name, kind, namespace, named)
    if kind == "array":
        return pa.list_(_arrow_field("element", avro["items"], namespace, named))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_field("value", avro["values"], namespace, named))
    if logical == "decimal":
        found = pa.decimal128(avro["precision"], avro.get("scale", 0))
    elif logical in _LOGICAL:
        found = _LOGICAL[logical]
    elif kind == "record":
        found = pa.struct(_arrow_fields(avro, namespace, named))
    elif kind == "fixed":
        found = pa.binary(avro["size"])
    else:
        found = _PRIMITIVES[kind]
    if kind in ("record", "fixed", "enum"):
        named[_full_name(avro, namespace)] = found
    return found

"""Column types: Arrow in memory, Avro in Hudi's metadata, and rows in a table's columns.

The Avro records have the shape that Spark and Hudi give them: the record is
``hoodie.<table>.<table>_record``, a nested type is named after the path of its column, and a nullable type is
``["null", type]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from airflow_provider.exceptions import CorruptTableError, IncompatibleSchemaError, UnsupportedTableError
from airflow_provider.table.schema.conversion import converted, is_bytes, is_list, is_text

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
    """The schema of a base file, for a table with these data columns."""
    return pa.schema(_META_FIELDS + list(without_meta_columns(schema)))


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The data columns of a base file's schema."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


@lru_cache  # each commit calls it several times
def arrow_to_avro(schema: pa.Schema, record_name: str) -> str:
    """Describe columns as an Avro record.

    A type that Avro lacks becomes the next wider one: integers of 8 and 16 bits become ``int``, unsigned ones
    of 32 bits ``long``, and half floats ``float``. Nanoseconds become microseconds.

    :param schema: the columns. A timestamp with a zone is a moment and is stored in UTC; a timestamp without
        a zone is local.
    :param record_name: the table's name.
    :return: the record's JSON.
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


def conform(table: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Give data the table's columns, in their order and with their types.

    A column that the data lack is null. A column that the table lacks is dropped.

    :param table: data that :func:`~airflow_provider.table.schema.evolved` has accepted.
    :param schema: the table's columns.
    :raises IncompatibleSchemaError: when a value does not fit: a null in a column that takes no nulls, or a
        number that would lose digits.
    """
    if isinstance(table, pa.Table) and _has_columns_of(table.schema, schema):
        return table
    columns = [_conform_column(table, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _has_columns_of(found: pa.Schema, schema: pa.Schema) -> bool:
    """Whether data need no change, and no look at their nulls."""
    return found.equals(schema, check_metadata=True) and all(field.nullable for field in schema)


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
    try:
        return converted(column, field.type, exact=True)
    except pa.ArrowException as error:
        raise IncompatibleSchemaError(
            f"column {field.name!r} of type {column.type} has a value that does not fit into {field.type} "
            f"({error}); cast it in the source",
            column=field.name,
            found=str(column.type),
            expected=str(field.type),
        ) from error


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
        if field.name.lower() in seen:  # Spark and Hive ignore case
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
    if is_list(kind):
        return {"type": "array", "items": _avro_union(kind.value_field, namespace, path)}
    if pa.types.is_map(kind) and is_text(kind.key_type):
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
    (is_text, "string"),
    (is_bytes, "bytes"),
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

# The logical types that change how a value is stored; any other only says what it means.
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

"""Column types by the names that Spark and Hive use, as Arrow types and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from airflow_provider.exceptions import CorruptTableError, InvalidInputError, UnsupportedTableError
from airflow_provider.table.schema.arrow_avro import avro_to_arrow

SIMPLE_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
KNOWN_TYPES = ", ".join(
    (*SIMPLE_TYPES, "decimal(p,s)", "array<..>", "map<string,..>", "struct<name:type,..>")
)


def to_schema(given: Mapping[str, str] | str | pa.Schema) -> pa.Schema:
    """Read a table's columns from any form that a DAG author may give.

    :param given: ``{column: type}``; or ``"column type, column type"``; or a record schema in
        Avro's JSON; or an Arrow schema. A type is a Spark or Hive type name. ``not null`` behind
        the name says that the column takes no nulls.
    :raises InvalidInputError: when a type is not known, when there is no column, or when two
        columns have one name. Hive ignores case, so names that differ only in case are one name.
    """
    # Imported here: opening a table does not need the grammar.
    from airflow_provider.table.schema.type_grammar import parse_column, parse_columns

    if isinstance(given, pa.Schema):
        schema = given
    elif isinstance(given, Mapping):
        schema = pa.schema([parse_column(name, text) for name, text in given.items()])
    elif not isinstance(given, str):
        raise InvalidInputError(f"schema must be {{column: type}}, text or an Arrow schema, not {given!r}")
    elif given.lstrip().startswith("{"):
        schema = _from_avro(given)
    else:
        schema = pa.schema(parse_columns(given))
    if not schema.names:
        raise InvalidInputError("schema has no column; give {column: type}, for example {'id': 'bigint'}")
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise InvalidInputError(f"schema has column {name!r} twice (upper and lower case are the same)")
        seen.add(name.lower())
    return schema


def type_name(data_type: pa.DataType) -> str:
    """The name of an Arrow type in Spark and Hive, which a metastore keeps.

    :raises InvalidInputError: when Spark and Hive have no such type.
    """
    for name, simple in SIMPLE_TYPES.items():
        if data_type == simple:
            return name
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_large_string(data_type):
        return "string"
    if pa.types.is_large_binary(data_type) or pa.types.is_fixed_size_binary(data_type):
        return "binary"
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)},{type_name(data_type.item_type)}>"
    if pa.types.is_struct(data_type):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in data_type)}>"
    raise InvalidInputError(f"Arrow type {data_type} has no Spark or Hive name; known: {KNOWN_TYPES}")


def _from_avro(text: str) -> pa.Schema:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"schema is neither a list of columns nor JSON: {error}") from error
    if record.get("type") != "record":
        raise InvalidInputError(f"Avro schema must be a record, not {record.get('type')!r}")
    try:
        return avro_to_arrow(text)
    except (CorruptTableError, UnsupportedTableError) as error:
        raise InvalidInputError(f"Avro schema cannot be used: {error}") from error

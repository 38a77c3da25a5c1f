"""Column types by the names that Spark and Hive use, as Arrow types and back.

Written by hand because the parsers that exist (Spark's, Hive's) need a JVM, and creating
a table must not start one. The grammar is Spark's DDL for data types::

    type   = name [ "(" number { "," number } ")" ] | "array<" type ">"
           | "map<" type "," type ">" | "struct<" field { "," field } ">"
    field  = identifier [ ":" ] type [ "not null" ]
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pyarrow as pa

from airflow_provider.exceptions import CorruptTableError, InvalidInputError, UnsupportedTableError
from airflow_provider.table.schema.arrow_avro import avro_to_arrow

_SIMPLE: dict[str, pa.DataType] = {
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
_KNOWN = (*_SIMPLE, "decimal(p,s)", "array<..>", "map<string,..>", "struct<name:type,..>")
_MAX_PRECISION = 38
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")


def to_schema(given: Mapping[str, str] | str | pa.Schema) -> pa.Schema:
    """A table's columns, in any of the forms in which a DAG author may have them.

    :param given: ``{column: type}``; or ``"column type, column type"``; or a record schema in
        Avro's JSON; or an Arrow schema. A type is a Spark or Hive type name, with ``not null``
        behind it for a column that takes no nulls.
    :raises InvalidInputError: when a type is not known, when there is no column, or when a
        column is there twice (in any spelling: Hive does not know upper case).
    """
    if isinstance(given, pa.Schema):
        schema = given
    elif isinstance(given, Mapping):
        schema = pa.schema([_Parser(text, f"column {name!r}").column(name) for name, text in given.items()])
    elif given.lstrip().startswith("{"):
        schema = _from_avro(given)
    else:
        schema = pa.schema(_Parser(given, "schema").columns())
    if not schema.names:
        raise InvalidInputError("schema has no column; give {column: type}, for example {'id': 'bigint'}")
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise InvalidInputError(f"schema has column {name!r} twice (upper and lower case are the same)")
        seen.add(name.lower())
    return schema


def type_name(data_type: pa.DataType) -> str:
    """The name that Spark and Hive have for an Arrow type, as a metastore keeps it.

    :raises InvalidInputError: when they have none.
    """
    for name, simple in _SIMPLE.items():
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
    raise InvalidInputError(f"Arrow type {data_type} has no Spark or Hive name; known: {', '.join(_KNOWN)}")


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


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        if not isinstance(text, str):
            raise InvalidInputError(f"{where}: type must be text such as 'bigint', not {text!r}")
        self._text = text
        self._where = where
        self._tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(f"unexpected {text[position:].strip()[0]!r}")
            self._tokens.append(match[1])
            position = match.end()

    def column(self, name: str) -> pa.Field:
        """One column's type, and nothing behind it."""
        field = self._field(name)
        if self._tokens:
            raise self._error(f"unexpected {self._tokens[0]!r}")
        return field

    def columns(self) -> list[pa.Field]:
        """``name type, name type, ..`` to the end."""
        fields: list[pa.Field] = []
        while self._tokens:
            fields.append(self._field(self._identifier()))
            if self._tokens:
                self._expect(",")
                if not self._tokens:
                    raise self._error("a column is missing at the end")
        return fields

    def _field(self, name: str) -> pa.Field:
        data_type = self._type()
        nullable = True
        if self._peek() == "not":
            self._tokens.pop(0)
            self._expect("null")
            nullable = False
        return pa.field(name, data_type, nullable)

    def _type(self) -> pa.DataType:
        name = self._next().lower()
        if name in ("decimal", "numeric"):
            return self._decimal()
        if name == "array":
            [element] = self._parameters(1)
            return pa.list_(element)
        if name == "map":
            key, item = self._parameters(2)
            if key != pa.string():
                raise self._error("keys of a map must be of type string (Avro knows no other)")
            return pa.map_(key, item)
        if name == "struct":
            return self._struct()
        if name not in _SIMPLE:
            raise self._error(f"type {name!r} is not known; known: {', '.join(_KNOWN)}")
        return _SIMPLE[name]

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0  # what Spark and Hive take when nothing is said
        if self._peek() == "(":
            self._next()
            precision = self._integer()
            if self._peek() == ",":
                self._next()
                scale = self._integer()
            self._expect(")")
        if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
            raise self._error(
                f"decimal({precision},{scale}): precision must be 1 to {_MAX_PRECISION}, scale 0 to precision"
            )
        return pa.decimal128(precision, scale)

    def _parameters(self, count: int) -> list[pa.DataType]:
        self._expect("<")
        types = [self._type()]
        while len(types) < count:
            self._expect(",")
            types.append(self._type())
        self._expect(">")
        return types

    def _struct(self) -> pa.DataType:
        self._expect("<")
        fields: list[pa.Field] = []
        while True:
            name = self._identifier()
            if self._peek() == ":":
                self._next()
            fields.append(self._field(name))
            if self._peek() != ",":
                break
            self._next()
        self._expect(">")
        return pa.struct(fields)

    def _identifier(self) -> str:
        token = self._next()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self._error(f"expected a name, found {token!r}")
        return token

    def _integer(self) -> int:
        token = self._next()
        if not token.isdecimal():
            raise self._error(f"expected a number, found {token!r}")
        return int(token)

    def _peek(self) -> str | None:
        return self._tokens[0].lower() if self._tokens else None

    def _next(self) -> str:
        if not self._tokens:
            raise self._error("it ends too early")
        return self._tokens.pop(0)

    def _expect(self, token: str) -> None:
        found = self._next()
        if found.lower() != token:
            raise self._error(f"expected {token!r}, found {found!r}")

    def _error(self, message: str) -> InvalidInputError:
        return InvalidInputError(f"{self._where}: {self._text!r}: {message}")

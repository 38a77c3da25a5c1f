"""The grammar of Spark's DDL for columns and their types.

Spark's and Hive's own parsers need a JVM. Creating a table must not start one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.schema.column_types import KNOWN_TYPES, SIMPLE_TYPES

_MAX_PRECISION = 38
_GRAMMAR = r"""
column: type nulls
columns: (field ("," field)*)?
field: name type nulls
_member: name ":"? type nulls
member: _member -> field
?type: _ARRAY "<" type ">"                        -> array
     | _MAP "<" type "," type ">"                 -> map
     | _STRUCT "<" member ("," member)* ">"       -> struct
     | _DECIMAL ("(" NUMBER ("," NUMBER)? ")")?   -> decimal
     | NAME ("(" NUMBER ("," NUMBER)* ")")?       -> simple
name: NAME | QUOTED
nulls: (NOT _NULL)?

_ARRAY.2: /array\b/i
_MAP.2: /map\b/i
_STRUCT.2: /struct\b/i
_DECIMAL.2: /(decimal|numeric)\b/i
NOT.2: /not\b/i
_NULL.2: /null\b/i
NUMBER.3: /\d+\b/
NAME: /\w+/
QUOTED: /`(?:[^`]|``)+`/
%ignore /\s+/
"""
_WORDS = {
    "NAME": "a name",
    "QUOTED": "a name",
    "NUMBER": "a number",
    "LESSTHAN": "'<'",
    "MORETHAN": "'>'",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "_NULL": "'null'",
}


def parse_column(name: str, text: str) -> pa.Field:
    """Read one column from the text of its type.

    :param name: the column's name.
    :param text: the column's type, such as ``array<int>``; ``not null`` behind it forbids nulls.
    :raises InvalidInputError: when the text is not a type.
    """
    where = f"column {name!r}"
    if not isinstance(text, str):
        raise InvalidInputError(f"{where}: type must be text such as 'bigint', not {text!r}")
    kind, nullable = _parsed("column", text, where)
    return pa.field(name, kind, nullable)


def parse_columns(text: str) -> list[pa.Field]:
    """Read a list of columns.

    :param text: ``name type, name type, ..``.
    :raises InvalidInputError: when the text is not a list of columns.
    """
    if text.rstrip().endswith(","):
        raise InvalidInputError(f"schema: {text!r}: a column is missing at the end")
    found: list[pa.Field] = _parsed("columns", text, "schema")
    return found


@cache
def _parser(start: str) -> Lark:
    return Lark(_GRAMMAR, start=start, parser="lalr")


def _parsed(start: str, text: str, where: str) -> Any:
    try:
        return _Columns().transform(_parser(start).parse(text))
    except UnexpectedCharacters as error:
        message = f"unexpected {error.char!r}"
    except UnexpectedToken as error:
        message = _unexpected(error.token, error.accepts or error.expected)
    except VisitError as error:
        if not isinstance(error.orig_exc, InvalidInputError):
            raise
        message = str(error.orig_exc)
    raise InvalidInputError(f"{where}: {text!r}: {message}")


def _unexpected(found: Token, expected: set[str]) -> str:
    if found.type == "$END":
        return "it ends too early"
    if "COMMA" in expected:
        return f"expected ',', found {str(found)!r}"
    if "$END" in expected:
        return f"unexpected {str(found)!r}"
    wanted = sorted({_WORDS[each] for each in expected if each in _WORDS})
    return f"expected {' or '.join(wanted)}, found {str(found)!r}"


@v_args(inline=True)
class _Columns(Transformer[Token, Any]):
    """Turns a parse tree into Arrow's types."""

    def column(self, kind: pa.DataType, nullable: bool) -> tuple[pa.DataType, bool]:
        return kind, nullable

    def columns(self, *fields: pa.Field) -> list[pa.Field]:
        return list(fields)

    def field(self, name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
        return pa.field(name, kind, nullable)

    def nulls(self, *is_not_null: Token) -> bool:
        return not is_not_null

    def name(self, token: Token) -> str:
        return token[1:-1].replace("``", "`") if token.startswith("`") else str(token)

    def simple(self, token: Token, *numbers: Token) -> pa.DataType:
        name = token.lower()
        if name not in SIMPLE_TYPES:
            raise InvalidInputError(f"type {name!r} is not known; known: {KNOWN_TYPES}")
        if numbers:
            raise InvalidInputError(f"type {name!r} takes no ({', '.join(numbers)})")
        return SIMPLE_TYPES[name]

    def array(self, element: pa.DataType) -> pa.DataType:
        return pa.list_(element)

    def map(self, key: pa.DataType, item: pa.DataType) -> pa.DataType:
        if key != pa.string():
            raise InvalidInputError("keys of a map must be of type string (Avro knows no other)")
        return pa.map_(key, item)

    def struct(self, *members: pa.Field) -> pa.DataType:
        return pa.struct(members)

    def decimal(self, *numbers: Token) -> pa.DataType:
        # The defaults of Spark and Hive.
        precision, scale = (*map(int, numbers), *(10, 0)[len(numbers) :])
        if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
            raise InvalidInputError(
                f"decimal({precision},{scale}): precision must be 1 to {_MAX_PRECISION}, scale 0 to precision"
            )
        return pa.decimal128(precision, scale)

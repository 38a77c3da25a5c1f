"""Which partitions of a table a filter keeps: Hive's partition filter language.

The text that ``get_partitions_by_filter`` takes (Hive's ``Filter.g``): comparisons of a partition
key with a constant (``=``, ``!=`` or ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``like``), ``between .. and``,
``in (..)``, each of the last two also with ``not``, joined by ``and``, ``or`` and parentheses.
Constants are integers, texts in single or double quotes, and ``date 'yyyy-mm-dd'``.

The binary expressions of ``get_partitions_by_expr`` are serialised Java objects that only Hive
itself can read, or this text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError, VisitError

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import Column, PartitionInfo

Row = Mapping[str, str | None]
Keep = Callable[[Row], bool]

_GRAMMAR = r"""
?start: or_
?or_: and_ ("or"i and_)*
?and_: part ("and"i part)*
?part: "(" or_ ")"
     | predicate
predicate: KEY OPERATOR constant -> compare
         | constant OPERATOR KEY -> compare_mirrored
         | KEY "like"i TEXT -> like
         | KEY "between"i constant "and"i constant -> between
         | KEY "not"i "between"i constant "and"i constant -> not_between
         | KEY "in"i "(" constant ("," constant)* ")" -> in_
         | KEY "not"i "in"i "(" constant ("," constant)* ")" -> not_in
constant: INTEGER -> integer
        | ("date"i)? TEXT -> text
OPERATOR: "<=" | ">=" | "<>" | "!=" | "=" | "<" | ">"
INTEGER: /-?[0-9]+/
TEXT: /'[^']*'/ | /"[^"]*"/
KEY: /(?!(?:and|or|not|like|between|in|date)\b)[A-Za-z_][A-Za-z0-9_]*|`[^`]+`/i
%ignore /\s+/
"""

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "integer", "bigint"})


def partition_filter(text: str, partition_keys: Sequence[Column]) -> Callable[[PartitionInfo], bool]:
    """Compile a filter.

    A null value satisfies no comparison, as in SQL. Keys of an integer type are compared as numbers,
    all others as texts.

    :param text: the filter; an empty one keeps every partition.
    :param partition_keys: the table's partition keys.
    :raises InvalidInputError: when the text is no filter, names a column that is no partition key, or
        compares an integer key with something that is no integer.
    """
    types = {key.name.lower(): key.type.lower() for key in partition_keys}
    names = [key.name.lower() for key in partition_keys]
    if not text.strip():
        return lambda partition: True
    try:
        keep: Keep = _Compiler(types).transform(_parser().parse(text))
    except VisitError as error:
        if isinstance(error.orig_exc, InvalidInputError):
            raise error.orig_exc from None
        raise
    except LarkError as error:
        raise InvalidInputError(
            f"{text!r} is no partition filter: {str(error).splitlines()[0]}; write such as "
            "year = 2013 and month in ('1', '2')",
            filter=text,
        ) from error
    return lambda partition: keep(dict(zip(names, partition.values, strict=True)))


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr")


@v_args(inline=True)
class _Compiler(Transformer[Token, Keep]):
    """Turns a parsed filter into a function of a partition's values."""

    def __init__(self, types: Mapping[str, str]) -> None:
        super().__init__()
        self._types = types

    def integer(self, token: Token) -> int:
        return int(token)

    def text(self, token: Token) -> str:
        return str(token)[1:-1]

    def or_(self, *parts: Keep) -> Keep:
        return lambda row: any(part(row) for part in parts)

    def and_(self, *parts: Keep) -> Keep:
        return lambda row: all(part(row) for part in parts)

    def compare(self, key: Token, symbol: Token, constant: int | str) -> Keep:
        return self._test(key, _OPERATORS[symbol], constant)

    def compare_mirrored(self, constant: int | str, symbol: Token, key: Token) -> Keep:
        return self._test(key, _OPERATORS[_MIRRORED.get(symbol, str(symbol))], constant)

    def like(self, key: Token, pattern: Token) -> Keep:
        parts = (re.escape(part) for part in re.split("([%_])", str(pattern)[1:-1]))
        matcher = re.compile("".join({"%": ".*", "_": "."}.get(part, part) for part in parts), re.DOTALL)
        name = self._name(key)
        return lambda row: (value := row[name]) is not None and matcher.fullmatch(value) is not None

    def between(self, key: Token, low: int | str, high: int | str) -> Keep:
        return self.and_(self._test(key, operator.ge, low), self._test(key, operator.le, high))

    def not_between(self, key: Token, low: int | str, high: int | str) -> Keep:
        return self.or_(self._test(key, operator.lt, low), self._test(key, operator.gt, high))

    def in_(self, key: Token, *constants: int | str) -> Keep:
        return self.or_(*(self._test(key, operator.eq, one) for one in constants))

    def not_in(self, key: Token, *constants: int | str) -> Keep:
        return self.and_(*(self._test(key, operator.ne, one) for one in constants))

    def _name(self, key: Token) -> str:
        name = str(key).strip("`").lower()
        if name not in self._types:
            raise InvalidInputError(
                f"partition filter: {name!r} is no partition key; the table's are {list(self._types)}",
                key=name,
            )
        return name

    def _test(self, key: Token, relation: Callable[[Any, Any], bool], constant: int | str) -> Keep:
        name = self._name(key)
        if self._types[name] not in _INTEGER_TYPES:
            return lambda row: (value := row[name]) is not None and relation(value, str(constant))
        try:
            number = int(constant)
        except ValueError:
            raise InvalidInputError(
                f"partition filter: {name!r} is of type {self._types[name]}, {constant!r} is no integer",
                key=name,
            ) from None
        return lambda row: (value := _integer(row[name])) is not None and relation(value, number)


def _integer(value: str | None) -> int | None:
    """A partition's value as a number; None also for a text that slipped into an integer key."""
    try:
        return None if value is None else int(value)
    except ValueError:
        return None

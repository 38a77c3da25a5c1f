"""Hive's partition filter language, which chooses partitions of a table.

``get_partitions_by_filter`` takes a text in this language (Hive's ``Filter.g``): comparisons of a partition
key with a constant (``=`` or ``==``, ``!=`` or ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``like``),
``between .. and``, ``in (..)``, each of the last two also with ``not``, joined by ``and``, ``or`` and
parentheses. ``(struct(a, b)) in (const struct(1, 'x'), ..)``, with or without the words, compares several
keys together. Constants are numbers, texts in single or double quotes, and dates with or without quotes and
the word ``date``.

The binary expression of ``get_partitions_by_expr`` is a serialised Java object, which only Hive can read, or
a text in this language.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, TypeVar

from lark import Lark, Token, Transformer, Tree, v_args
from lark.exceptions import LarkError, VisitError

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import (
    DEFAULT_PARTITION,
    Column,
    PartitionChoice,
    PartitionInfo,
    TableInfo,
    number_of,
    plain_text,
)
from airflow_provider.metastore.patterns import like_pattern

# The values of the keys, in the keys' order.
Row = Sequence[str | None]
Keep = Callable[[Row], bool]
Equal = dict[str, frozenset[str | None]]
Relation = Callable[[Any, Any], bool]

T = TypeVar("T")

_GRAMMAR = r"""
?start: or_
?or_: and_ ("or"i and_)*
?and_: part ("and"i part)*
?part: "(" or_ ")"
     | predicate
predicate: key OPERATOR constant -> compare
         | constant OPERATOR key -> compare_mirrored
         | key "like"i TEXT -> like
         | key "between"i constant "and"i constant -> between
         | key "not"i "between"i constant "and"i constant -> not_between
         | key "in"i "(" constant ("," constant)* ")" -> in_
         | key "not"i "in"i "(" constant ("," constant)* ")" -> not_in
         | keys "in"i "(" constants ("," constants)* ")" -> keys_in
         | keys "not"i "in"i "(" constants ("," constants)* ")" -> keys_not_in
?key: KEY
    | "(" key ")"
keys: "(" key ("," key)+ ")"
    | STRUCT "(" key ("," key)* ")"
    | "(" keys ")"
constants: ["const"i] [STRUCT] "(" constant ("," constant)* ")"
constant: NUMBER -> number
        | DATE -> date
        | ("date"i | "timestamp"i)? TEXT -> text
        | "date"i DATE -> date
OPERATOR: "<=" | ">=" | "<>" | "!=" | "==" | "=" | "<" | ">"
DATE.2: /[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}/
NUMBER.1: /-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]{1,3})?/i
TEXT: /'[^']*'/ | /"[^"]*"/
STRUCT.2: /struct(?=\s*\()/i
KEY: /(?!(?:and|or|not|like|between|in|date|timestamp)\b)[A-Za-z_][A-Za-z0-9_]*|`[^`]+`/i
%ignore /\s+/
"""

_OPERATORS: dict[str, Relation] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBERS = frozenset(
    {"tinyint", "smallint", "int", "integer", "bigint", "float", "double", "real", "decimal", "numeric"}
)
# Only filters below this length are cached: long ones are rare, and each would take memory.
_SHORT = 1_000
_TEXTS = frozenset({"string", "varchar", "char"})
# hive_metastoreConstants.HIVE_FILTER_FIELD_..; of a Table struct its lastAccessTime.
_OWNER, _LAST_ACCESS = "hive_filter_field_owner__", "hive_filter_field_last_access__"
_PARAMETER, _LAST_ACCESS_FIELD = "hive_filter_field_params__", "5"


def partition_filter(text: str, partition_keys: Sequence[Column]) -> Callable[[PartitionInfo], bool]:
    """Compile a filter.

    The filter compares keys of a number type as numbers, timestamps as points in time, all others as texts.
    The null partition of a key of a text type takes part by its name, ``__HIVE_DEFAULT_PARTITION__``, as in
    Hive; so it satisfies ``key != 'a'``. That of a key of another type satisfies a comparison with that name
    only.

    :param text: the filter; an empty one keeps every partition.
    :param partition_keys: the table's partition keys.
    :raises InvalidInputError: when the text is no filter, names a column that is no partition key, compares a
        key of a number type with a constant that is no number, or several keys with fewer or more constants.
    """
    choice = partition_choice(text, partition_keys)
    return lambda partition: choice.keeps(partition.values)


def partition_choice(text: str, partition_keys: Sequence[Column]) -> PartitionChoice:
    """Compile a filter as :func:`partition_filter`, with the values that it allows, for an index."""
    types = {key.name.lower(): key.type.lower() for key in partition_keys}
    names = [key.name.lower() for key in partition_keys]
    if not text.strip():
        return PartitionChoice()
    keep = _compiled(text, types, "partition")
    known: Equal = _Equal(types, "partition").transform(_parsed(text))
    plain = {names.index(name): values for name, values in known.items()}
    texts = [at for at in plain if types[names[at]].partition("(")[0].strip() not in _NUMBERS]
    return PartitionChoice(keep, plain=plain, texts=texts)


def table_filter(text: str) -> Callable[[TableInfo], bool]:
    """Compile a filter of tables in the same language, which ``get_table_names_by_filter`` takes.

    Its keys are ``hive_filter_field_owner__``, ``hive_filter_field_last_access__``, and for each parameter
    ``hive_filter_field_params__`` with its name. A table without the parameter satisfies no comparison.

    :param text: the filter; an empty one keeps every table.
    :raises InvalidInputError: as :func:`partition_filter`.
    """
    named = re.findall(rf"{_PARAMETER}([^`\s=<>!]+)", text)
    parameters = {f"{_PARAMETER}{name}".lower(): name for name in named}
    types = {_OWNER: "owner", _LAST_ACCESS: "int", **dict.fromkeys(parameters, "parameter")}
    keep = _compiled(text, types, "table")

    def keep_table(table: TableInfo) -> bool:
        accessed = table.hive_fields.get(_LAST_ACCESS_FIELD, {}).get("i32", 0)
        return keep((table.owner, str(accessed), *map(table.parameters.get, parameters.values())))

    return keep_table


def _compiled(text: str, types: Mapping[str, str], kind: str) -> Keep:
    """The function of a filter.

    :param types: the types of the keys that the filter may name, in the order of their values.
    :param kind: the kind of objects that it filters, for errors.
    """
    if not text.strip():
        return lambda row: True
    try:
        keep: Keep = _Compiler(types, kind).transform(_parsed(text))
    except VisitError as error:
        if isinstance(error.orig_exc, InvalidInputError):
            raise error.orig_exc from None
        raise
    except LarkError as error:
        raise InvalidInputError(
            f"{text!r} is no {kind} filter: {str(error).splitlines()[0]}; write such as "
            "year = 2013 and month in ('1', '2')",
            filter=text,
        ) from error
    return keep


def _parsed(text: str) -> Tree[Token]:
    return _parsed_short(text) if len(text) <= _SHORT else _parser().parse(text)


@lru_cache(maxsize=256)
def _parsed_short(text: str) -> Tree[Token]:
    return _parser().parse(text)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr")


@v_args(inline=True)
class _Constants(Transformer[Token, T]):
    """The constants and keys of a parsed filter."""

    def __init__(self, types: Mapping[str, str], kind: str) -> None:
        super().__init__()
        self._types = types
        self._kind = kind

    def number(self, token: Token) -> str:
        return str(token)

    def date(self, token: Token) -> str:
        year, month, day = str(token).split("-")
        return f"{year}-{month:0>2}-{day:0>2}"

    def text(self, token: Token) -> str:
        return str(token)[1:-1]

    def keys(self, *parts: Any) -> list[Token]:
        if isinstance(parts[0], list):
            return parts[0]
        return [one for one in parts if one.type == "KEY"]

    def constants(self, *parts: Any) -> list[str]:
        return [one for one in parts if type(one) is str]

    def _name(self, key: Token) -> str:
        name = str(key).strip("`").lower()
        if name not in self._types:
            raise InvalidInputError(
                f"{self._kind} filter: {name!r} is no {self._kind} key; the table's are {list(self._types)}",
                key=name,
            )
        return name

    def _is_text(self, name: str) -> bool:
        return self._types[name].partition("(")[0].strip() in _TEXTS


@v_args(inline=True)
class _Compiler(_Constants[Keep]):
    """Turns a parsed filter into a function of a partition's values."""

    def or_(self, *parts: Keep) -> Keep:
        return lambda row: any(part(row) for part in parts)

    def and_(self, *parts: Keep) -> Keep:
        return lambda row: all(part(row) for part in parts)

    def compare(self, key: Token, symbol: Token, constant: str) -> Keep:
        return self._test(key, _OPERATORS[symbol], constant)

    def compare_mirrored(self, constant: str, symbol: Token, key: Token) -> Keep:
        return self._test(key, _OPERATORS[_MIRRORED.get(symbol, str(symbol))], constant)

    def like(self, key: Token, pattern: Token) -> Keep:
        matches, name = like_pattern(str(pattern)[1:-1]), self._name(key)
        null_counts = self._is_text(name)
        return self._by_value(
            name, lambda value: (null_counts or value is not None) and matches(_as_stored(value))
        )

    def between(self, key: Token, low: str, high: str) -> Keep:
        return self.and_(self._test(key, operator.ge, low), self._test(key, operator.le, high))

    def not_between(self, key: Token, low: str, high: str) -> Keep:
        return self.or_(self._test(key, operator.lt, low), self._test(key, operator.gt, high))

    def in_(self, key: Token, *constants: str) -> Keep:
        return self.or_(*(self._test(key, operator.eq, one) for one in constants))

    def not_in(self, key: Token, *constants: str) -> Keep:
        return self.and_(*(self._test(key, operator.ne, one) for one in constants))

    def keys_in(self, keys: list[Token], *structs: list[str]) -> Keep:
        return self.or_(*(self.and_(*self._tests(keys, operator.eq, one)) for one in structs))

    def keys_not_in(self, keys: list[Token], *structs: list[str]) -> Keep:
        return self.and_(*(self.or_(*self._tests(keys, operator.ne, one)) for one in structs))

    def _tests(self, keys: list[Token], relation: Relation, struct: list[str]) -> list[Keep]:
        if len(keys) != len(struct):
            raise InvalidInputError(
                f"{self._kind} filter: {[str(key) for key in keys]} are compared with {len(struct)} "
                f"constants, {struct}; give one for each key",
                keys=[str(key) for key in keys],
            )
        return [self._test(key, relation, constant) for key, constant in zip(keys, struct, strict=True)]

    def _test(self, key: Token, relation: Relation, constant: str) -> Keep:
        name = self._name(key)
        if constant == DEFAULT_PARTITION or self._is_text(name):
            return self._by_value(name, lambda value: bool(relation(_as_stored(value), constant)))
        type_ = self._types[name].partition("(")[0].strip()
        read = number_of if type_ in _NUMBERS else _timestamp if type_ == "timestamp" else _text
        known = read(constant)
        if known is None:
            raise InvalidInputError(
                f"{self._kind} filter: {name!r} is of type {self._types[name]}, {constant!r} is no value "
                "of it",
                key=name,
            )
        return self._by_value(
            name, lambda value: (found := read(value)) is not None and bool(relation(found, known))
        )

    def _by_value(self, name: str, test: Callable[[str | None], bool]) -> Keep:
        """Test each value of a key once: many partitions have the same one."""
        at, once = list(self._types).index(name), cache(test)
        return lambda row: once(row[at])


@v_args(inline=True)
class _Equal(_Constants[Equal]):
    """Turns a parsed filter into the values that it allows for keys, as far as the filter limits them."""

    def or_(self, *parts: Equal) -> Equal:
        return {name: frozenset().union(*(one[name] for one in parts)) for name in _in_all(parts)}

    def and_(self, *parts: Equal) -> Equal:
        together: Equal = {}
        for name, values in (item for one in parts for item in one.items()):
            together[name] = together[name] & values if name in together else values
        return together

    def compare(self, key: Token, symbol: Token, constant: str) -> Equal:
        return self._equal(key, constant) if symbol in ("=", "==") else {}

    def compare_mirrored(self, constant: str, symbol: Token, key: Token) -> Equal:
        return self.compare(key, symbol, constant)

    def in_(self, key: Token, *constants: str) -> Equal:
        return self.or_(*(self._equal(key, one) for one in constants))

    def keys_in(self, keys: list[Token], *structs: list[str]) -> Equal:
        return self.or_(
            *(
                self.and_(*(self._equal(key, one) for key, one in zip(keys, struct, strict=True)))
                for struct in structs
            )
        )

    def unknown(self, *parts: object) -> Equal:
        return {}

    like = between = not_between = not_in = keys_not_in = unknown

    def _equal(self, key: Token, constant: str) -> Equal:
        name = self._name(key)
        if constant == DEFAULT_PARTITION:
            return {name: frozenset({None, DEFAULT_PARTITION})}
        type_ = self._types[name].partition("(")[0].strip()
        if type_ == "timestamp":
            return {}
        if type_ not in _NUMBERS:
            return {name: frozenset({constant})}
        number = number_of(constant)
        text = None if number is None else plain_text(number)
        return {name: frozenset() if text is None else frozenset({text})}


def _in_all(parts: Sequence[Mapping[str, object]]) -> list[str]:
    return [name for name in parts[0] if all(name in one for one in parts)]


def _as_stored(value: str | None) -> str:
    return DEFAULT_PARTITION if value is None else value


def _text(value: str | None) -> str | None:
    return value


def _timestamp(value: str | None) -> datetime | None:
    """A partition's value as a point in time, without a zone as in Hive; None for null and any other text."""
    try:
        return None if value is None else datetime.fromisoformat(value.strip()).replace(tzinfo=None)
    except ValueError:
        return None

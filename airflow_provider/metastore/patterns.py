"""Patterns that clients send. RE2 matches them in linear time, because it does not backtrack."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import re2

Matches = Callable[[str], bool]


def name_pattern(pattern: str) -> Matches:
    """Hive's pattern of names (``ObjectStore.getTables``).

    ``*`` is any text, ``.`` any one character, ``|`` separates alternatives. Case does not matter.

    :param pattern: such as ``fl*|air*``; ``.*``, which Hive 4 sends for all names, matches every name.
    """
    parts = (_translated(one.strip(), {"*": ".*", ".": "."}) for one in pattern.split("|"))
    return _matcher("|".join(f"(?:{one})" for one in parts), case_sensitive=False)


def like_pattern(pattern: str) -> Matches:
    """The pattern after ``like`` in a partition filter, by each meaning that it has in Hive.

    A Hive of version 2, and so Spark's client, sends a regular expression of Java (``a.*``). A Hive of
    version 4 takes SQL's pattern on keys of type string (``a%``) and Java's on dates. The filter keeps a
    value that matches by either meaning, because these clients filter again.

    :param pattern: the pattern. It has only SQL's meaning when it is no regular expression, or one that RE2
        does not support (``(?=``, back references).
    """
    by_sql = sql_pattern(pattern)
    try:
        by_java = _matcher(pattern)
    except re2.error:
        return by_sql
    return lambda value: by_sql(value) or by_java(value)


def sql_pattern(pattern: str) -> Matches:
    """SQL's pattern: ``%`` is any text, ``_`` any one character."""
    return _matcher(_translated(pattern, {"%": ".*", "_": "."}))


def _translated(pattern: str, wildcards: Mapping[str, str]) -> str:
    known = "".join(wildcards)
    parts = re.split(f"([{re.escape(known)}])", pattern)
    return "".join(wildcards.get(part) or re2.escape(part) for part in parts)


def _matcher(expression: str, *, case_sensitive: bool = True) -> Matches:
    options = re2.Options()
    options.dot_nl, options.log_errors, options.case_sensitive = True, False, case_sensitive
    compiled = re2.compile(expression, options)
    return lambda text: compiled.fullmatch(text) is not None

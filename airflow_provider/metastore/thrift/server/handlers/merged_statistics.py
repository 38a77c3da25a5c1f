"""Merges column statistics of several partitions, or of old and new rows, as Hive does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from decimal import Decimal
from typing import Any

# Fields of all kinds in ColumnStatisticsData. Sketches (bitVectors) are not merged.
_SUMMED = ("numNulls", "numTrues", "numFalses")
# Without sketches Hive also takes the larger number of distinct values (LongColumnStatsMerger).
_LARGEST = ("numDVs", "maxColLen", "avgColLen")
_KINDS = (
    "booleanStats",
    "longStats",
    "doubleStats",
    "stringStats",
    "binaryStats",
    "decimalStats",
    "dateStats",
    "timestampStats",
)


def merged(first: Any, second: Any) -> Any:
    """Merge two structs ``ColumnStatisticsData`` of one column.

    :return: the merged struct. The second one when they are of different kinds, because the column's type was
        changed in between.
    """
    for kind in _KINDS:
        one, other = getattr(first, kind), getattr(second, kind)
        if one is None or other is None:
            continue
        together = copy.copy(other)
        for name in _SUMMED:
            _put(together, name, one, other, lambda a, b: a + b)
        for name in _LARGEST:
            _put(together, name, one, other, max)
        _put(together, "lowValue", one, other, lambda a, b: min(a, b, key=_comparable))
        _put(together, "highValue", one, other, lambda a, b: max(a, b, key=_comparable))
        together.bitVectors = None
        answer = type(second)()
        setattr(answer, kind, together)
        return answer
    return second


def _put(into: Any, name: str, one: Any, other: Any, combine: Callable[[Any, Any], Any]) -> None:
    if not hasattr(into, name):
        return
    values = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
    setattr(into, name, combine(*values) if len(values) == 2 else next(iter(values), None))


def _comparable(value: Any) -> Any:
    """The value of a bound for comparisons: the bound itself, or the number in a struct of Hive's."""
    if hasattr(value, "unscaled"):
        return Decimal(int.from_bytes(value.unscaled, "big", signed=True)).scaleb(-value.scale)
    for name in ("daysSinceEpoch", "secondsSinceEpoch"):
        if hasattr(value, name):
            return getattr(value, name)
    return value

"""What column statistics tell about the rows of a file or a partition, as expressions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.metadata_table import ColumnStats, ValueType, value_type
from airflow_provider.table.schema import converted


class Cases:
    """Turns statistics into expressions; one of them is true for each row of a file or partition.

    :param schema: the table's columns.
    :param of_log_files: whether the statistics are those of log files.
    """

    def __init__(self, schema: pa.Schema, *, of_log_files: bool = False) -> None:
        self._schema = schema
        self._of_log_files = of_log_files
        self._nulls: dict[str, pc.Expression] = {}
        self._nans: dict[str, pc.Expression] = {}

    def of(
        self, stats: Mapping[str, ColumnStats], columns: Iterable[str]
    ) -> dict[str, Collection[pc.Expression]]:
        """The expressions by column; nothing is known about a column that is left out.

        :param stats: the statistics by column.
        :param columns: the columns that matter.
        """
        found: dict[str, Collection[pc.Expression]] = {}
        for column in columns:
            if column in stats and (cases := self._of_column(column, stats[column])):
                found[column] = cases
        return found

    def _of_column(self, column: str, stats: ColumnStats) -> list[pc.Expression] | None:
        kind = self._schema.field(column).type
        cases = [self._nulls.setdefault(column, pc.field(column).is_null())] if stats.null_count else []
        if stats.null_count >= stats.value_count:
            return cases or None
        ends = None if self._of_log_files and _in_javas_order(stats) else _bounds(stats, kind)
        if ends is None:
            return None
        field = pc.field(column)
        low, high = ends
        # Minus zero equals zero, but a list with only one of them does not contain the other.
        is_one = low == high and not (pa.types.is_floating(kind) and low.as_py() == 0)
        # Only a single value shows which values do not occur.
        cases.append(field == low if is_one else (field >= low) & (field <= high))
        if pa.types.is_floating(kind):  # Parquet's statistics leave out NaN
            cases.append(self._nans.setdefault(column, field == pa.scalar(float("nan"), kind)))
        return cases


def _in_javas_order(stats: ColumnStats) -> bool:
    """Whether smallest and largest value may be those of Java's order, which is not Arrow's.

    The JVM computes the statistics of a log file from its rows (``HoodieTableMetadataUtil``'s
    ``collectColumnRangeMetadata``), not from a Parquet footer. Java compares texts by UTF-16 units, so the
    order differs beyond U+D7FF; bytes are signed; and NaN is the largest number.
    """
    if stats.value_type in (ValueType.BYTES, ValueType.FIXED):
        return True
    values = [each.value for each in (stats.min_value, stats.max_value) if each is not None]
    return any(
        (isinstance(value, str) and max(value, default="") >= "\ud800")
        or (isinstance(value, float) and isnan(value))
        for value in values
    )


_FAMILIES: Sequence[frozenset[ValueType]] = (
    frozenset({ValueType.INT, ValueType.LONG, ValueType.FLOAT, ValueType.DOUBLE}),
    frozenset({ValueType.TIMESTAMP_MILLIS, ValueType.TIMESTAMP_MICROS, ValueType.TIMESTAMP_NANOS}),
    frozenset(
        {
            ValueType.LOCAL_TIMESTAMP_MILLIS,
            ValueType.LOCAL_TIMESTAMP_MICROS,
            ValueType.LOCAL_TIMESTAMP_NANOS,
        }
    ),
    frozenset({ValueType.BYTES, ValueType.FIXED}),
)
"""Type changes of a column that keep the order of values."""


def _bounds(stats: ColumnStats, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Smallest and largest value in the column's present type; None when they are unknown."""
    now, then = value_type(kind), stats.value_type
    if stats.min_value is None or stats.max_value is None or now is None or then is None:
        return None
    if now != then and not any(now in family and then in family for family in _FAMILIES):
        return None
    try:
        low, high = (
            _scalar(each.value, then, stats.type_info) for each in (stats.min_value, stats.max_value)
        )
        # A reader widens the rows of a file with a narrower column in the same way.
        found = converted(pa.array([low, high]), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError, ValueError, TypeError):
        return None
    return found[0], found[1]


_UNITS = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}
_PLAIN: Mapping[ValueType, pa.DataType] = {
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.INT: pa.int32(),
    ValueType.LONG: pa.int64(),
    ValueType.FLOAT: pa.float32(),
    ValueType.DOUBLE: pa.float64(),
    ValueType.STRING: pa.string(),
    ValueType.BYTES: pa.binary(),
    ValueType.FIXED: pa.binary(),
}


def _scalar(value: Any, kind: ValueType, type_info: str | None) -> pa.Scalar:
    if kind in _PLAIN:
        return pa.scalar(value, _PLAIN[kind])
    if kind is ValueType.DECIMAL:
        precision, scale = map(int, (type_info or "").split(","))
        unscaled = int.from_bytes(value, "big", signed=True)
        return pa.scalar(Decimal(unscaled).scaleb(-scale), pa.decimal256(precision, scale))
    if kind is ValueType.DATE:
        return pa.scalar(date(1970, 1, 1) + timedelta(value), pa.date32())
    if kind is ValueType.TIME_MILLIS:
        return pa.array([value], pa.int32()).cast(pa.time32("ms"))[0]
    if kind is ValueType.TIME_MICROS:
        return pa.array([value], pa.int64()).cast(pa.time64("us"))[0]
    unit = _UNITS[kind.name.rpartition("_")[2]]
    zone = None if kind.name.startswith("LOCAL") else "UTC"
    return pa.array([value], pa.int64()).cast(pa.timestamp(unit, zone))[0]

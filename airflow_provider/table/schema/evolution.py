"""How a write changes a table's columns: which data fit, which columns it adds, which types it widens.

The rules are Hudi's for a write without options (``HoodieSchemaUtils.deduceWriterSchema``,
``AvroSchemaCompatibility``, ``SchemaChangeUtils.isTypeUpdateAllow``):

* A new column comes after the present ones, also inside structs, arrays and maps.
* A column becomes wider when its data are wider. Narrower data are widened.
* A column that the data lack is an error, or null.

Hudi changes some values in silence: a number becomes a timestamp, and a text that is no date becomes null.
This module refuses such data.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider.exceptions import IncompatibleSchemaError, MissingColumnError
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.schema.arrow_avro import arrow_to_avro, avro_to_arrow, without_meta_columns
from airflow_provider.table.schema.column_types import type_name
from airflow_provider.table.schema.conversion import is_bytes, is_list, is_text

FILL = "hoodie.write.set.null.for.missing.columns"
"""Hudi's option for columns that the data lack: when it is true, they are null."""

VALIDATE = "hoodie.avro.schema.validate"
"""Hudi's option that refuses data with a missing column, even if the column would be filled."""


@dataclass(frozen=True)
class ColumnChange:
    """One change of a table's columns.

    :param column: the column's name; for a nested column its path, with ``element`` inside an array and
        ``value`` inside a map.
    :param change: ``added``, ``widened``, ``nullable``, ``renamed`` or ``commented``.
    :param before: type, name or remark before the change; None for a new column.
    :param after: type, name or remark after the change.
    """

    column: str
    change: str
    before: str | None
    after: str | None

    def to_dict(self) -> dict[str, Any]:
        """The change, JSON-able."""
        return {"column": self.column, "change": self.change, "from": self.before, "to": self.after}

    def __str__(self) -> str:
        was = f"{self.before} to " if self.before else ""
        return f"column {self.column} {self.change}: {was}{self.after}"


def evolved(
    table: pa.Schema, incoming: pa.Schema, *, fills_missing: bool = False
) -> tuple[pa.Schema, tuple[ColumnChange, ...]]:
    """The columns of a table after a write, and the changes to them.

    :param table: the table's columns, without Hudi's own.
    :param incoming: the data's columns; Hudi's own are ignored.
    :param fills_missing: whether a column that the data lack is null. A column that takes no nulls becomes
        nullable then.
    :raises MissingColumnError: when the data lack columns and ``fills_missing`` is false; it names them all.
    :raises IncompatibleSchemaError: when a column does not fit; it names the column, both types and a remedy.
    """
    merge = _Merge(fills_missing)
    incoming = without_meta_columns(incoming)
    columns = pa.schema(merge.fields(list(table), list(incoming), ()))
    if merge.missing:
        shown = ", ".join(map(repr, merge.missing))
        raise MissingColumnError(
            f"the data lack {'column' if len(merge.missing) == 1 else 'columns'} {shown} of the table; add "
            f"{'it' if len(merge.missing) == 1 else 'them'} in the source, or set {FILL}=true and not "
            f"{VALIDATE}=true, and they are null",
            columns=merge.missing,
        )
    return columns, tuple(merge.changes)


def check_roles(config: TableConfig, changes: Iterable[ColumnChange]) -> None:
    """Refuse changes after which a row would have another key or partition, or versions another order.

    Record keys and partition folders are made of the values' texts, so a new type must keep the texts.

    :param config: the table's configuration.
    :param changes: the changes of its columns.
    :raises IncompatibleSchemaError: when a change would do this; it names the column.
    """
    texts = {*config.record_key_fields, *config.partition_fields}
    for change in changes:
        if change.change == "added":
            continue
        told = f"column {change.column!r} would be {change.change} from {change.before} to {change.after}"
        if change.column in texts and (change.before, change.after) not in _SAME_TEXT:
            raise IncompatibleSchemaError(
                f"{told}, but table {config.name!r} makes record keys or partitions of it, and these would "
                f"be others; keep it {change.before}",
                column=change.column,
            )
        if change.column in config.ordering_fields and change.after == "string":
            raise IncompatibleSchemaError(
                f"{told}, but table {config.name!r} orders the versions of a record by it, and texts have "
                f"another order; keep it {change.before}",
                column=change.column,
            )


_SAME_TEXT = frozenset({("int", "bigint"), ("int", "string"), ("bigint", "string")})


def widened(current: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Hudi lets a column change from one type to another. Readers convert the values that are stored.

    :param current: the column's type; not nested.
    :param wanted: the new type.
    """
    for accepts, targets in _WIDER:
        if accepts(current):
            return any(target(wanted) for target in targets)
    if pa.types.is_decimal(current) and pa.types.is_decimal(wanted):
        before_point = wanted.precision - wanted.scale >= current.precision - current.scale
        return bool(before_point and wanted.scale >= current.scale)
    return False


_WIDER = (
    (pa.types.is_int32, (pa.types.is_int64, pa.types.is_float32, pa.types.is_float64, pa.types.is_string)),
    (pa.types.is_int64, (pa.types.is_float32, pa.types.is_float64, pa.types.is_string)),
    (pa.types.is_float32, (pa.types.is_float64, pa.types.is_string)),
    (pa.types.is_float64, (pa.types.is_string,)),
)


@dataclass
class _Merge:
    """Merges the data's columns into the table's, and collects changes and missing columns.

    :param fills_missing: see :func:`evolved`.
    """

    fills_missing: bool
    changes: list[ColumnChange] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def fields(
        self, table: Sequence[pa.Field], incoming: Sequence[pa.Field], path: tuple[str, ...]
    ) -> list[pa.Field]:
        known = {each.name: each for each in table}
        came = {each.name: each for each in incoming}
        if len(came) < len(incoming):
            twice = next(name for name in came if sum(each.name == name for each in incoming) > 1)
            raise IncompatibleSchemaError(
                f"column {_shown(path, twice)!r} comes more than once in the data; select it once",
                column=_shown(path, twice),
            )
        merged = [
            self._known(each, came[each.name], path) if each.name in came else self._absent(each, path)
            for each in table
        ]
        added = [self._added(each, known, path) for each in incoming if each.name not in known]
        return merged + added

    def _known(self, column: pa.Field, incoming: pa.Field, path: tuple[str, ...]) -> pa.Field:
        return column.with_type(self._type(column.type, incoming.type, (*path, column.name)))

    def _absent(self, column: pa.Field, path: tuple[str, ...]) -> pa.Field:
        name = _shown(path, column.name)
        if not self.fills_missing:
            self.missing.append(name)
        elif not column.nullable:
            self.changes.append(ColumnChange(name, "nullable", "not null", type_name(column.type)))
            return column.with_nullable(True)
        return column

    def _added(self, column: pa.Field, known: Iterable[str], path: tuple[str, ...]) -> pa.Field:
        name = _shown(path, column.name)
        if same := next((each for each in known if each.lower() == column.name.lower()), None):
            raise IncompatibleSchemaError(
                f"column {name!r} of the data differs from column {_shown(path, same)!r} of the table in "
                f"upper and lower case only; rename it to {same!r} in the source",
                column=name,
            )
        if pa.types.is_null(column.type):
            near = difflib.get_close_matches(column.name, list(known), n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise IncompatibleSchemaError(
                f"column {name!r} of the data is not in the table{hint}, and has no type, so that it cannot "
                "be added; cast it in the source, or leave it out",
                column=name,
            )
        if not column.nullable and not self.fills_missing:
            raise IncompatibleSchemaError(
                f"column {name!r} ({type_name(_stored(column))}, not null) of the data is not in the table, "
                "whose rows would have null there; make it nullable in the source",
                column=name,
            )
        kind = _stored(column)
        self.changes.append(ColumnChange(name, "added", None, type_name(kind)))
        return pa.field(column.name, kind)

    def _type(self, table: pa.DataType, incoming: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
        if pa.types.is_dictionary(incoming):
            incoming = incoming.value_type
        if table.equals(incoming) or pa.types.is_null(incoming):
            return table
        if pa.types.is_struct(table) and pa.types.is_struct(incoming):
            return pa.struct(self.fields(list(table), list(incoming), path))
        if pa.types.is_list(table) and is_list(incoming):
            inner = self._type(table.value_type, incoming.value_type, (*path, "element"))
            return pa.list_(table.value_field.with_type(inner))
        if pa.types.is_map(table) and pa.types.is_map(incoming) and is_text(incoming.key_type):
            inner = self._type(table.item_type, incoming.item_type, (*path, "value"))
            return pa.map_(table.key_type, table.item_field.with_type(inner))
        if fits(incoming, table):
            return table
        if not pa.types.is_nested(incoming):
            stored = _stored(pa.field(path[-1], incoming))
            if widened(table, stored):
                change = ColumnChange(_shown(path), "widened", type_name(table), type_name(stored))
                self.changes.append(change)
                return stored
        raise IncompatibleSchemaError(
            f"column {_shown(path)!r} is {incoming} in the data and {table} in the table, and neither "
            f"becomes the other without loss; cast it to {table} in the source",
            column=_shown(path),
            found=str(incoming),
            expected=str(table),
        )


def _shown(path: Iterable[str], *more: str) -> str:
    return ".".join((*path, *more))


def _stored(column: pa.Field) -> pa.DataType:
    """The type by which a table stores a column of the data, because Avro has fewer types than Arrow."""
    return avro_to_arrow(arrow_to_avro(pa.schema([column]), "data")).field(0).type


# --- what fits into what ------------------------------------------------------------


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a column of one type can hold values of another, as far as the types tell.

    A single value may still have too many digits; the conversion finds that.

    :param source: the data's type; not nested.
    :param target: the column's type.
    """
    if pa.types.is_dictionary(source):
        return fits(source.value_type, target)
    if source.equals(target) or pa.types.is_null(source):
        return True
    return any(rule(source, target) for rule in (_number_fits, _text_fits, _time_fits))


def _number_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_decimal(target):
        if pa.types.is_decimal(source):
            before_point = target.precision - target.scale
            return bool(target.scale >= source.scale and before_point >= source.precision - source.scale)
        return bool(pa.types.is_integer(source) or pa.types.is_floating(source))
    if pa.types.is_floating(target):
        if pa.types.is_floating(source):
            return bool(source.bit_width <= target.bit_width)
        return bool(pa.types.is_integer(source))
    if pa.types.is_integer(target) and pa.types.is_integer(source):
        signs_agree = pa.types.is_signed_integer(target) or pa.types.is_unsigned_integer(source)
        return bool(signs_agree and _value_bits(source) <= _value_bits(target))
    return False


def _value_bits(kind: pa.DataType) -> int:
    return int(kind.bit_width) - (1 if pa.types.is_signed_integer(kind) else 0)


def _text_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(target):
        return False  # only from the same width, which is equality
    if is_text(target):
        accepts = (is_text, is_bytes, pa.types.is_integer, pa.types.is_floating)
        return any(each(source) for each in (*accepts, pa.types.is_decimal, pa.types.is_date))
    return is_bytes(target) and (is_bytes(source) or is_text(source))


_RESOLUTION = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def _time_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_date(target):
        return bool(pa.types.is_date(source))
    if not (pa.types.is_timestamp(source) and pa.types.is_timestamp(target)):
        return False
    if (source.tz is None) != (target.tz is None):
        return False
    # pandas has only nanoseconds, which no table stores. The cast finds digits that do not fit.
    return source.unit == "ns" or _RESOLUTION[source.unit] <= _RESOLUTION[target.unit]

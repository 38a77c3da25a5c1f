"""The comparison of five readers of a table with a model of its rows."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

from airflow_provider.table import HudiTable, snapshot
from tests.real_hudi.jvm import Session

Row = Mapping[str, Any]
Condition = tuple[str, str, Any]
"""Column, operator as in SQL, value."""

_COMPARED = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


_checks: Counter[str] = Counter()
"""The number of checks, by the table's location."""


def five_readers(
    hudi: Session,
    location: str,
    model: Iterable[Row],
    *,
    where: Sequence[Condition] | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    as_of: str | None = None,
    hudi_rs: bool = True,
) -> None:
    """Check that all readers show the rows of a model, also by conditions, for which they skip files.

    The readers are this package, and hudi-rs and the JVM, each with and without the metadata table. The JVM
    reads by one of the conditions, another one at the next check of the table: it takes a second for each.

    :param model: the rows of the model.
    :param where: conditions, each on its own, and all of them for the JVM too; when None, on the first column
        and the first column of numbers.
    :param columns: the columns to compare; those of the model's first row when None.
    :param options: options of the JVM's reads, as for :meth:`Session.read`.
    :param as_of: the moment of the read; now when None.
    :param hudi_rs: whether hudi-rs reads such tables; it reads none with several ordering fields.
    :raises AssertionError: names every reader with other rows, and these rows.
    """
    wanted = list(model)
    options = {**(options or {}), **({"as.of.instant": as_of} if as_of else {})}
    columns = list(columns or (wanted[0] if wanted else ["_hoodie_record_key"]))
    readers: dict[str, tuple[Callable[[], Iterable[Row]], list[Row]]] = {
        "ours": (lambda: _ours(location, as_of), wanted),
        "hudi-rs": (lambda: _hudi_rs(location, True, as_of), wanted),
        "hudi-rs without metadata table": (lambda: _hudi_rs(location, False, as_of), wanted),
        "the JVM": (lambda: hudi.read(location, options), wanted),
        "the JVM without metadata table": (lambda: hudi.read(location, options, metadata=False), wanted),
    }
    conditions = list(conditions_of(wanted, columns) if where is None else where)
    _checks[location] += 1
    for number, one in enumerate(conditions):
        left = [row for row in wanted if _holds(row, one)]
        told = " ".join(map(str, one))
        readers[f"ours where {told}"] = (lambda one=one: _ours(location, as_of, one), left)
        readers[f"hudi-rs where {told}"] = (lambda one=one: _hudi_rs(location, True, as_of, one), left)
        if where is not None or number == _checks[location] % len(conditions):
            readers[f"the JVM where {told}"] = (
                lambda one=one: hudi.read(location, options, where=_in_sql(one)),
                left,
            )
    readers = {name: each for name, each in readers.items() if hudi_rs or not name.startswith("hudi-rs")}
    wrong = {}
    for name, (read, expected) in readers.items():
        try:
            found = difference(read(), expected, columns)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:1500]}"
        if found:
            wrong[name] = found
    right = [name for name in readers if name not in wrong]
    told = "".join(f"\n  {name}: {found}" for name, found in wrong.items())
    assert not wrong, f"of {len(wanted)} rows{told}\n  right: {', '.join(right) or 'none'}"


def conditions_of(rows: Sequence[Row], columns: Sequence[str]) -> list[Condition]:
    """Two conditions: the first column equals a middle row's, the first column of numbers is larger."""
    if not rows:
        return []
    middle = rows[len(rows) // 2]
    numbers = [name for name in columns[1:] if type(middle[name]) in (int, float)]
    return [(columns[0], "=", middle[columns[0]]), *((name, ">", middle[name]) for name in numbers[:1])]


def difference(shown: Iterable[Row], wanted: Iterable[Row], columns: Sequence[str]) -> str:
    """The difference between rows and the expected rows; empty when there is none."""
    shown, wanted = list(shown), list(wanted)
    rows = {_comparable(row, columns): row for row in shown}
    rows |= {_comparable(row, columns): row for row in wanted}
    a, b = (Counter(_comparable(row, columns) for row in each) for each in (shown, wanted))
    if a == b:
        return ""
    told = [f"{a.total()} rows instead of {b.total()}"]
    for what, differing in (("not shown", b - a), ("shown", a - b)):
        if differing:
            first = [rows[each] for each in sorted(differing, key=repr)[:2]]
            examples = [{name: row.get(name) for name in columns} for row in first]
            told.append(f"{what}: {differing.total()}, such as {examples}")
    return "; ".join(told)


def _ours(location: str, as_of: str | None, one: Condition | None = None) -> list[Row]:
    table = HudiTable.open(location)
    rows: list[Row] = snapshot(table, as_of, where=[one] if one else None).to_table().to_pylist()
    return rows


def _hudi_rs(location: str, metadata: bool, as_of: str | None, one: Condition | None = None) -> list[Row]:
    options = {} if metadata else {"hoodie.metadata.enable": "false"}
    table = HudiTableBuilder.from_base_uri(location).with_hudi_options(options).build()
    wanted = HudiReadOptions(filters=[(one[0], one[1], str(one[2]))] if one else [])
    if as_of:
        wanted = wanted.with_as_of_timestamp(as_of)
    batches = [pa.Table.from_batches([batch]) for batch in table.read(wanted)]
    rows: list[Row] = pa.concat_tables(batches, promote_options="permissive").to_pylist() if batches else []
    # hudi-rs only skips files that cannot have such a row; the caller filters the rows.
    return [row for row in rows if one is None or _holds(row, one)]


def _holds(row: Row, one: Condition) -> bool:
    name, how, value = one
    return row.get(name) is not None and bool(_COMPARED[how](row[name], value))


def _in_sql(one: Condition) -> str:
    name, how, value = one
    literal = "'" + value.replace("'", "\\'") + "'" if isinstance(value, str) else repr(value)
    return f"`{name}` {how} {literal}"


def _comparable(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_value(row.get(name)) for name in columns)


def _value(value: Any) -> Any:
    """A hashable value that is equal for all readers."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(name), _value(each)) for name, each in value.items()))
    if isinstance(value, list | tuple):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return _value(dict(value))  # a map, as Arrow gives it
        return tuple(map(_value, value))
    if isinstance(value, float):
        return "float", "NaN" if math.isnan(value) else repr(value + 0.0)
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, Decimal):
        return "decimal", str(value)
    return value

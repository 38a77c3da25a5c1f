"""Predicates over rows: a pyarrow expression, or filters in the form that pyarrow's readers take.

Arrow itself decides whether a file can have a matching row: it simplifies an expression by conditions that
are known to be true for the file. For each column there are several cases: the value is between the smallest
and the largest value, or equals the only value, or is null, or is NaN. A file is skipped when the expression
cannot be true in any of these cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from itertools import product
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import InvalidInputError, MissingColumnError

Filter = tuple[str, str, Any]
"""Column, operator, value; ``is null`` and ``is not null`` ignore the value."""

Where: TypeAlias = "pc.Expression | Sequence[Filter] | Sequence[Sequence[Filter]]"
"""An expression over the columns; or filters, which must all be true; or several lists of filters, of which
one must be true."""

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": eq,
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
"""Operators that compare with a value."""

OPERATORS = (*COMPARISONS, "in", "not in", "is null", "is not null")

_FILTER = re.compile(
    r"^\s*(?P<column>.+?)\s*(?P<operator><=|>=|!=|==|=|<|>|\bnot\s+in\b|\bin\b|\bis\s+not\s+null\b|\bis\s+null\b)"
    r"\s*(?P<value>.*?)\s*$",
    re.IGNORECASE,
)

_MOST_CASES = 64  # cases of one file; columns that would exceed this number are ignored


def parse_filter(text: str) -> Filter:
    """Read a filter as people write it: ``delay > 300``, ``origin in JFK,EWR``, ``delay is not null``.

    :param text: column, operator, value. The values of ``in`` have commas between them; quotes are optional.
    :raises InvalidInputError: when the text is no filter.
    """
    match = _FILTER.match(text)
    if match is None or bool(match["value"]) == match["operator"].endswith("null"):
        raise InvalidInputError(
            f"{text!r} is no filter; write a column, an operator and a value, such as 'delay > 300', "
            f"operators are: {', '.join(OPERATORS)}"
        )
    operator = " ".join(match["operator"].lower().split())
    values = [each.strip().strip("'\"") for each in match["value"].split(",")]
    if operator.endswith("in"):
        return match["column"], operator, values
    return match["column"], operator, match["value"].strip("'\"")


def alternatives(where: Where) -> list[list[Filter]]:
    """The filters of a predicate, as alternatives; empty for an expression, whose parts are not accessible.

    :raises InvalidInputError: when it is neither an expression nor filters.
    """
    if isinstance(where, pc.Expression):
        return []
    groups = [list(where)] if any(isinstance(each, tuple) for each in where) else [list(g) for g in where]
    for each in (each for group in groups for each in group):
        if not isinstance(each, tuple) or len(each) != 3 or each[1] not in OPERATORS:
            raise InvalidInputError(
                f"{each!r} is no filter; one is (column, operator, value), operators are: "
                f"{', '.join(OPERATORS)}"
            )
    if not groups or not all(groups):
        raise InvalidInputError("where names no filter; leave it out to read everything")
    return groups


def expression(where: Where, schema: pa.Schema) -> pc.Expression:
    """A predicate as an expression.

    :param where: the predicate; values in filters are read as values of their column's type.
    :param schema: the columns that it may name.
    :raises InvalidInputError: when it cannot be evaluated over these columns.
    """
    if isinstance(where, pc.Expression):
        found = where
    else:
        groups = [[_comparison(each, schema) for each in group] for group in alternatives(where)]
        found = reduce(or_, (reduce(and_, group) for group in groups))
    import pyarrow.dataset as ds  # imports pandas, which would add a second to every import of the engine

    try:
        ds.dataset(schema.empty_table()).to_table(columns=[], filter=found)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInputError(f"where {found} cannot be evaluated: {error}") from error
    return found


def _comparison(each: Filter, schema: pa.Schema) -> pc.Expression:
    column, operator, value = each
    if column not in schema.names:
        raise MissingColumnError(
            f"where names column {column!r}; the table has: {', '.join(schema.names)}", column=column
        )
    field, kind = pc.field(column), schema.field(column).type
    if operator.endswith("null"):
        return field.is_null() if operator == "is null" else field.is_valid()
    if operator.endswith("in"):
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InvalidInputError(f"{each!r}: after {operator!r} come several values, such as a list")
        values = _values(value, kind)
        found = field.isin(values)
        if pa.types.is_floating(kind) and pc.any(pc.equal(values, 0.0)).as_py():
            # As in SQL, zero is in a list with minus zero. Arrow finds neither in a file of only zeros.
            found |= field == pa.scalar(0.0, kind)
        # As in SQL, a null is neither in a list nor not in it.
        return (found if operator == "in" else ~found) & field.is_valid()
    if value is None:
        raise InvalidInputError(f"{each!r}: nothing compares with None; use 'is null' or 'is not null'")
    return COMPARISONS[operator](field, literal(value, kind))


def literal(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A filter's value as a scalar; a text with a date or a number is converted.

    :param value: the value that was given.
    :param kind: the column's type.
    :raises InvalidInputError: when such a column cannot have the value.
    """
    if isinstance(value, pa.Scalar):
        return value
    try:
        if pa.types.is_decimal(kind) and isinstance(value, int):
            return pa.scalar(Decimal(value), kind)
        return pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"{value!r} is no value of a column of type {kind}: {error}") from error


def _values(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    found = [literal(value, kind) for value in values]
    try:
        return pa.array([each.cast(kind).as_py() for each in found], kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"{values!r} are no values of a column of type {kind}: {error}") from error


def named_columns(where: pc.Expression, columns: Iterable[str]) -> list[str]:
    """The columns that an expression may refer to. The result may have further columns.

    The parts of an expression are not accessible, but its text has the names of its columns.
    """
    text = str(where)
    return [column for column in columns if column in text]


def has_nan(where: pc.Expression) -> bool:
    """Whether an expression compares with NaN.

    When Arrow knows the bounds of a column, it reads "not less than" as "at least". With NaN the two differ:
    for ``~(x < nan)``, which is true for all rows, it would leave out every file.

    :param where: the expression. If it has a text or a column named nan, the answer only costs time.
    """
    return re.search(r"\bnan\b", str(where)) is not None


def may_match(
    where: pc.Expression, schema: pa.Schema, known: Iterable[Mapping[str, Collection[pc.Expression]]]
) -> list[bool]:
    """Whether any row can make an expression true.

    :param where: from :func:`expression`.
    :param schema: the columns.
    :param known: for every file, by column, a list of cases; one of them is true for each row of the file.
        Nothing is known about a column that is left out.
    """
    import pyarrow.dataset as ds
    import pyarrow.fs

    if has_nan(where):
        return [True for _ in known]
    # The pieces are files that do not exist; each only carries a condition that is true for its rows.
    nowhere, parquet = pyarrow.fs.LocalFileSystem(), ds.ParquetFileFormat()
    pieces: list[ds.ParquetFileFragment] = []
    numbers: dict[tuple[int, ...], int] = {}  # one piece serves all files that share a case, such as null
    of_files: list[list[int]] = []
    kept: list[object] = []  # keeps the cases alive, so that no other object gets the same id()
    for of_columns in known:
        cases: list[tuple[pc.Expression, ...]] = [()]
        for of_column in sorted(of_columns.values(), key=len):
            if len(cases) * len(of_column) <= _MOST_CASES:
                cases = [(*one, other) for one, other in product(cases, of_column)]
        of_file = []
        for case in cases:
            identity = tuple(map(id, case))
            if identity not in numbers:
                numbers[identity] = len(pieces)
                told = reduce(and_, case) if case else pc.scalar(True)
                pieces.append(parquet.make_fragment(str(numbers[identity]), nowhere, told))
            of_file.append(numbers[identity])
        of_files.append(of_file)
        kept.append(of_columns)
    if not pieces:
        return []
    dataset = ds.FileSystemDataset(pieces, schema, parquet, nowhere)
    found = {int(piece.path) for piece in dataset.get_fragments(filter=where)}
    return [not found.isdisjoint(of_file) for of_file in of_files]

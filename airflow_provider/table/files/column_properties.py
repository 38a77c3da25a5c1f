"""The columns of a base file for which Parquet keeps a dictionary, those for which it has one, and those for
which it keeps statistics."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider.table.schema import META_COLUMNS

_DISTINCT = META_COLUMNS[1:3]  # sequence number and record key
_SAMPLE_ROWS = 16_384
_BYTES_OF_A_CODE = 4  # at most, with its share of the dictionary; a string takes its length besides
_FEW_ROWS = 64  # looking at so few rows takes longer than a dictionary saves


def worth_a_dictionary(table: pa.Table) -> list[str]:
    """The leaf columns for which Parquet should try a dictionary.

    Trying costs a hash table look-up for each value, which is wasted on keys and measurements.

    :param table: the first rows of the file, with Hudi's columns.
    """
    chosen: list[str] = []
    sample = table.slice(0, _SAMPLE_ROWS)
    for field in table.schema:
        if field.name in _DISTINCT:
            continue
        if pa.types.is_nested(field.type) or not table.num_rows:
            chosen.extend(path for path, _ in _leaves(field, field.name))
            continue
        if pa.types.is_dictionary(field.type) or _repeats(sample[field.name]):
            chosen.append(field.name)
    return chosen


def _repeats(column: pa.ChunkedArray) -> bool:
    if len(column) < _FEW_ROWS:
        return False
    values = column.drop_null()
    return bool(2 * len(pc.unique(values)) <= len(values))


def repeating_strings(file: pq.ParquetFile) -> list[str]:
    """The string columns of a file, none of them nested, whose values are all codes of a dictionary.

    :param file: the opened file.
    """
    schema, metadata = file.schema_arrow, file.metadata
    strings = {field.name for field in schema if field.type == pa.string()}
    row_groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    found = []
    for leaf in range(metadata.num_columns):
        name = metadata.schema.column(leaf).path
        chunks = [row_group.column(leaf) for row_group in row_groups] if name in strings else []
        if chunks and all(
            each.has_dictionary_page and each.total_uncompressed_size <= _BYTES_OF_A_CODE * each.num_values
            for each in chunks
        ):
            found.append(name)
    return found


def with_statistics(table: pa.Table) -> list[str]:
    """The leaf columns for which Parquet keeps smallest and largest values: those without NaN.

    Parquet's statistics leave NaN out, and Arrow then skips row groups that have it: ``x != 1`` would lose
    rows (apache/arrow#28074).

    :param table: rows of the file, with Hudi's columns.
    """
    chosen: list[str] = []
    for field in table.schema:
        if pa.types.is_nested(field.type):
            leaves = _leaves(field, field.name)
            chosen.extend(path for path, kind in leaves if not pa.types.is_floating(kind))
        elif not pa.types.is_floating(field.type) or not pc.any(pc.is_nan(table[field.name])).as_py():
            chosen.append(field.name)
    return chosen


def _leaves(field: pa.Field, path: str) -> Iterator[tuple[str, pa.DataType]]:
    """The Parquet paths of a column's leaves, and their types."""
    kind = field.type
    if pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            child = kind.field(position)
            yield from _leaves(child, f"{path}.{child.name}")
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_field, f"{path}.list.element")
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_field, f"{path}.key_value.key")
        yield from _leaves(kind.item_field, f"{path}.key_value.value")
    else:
        yield path, kind

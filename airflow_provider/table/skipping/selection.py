"""The base files that a query has to open: by partition, by record key, by column statistics.

A file is skipped only if certainly none of its rows matches. Unknown statistics, such as those of a column
that was added later, or of a file that was never indexed, skip nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import NotATableError, TableServiceError
from airflow_provider.table.file_groups import BaseFile, FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.keys import partition_paths, partition_values, record_keys
from airflow_provider.table.metadata_table import MetadataPartition
from airflow_provider.table.properties import MERGE_ON_READ, TableConfig
from airflow_provider.table.schema import META_COLUMNS, with_meta_columns
from airflow_provider.table.skipping.predicates import (
    Filter,
    Where,
    alternatives,
    expression,
    may_match,
    named_columns,
)
from airflow_provider.table.skipping.statistics import Cases

_RECORD_KEY = META_COLUMNS[2]
_MOST_KEYS = 10_000  # more keys of one query are not looked up

_ONE_WAY = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_. -]{,99}"
)  # texts that every writer puts into a path unchanged

PARTITION_COLUMNS = "partition columns"
"""The name of a :class:`Step` that uses the partition paths."""


@dataclass(frozen=True)
class Step:
    """The part that one index had in a query.

    :param index: the metadata partition; or :data:`PARTITION_COLUMNS`.
    :param considered: number of partitions or files that it was asked about; None when these are all of the
        snapshot, and they have not been counted.
    :param skipped: how many of them need not be opened; None when ``considered`` is None.
    :param of: ``partitions``, ``files`` or ``file slices``.
    """

    index: str
    considered: int | None
    skipped: int | None
    of: str = "files"

    def to_dict(self) -> dict[str, Any]:
        """All fields, JSON-able."""
        return {
            "index": self.index,
            "considered": self.considered,
            "skipped": self.skipped,
            "of": self.of,
        }


@dataclass(frozen=True)
class Selection:
    """The base files that a query has to open, and the steps that have excluded the others.

    :param base_files: the files.
    :param steps: the steps, in their order.
    :param listed_by: ``files``, or ``folders`` where that index could not be used.
    """

    base_files: tuple[BaseFile, ...]
    steps: tuple[Step, ...]
    listed_by: str

    def to_dict(self) -> dict[str, Any]:
        """All fields, JSON-able."""
        return {
            "listed_by": self.listed_by,
            "steps": [each.to_dict() for each in self.steps],
            "files": len(self.base_files),
            "bytes": sum(each.size for each in self.base_files),
            "paths": [each.path for each in self.base_files],
        }


def select_files(
    view: FileSystemView,
    config: TableConfig,
    schema: pa.Schema,
    where: Where | None = None,
    *,
    files_in_table: int | None = None,
) -> Selection:
    """The base files that can have rows of a query.

    :param view: the snapshot.
    :param config: the table's configuration.
    :param schema: the table's data columns.
    :param where: the query's predicate; None for all rows.
    :param files_in_table: the number of files of the snapshot, if the caller has counted them: a look-up by
        key does not list them.
    :raises InvalidInputError: when the predicate cannot be evaluated over the table's columns.
    """
    schema = with_meta_columns(schema)
    query = None if where is None else expression(where, schema)
    steps: list[Step] = []
    found: list[BaseFile] | None = None
    if where is not None:
        found = _by_key(view, config, schema, where)
        if found is not None:
            skipped = None if files_in_table is None else files_in_table - len(found)
            steps.append(Step(MetadataPartition.RECORD_INDEX, files_in_table, skipped))
    if found is None:
        is_counted = files_in_table is not None
        named = None if where is None or is_counted else _named_partitions(where, config, schema)
        if named is not None:
            partitions = named
            steps.append(Step(PARTITION_COLUMNS, None, None, "partitions"))
        else:
            partitions = view.all_partitions()
        if query is not None:
            if named is None:
                partitions = _by_partition(partitions, config, schema, query, steps)
            if config.partition_fields:
                partitions = _by_partition_statistics(view, schema, query, partitions, steps)
        view.look_at(partitions)
        found = [base_file for partition in partitions for base_file in view.base_files(partition)]
    if query is not None:
        found = _by_statistics(view, schema, query, found, steps)
    uses_files = view.indexes is not None and view.indexes.has(MetadataPartition.FILES)
    return Selection(tuple(found), tuple(steps), "files" if uses_files else "folders")


def select_partitions(
    view: FileSystemView,
    config: TableConfig,
    schema: pa.Schema,
    where: Where | None,
    steps: list[Step] | None = None,
) -> list[str]:
    """The partitions that can have rows of a query, by their paths.

    :param view: the snapshot.
    :param config: the table's configuration.
    :param schema: the table's data columns.
    :param where: the query's predicate; None for all rows.
    :param steps: takes the step that skips some; then the table's partitions are counted.
    :raises InvalidInputError: when the predicate cannot be evaluated over the table's columns.
    """
    schema = with_meta_columns(schema)
    if where is None:
        return view.all_partitions()
    query = expression(where, schema)
    named = None if steps is not None else _named_partitions(where, config, schema)
    if named is not None:
        return named
    return _by_partition(view.all_partitions(), config, schema, query, [] if steps is None else steps)


def without_matches(
    view: FileSystemView, schema: pa.Schema, where: Where, slices: Sequence[FileSlice]
) -> list[tuple[FileSlice, list[str]]]:
    """The file slices of which no file has a row of a query, by the statistics of the files.

    A merged row is one version of its record, and that version lies whole in one file of the slice. So where
    no file has a match, the slice has none. A file may also have versions that newer ones replace or delete:
    they can only keep a slice that could be skipped. All this does not hold where a merged row takes values
    from several versions, which the caller has to know.

    :param view: the snapshot.
    :param schema: the table's data columns.
    :param where: the query's predicate.
    :param slices: the file slices.
    :return: these slices, each with its log files of which no statistics are known. The slice can be skipped
        only if they hold no row, as those that only delete.
    """
    columns = with_meta_columns(schema)
    query = expression(where, columns)
    named = named_columns(query, columns.names)
    if view.indexes is None or not named or not slices:
        return []
    paths = [path for each in slices for path in each.paths]
    stats = view.indexes.column_stats(paths, named)
    if stats is None:
        return []
    logs = {path for each in slices for path in each.log_paths}
    # Hudi fills its own columns while it appends. Nothing says that the JVM takes their statistics later.
    in_logs = [each for each in named if each not in META_COLUMNS]
    of_bases, of_logs = Cases(columns), Cases(columns, of_log_files=True)
    known = [
        of_logs.of(stats.get(path, {}), in_logs) if path in logs else of_bases.of(stats.get(path, {}), named)
        for path in paths
    ]
    matching = {path for path, may in zip(paths, may_match(query, columns, known), strict=True) if may}
    # The JVM writes statistics without a value for a file of which it knows none.
    unknown = {path for path in logs if not any(each.value_count for each in stats.get(path, {}).values())}
    return [
        (each, [path for path in each.log_paths if path in unknown])
        for each in slices
        if not unknown.issuperset(each.paths) and matching.isdisjoint({*each.paths} - unknown)
    ]


# --- by partition -------------------------------------------------------------------------------


def _by_partition(
    partitions: list[str], config: TableConfig, schema: pa.Schema, query: pc.Expression, steps: list[Step]
) -> list[str]:
    if not config.partition_fields or not named_columns(query, config.partition_fields):
        return partitions
    known = [_of_partition(partition, config, schema) for partition in partitions]
    kept = [each for each, may in zip(partitions, may_match(query, schema, known), strict=True) if may]
    steps.append(Step(PARTITION_COLUMNS, len(partitions), len(partitions) - len(kept), "partitions"))
    return kept


def _named_partitions(where: Where, config: TableConfig, schema: pa.Schema) -> list[str] | None:
    """The partitions of all rows that filters can match, even partitions that do not exist.

    None when the filters do not fix the partitions, or when a value has several forms in a path.
    """
    if not config.partition_fields or not config.folders_hold_values or isinstance(where, pc.Expression):
        return None
    if not all(
        name in schema.names and pa.types.is_string(schema.field(name).type)
        for name in config.partition_fields
    ):
        return None
    rows = _fixed_values(where, config.partition_fields, schema)
    if rows is None or not all(text and _ONE_WAY.fullmatch(text) for row in rows for text in row):
        return None
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return sorted(partition_paths(pa.table(columns, config.partition_fields), config).unique().to_pylist())


def _of_partition(path: str, config: TableConfig, schema: pa.Schema) -> dict[str, list[pc.Expression]]:
    try:
        texts = partition_values(path, config)
    except NotATableError:
        return {}  # the folders are named in another way
    known = {}
    for column, text in zip(config.partition_fields, texts, strict=True):
        kind = schema.field(column).type if column in schema.names else None
        # Null and an empty text have the same folder. Values of other types may have several forms in a path.
        if text is not None and kind is not None and _is_plain(kind):
            try:
                known[column] = [pc.field(column) == pa.scalar(text).cast(kind)]
            except pa.ArrowInvalid:
                continue
    return known


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_boolean(kind)
    )


# --- by record key ------------------------------------------------------------------------------


def _by_key(
    view: FileSystemView, config: TableConfig, schema: pa.Schema, where: Where
) -> list[BaseFile] | None:
    """The files with the record keys that a query names; None when it names none or no index answers."""
    if config.table_type == MERGE_ON_READ:
        return None  # a base file may have keys that a log file has deleted; the index lacks them
    groups = groups_by_key(view, config, schema, where)
    if groups is None:
        return None
    found = [base_file for group in sorted(groups) if (base_file := view.base_file(group)) is not None]
    if len(found) < len(groups):
        return None  # the index is not of this snapshot
    return found


def groups_by_key(
    view: FileSystemView, config: TableConfig, schema: pa.Schema, where: Where
) -> set[FileGroupId] | None:
    """The file groups with the record keys that a query names, by ``record_index``.

    :param view: the snapshot.
    :param config: the table's configuration.
    :param schema: the table's columns.
    :param where: the query's predicate.
    :return: None when the query does not fix the keys of its rows, or no index answers.
    """
    keys = _record_keys(where, config, schema)
    if keys is None or view.indexes is None:
        return None
    locations = view.indexes.locations(keys)
    if locations is None:
        return None
    return {each.file_group for each in locations.values()}


def _record_keys(where: Where, config: TableConfig, schema: pa.Schema) -> set[str] | None:
    """The record keys of all rows that filters can match; None when the filters do not fix them."""
    rows = _fixed_values(where, config.record_key_fields, schema)
    if rows is None:
        return None
    kinds = [schema.field(name).type for name in config.record_key_fields]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    try:
        return set(record_keys(pa.table(columns, config.record_key_fields), config).to_pylist())
    except TableServiceError:
        return None  # no record can have such a key


def _fixed_values(where: Where, names: Sequence[str], schema: pa.Schema) -> list[tuple[Any, ...]] | None:
    """The values in some columns of all rows that filters can match; None when these do not fix them."""
    rows: list[tuple[Any, ...]] = []
    for group in alternatives(where):
        values = [_values_of(column, group, schema) for column in names]
        if not values or not all(values):
            return None
        rows += product(*(each or () for each in values))
        if len(rows) > _MOST_KEYS:
            return None
    return rows or None


def _values_of(column: str, group: Sequence[Filter], schema: pa.Schema) -> list[Any] | None:
    for name, operator, value in group:
        if name == column and operator in ("=", "==", "in"):
            values = list(value) if operator == "in" else [value]
            try:
                return [pa.scalar(each).cast(schema.field(column).type).as_py() for each in values]
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
    return None


# --- by statistics ------------------------------------------------------------------------------


def _by_statistics(
    view: FileSystemView,
    schema: pa.Schema,
    query: pc.Expression,
    base_files: list[BaseFile],
    steps: list[Step],
) -> list[BaseFile]:
    columns = named_columns(query, schema.names)
    if view.indexes is None or not columns or not base_files:
        return base_files
    stats = view.indexes.column_stats([each.path for each in base_files], columns)
    if stats is None:
        return base_files
    cases = Cases(schema)
    known = [cases.of(stats.get(each.path, {}), columns) for each in base_files]
    kept = [each for each, may in zip(base_files, may_match(query, schema, known), strict=True) if may]
    steps.append(Step(MetadataPartition.COLUMN_STATS, len(base_files), len(base_files) - len(kept)))
    return kept


def _by_partition_statistics(
    view: FileSystemView,
    schema: pa.Schema,
    query: pc.Expression,
    partitions: list[str],
    steps: list[Step],
) -> list[str]:
    columns = named_columns(query, schema.names)
    if view.indexes is None or not columns or not partitions:
        return partitions
    stats = view.indexes.partition_stats(partitions, columns)
    if stats is None:
        return partitions
    cases = Cases(schema)
    known = [cases.of(stats.get(each, {}), columns) for each in partitions]
    kept = [each for each, may in zip(partitions, may_match(query, schema, known), strict=True) if may]
    skipped = len(partitions) - len(kept)
    steps.append(Step(MetadataPartition.PARTITION_STATS, len(partitions), skipped, "partitions"))
    return kept

"""Changes of a table's columns that rewrite no row: add, widen, rename and comment (``ALTER TABLE``).

Each call is one commit. Other Hudi readers and writers see it like one of their own
(``AlterHoodieTableAddColumnsCommand``, and ``AlterTableCommand`` where the table has schema on read).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.concurrency.heartbeats import HeartbeatInfo
from airflow_provider.concurrency.log import Commit
from airflow_provider.concurrency.write import ALTER_SCHEMA, change_schema
from airflow_provider.exceptions import IncompatibleSchemaError, InvalidInputError, MissingColumnError
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import read_index_definitions
from airflow_provider.table.schema import (
    META_COLUMNS,
    ColumnChange,
    TableSchema,
    check_roles,
    to_schema,
    type_name,
    widened,
)
from airflow_provider.table.timeline import Action

log = logging.getLogger(__name__)

SCHEMA_ON_READ = "hoodie.schema.on.read.enable"
"""Hudi's option that lets columns be renamed."""


@dataclass(frozen=True)
class Alteration:
    """Changes of a table's columns. All names are those from before the change.

    A nested column is named by its path: ``address.street``, with ``element`` for the elements of an array
    and ``value`` for the values of a map.

    :param add: types of new columns, by name; as Spark and Hive name them. New columns come after the present
        ones.
    :param widen: new types, by name.
    :param rename: new names, by name; a nested column's new name has no path.
    :param comment: comments, by name.
    :raises InvalidInputError: when it contains no change, or a type is not known.
    """

    add: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    comment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.add or self.widen or self.rename or self.comment):
            raise InvalidInputError("nothing is to be changed; say what to add, widen, rename or comment")
        for given in (self.add, self.widen):
            to_schema(given) if given else None

    def applied(self, table: HudiTable, schema: TableSchema) -> tuple[TableSchema, tuple[ColumnChange, ...]]:
        """The table's schema after the changes, and the changes that were not already made.

        :param table: the table.
        :param schema: its schema.
        :raises MissingColumnError: when the table has no such column.
        :raises IncompatibleSchemaError: when a column cannot get its new type.
        :raises InvalidInputError: when a column cannot be renamed.
        :raises UnsupportedTableError: when another Hudi could not read the table's columns afterwards.
        """
        changes: list[ColumnChange] = []
        columns = schema.columns
        for name, text in self.widen.items():
            columns = _widened(columns, _path(name), _type_of(name, text), changes)
        for name, text in self.add.items():
            columns = _added(columns, _path(name), _type_of(name, text), changes)
        check_roles(table.config, changes)
        schema = schema.with_columns(columns)
        for name, text in self.comment.items():
            schema = _commented(schema, _path(name), text, changes)
        for name, new in self.rename.items():
            schema = _renamed(table, schema, _path(name), new, changes)
        return schema, tuple(changes)


def alter_table(
    table: HudiTable, alteration: Alteration, *, lock: LockProvider | None = None
) -> dict[str, Any]:
    """Change a table's columns, as one commit.

    Concurrent changes of columns commit one after the other, and the later one builds on the schema of the
    earlier one. A load in flight also builds on it. A second call with the same alteration changes nothing.

    :param table: the table.
    :param alteration: the changes of its columns.
    :param lock: the table lock; :func:`~airflow_provider.locks.default_lock` when None.
    :return: JSON-able: ``table``, ``location``, ``instant`` and ``completion_time`` (None where nothing
        changes), ``operation``, ``schema_changes``.
    :raises InvalidInputError: when a change is impossible; see :meth:`Alteration.applied`. No file is written
        then.
    :raises WriteConflictError: when a write of another Hudi writer is unfinished.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    lock = lock or default_lock(table)
    changes: tuple[ColumnChange, ...] = ()

    def evolve(schema: TableSchema) -> TableSchema:
        nonlocal changes
        evolved, changes = alteration.applied(table, schema)
        return evolved

    evolve(table.schema_on(table.timeline()))  # an impossible change fails before the lock is taken
    info = HeartbeatInfo.of_this_process(Action.COMMIT, ALTER_SCHEMA, PRIORITIES["ingestion"])
    with lock:
        entry: Commit | None = change_schema(table, evolve, info, shared=lock.excludes_hudi)
    for change in changes:
        log.info("table %s: %s", table.location, change)
    return {
        "table": table.config.name,
        "location": table.location,
        "instant": entry.instant if entry else None,
        "completion_time": entry.completion_time if entry else None,
        "operation": ALTER_SCHEMA,
        "schema_changes": [change.to_dict() for change in changes],
    }


# --- one column -----------------------------------------------------------------------------------

_Path = tuple[str, ...]


def _path(name: str) -> _Path:
    path = tuple(name.split("."))
    if not all(path):
        raise InvalidInputError(f"{name!r} is no name of a column", column=name)
    if path[0] in META_COLUMNS:
        raise InvalidInputError(f"column {path[0]!r} is Hudi's own", column=path[0])
    return path


def _type_of(name: str, text: str) -> pa.DataType:
    return to_schema({name: text}).field(0).type


def _widened(columns: pa.Schema, path: _Path, wanted: pa.DataType, changes: list[ColumnChange]) -> pa.Schema:
    def change(kind: pa.DataType) -> pa.DataType:
        if kind.equals(wanted):
            return kind
        if not widened(kind, wanted):
            raise IncompatibleSchemaError(
                f"column {'.'.join(path)!r} is {type_name(kind)}, and cannot become {type_name(wanted)}: int "
                "becomes bigint, float, double or string, bigint float, double or string, float double or "
                "string, double string, and a decimal one with more digits",
                column=".".join(path),
                found=str(kind),
                expected=str(wanted),
            )
        changes.append(ColumnChange(".".join(path), "widened", type_name(kind), type_name(wanted)))
        return wanted

    return pa.schema(_changed(list(columns), path, (), change))


def _added(columns: pa.Schema, path: _Path, wanted: pa.DataType, changes: list[ColumnChange]) -> pa.Schema:
    *parents, name = path

    def add(fields: list[pa.Field]) -> list[pa.Field]:
        same = next((each for each in fields if each.name.lower() == name.lower()), None)
        if same is None:
            changes.append(ColumnChange(".".join(path), "added", None, type_name(wanted)))
            return [*fields, pa.field(name, wanted)]
        if same.name != name or not same.type.equals(wanted):
            raise IncompatibleSchemaError(
                f"column {'.'.join(path)!r} ({type_name(wanted)}) cannot be added: there is a column "
                f"{same.name!r} of type {type_name(same.type)} already",
                column=".".join(path),
            )
        return fields

    if not parents:
        return pa.schema(add(list(columns)))

    def inside(kind: pa.DataType) -> pa.DataType:
        if not pa.types.is_struct(kind):
            raise IncompatibleSchemaError(
                f"column {'.'.join(path)!r} cannot be added: {'.'.join(parents)!r} is {type_name(kind)}, not "
                "a struct; of an array name the element's, of a map the value's",
                column=".".join(path),
            )
        return pa.struct(add(list(kind)))

    return pa.schema(_changed(list(columns), tuple(parents), (), inside))


def _commented(schema: TableSchema, path: _Path, text: str, changes: list[ColumnChange]) -> TableSchema:
    _changed(list(schema.columns), path, (), lambda kind: kind)  # raises when there is no such column
    before = schema.comment(path)
    if before == text:
        return schema
    changes.append(ColumnChange(".".join(path), "commented", before, text))
    return schema.with_comment(path, text)


def _renamed(
    table: HudiTable, schema: TableSchema, path: _Path, new: str, changes: list[ColumnChange]
) -> TableSchema:
    *parents, old = path
    siblings = _names_in(schema.columns, tuple(parents))
    if old not in siblings and new in siblings:
        return schema  # an earlier call has renamed it
    _changed(list(schema.columns), path, (), lambda kind: kind)
    shown, same = ".".join(path), next((name for name in siblings if name.lower() == new.lower()), old)
    if same != old:
        raise IncompatibleSchemaError(
            f"column {shown!r} cannot become {new!r}: there is a column {same!r} already", column=shown
        )
    if schema.ids is None and not table.hudi_options.values.get(SCHEMA_ON_READ, False):
        raise InvalidInputError(
            f"table {table.location}: column {shown!r} cannot be renamed, because readers find it by its "
            f"name in files that are there; set the table's option {SCHEMA_ON_READ}=true first, from which "
            "on it keeps ids of its columns, and give other Hudi readers that option too: those that do not "
            "know it find null",
            column=shown,
        )
    for role, names in _named_by(table):
        if shown in names:
            raise InvalidInputError(
                f"table {table.location}: column {shown!r} cannot be renamed, because it is {role}",
                column=shown,
            )
    if local := [f.name for f in schema.columns if _is_local_time(f.type)]:
        raise InvalidInputError(
            f"table {table.location}: column {shown!r} cannot be renamed, because with schema on read no "
            f"Hudi reads column {local[0]!r} back, a timestamp without time zone",
            column=shown,
        )
    changes.append(ColumnChange(shown, "renamed", old, new))
    return schema.with_name(path, new)


def _named_by(table: HudiTable) -> Iterator[tuple[str, frozenset[str]]]:
    config = table.config
    yield "a record key column", frozenset(config.record_key_fields)
    yield "a partition column", frozenset(config.partition_fields)
    yield "an ordering column", frozenset(config.ordering_fields)
    for key, value in table.hudi_options.values.items():
        if isinstance(value, tuple):
            yield f"named by the table's option {key}", frozenset(value)
    for partition, definition in read_index_definitions(table.storage).items():
        yield f"in the index {partition}; drop that first", frozenset(definition.source_fields)


def _is_local_time(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_is_local_time(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _names_in(columns: pa.Schema, parents: _Path) -> list[str]:
    found = list(columns.names)

    def look(kind: pa.DataType) -> pa.DataType:
        found[:] = [child.name for child in kind] if pa.types.is_struct(kind) else []
        return kind

    if parents:
        _changed(list(columns), parents, (), look)
    return found


def _changed(fields: list[pa.Field], path: _Path, above: _Path, change: Any) -> list[pa.Field]:
    """The columns, with another type for one of them."""
    name, rest = path[0], path[1:]
    position = next((number for number, each in enumerate(fields) if each.name == name), None)
    if position is None:
        shown = ".".join((*above, name))
        raise MissingColumnError(
            f"there is no column {shown!r}; there are: {', '.join(each.name for each in fields)}",
            column=shown,
        )
    changed = list(fields)
    changed[position] = fields[position].with_type(
        _changed_type(fields[position].type, rest, (*above, name), change)
    )
    return changed


def _changed_type(kind: pa.DataType, path: _Path, above: _Path, change: Any) -> pa.DataType:
    if not path:
        return change(kind)
    if pa.types.is_struct(kind):
        return pa.struct(_changed(list(kind), path, above, change))
    if pa.types.is_list(kind) and path[0] == "element":
        inner = _changed_type(kind.value_type, path[1:], (*above, "element"), change)
        return pa.list_(kind.value_field.with_type(inner))
    if pa.types.is_map(kind) and path[0] == "value":
        inner = _changed_type(kind.item_type, path[1:], (*above, "value"), change)
        return pa.map_(kind.key_type, kind.item_field.with_type(inner))
    shown = ".".join((*above, path[0]))
    raise MissingColumnError(
        f"there is no column {shown!r}: {'.'.join(above)!r} is {type_name(kind)}", column=shown
    )

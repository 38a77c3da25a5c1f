"""The schema of a table, from the metadata of its newest commit (Hudi's ``TableSchemaResolver``).

The newest commit is the last requested one of those that may change the schema. Before the first such commit,
the table's properties hold the schema. So readers see columns that other Hudi writers have added or widened,
and a snapshot of the past has the columns of that time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.keys import partition_values
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.schema.arrow_avro import (
    META_COLUMNS,
    arrow_to_avro,
    avro_to_arrow,
    with_meta_columns,
    without_meta_columns,
)
from airflow_provider.table.schema.conversion import Origin, Origins
from airflow_provider.table.schema.schema_on_read import (
    LATEST_SCHEMA,
    ColumnIds,
    numbered,
    renumbered,
    schema_text,
    with_changed,
)

SCHEMA = "schema"
"""The key in a commit's extra metadata that holds the table's columns, as an Avro record."""


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table at one moment.

    :param text: JSON of an Avro record, with or without Hudi's own columns.
    :param ids: the columns' ids, when the table has schema on read.
    :param folders: the table's configuration, when only the names of folders hold the partition columns.
    """

    text: str
    ids: ColumnIds | None = None
    folders: TableConfig | None = None

    @cached_property
    def columns(self) -> pa.Schema:
        """The data columns, without Hudi's own."""
        return without_meta_columns(avro_to_arrow(self.text))

    @property
    def version(self) -> int | None:
        """The version of the columns in a table with schema on read; None for any other table.

        A write that began on one version cannot commit on another one, because columns may have got other
        names.
        """
        return None if self.ids is None else self.ids.version

    def origins(self, path: str) -> Origins | None:
        """Where the table's columns lie in a base file; None when they all lie there by name.

        :param path: the base file's path.
        """
        folder, _, name = path.rpartition("/")
        parsed = parse_base_file_name(name)
        return self.origins_at(folder, parsed[2] if parsed else None)

    def origins_at(self, folder: str, instant: str | None) -> Origins | None:
        """Where the table's columns lie in rows that an instant wrote; None when they all lie there by name.

        :param folder: the partition path of the rows.
        :param instant: requested time of the instant; None when it is not known.
        """
        origins = self.ids.origins(instant) if self.ids is not None and instant else None
        if self.folders is None:
            return origins
        values = zip(self.folders.partition_fields, partition_values(folder, self.folders), strict=True)
        return {**(origins or {}), **{column: Origin(None, value=value) for column, value in values}}

    @property
    def extra_metadata(self) -> dict[str, str]:
        """The entries of a commit's extra metadata that hold this schema."""
        return {SCHEMA: self.text} | ({} if self.ids is None else {LATEST_SCHEMA: self.ids.latest})

    def of_version(self, instant: str) -> TableSchema:
        """This schema, as the version that a commit makes.

        :param instant: requested time of the commit.
        """
        return self if self.ids is None else replace(self, ids=self.ids.of_version(instant))

    def with_columns(self, columns: pa.Schema) -> TableSchema:
        """This schema after columns were added or changed.

        A column that has not changed keeps its Avro text, with its remark.

        :param columns: the new data columns.
        :raises IncompatibleSchemaError: when a name or a type cannot be stored.
        :raises UnsupportedTableError: when the table has schema on read, and Hudi cannot read the type back.
        """
        if columns.equals(self.columns, check_metadata=True):
            return self
        record = json.loads(self.text)
        text = _rewritten(record, self.columns, columns)
        if self.ids is None:
            return TableSchema(text)
        changed = renumbered(self.ids.record, self.columns, columns)
        return TableSchema(text, self.ids.following(changed))

    def with_comment(self, path: tuple[str, ...], comment: str) -> TableSchema:
        """This schema with another remark on a column.

        :param path: the column, with ``element`` and ``value`` inside arrays and maps.
        :param comment: the remark.
        """
        record = json.loads(self.text)
        _column(record, path)["doc"] = comment
        ids = self.ids and self.ids.following(with_changed(self.ids.record, path, doc=comment))
        return TableSchema(schema_text(record), ids)

    def with_name(self, path: tuple[str, ...], name: str) -> TableSchema:
        """This schema with another name for a column. From then on the table has schema on read.

        :param path: the column, with ``element`` and ``value`` inside arrays and maps.
        :param name: the new name.
        :raises UnsupportedTableError: when a column has a type that Hudi cannot read back by schema on read.
        """
        ids = self.ids or ColumnIds(schema_text(numbered(self.columns)))
        record = json.loads(self.text)
        _column(record, path)["name"] = name
        # Nested types are named after their columns.
        columns = without_meta_columns(avro_to_arrow(schema_text(record)))
        text = _rewritten(record, columns, columns, anew=True)
        return TableSchema(text, ids.following(with_changed(ids.record, path, name=name)))

    def comment(self, path: tuple[str, ...]) -> str | None:
        """The remark on a column; None when it has none.

        :param path: the column, with ``element`` and ``value`` inside arrays and maps.
        """
        return _column(json.loads(self.text), path).get("doc")

    def comments(self) -> dict[str, str]:
        """The remarks on the data columns, by name."""
        fields = json.loads(self.text)["fields"]
        return {each["name"]: each["doc"] for each in fields if each.get("doc")}


# --- the Avro record ------------------------------------------------------------------------------

_Record = dict[str, Any]


def _rewritten(record: _Record, before: pa.Schema, columns: pa.Schema, *, anew: bool = False) -> str:
    """An Avro record with other columns.

    :param record: the record before, perhaps with Hudi's own columns.
    :param before: the data columns of that record.
    :param columns: the new data columns.
    :param anew: whether every column is written anew.
    """
    known = {column["name"]: column for column in record["fields"]}
    has_meta = META_COLUMNS[0] in known
    made = json.loads(arrow_to_avro(with_meta_columns(columns) if has_meta else columns, _name_of(record)))
    anew = anew or _refers_by_name(record)
    for position, column in enumerate(made["fields"]):
        if (old := known.get(column["name"])) is None:
            continue
        index = before.get_field_index(column["name"])
        if index < 0 or (not anew and before.field(index).equals(columns.field(column["name"]))):
            made["fields"][position] = old
        else:
            _carry_remarks(old, column)
    made |= {name: record[name] for name in ("name", "namespace") if name in record}
    return schema_text(made)


def _name_of(record: _Record) -> str:
    # arrow_to_avro appends the suffix again.
    return str(record["name"]).removesuffix("_record")


_PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "bytes"})
_COMPLEX = frozenset({"record", "array", "map", "fixed", "enum"})


def _refers_by_name(avro: Any) -> bool:
    """Whether the record names a type that it defines somewhere else."""
    if isinstance(avro, str):
        return avro not in _PLAIN | _COMPLEX
    if isinstance(avro, list):
        return any(map(_refers_by_name, avro))
    if avro.get("type") == "record":
        return any(_refers_by_name(column["type"]) for column in avro["fields"])
    return any(_refers_by_name(avro[name]) for name in ("type", "items", "values") if name in avro)


def _carry_remarks(old: _Record, new: _Record) -> None:
    if "doc" in old:
        new["doc"] = old["doc"]
    there = {column["name"]: column for column in _columns_in(old["type"])}
    for column in _columns_in(new["type"]):
        if column["name"] in there:
            _carry_remarks(there[column["name"]], column)


def _columns_in(avro: Any) -> list[_Record]:
    """The columns of a record, also of one in a union, an array or a map; empty for any other type."""
    if isinstance(avro, list):
        return next((found for each in avro if (found := _columns_in(each))), [])
    if isinstance(avro, Mapping):
        if avro.get("type") == "record":
            return list(avro["fields"])
        return next((_columns_in(avro[name]) for name in ("items", "values", "type") if name in avro), [])
    return []


def _column(record: _Record, path: tuple[str, ...]) -> _Record:
    fields: list[_Record] = record["fields"]
    found: _Record = {}
    for name in path:
        inside = next((each for each in fields if each["name"] == name), None)
        if inside is not None:  # otherwise the name is an array's element or a map's value
            found, fields = inside, _columns_in(inside["type"])
    return found

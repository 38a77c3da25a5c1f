"""The schema of a table: what its newest commit says (Hudi's ``TableSchemaResolver``).

The newest commit is the one that was requested last, among those that may change the schema. Where none says
it, the properties say what the table was created with. So what other Hudi writers have added or widened is
seen, and a snapshot of the past has the columns of then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from airflow_provider.exceptions import NoSuchInstantError, UnsupportedTableError
from airflow_provider.table.archived_timeline import content_of
from airflow_provider.table.base_file import parse_base_file_name
from airflow_provider.table.conversion import Origin, Origins
from airflow_provider.table.keys import partition_values
from airflow_provider.table.metadata import (
    REWRITES,
    CommitMetadata,
    decode_commit_metadata,
    stored_text,
)
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig
from airflow_provider.table.schema import (
    META_COLUMNS,
    arrow_to_avro,
    avro_to_arrow,
    with_meta_columns,
    without_meta_columns,
)
from airflow_provider.table.schema_on_read import (
    LATEST_SCHEMA,
    ColumnIds,
    numbered,
    read_history,
    renumbered,
    with_changed,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline

SCHEMA = "schema"
"""In a commit's extra metadata: the table's columns, as an Avro record."""

_KEEP_SCHEMA = REWRITES | {"INDEX"}  # WriteOperationType.canUpdateSchema


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table at one moment.

    :param text: as an Avro record, JSON; with or without Hudi's own columns.
    :param ids: where the table has schema on read.
    :param folders: the configuration of a table whose partition columns are in the folders' names only.
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
        """Which version of a table with schema on read it is; None for another table.

        Who writes files of one version cannot commit on another: the same columns may have other names.
        """
        return None if self.ids is None else self.ids.version

    def origins(self, path: str) -> Origins | None:
        """How the columns of a base file become the table's, besides by their names.

        :param path: of the base file.
        """
        folder, _, name = path.rpartition("/")
        parsed = parse_base_file_name(name)
        origins = self.ids.origins(parsed[2]) if self.ids is not None and parsed else None
        if self.folders is None:
            return origins
        values = zip(self.folders.partition_fields, partition_values(folder, self.folders), strict=True)
        return {**(origins or {}), **{column: Origin(None, value=value) for column, value in values}}

    def is_said_in(self, content: bytes) -> bool:
        """Whether commit metadata, as it lies in the file, says this schema word for word.

        A look at the bytes costs a fraction of decoding what a commit says of each file that it has written.
        Where they do not tell, nothing is known.

        :param content: of a completed instant.
        """
        if self.ids is not None or self._stored not in content:
            return False
        return not any(name.encode() in content for name in (LATEST_SCHEMA, *_KEEP_SCHEMA))

    @cached_property
    def _stored(self) -> bytes:
        return stored_text(SCHEMA) + stored_text(self.text)

    @property
    def extra_metadata(self) -> dict[str, str]:
        """What a commit of a table with this schema says of it."""
        return {SCHEMA: self.text} | ({} if self.ids is None else {LATEST_SCHEMA: self.ids.latest})

    def of_version(self, instant: str) -> TableSchema:
        """This schema, changed by a commit.

        :param instant: its requested time.
        """
        return self if self.ids is None else replace(self, ids=self.ids.of_version(instant))

    def with_columns(self, columns: pa.Schema) -> TableSchema:
        """This schema, after columns were added or changed.

        What has not changed stays as it is written, with its remarks.

        :param columns: the data columns to be.
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
        return TableSchema(_dumped(record), ids)

    def with_name(self, path: tuple[str, ...], name: str) -> TableSchema:
        """This schema with another name for a column; it has schema on read from then on.

        :param path: the column, with ``element`` and ``value`` inside arrays and maps.
        :param name: the name to be.
        :raises UnsupportedTableError: when the table has a column of a type that Hudi cannot read back then.
        """
        ids = self.ids or ColumnIds(_dumped(numbered(self.columns)))
        record = json.loads(self.text)
        _column(record, path)["name"] = name
        # Nested types are named after their columns.
        columns = without_meta_columns(avro_to_arrow(_dumped(record)))
        text = _rewritten(record, columns, columns, anew=True)
        return TableSchema(text, ids.following(with_changed(ids.record, path, name=name)))

    def comment(self, path: tuple[str, ...]) -> str | None:
        """The remark on a column; None where there is none.

        :param path: the column, with ``element`` and ``value`` inside arrays and maps.
        """
        return _column(json.loads(self.text), path).get("doc")

    def comments(self) -> dict[str, str]:
        """The remarks on the data columns, by name."""
        fields = json.loads(self.text)["fields"]
        return {each["name"]: each["doc"] for each in fields if each.get("doc")}


def table_schema(storage: Storage, timeline: Timeline, config: TableConfig) -> TableSchema:
    """The schema of a table at the moment of a timeline.

    One or two small files are read, each once for a storage object.

    :param storage: the table's storage.
    :param timeline: the timeline.
    :param config: the table's configuration.
    :raises UnsupportedTableError: when neither a commit nor the configuration says it.
    """
    found = next(_said(storage, timeline), None) or created_schema(config)
    if found is None:
        raise UnsupportedTableError(
            f"table {storage.root}: no schema in {PROPERTIES_PATH} and no commit with one",
            location=storage.root,
        )
    if config.drops_partition_columns:
        found = _with_folders(found, config)
    if found.ids is None or found.ids.older:
        return found
    completed = {each.requested_time for each in timeline.commits()}
    older = read_history(storage, lambda each: each in completed or each < timeline.starts)
    return replace(found, ids=replace(found.ids, older=older))


def _with_folders(schema: TableSchema, config: TableConfig) -> TableSchema:
    """A schema with the partition columns; source: ``TableSchemaResolver.appendPartitionColumns``.

    :raises UnsupportedTableError: when the folders' names are something else than their values.
    """
    if not config.folders_hold_values:
        raise UnsupportedTableError(
            f"table {config.name!r} has hoodie.datasource.write.drop.partition.columns=true and the key "
            f"generator {config.key_generator}: no folder tells {list(config.partition_fields)}; read "
            "it with the Hudi that made it",
            table=config.name,
            property="hoodie.datasource.write.drop.partition.columns",
        )
    record = json.loads(schema.text)
    there = {each["name"] for each in record["fields"]}
    record["fields"] += [
        {"name": name, "type": ["null", "string"], "default": None}
        for name in config.partition_fields
        if name not in there
    ]
    return replace(schema, text=_dumped(record), folders=config)


def has_never_changed(schema: TableSchema, config: TableConfig) -> bool:
    """Whether every base file of a table has the table's columns, as far as can be told without a look.

    Columns are added and become wider, and never the other way round; all else needs schema on read.

    :param schema: the table's schema.
    :param config: the table's configuration.
    """
    created = created_schema(config)
    is_by_names = schema.ids is None and schema.folders is None
    return is_by_names and created is not None and created.columns.equals(schema.columns)


def says_schema_after(storage: Storage, timeline: Timeline, instant: str) -> bool:
    """Whether a commit that was requested later than another one says what the table's schema is.

    :param storage: the table's storage.
    :param timeline: the timeline.
    :param instant: requested time of the other one.
    """
    later = timeline.showing(lambda each: each.requested_time > instant)
    return next(_said(storage, later), None) is not None


def created_schema(config: TableConfig) -> TableSchema | None:
    """The schema that a table was created with; None where its properties do not tell.

    :param config: the table's configuration.
    """
    return None if config.create_schema is None else TableSchema(config.create_schema)


_known: WeakKeyDictionary[Storage, dict[str, TableSchema | None]] = WeakKeyDictionary()


def _said(storage: Storage, timeline: Timeline) -> Iterator[TableSchema]:
    """The schemas that commits say, that of the commit that was requested last first."""
    known = _known.setdefault(storage, {})
    for instant in sorted(timeline.commits(), key=attrgetter("requested_time"), reverse=True):
        if instant.file_name not in known:  # what a completed instant says never changes
            try:
                content = content_of(storage, timeline, instant)
            except NoSuchInstantError:  # undone in this moment: it says nothing any more
                continue
            before = next(reversed(known.values()), None)
            is_same = before is not None and before.is_said_in(content)
            known[instant.file_name] = before if is_same else schema_said(decode_commit_metadata(content))
        if (schema := known[instant.file_name]) is not None:
            yield schema


def schema_said(metadata: CommitMetadata) -> TableSchema | None:
    """The table's schema from a commit on; None where the commit says nothing of it.

    :param metadata: of the commit.
    """
    text = metadata.extra_metadata.get(SCHEMA)
    if not text or metadata.operation_type.upper() in _KEEP_SCHEMA:
        return None
    latest = metadata.extra_metadata.get(LATEST_SCHEMA)
    return TableSchema(text, ColumnIds(latest) if latest else None)


# --- the Avro record ------------------------------------------------------------------------------

_Record = dict[str, Any]


def _rewritten(record: _Record, before: pa.Schema, columns: pa.Schema, *, anew: bool = False) -> str:
    """A record with other columns.

    :param record: Avro's, with the columns of before, and perhaps with Hudi's own.
    :param before: its data columns.
    :param columns: those to be.
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
    return _dumped(made)


def _name_of(record: _Record) -> str:
    # Of which arrow_to_avro makes this record's own.
    return str(record["name"]).removesuffix("_record")


_PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "bytes"})
_COMPLEX = frozenset({"record", "array", "map", "fixed", "enum"})


def _refers_by_name(avro: Any) -> bool:
    """Whether a type is named that is defined somewhere else in the record."""
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
    """The columns of a record, also in a union, an array or a map; none of another type."""
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
        if inside is not None:  # else it is the element of an array, or the value of a map
            found, fields = inside, _columns_in(inside["type"])
    return found


def _dumped(record: Any) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)

"""Schema on read: columns have ids, so that they can be renamed, dropped, moved and retyped.

This is Hudi's ``InternalSchema``. Each commit of such a table holds the columns with their ids in its extra
metadata (``latest_schema``). ``.hoodie/.schema`` keeps all earlier versions (``SerDeHelper``,
``FileBasedInternalSchemaStorageManager``). A base file's columns have the names of the version that was the
newest when its instant was requested (``InternalSchemaCache``). Their ids tell which of the table's columns
they are now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.schema.arrow_avro import META_COLUMNS
from airflow_provider.table.schema.conversion import Origin, Origins
from airflow_provider.table.storage import Storage

LATEST_SCHEMA = "latest_schema"
"""The key in a commit's extra metadata that holds the columns with their ids."""

HISTORY_FOLDER = ".hoodie/.schema"
"""The folder with the columns of all versions. Each commit adds a file; the newest has all versions."""

_HISTORY_FILE = re.compile(r"^(\d{14}(?:\d{3})?)(?:_\d{14}(?:\d{3})?)?\.schemacommit$")
_VERSION = ("version_id", "version-id")  # now, and before Hudi 0.12

Record = Mapping[str, Any]


@dataclass(frozen=True)
class ColumnIds:
    """The columns of a table with schema on read, in their newest version and in earlier ones.

    :param latest: JSON of the newest version.
    :param older: JSON of each version in the table's history.
    """

    latest: str
    older: tuple[str, ...] = ()

    @cached_property
    def record(self) -> Record:
        """The newest version.

        :raises CorruptTableError: when its JSON is not a version.
        """
        return _parsed(self.latest)

    @property
    def version(self) -> int:
        """The id of the newest version: the requested time of the commit that made it."""
        return _version(self.record)

    @cached_property
    def _versions(self) -> list[tuple[int, Record]]:
        found = {_version(each): each for each in map(_parsed, self.older)}
        return sorted({**found, self.version: self.record}.items())

    def origins(self, instant: str) -> Origins | None:
        """Where the columns of the newest version lie in a base file.

        :param instant: requested time of the instant that wrote the file.
        :return: None when they all lie there by name.
        """
        known = [record for version, record in self._versions if version <= int(instant)]
        return _origins(self.record, known[-1]) if known else None

    def history(self) -> str:
        """The content of the file that a commit with these versions adds to :data:`HISTORY_FOLDER`."""
        newest_first = [record for _, record in reversed(self._versions)]
        return schema_text({"schemas": newest_first})

    def following(self, record: Record) -> ColumnIds:
        """These versions and a newer one. Its commit gives the newer one its id: see :meth:`of_version`.

        :param record: the newer version.
        """
        newest = {**record, "version_id": self.version + 1}
        return ColumnIds(schema_text(newest), tuple(schema_text(each) for _, each in self._versions))

    def of_version(self, instant: str) -> ColumnIds:
        """These versions, with a commit's requested time as the id of the newest one.

        :param instant: requested time of the commit.
        """
        return replace(self, latest=schema_text({**self.record, "version_id": int(instant)}))


def history_path(instant: str, completion_time: str) -> str:
    """The path of a commit's file of the history, relative to the table.

    :param instant: requested time of the commit.
    :param completion_time: completion time of the commit.
    """
    return f"{HISTORY_FOLDER}/{instant}_{completion_time}.schemacommit"


def read_history(storage: Storage, is_shown: Callable[[str], bool]) -> tuple[str, ...]:
    """Read all versions in a table's history.

    :param storage: the table's storage.
    :param is_shown: tells by a commit's requested time whether the commit has completed. The file of any
        other commit is not part of the history.
    :raises CorruptTableError: when the newest file cannot be understood.
    """
    matches = filter(None, map(_HISTORY_FILE.match, storage.names(HISTORY_FOLDER)))
    for instant, name in sorted(((match[1], match[0]) for match in matches), reverse=True):
        if is_shown(instant):
            try:
                content = storage.read(f"{HISTORY_FOLDER}/{name}")
            except FileNotFoundError:  # another Hudi writer has cleaned it
                continue
            try:
                return tuple(map(schema_text, json.loads(content)["schemas"]))
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptTableError(
                    f"{storage.url(HISTORY_FOLDER)}/{name} has no history of schemas: {error!r}", path=name
                ) from error
    return ()


# --- from columns without ids, and back -----------------------------------------------------------


def numbered(columns: pa.Schema) -> Record:
    """Give ids to the columns of a table that had none, as Hudi does.

    :param columns: the table's columns, without Hudi's own.
    :raises UnsupportedTableError: when Hudi cannot read a column's type back.
    """
    ids = iter(range(1 << 31))
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    record = _record([*meta, *columns], ids)
    for column in record["fields"][: len(META_COLUMNS)]:
        column["doc"] = ""
    return {"max_column_id": next(ids) - 1, "version_id": 0, **record}


def renumbered(record: Record, before: pa.Schema, columns: pa.Schema) -> Record:
    """A version after columns were added or became wider.

    :param record: the version before.
    :param before: the columns of that version, without Hudi's own.
    :param columns: the new columns in their order, without Hudi's own.
    :raises UnsupportedTableError: when Hudi cannot read a new type back.
    """
    ids = iter(range(record["max_column_id"] + 1, 1 << 31))
    known = {column["name"]: column for column in record["fields"]}
    meta = [known[name] for name in META_COLUMNS if name in known]
    own = _following(record, pa.struct(list(before)), pa.struct(list(columns)), ids)
    return {**record, "max_column_id": next(ids) - 1, "fields": [*meta, *own["fields"]]}


def with_changed(record: Record, path: tuple[str, ...], **changed: Any) -> Record:
    """A version in which one column has another name, or another remark.

    :param record: the version before.
    :param path: the column, with ``element`` and ``value`` inside arrays and maps.
    :param changed: ``name`` or ``doc``.
    """
    first, rest = path[0], path[1:]
    fields = [
        column
        if column["name"] != first
        else {**column, **changed}
        if not rest
        else {**column, "type": _in_type(column["type"], rest, changed)}
        for column in record["fields"]
    ]
    return {**record, "fields": fields}


def _in_type(kind: Any, path: tuple[str, ...], changed: Mapping[str, Any]) -> Any:
    inner = {"array": "element", "map": "value"}.get(kind["type"])
    if inner is None:
        return with_changed(kind, path, **changed)
    return {**kind, inner: _in_type(kind[inner], path[1:], changed)}


def _record(columns: list[pa.Field], ids: Iterator[int]) -> dict[str, Any]:
    # Hudi numbers all columns of a level before the columns inside them.
    own = [next(ids) for _ in columns]
    fields = [
        {"id": number, "name": column.name, "optional": column.nullable, "type": _type(column.type, ids)}
        for number, column in zip(own, columns, strict=True)
    ]
    return {"type": "record", "fields": fields}


def _type(kind: pa.DataType, ids: Iterator[int]) -> Any:
    if pa.types.is_struct(kind):
        return _record(list(kind), ids)
    if pa.types.is_list(kind):
        number = next(ids)
        return {
            "type": "array",
            "element_id": number,
            "element": _type(kind.value_type, ids),
            "element_optional": kind.value_field.nullable,
        }
    if pa.types.is_map(kind):
        key, value = next(ids), next(ids)
        return {
            "type": "map",
            "key_id": key,
            "key": "string",
            "value_id": value,
            "value": _type(kind.item_type, ids),
            "value_optional": kind.item_field.nullable,
        }
    return _name(kind)


def _following(record: Record, before: pa.DataType, kind: pa.DataType, ids: Iterator[int]) -> dict[str, Any]:
    known = {column["name"]: column for column in record["fields"]}
    own = {column.name: next(ids) for column in kind if column.name not in known}
    fields = []
    for column in kind:
        if column.name in known:
            made = dict(known[column.name])
            made["type"] = _following_type(made["type"], before.field(column.name).type, column.type, ids)
        else:
            made = {"id": own[column.name], "name": column.name, "type": _type(column.type, ids)}
        fields.append({**made, "optional": column.nullable})
    return {**record, "fields": fields}


def _following_type(name: Any, before: pa.DataType, kind: pa.DataType, ids: Iterator[int]) -> Any:
    if before.equals(kind, check_metadata=True):
        return name
    if pa.types.is_struct(kind):
        return _following(name, before, kind, ids)
    if pa.types.is_list(kind):
        return {**name, "element": _following_type(name["element"], before.value_type, kind.value_type, ids)}
    if pa.types.is_map(kind):
        return {**name, "value": _following_type(name["value"], before.item_type, kind.item_type, ids)}
    return _name(kind)


def _name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        size = ((10**kind.precision - 1).bit_length() + 8) // 8
        return f"decimal_fixed({kind.precision}, {kind.scale})[{size}]"
    for name, known in _TYPES.items():
        if kind.equals(known):
            return name
    raise UnsupportedTableError(
        f"schema on read: Hudi cannot read a column of type {kind} back (hoodie.schema.on.read.enable)",
        found=str(kind),
    )


_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


# --- by id ----------------------------------------------------------------------------------------


def _origins(now: Record, then: Record) -> Origins | None:
    by_id = {column["id"]: column for column in then["fields"]}
    found = {}
    for column in now["fields"]:
        before = by_id.get(column["id"])
        if before is None:
            found[column["name"]] = Origin(None)
            continue
        inner = _inner(column["type"], before["type"])
        if inner is not None or before["name"] != column["name"]:
            found[column["name"]] = Origin(before["name"], inner)
    return found or None


def _inner(now: Any, then: Any) -> Origins | None:
    if isinstance(now, str) or isinstance(then, str) or now["type"] != then["type"]:
        return None
    inner = {"array": "element", "map": "value"}.get(now["type"])
    return _origins(now, then) if inner is None else _inner(now[inner], then[inner])


def _parsed(text: str) -> Record:
    try:
        record = json.loads(text)
        return {**record, "fields": list(record["fields"])}
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError(f"{LATEST_SCHEMA} has no columns ({error!r}): {text[:200]!r}") from error


def _version(record: Record) -> int:
    return int(next((record[name] for name in _VERSION if name in record), 0))


def schema_text(record: Record) -> str:
    """The JSON of a schema, without spaces.

    :param record: the schema, as an Avro record or as one of Hudi's internal schemas.
    """
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)

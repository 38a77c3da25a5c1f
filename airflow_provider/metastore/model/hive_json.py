"""Catalog objects as they stand in Hive's notification messages.

The ``..ObjJson`` fields of a message hold Hive's Thrift structs as text, in Thrift's JSON
protocol (``TJSONProtocol``): ``{"<field id>": {"<type>": <value>}}``. Field ids are those of
``thrift/protocol/hive_catalog.thrift``. Hive's programs read the texts of this module, and this module reads
theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider.exceptions import MetastoreError
from airflow_provider.metastore.model.objects import (
    CATALOG,
    MANAGED_TABLE,
    NO_ID,
    NO_WRITE_ID,
    USER,
    Column,
    DatabaseInfo,
    FunctionInfo,
    PartitionInfo,
    TableInfo,
    partition_texts,
    partition_values,
)

_Struct = dict[str, dict[str, Any]]

# FunctionType.JAVA; ResourceType.JAR, FILE, ARCHIVE.
_JAVA = 1
_RESOURCE_TYPES = {".jar": 1, ".zip": 3, ".tar": 3, ".gz": 3, ".tgz": 3}
_FILE_RESOURCE = 2
# Fields of Table and of its StorageDescriptor that TableInfo has names for. Those of Table include writeId
# and txnId, which belong to one message and not to the table.
_TABLE_FIELDS = frozenset({"1", "2", "3", "7", "8", "9", "12", "17", "19", "25", "28"})
_LOCATION = "2"
_STORAGE_FIELDS = frozenset({"1", _LOCATION})


def encode_table(table: TableInfo, write_id: int = NO_WRITE_ID) -> str:
    """The text of a table in a message.

    :param write_id: the write id of the change that the message reports.
    """
    beside = dict(table.hive_fields)
    storage = _struct(beside, "7")
    return _written(
        beside
        | {
            "1": _text(table.name),
            "2": _text(table.database),
            "3": _text(table.owner),
            "7": {"rec": storage | _storage(table.location, table.schema)},
            "8": _columns(table.partition_keys),
            "9": _map(table.parameters),
            "12": _text(table.table_type),
            "17": _text(CATALOG),
            "19": {"i64": write_id},
            "25": {"i64": table.id},
        }
    )


def decode_table(text: str) -> TableInfo:
    """Read a table. Fields that :class:`TableInfo` has no name for go into its ``hive_fields``.

    :raises MetastoreError: when the text is no Table struct.
    """
    fields = _read(text)
    storage = _struct(fields, "7")
    beside = {key: value for key, value in fields.items() if key not in _TABLE_FIELDS}
    storage_beside = {key: value for key, value in storage.items() if key not in _STORAGE_FIELDS}
    if storage_beside:
        beside["7"] = {"rec": storage_beside}
    return TableInfo(
        id=int(_value(fields, "25", "i64", -1)),
        database=_value(fields, "2", "str", ""),
        name=_value(fields, "1", "str", ""),
        location=_value(storage, "2", "str", ""),
        schema=_read_columns(storage, "1"),
        partition_keys=_read_columns(fields, "8"),
        table_type=_value(fields, "12", "str", MANAGED_TABLE),
        parameters=_read_map(fields, "9"),
        owner=_value(fields, "3", "str", None),
        hive_fields=beside,
    )


def decode_write_id(text: str) -> int:
    """The write id in a Table struct; :data:`NO_WRITE_ID` when the struct has none."""
    return int(_value(_read(text), "19", "i64", NO_WRITE_ID))


def encode_partition(table: TableInfo, partition: PartitionInfo, write_id: int = NO_WRITE_ID) -> str:
    """The text of a partition in a message; the parameters are those of :func:`encode_table`."""
    values = partition_texts(partition.values)
    return _written(
        {
            "1": {"lst": ["str", len(values), *values]},
            "2": _text(table.database),
            "3": _text(table.name),
            "6": {"rec": _storage(partition.location, table.schema) | _own_storage(partition)},
            "7": _map(partition.parameters),
            "9": _text(CATALOG),
            "10": {"i64": write_id},
        }
    )


def decode_partition(text: str) -> PartitionInfo:
    """Read a partition.

    :raises MetastoreError: when the text is no Partition struct.
    """
    fields = _read(text)
    values = _value(fields, "1", "lst", ["str", 0])[2:]
    storage = _struct(fields, "6")
    return PartitionInfo(
        partition_values(values),
        _value(storage, "2", "str", ""),
        _read_map(fields, "7"),
        storage_descriptor(storage),
    )


def storage_descriptor(storage: _Struct) -> str | None:
    """The part of a StorageDescriptor that a partition keeps; None for one with only location and columns.

    :param storage: the struct, in Thrift's JSON.
    """
    if storage.keys() <= _STORAGE_FIELDS:
        return None
    return _written({key: value for key, value in sorted(storage.items()) if key != _LOCATION})


def with_columns(descriptor: str, columns: Sequence[Column]) -> str:
    """A partition's storage descriptor with other columns."""
    return _written({**_read(descriptor), "1": _columns(columns)})


def _own_storage(partition: PartitionInfo) -> _Struct:
    return {} if partition.storage_descriptor is None else _read(partition.storage_descriptor)


def encode_database(database: DatabaseInfo) -> str:
    """The text of a database in a message. Hive's struct has no field for the database's id."""
    return _written(
        {
            "1": _text(database.name),
            "2": _text(database.comment),
            "3": _text(database.location),
            "4": _map(database.parameters),
            "6": _text(database.owner),
            "7": {"i32": database.owner_type},
            "8": _text(CATALOG),
        }
    )


def decode_database(text: str) -> DatabaseInfo:
    """Read a database; its id is :data:`NO_ID`.

    :raises MetastoreError: when the text is no Database struct.
    """
    fields = _read(text)
    return DatabaseInfo(
        NO_ID,
        _value(fields, "1", "str", ""),
        _value(fields, "3", "str", None),
        _value(fields, "2", "str", None),
        _read_map(fields, "4"),
        _value(fields, "6", "str", None),
        int(_value(fields, "7", "i32", USER)),
    )


def decode_function(text: str) -> FunctionInfo:
    """Read a function.

    :raises MetastoreError: when the text is no Function struct.
    """
    fields = _read(text)
    resources = _value(fields, "8", "lst", ["rec", 0])[2:]
    return FunctionInfo(
        _value(fields, "2", "str", ""),
        _value(fields, "1", "str", ""),
        _value(fields, "3", "str", ""),
        _value(fields, "4", "str", None),
        tuple(_value(each, "2", "str", "") for each in resources),
    )


def encode_function(function: FunctionInfo) -> str:
    """The text of a function in a message."""
    resources = [{"1": {"i32": _resource_type(uri)}, "2": {"str": uri}} for uri in function.resources]
    return _written(
        {
            "1": _text(function.name),
            "2": _text(function.database),
            "3": _text(function.class_name),
            "4": _text(function.owner),
            "7": {"i32": _JAVA},
            "8": {"lst": ["rec", len(resources), *resources]},
            "9": _text(CATALOG),
        }
    )


def _resource_type(uri: str) -> int:
    ending = "." + uri.rsplit(".", 1)[-1].lower()
    return _RESOURCE_TYPES.get(ending, _FILE_RESOURCE)


def _storage(location: str, columns: Sequence[Column]) -> dict[str, Any]:
    fields = {"1": _columns(columns), "2": _text(location)}
    return {key: value for key, value in fields.items() if value is not None}


def _columns(columns: Sequence[Column]) -> dict[str, Any]:
    structs = [
        {
            key: value
            for key, value in {
                "1": _text(column.name),
                "2": _text(column.type),
                "3": _text(column.comment),
            }.items()
            if value is not None
        }
        for column in columns
    ]
    return {"lst": ["rec", len(structs), *structs]}


def _text(value: str | None) -> dict[str, str] | None:
    return None if value is None else {"str": value}


def _map(values: Mapping[str, str]) -> dict[str, Any]:
    return {"map": ["str", "str", len(values), dict(values)]}


def _written(fields: Mapping[str, dict[str, Any] | None]) -> str:
    set_fields = {key: value for key, value in fields.items() if value is not None}
    return json.dumps(set_fields, ensure_ascii=False, separators=(",", ":"))


def _read(text: str) -> _Struct:
    try:
        fields = json.loads(text)
        if isinstance(fields, dict) and all(key.isdecimal() for key in fields):
            return fields
    except ValueError as error:
        raise MetastoreError(f"a message's object is no Thrift JSON: {text[:200]!r}") from error
    raise MetastoreError(f"a message's object is no Thrift JSON struct: {text[:200]!r}")


def _value(fields: _Struct, field_id: str, kind: str, default: Any) -> Any:
    return fields.get(field_id, {}).get(kind, default)


def _struct(fields: _Struct, field_id: str) -> _Struct:
    return dict(_value(fields, field_id, "rec", {}))


def _read_columns(fields: _Struct, field_id: str) -> tuple[Column, ...]:
    return tuple(
        Column(
            _value(column, "1", "str", ""),
            _value(column, "2", "str", ""),
            _value(column, "3", "str", None),
        )
        for column in _value(fields, field_id, "lst", ["rec", 0])[2:]
    )


def _read_map(fields: _Struct, field_id: str) -> dict[str, str]:
    found = _value(fields, field_id, "map", ["str", "str", 0, {}])
    return dict(found[3])

"""What Hive asks of tables that its clients describe, adds to them, and leaves out of answers."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import Column, TableInfo
from airflow_provider.metastore.patterns import sql_pattern

# hive_metastoreConstants.DDL_TIME: seconds since the epoch, of the last change.
_DDL_TIME = "transient_lastDdlTime"
# Of Table: its StorageDescriptor, which only Hive's clients describe.
_STORAGE = "7"
# ColumnType.AllTypes, and what a client sends that leaves the columns to the serializer.
_TYPES = frozenset(
    {"void", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string"}
    | {"varchar", "char", "binary", "date", "datetime", "timestamp", "timestamplocaltz", "uniontype"}
    | {"interval_year_month", "interval_day_time", "array", "map", "struct"}
)
_BY_SERIALIZER = "<derived from deserializer>"


def is_of_hive(table: TableInfo) -> bool:
    """Whether one of Hive's clients has described a table's files."""
    return _STORAGE in table.hive_fields


def check_types(table: TableInfo, columns: Iterable[Column]) -> None:
    """Look at the types of columns as Hive does (``validateColumnType``): at the outermost type's name.

    :param table: whose columns they are; one that Hive's clients have not described is not looked at.
    :raises InvalidInputError: when Hive does not know a type.
    """
    for one in columns if is_of_hive(table) else ():
        outermost = re.match(r"\w*", one.type)
        if one.type != _BY_SERIALIZER and (outermost is None or outermost[0].lower() not in _TYPES):
            raise InvalidInputError(
                f"Invalid column type: {one.type}, of column {one.name!r} in table {table.full_name}; give "
                "one of Hive's types",
                table=table.full_name,
                column=one.name,
            )


def with_ddl_time(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a table or a partition with the time of its change, unless the client says one."""
    known = parameters.get(_DDL_TIME, "0")
    return {**parameters, _DDL_TIME: str(int(time.time())) if known in ("", "0") else known}


def projected(struct: Any, fields: Sequence[str], includes: str | None, excludes: str | None) -> Any:
    """A table or a partition with those of its fields that a request asks for.

    :param struct: Hive's struct of it.

    :param fields: such as ``values``, ``sd.location`` or ``sd.serdeInfo.serializationLib``; none is all.
    :param includes: SQL pattern (``%``, ``_``) of the parameters that are wanted; None is all.
    :param excludes: SQL pattern of those that are not; None is none.
    """
    kept = copy.copy(struct)
    if fields:
        kept = _only(struct, [one.split(".") for one in fields])
    if kept.parameters is not None and (includes or excludes):
        wanted = sql_pattern(includes or "%")
        unwanted = sql_pattern(excludes) if excludes else sql_pattern("")
        kept.parameters = {
            name: value for name, value in kept.parameters.items() if wanted(name) and not unwanted(name)
        }
    return kept


def _only(struct: Any, paths: Sequence[Sequence[str]]) -> Any:
    kept = type(struct)()
    # A field with a default value is not there either, unless it was asked for.
    for name in vars(kept):
        setattr(kept, name, None)
    for name in dict.fromkeys(path[0] for path in paths):
        if not hasattr(struct, name):
            raise InvalidInputError(f"a {type(struct).__name__} has no field {name!r}")
        value = getattr(struct, name)
        below = [path[1:] for path in paths if path[0] == name and len(path) > 1]
        if below and value is not None and not isinstance(value, list):
            value = _only(value, below)
        setattr(kept, name, value)
    return kept

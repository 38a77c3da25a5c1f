"""Hive's rules for tables that its clients describe: checks, additions, and projections of answers."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import Column, TableInfo
from airflow_provider.metastore.patterns import sql_pattern

# hive_metastoreConstants.DDL_TIME: the time of the last change, in seconds since the epoch.
_DDL_TIME = "transient_lastDdlTime"
# The field id of a Table's StorageDescriptor, which only Hive's clients describe.
_STORAGE = "7"
# ColumnType.AllTypes, and the type of a column that a client leaves to the serializer.
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
    """Check the outermost type's name of each column, as Hive does (``validateColumnType``).

    :param table: the columns' table. A table that no client of Hive's has described is not checked.
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
    """The parameters of a table or a partition with the time of its change, unless the client gives one."""
    known = parameters.get(_DDL_TIME, "0")
    return {**parameters, _DDL_TIME: str(int(time.time())) if known in ("", "0") else known}


def projected(struct: Any, fields: Sequence[str], includes: str | None, excludes: str | None) -> Any:
    """A table or a partition with only the fields that a request asks for.

    :param struct: Hive's struct of the table or partition.
    :param fields: such as ``values``, ``sd.location`` or ``sd.serdeInfo.serializationLib``; empty for all.
    :param includes: SQL pattern (``%``, ``_``) of the parameters to keep; None for all.
    :param excludes: SQL pattern of the parameters to leave out; None for none.
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
    # A field with a default value is left out, too, unless the request asks for it.
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

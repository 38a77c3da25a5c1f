"""The table properties from which Spark takes the schema of a data source's table.

They are those of Spark (``HiveExternalCatalog``), and Hudi's Hive sync writes the same. They follow from the
columns, so the server derives them for each answer and does not store them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError

from airflow_provider.metastore.model import Column, TableInfo

_SCHEMA = "spark.sql.sources.schema"
_PARTITIONS_IN_CATALOG = {"spark.sql.partitionProvider": "catalog"}
# The longest part, in characters: it must fit into a column of Hive's own database.
_PART = 4_000
_GRAMMAR = r"""
?type: "array"i "<" type ">" -> array
     | "map"i "<" type "," type ">" -> map
     | "struct"i "<" [field ("," field)*] ">" -> struct
     | SIMPLE -> simple
field: NAME ":" type
NAME: /[^:<>,]+/
SIMPLE: /[A-Za-z_ ]+(\([0-9, ]+\))?/
%ignore /\s+/
"""
# The types whose names in Spark's JSON differ from those in SQL.
_NAMES = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}


def spark_properties(table: TableInfo) -> dict[str, str]:
    """The properties of schema and partition columns; none for a table with a type that Spark lacks."""
    columns = [*table.schema, *table.partition_keys]
    try:
        schema = json.dumps({"type": "struct", "fields": [_field(column) for column in columns]})
    except LarkError:
        return {}
    parts = [schema[start : start + _PART] for start in range(0, len(schema), _PART)]
    properties = {f"{_SCHEMA}.numParts": str(len(parts))}
    properties |= {f"{_SCHEMA}.part.{number}": part for number, part in enumerate(parts)}
    if table.partition_keys:
        properties[f"{_SCHEMA}.numPartCols"] = str(len(table.partition_keys))
        names = enumerate(key.name for key in table.partition_keys)
        properties |= {f"{_SCHEMA}.partCol.{number}": name for number, name in names}
        properties |= _PARTITIONS_IN_CATALOG
    return properties


def is_derived(name: str) -> bool:
    """Whether a property is one of those that :func:`spark_properties` makes."""
    return name.startswith(f"{_SCHEMA}.") or name in _PARTITIONS_IN_CATALOG


def _field(column: Column) -> dict[str, Any]:
    metadata = {"comment": column.comment} if column.comment else {}
    return {
        "name": column.name,
        "type": _spark_type(column.type),
        "nullable": True,
        "metadata": metadata,
    }


@lru_cache(maxsize=1_024)
def _spark_type(text: str) -> Any:
    return _Json().transform(_parser().parse(text))


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(_GRAMMAR, start="type")


@v_args(inline=True)
class _Json(Transformer[Token, Any]):
    """Turns a type in Hive's words into Spark's JSON."""

    def simple(self, name: Token) -> str:
        text = str(name).strip().lower().replace(" ", "")
        return _NAMES.get(text, text)

    def array(self, element: Any) -> dict[str, Any]:
        return {"type": "array", "elementType": element, "containsNull": True}

    def map(self, key: Any, value: Any) -> dict[str, Any]:
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}

    def field(self, name: Token, type_: Any) -> dict[str, Any]:
        return {"name": str(name).strip(), "type": type_, "nullable": True, "metadata": {}}

    def struct(self, *fields: Any) -> dict[str, Any]:
        return {"type": "struct", "fields": [one for one in fields if one is not None]}

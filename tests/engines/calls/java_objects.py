"""Structs of Hive's protocol by their fields, and calls with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DATABASE = "calls"
_FORMATS = {
    "inputFormat": "org.apache.hadoop.mapred.TextInputFormat",
    "outputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
    "serdeInfo": {
        "serializationLib": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
        "parameters": {"serialization.format": "1"},
    },
    "compressed": False,
    "numBuckets": -1,
    "bucketCols": [],
    "sortCols": [],
    "parameters": {},
}


@dataclass(frozen=True)
class Call:
    """One call.

    :param method: the method with the types of its arguments: ``getTable(String,String)``.
    :param arguments: structs as dicts of their fields; a dict with ``$`` stands for an earlier call's answer.
    :param keep: a name for the answer.
    :param filled: the position of the argument that the method fills.
    """

    method: str
    arguments: tuple[Any, ...]
    keep: str | None = None
    filled: int | None = None

    def as_json(self) -> Mapping[str, Any]:
        more = {} if self.keep is None else {"as": self.keep}
        more |= {} if self.filled is None else {"filled": self.filled}
        return {"method": self.method, "arguments": self.arguments, **more}


def call(method: str, *arguments: Any, keep: str | None = None, filled: int | None = None) -> Call:
    return Call(method, arguments, keep, filled)


def kept(name: str, **fields: Any) -> Mapping[str, Any]:
    """The answer that an earlier call kept under this name, with other values in some of its fields."""
    return {"$": name, **fields}


def table(name: str, parameters: Mapping[str, str] | None = None, **keys: str) -> Mapping[str, Any]:
    """A table of text files; ``keys`` are its partition keys and their types."""
    return {
        "dbName": DATABASE,
        "tableName": name,
        "owner": "me",
        "sd": {"cols": [{"name": "id", "type": "bigint"}, {"name": "v", "type": "string"}], **_FORMATS},
        "partitionKeys": [{"name": key, "type": kind} for key, kind in keys.items()],
        "parameters": dict(parameters or {}),
        "tableType": "MANAGED_TABLE",
    }


def partition(of: str, *values: str) -> Mapping[str, Any]:
    """A partition of such a table."""
    return {
        "dbName": DATABASE,
        "tableName": of,
        "values": list(values),
        "sd": {"cols": [{"name": "id", "type": "bigint"}, {"name": "v", "type": "string"}], **_FORMATS},
        "parameters": {},
    }


def statistics(of: str, part: str | None = None) -> Mapping[str, Any]:
    """Statistics of the column ``id``, of a table or of one of its partitions."""
    what: dict[str, Any] = {"isTblLevel": part is None, "dbName": DATABASE, "tableName": of}
    if part is not None:
        what["partName"] = part
    found = {"numNulls": 0, "numDVs": 3, "lowValue": 1, "highValue": 9}
    column = {"colName": "id", "colType": "bigint", "statsData": {"longStats": found}}
    return {"statsDesc": what, "statsObj": [column], "engine?": "hive"}


def function(name: str, implementation: str) -> Mapping[str, Any]:
    return {
        "functionName": name,
        "dbName": DATABASE,
        "className": implementation,
        "ownerName": "me",
        "ownerType": "USER",
        "functionType": "JAVA",
        "resourceUris": [],
    }


def component(of: str, kind: str) -> Mapping[str, Any]:
    """A lock's component: the place that it locks."""
    return {"type": kind, "level": "TABLE", "dbname": DATABASE, "tablename": of, "operationType": "NO_TXN"}

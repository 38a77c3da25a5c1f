"""The definitions of a table's indexes: ``.hoodie/.index_defs/index.json``.

Source: ``HoodieIndexMetadata`` and ``HoodieIndexDefinition`` of Apache Hudi. The version in this file tells
Hudi how column statistics are encoded, so Hudi misreads an index without a definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.metadata_table.partitions import MetadataPartition
from airflow_provider.table.storage import Storage

DEFINITIONS_PATH = ".hoodie/.index_defs/index.json"
"""Path of the definitions, relative to the table; the value of ``hoodie.table.index.defs.path``."""


@dataclass(frozen=True)
class IndexDefinition:
    """One index.

    :param name: the metadata partition.
    :param index_type: for example ``column_stats``; all secondary indexes have one type.
    :param function: the function of its columns that it stores.
    :param source_fields: the indexed columns.
    :param options: further options, by their names in Hudi.
    :param version: ``V1`` or ``V2``: how its records are encoded.
    """

    name: str
    index_type: str
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str = "V1"


def column_stats_definition(columns: Iterable[str]) -> IndexDefinition:
    """The definition of the column statistics index, with records that have the columns' types."""
    name = MetadataPartition.COLUMN_STATS.value
    return IndexDefinition(name, name, name, tuple(columns), version="V2")


def record_index_definition() -> IndexDefinition:
    """The definition of the record index, over the whole table."""
    name = MetadataPartition.RECORD_INDEX.value
    return IndexDefinition(name, name, options={"isPartitioned": "false"})


def read_index_definitions(table: Storage) -> dict[str, IndexDefinition]:
    """The definitions of a table's indexes by name; empty when there is no file.

    :param table: the table's storage.
    :raises CorruptTableError: when the file cannot be read.
    """
    try:
        data = table.read(DEFINITIONS_PATH)
    except FileNotFoundError:
        return {}
    try:
        return {
            name: IndexDefinition(
                each["indexName"],
                each["indexType"],
                each.get("indexFunction") or "",
                tuple(each.get("sourceFields") or ()),
                each.get("indexOptions") or {},
                each.get("version") or "V1",
            )
            for name, each in json.loads(data)["indexDefinitions"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTableError(
            f"{table.url(DEFINITIONS_PATH)} holds no index definitions: {error!r}; drop the indexes and "
            "build them again",
            path=DEFINITIONS_PATH,
        ) from error


def write_index_definitions(table: Storage, definitions: Iterable[IndexDefinition]) -> None:
    """Replace the definitions of a table's indexes.

    :param table: the table's storage.
    :param definitions: all definitions.
    """
    described = {
        each.name: {
            "indexName": each.name,
            "indexType": each.index_type,
            "indexFunction": each.function,
            "sourceFields": list(each.source_fields),
            "indexOptions": dict(each.options),
            "version": each.version,
        }
        for each in definitions
    }
    table.put(DEFINITIONS_PATH, json.dumps({"indexDefinitions": described}, indent=2).encode())

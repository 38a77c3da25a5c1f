"""Hudi tables as Hive's clients see them, with Hudi's bundle and without."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider.metastore import Column, TableInfo
from airflow_provider.metastore.thrift.protocol.structs import read_table, table_struct

TABLE = TableInfo(
    9,
    "lake",
    "flights",
    "/lake/flights",
    (Column("id", "bigint"), Column("stops", "array<struct<at:timestamp,fare:decimal(10, 2)>>", "all")),
    (Column("year", "int"),),
    parameters={"spark.sql.sources.provider": "hudi"},
)
MERGED = replace(TABLE, parameters=TABLE.parameters | {"hoodie.table.type": "MERGE_ON_READ"})


def test_a_client_with_hudi_sees_a_table_of_hudi_for_spark() -> None:
    struct = table_struct(TABLE)
    assert struct.sd.inputFormat == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    properties = struct.parameters
    fields = json.loads(properties["spark.sql.sources.schema.part.0"])["fields"]
    assert [(one["name"], one["type"]) for one in fields if one["name"] != "stops"] == [
        ("id", "long"),
        ("year", "integer"),
    ]
    stop = fields[1]["type"]["elementType"]["fields"]
    assert [(one["name"], one["type"]) for one in stop] == [
        ("at", "timestamp"),
        ("fare", "decimal(10,2)"),
    ]
    assert properties["spark.sql.sources.schema.partCol.0"] == "year"
    assert properties["spark.sql.partitionProvider"] == "catalog"


def test_a_table_that_is_merged_on_read_is_read_with_its_log_files() -> None:
    """``HiveSyncTool`` registers such a table under its own name; a reader of base files reads old rows."""
    struct = table_struct(MERGED)
    assert struct.sd.inputFormat == "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
    assert struct.sd.serdeInfo.parameters["hoodie.query.as.ro.table"] == "false"


@pytest.mark.parametrize("table", [TABLE, MERGED])
@pytest.mark.parametrize("have_hudi", [True, False])
def test_derived_properties_are_not_stored(table: TableInfo, have_hudi: bool) -> None:
    found = read_table(table_struct(table, clients_have_hudi=have_hudi))
    assert replace(found, hive_fields={}) == table
    assert found.hive_fields.keys() <= {"4", "14", "18"}


def test_what_hudis_sync_says_of_base_files_alone_is_kept() -> None:
    """This is ``NAME_ro`` of a merge-on-read table: otherwise Spark would also read its log files."""
    struct = table_struct(TABLE)
    struct.sd.serdeInfo.parameters["hoodie.query.as.ro.table"] = "true"
    again = table_struct(read_table(struct))
    assert again.sd.inputFormat == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    assert again.sd.serdeInfo.parameters["hoodie.query.as.ro.table"] == "true"

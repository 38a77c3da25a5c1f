"""Notification messages, read and written by Hive's own classes: those in PySpark's jars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

from airflow_provider.metastore import Column, DatabaseInfo, PartitionInfo, TableInfo
from airflow_provider.metastore.hive_json import (
    decode_partition,
    decode_table,
    encode_database,
    encode_partition,
    encode_table,
)

BESIDE = {
    "4": {"i32": 1_700_000_000},
    "5": {"i32": 0},
    "6": {"i32": 0},
    "7": {
        "rec": {
            "3": {"str": "an.InputFormat"},
            "4": {"str": "an.OutputFormat"},
            "5": {"tf": 0},
            "6": {"i32": 4},
            "7": {"rec": {"2": {"str": "a.SerDe"}, "3": {"map": ["str", "str", 1, {"quote": "'"}]}}},
            "8": {"lst": ["str", 1, "id"]},
            "9": {"lst": ["rec", 1, {"1": {"str": "id"}, "2": {"i32": 1}}]},
            "10": {"map": ["str", "str", 0, {}]},
        }
    },
    "10": {"str": "select 'ü'"},
}
TABLE = TableInfo(
    9,
    "lake",
    "flights",
    "/lake/flüge",
    (Column("id", "bigint"), Column("dest", "string", 'an "airport"')),
    (Column("year", "int"),),
    "EXTERNAL_TABLE",
    {"a": "b", "provider": "hudi"},
    "ops",
    BESIDE,
)
PARTITION = PartitionInfo((None,), "/lake/flüge/null", {"k": "v"})


class Hive:
    """Thrift's JSON protocol and Hive's structs, in a JVM."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm = gateway.jvm
        self._factory = getattr(self._jvm.org.apache.thrift.protocol, "TJSONProtocol$Factory")()

    def read(self, struct: str, text: str) -> Any:
        found = getattr(self._jvm.org.apache.hadoop.hive.metastore.api, struct)()
        reader = self._jvm.org.apache.thrift.TDeserializer(self._factory)
        reader.deserialize(found, text, "UTF-8")
        return found

    def write(self, struct: Any) -> str:
        return bytes(self._jvm.org.apache.thrift.TSerializer(self._factory).serialize(struct)).decode()


@pytest.fixture(scope="module")
def hive() -> Iterator[Hive]:
    gateway = launch_gateway()
    yield Hive(gateway)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


def test_hive_reads_a_table_and_we_read_it_again(hive: Hive) -> None:
    table = hive.read("Table", encode_table(TABLE, write_id=7))
    assert (table.getDbName(), table.getTableName(), table.getOwner()) == ("lake", "flights", "ops")
    assert (table.getTableType(), table.getSd().getLocation()) == ("EXTERNAL_TABLE", "/lake/flüge")
    columns = [(one.getName(), one.getType(), one.getComment()) for one in table.getSd().getCols()]
    assert columns == [("id", "bigint", None), ("dest", "string", 'an "airport"')]
    assert [one.getName() for one in table.getPartitionKeys()] == ["year"]
    assert dict(table.getParameters()) == TABLE.parameters
    storage = table.getSd()
    assert (storage.getInputFormat(), storage.getNumBuckets()) == ("an.InputFormat", 4)
    assert dict(storage.getSerdeInfo().getParameters()) == {"quote": "'"}
    assert [(one.getCol(), one.getOrder()) for one in storage.getSortCols()] == [("id", 1)]
    assert (table.getCreateTime(), table.getViewOriginalText()) == (1_700_000_000, "select 'ü'")
    # This Hive knows neither write ids nor table ids; all else comes back.
    again = json.loads(hive.write(table)) | {"25": {"i64": 9}}
    assert decode_table(json.dumps(again)) == TABLE


def test_hive_reads_a_partition_and_we_read_it_again(hive: Hive) -> None:
    partition = hive.read("Partition", encode_partition(TABLE, PARTITION))
    assert list(partition.getValues()) == ["__HIVE_DEFAULT_PARTITION__"]
    assert (partition.getDbName(), partition.getTableName()) == ("lake", "flights")
    assert decode_partition(hive.write(partition)) == PARTITION


def test_hive_reads_a_database(hive: Hive) -> None:
    text = encode_database(DatabaseInfo(1, "lake", "/lake", "ours", {"a": "b"}))
    database = hive.read("Database", text)
    assert (database.getName(), database.getLocationUri(), database.getDescription()) == (
        "lake",
        "/lake",
        "ours",
    )
    assert json.loads(hive.write(database)) == json.loads(text)

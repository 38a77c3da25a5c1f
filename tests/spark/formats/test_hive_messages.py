"""Notification messages, read and written by Hive's own classes in PySpark's jars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

from airflow_provider.metastore import (
    Column,
    DatabaseInfo,
    EventType,
    PartitionInfo,
    PartitionSpec,
    TableInfo,
    open_metastore,
)
from airflow_provider.metastore.catalog.column_statistics import update_column_statistics
from airflow_provider.metastore.model.hive_json import (
    decode_partition,
    decode_table,
    encode_database,
    encode_partition,
    encode_table,
)
from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.protocol.idl import hive as protocol
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.metastore.thrift.url import parse_thrift_url

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

    def message(self, event: Any) -> Any:
        """A notification event's message, as a consumer of Hive's log reads it."""
        messages = self._jvm.org.apache.hadoop.hive.metastore.messaging.json
        return messages.JSONMessageDeserializer().getEventMessage(event.eventType, event.message)

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
    # This Hive has neither write ids nor table ids; all other fields come back.
    again = json.loads(hive.write(table)) | {"25": {"i64": 9}}
    assert decode_table(json.dumps(again)) == TABLE


def test_hive_reads_a_partition_and_we_read_it_again(hive: Hive) -> None:
    partition = hive.read("Partition", encode_partition(TABLE, PARTITION))
    assert list(partition.getValues()) == ["__HIVE_DEFAULT_PARTITION__"]
    assert (partition.getDbName(), partition.getTableName()) == ("lake", "flights")
    again = decode_partition(hive.write(partition))
    # Hive's partition has the formats, columns and serializer that our partition takes from its table.
    assert again.storage_descriptor is not None
    assert [column["str"] for column in _columns(again)] == [column.name for column in TABLE.schema]
    assert replace(again, storage_descriptor=None) == PARTITION


def _columns(partition: PartitionInfo) -> list[dict[str, str]]:
    """The names of a partition's own columns, as Thrift's JSON has them."""
    assert partition.storage_descriptor is not None
    return [column["1"] for column in json.loads(partition.storage_descriptor)["1"]["lst"][2:]]


def test_hive_reads_a_database(hive: Hive) -> None:
    text = encode_database(DatabaseInfo(1, "lake", "/lake", "ours", {"a": "b"}))
    database = hive.read("Database", text)
    assert (database.getName(), database.getLocationUri(), database.getDescription()) == (
        "lake",
        "/lake",
        "ours",
    )
    assert json.loads(hive.write(database)) == json.loads(text)


# Hive 2.3 has no messages for them; nor has it for a database that is altered.
NOT_IN_HIVE_2 = {
    EventType.OPEN_TXN,
    protocol.ALLOC_WRITE_ID_EVENT,
    EventType.COMMIT_TXN,
    EventType.ABORT_TXN,
    EventType.ALTER_DATABASE,
    EventType.UPDATE_TABLE_COLUMN_STAT,
    EventType.UPDATE_PARTITION_COLUMN_STAT,
}


@pytest.fixture
def told(tmp_path: Path) -> dict[str, Any]:
    """The last notification of each type, as a server sends it, after one change of every kind."""
    url = f"sqlite:///{tmp_path}/metastore.db"
    metastore = open_metastore(url)
    metastore.create_database("lake")
    metastore.alter_database("lake", comment="ours")
    metastore.create_table(
        "lake",
        "flights",
        location="/lake/flüge",
        schema=[Column("id", "bigint", 'an "id"')],
        partition_keys=[Column("year", "int"), Column("day", "string")],
    )
    metastore.add_partitions("lake", "flights", [PartitionSpec(("2013", None), "/lake/flüge/2013")])
    for partition in (None, ("2013", None)):
        metastore.sql.write(
            lambda connection, partition=partition: update_column_statistics(
                connection,
                "lake",
                "flights",
                {"id": b""},
                partition=partition,
                engine="hive",
                struct="{}",
            )
        )
    metastore.alter_partition("lake", "flights", ("2013", None), parameters={"k": "v"})
    metastore.alter_table("lake", "flights", owner="ops")
    files = ["/lake/flüge/2013/a.parquet", "/lake/flüge/2013/b.parquet"]
    metastore.fire_insert_event("lake", "flights", files, values=("2013", None))
    metastore.drop_partitions("lake", "flights", [("2013", None)])
    metastore.create_function("lake", "twice", "org.example.Twice")
    metastore.drop_function("lake", "twice")
    metastore.abort_txn(metastore.open_txn("me", "here"))
    metastore.drop_table("lake", "flights")
    metastore.drop_database("lake")
    metastore.close()
    with served(ServiceOptions(url, port=0), housekeeping=False) as server:
        client = ThriftConnections(parse_thrift_url(f"thrift://127.0.0.1:{server.port}"), 60)
        request = protocol.NotificationEventRequest(lastEvent=0)
        found = client.read("get_next_notification", request).events
        client.close()
    return {one.eventType: one for one in found}


def test_hive_reads_every_message_that_it_has(hive: Hive, told: dict[str, Any]) -> None:
    ours = {protocol.ALLOC_WRITE_ID_EVENT: EventType.ALLOC_WRITE_ID}
    assert {ours.get(name, name) for name in told} == set(EventType)
    read = {name: hive.message(event) for name, event in told.items() if name not in NOT_IN_HIVE_2}
    for name, message in read.items():
        assert (message.getEventType().toString(), message.getDB()) == (name, "lake")
        assert message.getTimestamp() == told[name].eventTime
    table = read["CREATE_TABLE"].getTableObj()
    assert (table.getTableName(), table.getSd().getCols()[0].getComment()) == ("flights", 'an "id"')
    altered = read["ALTER_TABLE"]
    owners = [one.getOwner() for one in (altered.getTableObjBefore(), altered.getTableObjAfter())]
    assert (altered.getTable(), owners) == ("flights", [None, "ops"])
    null = "__HIVE_DEFAULT_PARTITION__"
    added = read["ADD_PARTITION"]
    assert list(added.getPartitionObjs().iterator().next().getValues()) == ["2013", null]
    assert [dict(one) for one in added.getPartitions()] == [{"year": "2013", "day": null}]
    assert added.getTableObj().getTableName() == "flights"
    changed = read["ALTER_PARTITION"]
    assert dict(changed.getKeyValues()) == {"year": "2013", "day": null}
    assert dict(changed.getPtnObjBefore().getParameters()) == {}
    assert dict(changed.getPtnObjAfter().getParameters()) == {"k": "v"}
    inserted = read["INSERT"]
    assert list(inserted.getFiles()) == ["/lake/flüge/2013/a.parquet", "/lake/flüge/2013/b.parquet"]
    assert [dict(one) for one in read["DROP_PARTITION"].getPartitions()] == [{"year": "2013", "day": null}]
    assert read["DROP_TABLE"].getTable() == "flights"
    assert read["CREATE_FUNCTION"].getFunctionObj().getClassName() == "org.example.Twice"
    assert read["DROP_FUNCTION"].getFunctionName() == "twice"

"""Databases and tables, and the events of their changes."""

from __future__ import annotations

import json

import pytest

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    MetastoreError,
    NoSuchObjectError,
    NoSuchTransactionError,
)
from airflow_provider.metastore import (
    AnyMetastore,
    Column,
    EventType,
    NotificationEvent,
    PartitionSpec,
    TableInfo,
)
from airflow_provider.metastore.model.hive_json import decode_table

ID = Column("id", "bigint")


def last_event(metastore: AnyMetastore, event_type: EventType | None = None) -> NotificationEvent:
    """The last event, or the last one of a type."""
    return metastore.next_events(0, event_types=None if event_type is None else [event_type])[-1]


def test_default_is_there_from_the_start(metastore: AnyMetastore) -> None:
    assert metastore.list_databases() == ["default", "lake"]
    assert metastore.create_table("default", "t", location="/t", schema=[ID]).full_name == "default.t"


def test_a_database_and_its_event(metastore: AnyMetastore) -> None:
    made = metastore.create_database("Mart", "/mart", "for people", parameters={"owner": "ops"})
    assert made == metastore.get_database("MART")
    assert (made.name, made.location, made.comment, made.parameters) == (
        "mart",
        "/mart",
        "for people",
        {"owner": "ops"},
    )
    event = last_event(metastore)
    assert (event.event_type, event.database, event.table) == (EventType.CREATE_DATABASE, "mart", None)
    assert event.message["db"] == "mart"
    assert json.loads(event.message["dbJson"])["3"] == {"str": "/mart"}


def test_a_database_exists_once(metastore: AnyMetastore) -> None:
    before = metastore.current_event_id()
    with pytest.raises(AlreadyExistsError, match="database 'lake' exists"):
        metastore.create_database("LAKE")
    assert metastore.create_database("lake", "/elsewhere", if_not_exists=True).location is None
    assert metastore.current_event_id() == before


def test_a_database_with_tables_is_dropped_only_by_cascade(metastore: AnyMetastore) -> None:
    with pytest.raises(MetastoreError, match="not empty: it has 1 tables, the first is 'flights'"):
        metastore.drop_database("lake")
    metastore.drop_database("lake", cascade=True)
    assert metastore.list_databases() == ["default"]
    assert [event.event_type for event in metastore.next_events(2)] == [
        EventType.DROP_TABLE,
        EventType.DROP_DATABASE,
    ]
    with pytest.raises(NoSuchObjectError, match="database 'lake' does not exist"):
        metastore.list_tables("lake")


def test_a_table_as_it_was_given(metastore: AnyMetastore) -> None:
    table = metastore.get_table("LAKE", "Flights")
    assert table == TableInfo(
        id=table.id,
        database="lake",
        name="flights",
        location="/lake/flights",
        schema=(Column("id", "bigint"), Column("dest", "string", "airport")),
        partition_keys=(Column("year", "int"), Column("month", "int")),
        parameters={"provider": "hudi"},
    )
    event = last_event(metastore)
    assert (event.event_type, event.database, event.table) == (EventType.CREATE_TABLE, "lake", "flights")
    assert event.message_format == "json-0.2"
    assert decode_table(event.message["tableObjJson"]) == table
    assert set(event.message) == {
        "server",
        "servicePrincipal",
        "timestamp",
        "db",
        "table",
        "tableType",
        "tableObjJson",
        "files",
    }


def test_a_table_exists_once(metastore: AnyMetastore) -> None:
    before = metastore.current_event_id()
    with pytest.raises(AlreadyExistsError, match=r"lake\.flights exists"):
        metastore.create_table("lake", "flights", location="/other", schema=[ID])
    same = metastore.create_table("lake", "flights", location="/other", schema=[ID], if_not_exists=True)
    assert same.location == "/lake/flights"
    assert metastore.current_event_id() == before


def test_a_missing_object_is_named_by_the_error(metastore: AnyMetastore) -> None:
    with pytest.raises(NoSuchObjectError, match=r"table lake\.trains does not exist"):
        metastore.get_table("lake", "trains")
    with pytest.raises(NoSuchObjectError, match="database 'sea' does not exist"):
        metastore.get_table("sea", "ships")
    with pytest.raises(NoSuchObjectError, match="database 'sea' does not exist"):
        metastore.create_table("sea", "ships", location="/s", schema=[ID])
    assert metastore.drop_table("lake", "trains", if_exists=True) is False


@pytest.mark.parametrize("name", ["", "a.b", "a:b", "a b", "flüge", "x" * 129, "a$b", "t\n"])
def test_names_that_would_break_snapshots_are_refused(metastore: AnyMetastore, name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot name a table"):
        metastore.create_table("lake", name, location="/t", schema=[ID])
    with pytest.raises(InvalidInputError, match="cannot name a database"):
        metastore.create_database(name)
    assert metastore.current_event_id() == 2


def test_a_column_is_there_once(metastore: AnyMetastore) -> None:
    with pytest.raises(InvalidInputError, match="column 'ID' is empty or there twice"):
        metastore.create_table("lake", "t", location="/t", schema=[ID], partition_keys=[Column("ID", "int")])


def test_altering_a_table_tells_before_and_after(metastore: AnyMetastore) -> None:
    before = metastore.get_table("lake", "flights")
    after = metastore.alter_table(
        "lake",
        "flights",
        schema=[*before.schema, Column("tail", "string")],
        parameters={"x": "1"},
        owner="ops",
    )
    assert after == metastore.get_table("lake", "flights")
    assert (after.schema[-1].name, after.parameters, after.owner, after.location) == (
        "tail",
        {"x": "1"},
        "ops",
        before.location,
    )
    message = last_event(metastore, EventType.ALTER_TABLE).message
    assert decode_table(message["tableObjBeforeJson"]) == before
    assert decode_table(message["tableObjAfterJson"]) == after
    assert (message["isTruncateOp"], message["writeId"]) == ("false", 1)


def test_a_change_in_a_transaction_carries_its_write_id(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    assert metastore.allocate_table_write_id(txn_id, "lake", "flights") == 1
    metastore.alter_table("lake", "flights", owner="ops", txn_id=txn_id)
    assert last_event(metastore).message["writeId"] == 1
    metastore.commit_txn(txn_id)
    with pytest.raises(NoSuchTransactionError, match=f"Transaction txnid:{txn_id} is already committed."):
        metastore.alter_table("lake", "flights", owner="dev", txn_id=txn_id)
    assert metastore.get_table("lake", "flights").owner == "ops"


def test_a_rename_keeps_id_partitions_and_write_ids(metastore: AnyMetastore) -> None:
    before = metastore.get_table("lake", "flights")
    metastore.add_partitions("lake", "flights", [PartitionSpec(("2013", "1"), "/p")])
    txn_id = metastore.open_txn("me", "here")
    # The first write id was the partition's.
    assert metastore.allocate_table_write_id(txn_id, "lake", "flights") == 2
    metastore.create_database("mart")
    after = metastore.rename_table("lake", "flights", "mart", "Trips")
    assert (after.id, after.full_name, after.location) == (before.id, "mart.trips", before.location)
    event = last_event(metastore)
    assert (event.event_type, event.database, event.table) == (EventType.ALTER_TABLE, "mart", "trips")
    assert (event.message["db"], event.message["table"]) == ("lake", "flights")
    assert decode_table(event.message["tableObjAfterJson"]) == after
    assert [one.values for one in metastore.get_partitions("mart", "trips")] == [("2013", "1")]
    assert metastore.allocate_table_write_id(txn_id, "mart", "trips") == 2
    assert str(metastore.valid_write_id_list("mart", "trips")) == "mart.trips:2:2:2:"
    assert [(one.database, one.table) for one in metastore.writes_of(txn_id)] == [("mart", "trips")]
    with pytest.raises(NoSuchObjectError):
        metastore.get_table("lake", "flights")


def test_a_rename_takes_no_other_tables_name(metastore: AnyMetastore) -> None:
    metastore.create_table("lake", "trains", location="/t", schema=[ID])
    with pytest.raises(AlreadyExistsError, match=r"lake\.trains exists"):
        metastore.rename_table("lake", "flights", "lake", "trains")
    assert metastore.list_tables("lake") == ["flights", "trains"]


def test_a_table_made_again_is_another_table(metastore: AnyMetastore) -> None:
    first = metastore.get_table("lake", "flights")
    txn_id = metastore.open_txn("me", "here")
    metastore.allocate_table_write_id(txn_id, "lake", "flights")
    metastore.record_write(txn_id, "lake", "flights", "20250101000000000")
    metastore.add_partitions("lake", "flights", [PartitionSpec(("2013", "1"), "/p")])
    assert metastore.drop_table("lake", "flights") is True
    assert decode_table(last_event(metastore).message["tableObjJson"]) == first
    assert metastore.writes_of(txn_id) == []
    again = metastore.create_table(
        "lake", "flights", location="/new", schema=[ID], partition_keys=[Column("year", "int")]
    )
    assert again.id > first.id
    assert metastore.get_partitions("lake", "flights") == []
    # But the new table may have the same data: write ids continue, and an open one stays open.
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:2:1:1:"
    assert metastore.allocate_table_write_id(metastore.open_txn("me", "here"), "lake", "flights") == 3


def test_altering_a_database_tells_before_and_after(metastore: AnyMetastore) -> None:
    after = metastore.alter_database("LAKE", location="/lake", comment="ours", parameters={"a": "b"})
    assert after == metastore.get_database("lake")
    assert (after.location, after.comment, after.parameters) == ("/lake", "ours", {"a": "b"})
    event = last_event(metastore)
    assert (event.event_type, event.database) == (EventType.ALTER_DATABASE, "lake")
    assert "3" not in json.loads(event.message["dbObjBeforeJson"])
    assert json.loads(event.message["dbObjAfterJson"]) == {
        "1": {"str": "lake"},
        "2": {"str": "ours"},
        "3": {"str": "/lake"},
        "4": {"map": ["str", "str", 1, {"a": "b"}]},
        "7": {"i32": 1},
        "8": {"str": "hive"},
    }
    with pytest.raises(NoSuchObjectError, match="database 'sea'"):
        metastore.alter_database("sea", location="/sea")


def test_functions_and_their_events(metastore: AnyMetastore) -> None:
    made = metastore.create_function("lake", "Shout", "com.example.Shout", owner="ops", resources=["/s.jar"])
    assert made == metastore.get_function("LAKE", "shout")
    assert metastore.list_functions("lake") == ["shout"]
    assert json.loads(last_event(metastore).message["functionObjJson"]) == {
        "1": {"str": "shout"},
        "2": {"str": "lake"},
        "3": {"str": "com.example.Shout"},
        "4": {"str": "ops"},
        "7": {"i32": 1},
        "8": {"lst": ["rec", 1, {"1": {"i32": 1}, "2": {"str": "/s.jar"}}]},
        "9": {"str": "hive"},
    }
    with pytest.raises(AlreadyExistsError, match=r"function lake\.shout exists"):
        metastore.create_function("lake", "shout", "com.example.Other")
    metastore.drop_function("lake", "SHOUT")
    event = last_event(metastore)
    assert (event.event_type, event.message["functionName"]) == (EventType.DROP_FUNCTION, "shout")
    with pytest.raises(NoSuchObjectError, match=r"function lake\.shout does not exist"):
        metastore.drop_function("lake", "shout")
    metastore.create_function("lake", "shout", "com.example.Shout")
    metastore.drop_database("lake", cascade=True)
    with pytest.raises(NoSuchObjectError):
        metastore.get_function("lake", "shout")


def test_a_table_as_hives_struct(metastore: AnyMetastore) -> None:
    """Field ids of hive_metastore.thrift, types of Thrift's TJSONProtocol."""
    struct = json.loads(last_event(metastore, EventType.CREATE_TABLE).message["tableObjJson"])
    assert struct["1"] == {"str": "flights"}
    assert struct["2"] == {"str": "lake"}
    assert struct["7"]["rec"]["2"] == {"str": "/lake/flights"}
    assert struct["7"]["rec"]["1"]["lst"] == [
        "rec",
        2,
        {"1": {"str": "id"}, "2": {"str": "bigint"}},
        {"1": {"str": "dest"}, "2": {"str": "string"}, "3": {"str": "airport"}},
    ]
    assert struct["9"] == {"map": ["str", "str", 1, {"provider": "hudi"}]}
    assert struct["12"] == {"str": "MANAGED_TABLE"}
    assert struct["19"] == {"i64": -1}


@pytest.mark.parametrize("text", ["", "[]", "null", '{"name": 1}', "5"])
def test_texts_that_are_no_struct(text: str) -> None:
    with pytest.raises(MetastoreError, match="no Thrift JSON"):
        decode_table(text)

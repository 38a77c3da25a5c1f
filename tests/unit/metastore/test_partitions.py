"""Partitions, and the one event for each change of many."""

from __future__ import annotations

import json

import pytest

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    NoSuchObjectError,
    TransactionAbortedError,
)
from airflow_provider.metastore import Column, EventType, Metastore, PartitionInfo, PartitionSpec


def spec(year: str | None, month: str | None) -> PartitionSpec:
    return PartitionSpec((year, month), f"/lake/flights/year={year}/month={month}")


def test_only_the_new_ones_are_added_with_one_event(metastore: Metastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1"), spec("2013", "2")])
    added = metastore.add_partitions("lake", "flights", [spec("2013", "2"), spec("2013", "3")])
    assert [one.values for one in added] == [("2013", "3")]
    assert metastore.add_partitions("lake", "flights", [spec("2013", "1"), spec("2013", "3")]) == []
    events = metastore.next_events(2)
    assert [event.event_type for event in events] == [EventType.ADD_PARTITION] * 2
    assert events[0].message["partitions"] == [
        {"year": "2013", "month": "1"},
        {"year": "2013", "month": "2"},
    ]
    assert events[1].message["partitions"] == [{"year": "2013", "month": "3"}]
    assert [json.loads(one)["location"] for one in events[1].message["partitionListJson"]] == [
        "/lake/flights/year=2013/month=3"
    ]
    assert (events[1].database, events[1].table) == ("lake", "flights")
    assert events[1].message["tableType"] == "MANAGED_TABLE"


def test_one_that_exists_stays_as_it_is_or_is_an_error(metastore: Metastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1")])
    moved = PartitionSpec(("2013", "1"), "/elsewhere")
    assert metastore.add_partitions("lake", "flights", [moved]) == []
    with pytest.raises(AlreadyExistsError, match=r'partition \["2013","1"\] exists'):
        metastore.add_partitions("lake", "flights", [spec("2013", "2"), moved], if_not_exists=False)
    assert metastore.get_partitions("lake", "flights") == [
        PartitionInfo(("2013", "1"), "/lake/flights/year=2013/month=1")
    ]
    assert metastore.current_event_id() == 3


def test_values_of_any_kind_come_back_equal(metastore: Metastore) -> None:
    values = ["a/b", "..", "%2F", "Zürich", " ", "null", "[]", '"', "x" * 500, None]
    specs = [PartitionSpec((value, "1"), f"/p/{number}") for number, value in enumerate(values)]
    metastore.add_partitions("lake", "flights", specs)
    found = metastore.get_partitions("lake", "flights")
    assert {one.values[0]: one.location for one in found} == {one.values[0]: one.location for one in specs}
    assert metastore.get_partition("lake", "flights", ("Zürich", "1")).location == "/p/3"


def test_null_and_hives_word_for_it_are_one_partition(metastore: Metastore) -> None:
    metastore.add_partitions("lake", "flights", [spec(None, "1")])
    assert metastore.add_partitions("lake", "flights", [spec("__HIVE_DEFAULT_PARTITION__", "1")]) == []
    assert metastore.get_partition("lake", "flights", (None, "1")).values == (None, "1")
    assert metastore.next_events(2)[0].message["partitions"] == [
        {"year": "__HIVE_DEFAULT_PARTITION__", "month": "1"}
    ]


@pytest.mark.parametrize("values", [(), ("2013",), ("2013", "1", "1"), ("2013", ""), ("2013", 1)])
def test_values_that_do_not_fit_the_keys_are_refused(metastore: Metastore, values: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError, match=r"table lake\.flights: partition"):
        metastore.add_partitions("lake", "flights", [spec("2013", "1"), PartitionSpec(values, "/p")])
    assert metastore.get_partitions("lake", "flights") == []
    assert metastore.current_event_id() == 2


def test_a_table_without_keys_has_no_partitions(metastore: Metastore) -> None:
    metastore.create_table("lake", "flat", location="/f", schema=[Column("id", "bigint")])
    with pytest.raises(InvalidInputError, match="the table has 0 partition keys"):
        metastore.add_partitions("lake", "flat", [PartitionSpec((), "/f")])
    assert metastore.get_partitions("lake", "flat") == []


def test_more_than_one_statement_can_hold(metastore: Metastore) -> None:
    many = [spec(str(year), str(month)) for year in range(1000, 1250) for month in range(10)]
    assert len(metastore.add_partitions("lake", "flights", many)) == 2500
    dropped = metastore.drop_partitions("lake", "flights", [one.values for one in many[:-1]])
    assert len(dropped) == 2499
    assert [one.values for one in metastore.get_partitions("lake", "flights")] == [many[-1].values]
    assert metastore.current_event_id() == 4


def test_dropping_tells_what_was_there(metastore: Metastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1"), spec("2013", "2")])
    dropped = metastore.drop_partitions("lake", "flights", [("2013", "2"), ("2013", "9")])
    assert [one.values for one in dropped] == [("2013", "2")]
    assert metastore.drop_partitions("lake", "flights", [("2013", "2")]) == []
    events = metastore.next_events(3)
    assert [event.event_type for event in events] == [EventType.DROP_PARTITION]
    assert events[0].message["partitions"] == [{"year": "2013", "month": "2"}]
    with pytest.raises(NoSuchObjectError, match=r'no partition \["2013","9"\]'):
        metastore.drop_partitions("lake", "flights", [("2013", "1"), ("2013", "9")], if_exists=False)
    assert len(metastore.get_partitions("lake", "flights")) == 1


def test_altering_tells_before_and_after(metastore: Metastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1")])
    after = metastore.alter_partition(
        "lake", "flights", ("2013", "1"), location="/new", parameters={"a": "b"}
    )
    assert after == PartitionInfo(("2013", "1"), "/new", {"a": "b"})
    event = metastore.next_events(3)[0]
    assert event.event_type == EventType.ALTER_PARTITION
    assert event.message["keyValues"] == {"year": "2013", "month": "1"}
    assert json.loads(event.message["partitionObjBeforeJson"])["location"].endswith("month=1")
    assert json.loads(event.message["partitionObjAfterJson"])["location"] == "/new"
    with pytest.raises(NoSuchObjectError, match="no partition"):
        metastore.alter_partition("lake", "flights", ("2013", "2"), location="/new")


def test_an_ended_transaction_changes_no_partition(metastore: Metastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    metastore.add_partitions("lake", "flights", [spec("2013", "1")], txn_id=txn_id)
    metastore.abort_txn(txn_id)
    with pytest.raises(TransactionAbortedError):
        metastore.add_partitions("lake", "flights", [spec("2013", "2")], txn_id=txn_id)
    with pytest.raises(TransactionAbortedError):
        metastore.drop_partitions("lake", "flights", [("2013", "1")], txn_id=txn_id)
    assert [one.values for one in metastore.get_partitions("lake", "flights")] == [("2013", "1")]

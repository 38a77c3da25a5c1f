"""Partitions, and the one event for each change of many."""

from __future__ import annotations

import pytest

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    NoSuchObjectError,
    TransactionAbortedError,
)
from airflow_provider.metastore import (
    AnyMetastore,
    Column,
    EventType,
    NotificationEvent,
    PartitionInfo,
    PartitionSpec,
)
from airflow_provider.metastore.model.hive_json import decode_partition, decode_write_id


def events_of(metastore: AnyMetastore, event_type: EventType) -> list[NotificationEvent]:
    return metastore.next_events(0, event_types=[event_type])


def spec(year: str | None, month: str | None) -> PartitionSpec:
    return PartitionSpec((year, month), f"/lake/flights/year={year}/month={month}")


def test_only_the_new_ones_are_added_with_one_event(metastore: AnyMetastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1"), spec("2013", "2")])
    added = metastore.add_partitions("lake", "flights", [spec("2013", "2"), spec("2013", "3")])
    assert [one.values for one in added] == [("2013", "3")]
    assert metastore.add_partitions("lake", "flights", [spec("2013", "1"), spec("2013", "3")]) == []
    events = events_of(metastore, EventType.ADD_PARTITION)
    assert len(events) == 2
    assert events[0].message["partitions"] == [
        {"year": "2013", "month": "1"},
        {"year": "2013", "month": "2"},
    ]
    assert events[1].message["partitions"] == [{"year": "2013", "month": "3"}]
    assert [decode_partition(one) for one in events[1].message["partitionListJson"]] == added
    assert (events[1].database, events[1].table) == ("lake", "flights")
    assert events[1].message["tableType"] == "MANAGED_TABLE"


def test_one_that_exists_stays_as_it_is_or_is_an_error(metastore: AnyMetastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1")])
    moved = PartitionSpec(("2013", "1"), "/elsewhere")
    assert metastore.add_partitions("lake", "flights", [moved]) == []
    with pytest.raises(AlreadyExistsError, match=r'partition \["2013","1"\] exists'):
        metastore.add_partitions("lake", "flights", [spec("2013", "2"), moved], if_not_exists=False)
    assert metastore.get_partitions("lake", "flights") == [
        PartitionInfo(("2013", "1"), "/lake/flights/year=2013/month=1")
    ]
    assert len(events_of(metastore, EventType.ADD_PARTITION)) == 1


def test_values_of_any_kind_come_back_equal(metastore: AnyMetastore) -> None:
    values = ["a/b", "..", "%2F", "Zürich", " ", "null", "[]", '"', "x" * 500, None]
    specs = [PartitionSpec((value, "1"), f"/p/{number}") for number, value in enumerate(values)]
    metastore.add_partitions("lake", "flights", specs)
    found = metastore.get_partitions("lake", "flights")
    assert {one.values[0]: one.location for one in found} == {one.values[0]: one.location for one in specs}
    assert metastore.get_partition("lake", "flights", ("Zürich", "1")).location == "/p/3"


def test_null_and_hives_word_for_it_are_one_partition(metastore: AnyMetastore) -> None:
    metastore.add_partitions("lake", "flights", [spec(None, "1")])
    assert metastore.add_partitions("lake", "flights", [spec("__HIVE_DEFAULT_PARTITION__", "1")]) == []
    assert metastore.get_partition("lake", "flights", (None, "1")).values == (None, "1")
    assert events_of(metastore, EventType.ADD_PARTITION)[0].message["partitions"] == [
        {"year": "__HIVE_DEFAULT_PARTITION__", "month": "1"}
    ]


@pytest.mark.parametrize(
    "values", [(), ("2013",), ("2013", "1", "1"), ("2013", ""), ("2013", 1), ("2013", "\0")]
)
def test_values_that_do_not_fit_the_keys_are_refused(
    metastore: AnyMetastore, values: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInputError, match=r"table lake\.flights: partition"):
        metastore.add_partitions("lake", "flights", [spec("2013", "1"), PartitionSpec(values, "/p")])
    assert metastore.get_partitions("lake", "flights") == []
    assert metastore.current_event_id() == 2


def test_a_table_without_keys_has_no_partitions(metastore: AnyMetastore) -> None:
    metastore.create_table("lake", "flat", location="/f", schema=[Column("id", "bigint")])
    with pytest.raises(InvalidInputError, match="the table has 0 partition keys"):
        metastore.add_partitions("lake", "flat", [PartitionSpec((), "/f")])
    assert metastore.get_partitions("lake", "flat") == []


def test_more_than_one_statement_can_hold(metastore: AnyMetastore) -> None:
    many = [spec(str(year), str(month)) for year in range(1000, 1250) for month in range(10)]
    assert len(metastore.add_partitions("lake", "flights", many)) == 2500
    dropped = metastore.drop_partitions("lake", "flights", [one.values for one in many[:-1]])
    assert len(dropped) == 2499
    assert [one.values for one in metastore.get_partitions("lake", "flights")] == [many[-1].values]
    assert len(events_of(metastore, EventType.ADD_PARTITION)) == 1


def test_dropping_returns_the_partitions_that_existed(metastore: AnyMetastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1"), spec("2013", "2")])
    dropped = metastore.drop_partitions("lake", "flights", [("2013", "2"), ("2013", "9")])
    assert [one.values for one in dropped] == [("2013", "2")]
    assert metastore.drop_partitions("lake", "flights", [("2013", "2")]) == []
    events = events_of(metastore, EventType.DROP_PARTITION)
    assert len(events) == 1
    assert events[0].message["partitions"] == [{"year": "2013", "month": "2"}]
    with pytest.raises(NoSuchObjectError, match=r'no partition \["2013","9"\]'):
        metastore.drop_partitions("lake", "flights", [("2013", "1"), ("2013", "9")], if_exists=False)
    assert len(metastore.get_partitions("lake", "flights")) == 1


def test_altering_tells_before_and_after(metastore: AnyMetastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1")])
    after = metastore.alter_partition(
        "lake", "flights", ("2013", "1"), location="/new", parameters={"a": "b"}
    )
    assert after == PartitionInfo(("2013", "1"), "/new", {"a": "b"})
    [event] = events_of(metastore, EventType.ALTER_PARTITION)
    assert event.message["keyValues"] == {"year": "2013", "month": "1"}
    assert decode_partition(event.message["partitionObjBeforeJson"]).location.endswith("month=1")
    assert decode_partition(event.message["partitionObjAfterJson"]) == after
    with pytest.raises(NoSuchObjectError, match="no partition"):
        metastore.alter_partition("lake", "flights", ("2013", "2"), location="/new")


def test_a_change_without_a_transaction_is_one_of_its_own(metastore: AnyMetastore) -> None:
    """Hive's client advances the write id for every DDL; the metastore does it for clients that do not."""
    metastore.add_partitions("lake", "flights", [spec("2013", "1")])
    events = metastore.next_events(2)
    assert [event.event_type for event in events] == [
        EventType.OPEN_TXN,
        EventType.ALLOC_WRITE_ID,
        EventType.ADD_PARTITION,
        EventType.COMMIT_TXN,
    ]
    assert decode_write_id(events[2].message["tableObjJson"]) == 1
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:1:9223372036854775807::"
    assert metastore.add_partitions("lake", "flights", [spec("2013", "1")]) == []
    assert metastore.current_event_id() == 6


def test_an_external_tables_changes_take_no_write_ids(metastore: AnyMetastore) -> None:
    keys = [Column("year", "int")]
    metastore.create_table(
        "lake", "logs", location="/l", schema=[], partition_keys=keys, table_type="EXTERNAL_TABLE"
    )
    metastore.add_partitions("lake", "logs", [PartitionSpec(("2013",), "/l/2013")])
    assert [event.event_type for event in metastore.next_events(3)] == [EventType.ADD_PARTITION]
    assert metastore.valid_write_id_list("lake", "logs").high_watermark == 0


def test_a_change_in_a_transaction_takes_its_write_id(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    metastore.add_partitions("lake", "flights", [spec("2013", "1")], txn_id=txn_id)
    metastore.drop_partitions("lake", "flights", [("2013", "1")], txn_id=txn_id)
    assert metastore.allocate_table_write_id(txn_id, "lake", "flights") == 1
    told = [*events_of(metastore, EventType.ADD_PARTITION), *events_of(metastore, EventType.DROP_PARTITION)]
    assert [decode_write_id(event.message["tableObjJson"]) for event in told] == [1, 1]
    assert not metastore.valid_write_id_list("lake", "flights").is_valid(1)


def test_an_insert_tells_its_files(metastore: AnyMetastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1")])
    files = ["/lake/flights/year=2013/month=1/a.parquet"]
    event_id = metastore.fire_insert_event("lake", "flights", files, values=("2013", "1"), replace=True)
    [event] = events_of(metastore, EventType.INSERT)
    assert event.event_id == event_id
    assert (event.message["files"], event.message["replace"]) == (files, "true")
    assert decode_partition(event.message["ptnObjJson"]).values == ("2013", "1")
    assert decode_write_id(event.message["tableObjJson"]) == 2
    with pytest.raises(NoSuchObjectError, match="no partition"):
        metastore.fire_insert_event("lake", "flights", files, values=("2013", "2"))


def test_an_ended_transaction_changes_no_partition(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    metastore.add_partitions("lake", "flights", [spec("2013", "1")], txn_id=txn_id)
    metastore.abort_txn(txn_id)
    with pytest.raises(TransactionAbortedError):
        metastore.add_partitions("lake", "flights", [spec("2013", "2")], txn_id=txn_id)
    with pytest.raises(TransactionAbortedError):
        metastore.drop_partitions("lake", "flights", [("2013", "1")], txn_id=txn_id)
    assert [one.values for one in metastore.get_partitions("lake", "flights")] == [("2013", "1")]


def test_a_partition_gets_other_values(metastore: AnyMetastore) -> None:
    metastore.add_partitions("lake", "flights", [spec("2013", "1"), spec("2013", "2")])
    [before, other] = metastore.get_partitions("lake", "flights")
    renamed = metastore.rename_partition("lake", "flights", before.values, ("2014", None))
    assert renamed == PartitionInfo(("2014", None), before.location, before.parameters)
    assert metastore.get_partitions("lake", "flights") == [other, renamed]
    [event] = events_of(metastore, EventType.ALTER_PARTITION)
    assert decode_partition(event.message["partitionObjBeforeJson"]) == before
    assert decode_partition(event.message["partitionObjAfterJson"]) == renamed
    txn_id = metastore.open_txn("me", "here")
    metastore.rename_partition("lake", "flights", ("2014", None), ("2015", "1"), txn_id=txn_id)
    event = events_of(metastore, EventType.ALTER_PARTITION)[-1]
    assert event.message["writeId"] == metastore.allocate_table_write_id(txn_id, "lake", "flights")
    with pytest.raises(AlreadyExistsError, match="exists already"):
        metastore.rename_partition("lake", "flights", ("2015", "1"), other.values)
    with pytest.raises(NoSuchObjectError, match="no partition"):
        metastore.rename_partition("lake", "flights", before.values, ("2016", "1"))
    with pytest.raises(InvalidInputError, match="has 1 values"):
        metastore.rename_partition("lake", "flights", ("2015", "1"), ("2016",))

"""Our client on a real Hive 4.0.1: transactions with write ids, and its notification log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider.exceptions import NoSuchObjectError, UnsupportedByServerError
from airflow_provider.metastore import Column, PartitionSpec
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from tests.engines.conftest import Server

INSERT_ONLY = {"transactional": "true", "transactional_properties": "insert_only"}


@pytest.fixture
def metastore(hive4: Server) -> Iterator[ThriftMetastore]:
    opened = ThriftMetastore(hive4.uri)
    opened.create_database("lake", f"{hive4.warehouse}/lake.db")
    opened.create_table(
        "lake",
        "flights",
        location=f"{hive4.warehouse}/lake.db/flights",
        schema=[Column("id", "bigint")],
        partition_keys=[Column("year", "int")],
        parameters=INSERT_ONLY,
    )
    yield opened
    opened.drop_database("lake", cascade=True)
    opened.close()


def test_write_ids(metastore: ThriftMetastore) -> None:
    first, second = (metastore.open_txn("me", "here") for _ in range(2))
    base = metastore.allocate_table_write_id(first, "lake", "flights")
    assert metastore.allocate_table_write_id(first, "lake", "flights") == base
    assert metastore.allocate_table_write_id(second, "lake", "flights") == base + 1
    seen = metastore.valid_write_id_list("lake", "flights")
    assert seen.min_open == base
    assert not seen.is_valid(base + 1)
    metastore.commit_txn(second)
    metastore.abort_txn(first)
    seen = metastore.valid_write_id_list("lake", "flights")
    assert seen.is_valid(base + 1)
    assert not seen.is_valid(base)
    assert seen.is_aborted(base)
    with pytest.raises(NoSuchObjectError):
        metastore.valid_write_id_list("lake", "nowhere")


def test_the_notification_log(metastore: ThriftMetastore, hive4: Server) -> None:
    start = metastore.current_event_id()
    txn_id = metastore.open_txn("me", "here")
    metastore.allocate_table_write_id(txn_id, "lake", "flights")
    spec = PartitionSpec(("2013",), f"{hive4.warehouse}/lake.db/flights/year=2013")
    metastore.add_partitions("lake", "flights", [spec], txn_id=txn_id)
    metastore.commit_txn(txn_id)
    events = metastore.next_events(start)
    assert [one.event_id for one in events] == list(range(start + 1, start + 1 + len(events)))
    kinds = [one.event_type for one in events]
    assert kinds == ["OPEN_TXN", "ALLOC_WRITE_ID", "ADD_PARTITION", "COMMIT_TXN"]
    assert all(isinstance(one.message, dict) and one.message for one in events)
    [added] = [one for one in events if one.event_type == "ADD_PARTITION"]
    assert (added.database, added.table) == ("lake", "flights")
    assert metastore.next_events(start, 1) == events[:1]


def test_tables_and_partitions_come_back(metastore: ThriftMetastore, hive4: Server) -> None:
    table = metastore.get_table("lake", "flights")
    assert (table.schema, table.partition_keys) == ((Column("id", "bigint"),), (Column("year", "int"),))
    assert table.parameters["transactional_properties"] == "insert_only"
    specs = [PartitionSpec((str(year),), f"{table.location}/year={year}") for year in (2013, 2014)]
    metastore.add_partitions("lake", "flights", specs)
    found = metastore.get_partitions_by_filter("lake", "flights", "year > 2013")
    assert [one.values for one in found] == [("2014",)]
    metastore.alter_partition("lake", "flights", ("2014",), parameters={"a": "b"})
    assert metastore.get_partition("lake", "flights", ("2014",)).parameters["a"] == "b"
    assert metastore.drop_partitions("lake", "flights", [("2013",)])
    assert [one.values for one in metastore.get_partitions("lake", "flights")] == [("2014",)]


def test_what_only_ours_have_is_said(metastore: ThriftMetastore) -> None:
    with pytest.raises(UnsupportedByServerError, match="get_read_snapshot"):
        metastore.read_snapshot([("lake", "flights")])

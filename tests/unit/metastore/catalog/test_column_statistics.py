"""Statistics of columns, written and read by a client that is made from Hive's own definition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hive_metastore import ThriftHiveMetastore
from hive_metastore.ttypes import (
    ColumnStatistics,
    ColumnStatisticsData,
    ColumnStatisticsDesc,
    ColumnStatisticsObj,
    Decimal,
    DecimalColumnStatsData,
    InvalidObjectException,
    LongColumnStatsData,
    NoSuchObjectException,
    PartitionsStatsRequest,
    SetPartitionsStatsRequest,
    TableStatsRequest,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from airflow_provider.metastore import Column, Metastore, PartitionSpec
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served

Client = ThriftHiveMetastore.Client
YEAR = "year=2013/month=1"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with served(ServiceOptions(url, port=0), housekeeping=False) as server:
        transport = TBufferedTransport(TSocket("127.0.0.1", server.port))
        transport.open()
        yield Client(TBinaryProtocol(transport))
        transport.close()


@pytest.fixture
def partition(by_database: Metastore) -> str:
    by_database.add_partitions("lake", "flights", [PartitionSpec(("2013", "1"), "/p")])
    return YEAR


def long(column: str, high: int) -> ColumnStatisticsObj:
    data = LongColumnStatsData(1, high, 0, 9, b"\x00\xff")
    return ColumnStatisticsObj(column, "bigint", ColumnStatisticsData(longStats=data))


def update(client: Client, *found: ColumnStatisticsObj, partition: str | None = None, engine="hive") -> None:
    place = ColumnStatisticsDesc(partition is None, "lake", "flights", partition)
    told = ColumnStatistics(place, list(found), engine=engine)
    if partition is None:
        assert client.update_table_column_statistics(told)
    else:
        assert client.update_partition_column_statistics(told)


def of_table(client: Client, *columns: str, engine: str = "hive") -> list[ColumnStatisticsObj]:
    asked = TableStatsRequest("lake", "flights", list(columns), engine=engine)
    return client.get_table_statistics_req(asked).tableStats


def test_the_last_update_of_statistics_counts(client: Client) -> None:
    fare = DecimalColumnStatsData(Decimal(2, b"\x01"), Decimal(2, b"\x7f"), 0, 3)
    odd = ColumnStatisticsObj("dest", "decimal(7,2)", ColumnStatisticsData(decimalStats=fare))
    update(client, long("ID", 5), odd)
    update(client, long("id", 7))
    assert of_table(client, "dest", "nope", "Id") == [
        ColumnStatisticsObj("dest", "string", odd.statsData),
        long("id", 7),
    ]
    assert of_table(client, "id", engine="impala") == []
    [found] = client.get_table_column_statistics("lake", "flights", "id").statsObj
    assert found == long("id", 7)
    with pytest.raises(TApplicationException) as nothing:
        client.get_table_column_statistics("lake", "flights", "nope")
    assert nothing.value.type == TApplicationException.MISSING_RESULT


def test_engines_do_not_see_each_others(client: Client) -> None:
    update(client, long("id", 5))
    update(client, long("id", 6), engine="impala")
    assert of_table(client, "id") == [long("id", 5)]
    assert of_table(client, "id", engine="impala") == [long("id", 6)]


def test_of_partitions(client: Client, partition: str, by_database: Metastore) -> None:
    place = ColumnStatisticsDesc(False, "lake", "flights", partition)
    told = [ColumnStatistics(place, [long("id", 5)])]
    assert client.update_partition_column_statistics_req(SetPartitionsStatsRequest(told)).result
    assert of_table(client, "id") == []
    asked = PartitionsStatsRequest("lake", "flights", ["id"], [partition, "year=2013/month=2"])
    assert client.get_partitions_statistics_req(asked).partStats == {partition: [long("id", 5)]}
    # They belong to the partition, whatever its values, and are dropped with it.
    by_database.rename_partition("lake", "flights", ("2013", "1"), ("2014", "1"))
    assert client.get_partition_column_statistics("lake", "flights", "year=2014/month=1", "id")
    by_database.drop_partitions("lake", "flights", [("2014", "1")])
    by_database.add_partitions("lake", "flights", [PartitionSpec(("2014", "1"), "/p")])
    asked.partNames = ["year=2014/month=1"]
    assert client.get_partitions_statistics_req(asked).partStats == {}


def test_a_column_that_is_another_now_has_none(client: Client, by_database: Metastore) -> None:
    update(client, long("id", 5))
    by_database.rename_table("lake", "flights", "lake", "trips")
    by_database.rename_table("lake", "trips", "lake", "flights")
    assert of_table(client, "id") == [long("id", 5)]
    by_database.alter_table("lake", "flights", schema=[Column("id", "string")])
    assert of_table(client, "id") == []
    by_database.drop_table("lake", "flights")
    with pytest.raises(NoSuchObjectException):
        of_table(client, "id")


def test_statistics_are_deleted_on_request(client: Client, partition: str) -> None:
    update(client, long("id", 5), long("dest", 5))
    update(client, long("id", 6), partition=partition)
    assert client.delete_table_column_statistics("lake", "flights", "ID", "hive")
    with pytest.raises(NoSuchObjectException, match="no statistics of id"):
        client.delete_table_column_statistics("lake", "flights", "id", "hive")
    assert client.delete_table_column_statistics("lake", "flights", None, None)
    assert of_table(client, "id", "dest") == []
    assert client.delete_partition_column_statistics("lake", "flights", partition, "id", "hive")
    with pytest.raises(NoSuchObjectException, match="2013"):
        client.delete_partition_column_statistics("lake", "flights", partition, "id", "hive")


def test_statistics_that_cannot_be_kept(client: Client, partition: str) -> None:
    with pytest.raises(InvalidObjectException, match="no column 'nope'"):
        update(client, long("nope", 5))
    with pytest.raises(NoSuchObjectException, match="has no partition"):
        update(client, long("id", 5), partition="year=1999/month=1")

"""A client by Apache Thrift from Hive's own definition, and a server of this package for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.transport import TTransport
from thrift.transport.TSocket import TSocket
from thriftpy2.rpc import make_client

from airflow_provider.metastore import Metastore, PartitionSpec
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, serving
from airflow_provider.metastore.thrift.server.server import MetastoreServer


@pytest.fixture
def server(by_database: Metastore, tmp_path: Path) -> Iterator[MetastoreServer]:
    options = ServiceOptions("", port=0, warehouse=f"{tmp_path}/warehouse", manages_folders=True)
    with serving(by_database, options, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def client(server: MetastoreServer) -> Iterator[Any]:
    transport = TTransport.TBufferedTransport(TSocket("127.0.0.1", server.port))
    transport.open()
    yield ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
    transport.close()


@pytest.fixture
def newer(server: MetastoreServer) -> Iterator[Any]:
    """A client for methods of Hive 4.1, which the definition above lacks."""
    opened = make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=10_000)
    yield opened
    opened.close()


@pytest.fixture
def flights(by_database: Metastore) -> list[str]:
    """Partitions of ``lake.flights``: two below its folder, one elsewhere."""
    places = {"1": "/lake/flights/year=2013/month=1", "2": "/lake/flights/year=2013/month=2", "10": "/else"}
    specs = [PartitionSpec(("2013", month), place, {"k": month}) for month, place in places.items()]
    by_database.add_partitions("lake", "flights", specs)
    return ["year=2013/month=1", "year=2013/month=10", "year=2013/month=2"]


def storage(location: str | None = None) -> Any:
    return ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema("id", "bigint", "")],
        location=location,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=ttypes.SerDeInfo("s", "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", {}),
    )


def create(client: Any, name: str, **fields: Any) -> None:
    keys = [ttypes.FieldSchema("d", "string", "")]
    given = {"dbName": "mart", "tableName": name, "sd": storage(), "partitionKeys": keys, "parameters": {}}
    client.create_table(ttypes.Table(**(given | fields)))


@pytest.fixture
def mart(client: Any) -> Path:
    """The folder of a database in the warehouse, with the tables ``a`` and ``b``."""
    client.create_database(ttypes.Database(name="mart"))
    create(client, "a")
    create(client, "b")
    return Path(client.get_database("mart").locationUri)

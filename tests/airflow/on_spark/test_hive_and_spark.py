"""Operators and hooks beside other programs: a plain Spark with Hive support, and a real Hive Metastore."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.connect.session import SparkSession

from airflow_provider.exceptions import LockTimeoutError, UnsupportedByServerError
from airflow_provider.hooks import LockProviderHook, MetastoreHook
from airflow_provider.metastore import Column, PartitionSpec, TxnState
from airflow_provider.operators import CreateTableOperator
from dags_examples.demo.spark_server import spark_connect_server
from tests.airflow.flights import COLUMNS, ingest, write_rows
from tests.processes.metastore.hive_metastore import hive_metastore
from tests.processes.metastore.metastore_service import metastore_service
from tests.processes.servers import free_port


@pytest.fixture
def service(connect, tmp_path):
    """``table-services metastore serve``, named by the default connection; clients have no Hudi."""
    options = ("--processes", "2", "--replica", "r", "--clients-without-hudi")
    with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db", *options, port=free_port()) as running:
        extra = json.dumps({"url": running.uri})
        connect("table_metastore_default", conn_type="table_metastore", extra=extra)
        yield running


@pytest.fixture
def spark(service, connect, tmp_path):
    """A plain Spark with Hive support, with the service for its metastore; it runs the ingestions, too."""
    conf = {
        "spark.sql.catalogImplementation": "hive",  # enableHiveSupport sets this
        "spark.hadoop.hive.metastore.uris": service.uri,
        "spark.sql.warehouse.dir": f"file:{tmp_path}/warehouse",
    }
    with spark_connect_server(tmp_path / "spark.log", conf=conf) as port:
        connect("spark", conn_type="spark_connect", host="sc://127.0.0.1", port=port)
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        yield session
        session.stop()


def test_a_plain_spark_lists_what_our_operators_wrote(spark, service, source, tmp_path):
    CreateTableOperator(
        task_id="create",
        table="lake.flights",
        location=f"{tmp_path}/flights",
        schema=COLUMNS,
        record_key=["id"],
        partition_by=["day"],
    ).execute({})

    def listed(query: str) -> list[tuple]:
        return sorted(tuple(row) for row in spark.sql(query).collect())

    columns = [("day", "string"), ("fare", "double"), ("id", "bigint")]
    assert listed("SHOW TABLES IN lake") == [("lake", "flights", False)]
    assert listed("SHOW PARTITIONS lake.flights") == []
    ingest(source, spark_conn_id="spark").execute({})
    assert listed("SHOW PARTITIONS lake.flights") == [("day=mon",), ("day=tue",)]
    found = spark.sql("select fare, id from lake.flights where day = 'mon'")
    assert [(field.name, field.dataType.simpleString()) for field in found.schema] == columns[1:]
    schema = spark.table("lake.flights").schema
    assert sorted((field.name, field.dataType.simpleString()) for field in schema) == columns
    # The next ingestion adds a partition, and Spark gets no message about it.
    write_rows(source / "b.parquet", [(4, "wed", 40.0)])
    ingest(source, spark_conn_id="spark").execute({})
    assert listed("SHOW PARTITIONS lake.flights")[-1] == ("day=wed",)
    described = {row[0]: row[1] for row in spark.sql("DESCRIBE EXTENDED lake.flights").collect()}
    assert described["Location"].removeprefix("file:") == f"{tmp_path}/flights"


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a real Hive Metastore."""
    with hive_metastore(tmp_path_factory.mktemp("hive")) as port:
        yield port


class TestRealHiveMetastore:
    """Hive's own metastore, of version 2.3, by Airflow connections."""

    @pytest.fixture
    def hook(self, port, connect):
        connect("hive", conn_type="table_metastore", extra=json.dumps({"url": f"thrift://127.0.0.1:{port}"}))
        return MetastoreHook("hive")

    def test_the_metastores_hook(self, hook, port, tmp_path):
        assert hook.test_connection() == (True, f"thrift://127.0.0.1:{port}: Hive Metastore 3.0")
        metastore = hook.get_metastore()
        metastore.create_database("lake", f"file:{tmp_path}/lake")
        metastore.create_table(
            "lake",
            "flights",
            location=f"file:{tmp_path}/lake/flights",
            schema=[Column("id", "bigint")],
            partition_keys=[Column("day", "string")],
            table_type="EXTERNAL_TABLE",
        )
        spec = PartitionSpec(("mon",), f"file:{tmp_path}/lake/flights/mon")
        metastore.add_partitions("lake", "flights", [spec])
        [there] = metastore.get_partitions("lake", "flights")
        assert (there.values, there.location) == (("mon",), spec.location)
        assert metastore.get_partition("lake", "flights", ["mon"]) == there
        assert metastore.get_partitions_by_filter("lake", "flights", "day = 'mon'") == [there]
        assert metastore.alter_table("lake", "flights", owner="ops").owner == "ops"
        # Hive 2.3 has no write ids; the transaction that was begun for one ends.
        with pytest.raises(UnsupportedByServerError), hook.transaction("lake.flights", agent="dag.task"):
            pass
        begun = metastore.valid_txn_list().high_watermark
        assert metastore.get_txn(begun).state is TxnState.ABORTED
        txn_id = metastore.open_txn("me", "here")
        with pytest.raises(UnsupportedByServerError):
            hook.allocate_write_id(txn_id, "lake.flights")
        metastore.commit_txn(txn_id)
        assert metastore.get_txn(txn_id).state is TxnState.COMMITTED

    def test_the_locks_hook(self, hook, port, connect, tmp_path):
        extra = {"provider": "metastore", "url": f"thrift://127.0.0.1:{port}", "timeout_seconds": 1}
        extra |= {"database": "lake", "table": "flights", "test_location": str(tmp_path)}
        connect("lock", conn_type="table_lock", extra=json.dumps(extra))
        works, message = LockProviderHook("lock").test_connection()
        assert works, message
        first, second = (LockProviderHook("lock").get_lock(str(tmp_path)) for _ in range(2))
        with first:
            assert first.is_held()
            with pytest.raises(LockTimeoutError), second:
                pass
        with second:
            assert second.is_held()
            assert not first.is_held()

"""A real Flink 1.17, by its Hive catalog, on our metastore."""

from __future__ import annotations

from pathlib import Path

from thriftpy2.rpc import make_client

from airflow_provider.metastore.thrift.protocol.idl import hive
from tests.engines.conftest import Server
from tests.engines.flink.catalog import run_statements

# Each statement with the rows that Flink must return; None if the test does not check them.
STATEMENTS: tuple[tuple[str, list[list[str]] | None], ...] = (
    ("CREATE DATABASE fl", None),
    ("USE fl", None),
    # A table of Flink's own, whose options are parameters of the table.
    ("CREATE TABLE made (id BIGINT, v STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '3')", None),
    ("ALTER TABLE made RENAME TO renamed", None),
    ("CREATE VIEW seen AS SELECT id FROM renamed", None),
    ("SELECT count(*) FROM seen", [["3"]]),
    ("SHOW TABLES", [["renamed"], ["seen"]]),
    ("DROP VIEW seen", None),
    ("DROP TABLE renamed", None),
    ("SHOW TABLES", []),
    # A table of Hive's, with partitions.
    ("USE flh", None),
    ("INSERT INTO h PARTITION (d = 'a', n = 1) VALUES (1, 'x'), (2, 'y')", None),
    ("INSERT INTO h VALUES (3, 'z', 'b', 2)", None),
    ("SELECT id, v, d FROM h ORDER BY id", [["1", "x", "a"], ["2", "y", "a"], ["3", "z", "b"]]),
    ("SELECT id FROM h WHERE d = 'a' AND n = 1 ORDER BY id", [["1"], ["2"]]),
    ("DROP TABLE h", None),
    ("DROP DATABASE fl", None),
    ("USE `default`", None),
    ("DROP DATABASE flh", None),
    ("SHOW DATABASES", [["default"]]),
)
DESCRIBED = ["id", "v", "d", "n"]


def test_databases_tables_and_partitions(ours: Server, tmp_path: Path) -> None:
    """The statements are in Flink's own language; Hive's language in Flink needs a Java 8."""
    _create_table_of_hive(ours.port)
    statements = ["DESCRIBE flh.h", *(one for one, _ in STATEMENTS)]
    described, *found = run_statements(statements, ours.port, tmp_path, ours.warehouse)
    assert [row[0] for row in described] == DESCRIBED
    for (statement, expected), rows in zip(STATEMENTS, found, strict=True):
        assert expected is None or rows == expected, statement


def _create_table_of_hive(port: int) -> None:
    text = "org.apache.hadoop.hive"
    storage = hive.StorageDescriptor(
        cols=[hive.FieldSchema(name="id", type="bigint"), hive.FieldSchema(name="v", type="string")],
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat=f"{text}.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=hive.SerDeInfo(
            serializationLib=f"{text}.serde2.lazy.LazySimpleSerDe",
            parameters={"serialization.format": "1", "field.delim": ","},
        ),
        compressed=False,
        numBuckets=-1,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    client = make_client(hive.ThriftHiveMetastore, "127.0.0.1", port, timeout=60_000)
    client.create_database(hive.Database(name="flh"))
    client.create_table(
        hive.Table(
            dbName="flh",
            tableName="h",
            owner="me",
            sd=storage,
            parameters={},
            partitionKeys=[hive.FieldSchema(name="d", type="string"), hive.FieldSchema(name="n", type="int")],
            tableType="MANAGED_TABLE",
        )
    )
    client.close()

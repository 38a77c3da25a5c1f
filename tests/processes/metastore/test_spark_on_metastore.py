"""A plain Spark with Hive support on our metastore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.connect import UnknownException
from pyspark.sql.connect.session import SparkSession

from airflow_provider.concurrency.transactions.recovery import partition_specs
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Column, open_metastore
from airflow_provider.table import HudiTable
from dags_examples.demo.spark_server import spark_connect_server
from tests.processes.metastore.metastore_service import metastore_service
from tests.processes.servers import free_port


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('metastore')}/metastore.db"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def spark(url: str, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    options = ("--processes", "2", "--replica", "r", "--manage-folders", "--clients-without-hudi")
    place = ("--warehouse", f"file:{warehouse}")
    with metastore_service(folder, url, *options, *place, port=free_port()) as service:
        conf = {
            "spark.sql.catalogImplementation": "hive",  # enableHiveSupport sets this
            "spark.hadoop.hive.metastore.uris": service.uri,
            "spark.sql.warehouse.dir": f"file:{warehouse}",
        }
        with spark_connect_server(folder / "spark.log", conf=conf) as port:
            session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
            yield session
            session.stop()


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(query).collect())


def described(spark: SparkSession, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {table}").collect() if row[0]}


@pytest.fixture
def lake(spark: SparkSession) -> Iterator[str]:
    spark.sql("CREATE DATABASE lake COMMENT 'what we have'")
    yield "lake"
    spark.sql("DROP DATABASE lake CASCADE")


def test_databases(spark: SparkSession, lake: str, warehouse: Path) -> None:
    assert ("lake",) in rows(spark, "SHOW DATABASES")
    found = dict(rows(spark, "DESCRIBE DATABASE lake"))
    assert found["Comment"] == "what we have"
    assert found["Location"] == f"file:{warehouse}/lake.db"
    spark.sql("ALTER DATABASE lake SET DBPROPERTIES ('k' = 'v')")
    assert "(k,v)" in dict(rows(spark, "DESCRIBE DATABASE EXTENDED lake"))["Properties"]
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        spark.sql("CREATE DATABASE lake")


@pytest.mark.parametrize("form", ["USING parquet", "STORED AS PARQUET", "STORED AS TEXTFILE"])
def test_a_table_from_its_creation_to_its_end(
    spark: SparkSession, lake: str, form: str, warehouse: Path
) -> None:
    spark.sql(f"CREATE TABLE lake.t (id BIGINT COMMENT 'the id', name STRING) {form} COMMENT 'a table'")
    assert rows(spark, "SHOW TABLES IN lake") == [("lake", "t", False)]
    assert [row[:2] for row in rows(spark, "DESCRIBE lake.t")] == [("id", "bigint"), ("name", "string")]
    detail = described(spark, "lake.t")
    assert (detail["Type"], detail["Comment"]) == ("MANAGED", "a table")
    spark.sql("INSERT INTO lake.t VALUES (1, 'a'), (2, 'ü')")
    assert rows(spark, "SELECT * FROM lake.t") == [(1, "a"), (2, "ü")]
    spark.sql("ALTER TABLE lake.t SET TBLPROPERTIES ('k' = 'v')")
    assert ("k", "v") in rows(spark, "SHOW TBLPROPERTIES lake.t")
    spark.sql("ALTER TABLE lake.t ADD COLUMNS (more INT)")
    assert rows(spark, "SELECT * FROM lake.t WHERE id = 1") == [(1, "a", None)]
    spark.sql("ALTER TABLE lake.t RENAME TO lake.u")
    assert rows(spark, "SHOW TABLES IN lake") == [("lake", "u", False)]
    assert len(rows(spark, "SELECT * FROM lake.u")) == 2
    assert (warehouse / "lake.db" / "u").is_dir()
    assert not (warehouse / "lake.db" / "t").exists()
    spark.sql("TRUNCATE TABLE lake.u")
    assert rows(spark, "SELECT * FROM lake.u") == []
    spark.sql("DROP TABLE lake.u")
    assert rows(spark, "SHOW TABLES IN lake") == []
    assert not (warehouse / "lake.db" / "u").exists()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lake.u")


@pytest.mark.parametrize("form", ["USING parquet PARTITIONED BY (year)", "hive"])
def test_partitions(spark: SparkSession, lake: str, form: str) -> None:
    if form == "hive":
        spark.sql("CREATE TABLE lake.p (id INT) PARTITIONED BY (year INT) STORED AS PARQUET")
        spark.sql("SET hive.exec.dynamic.partition.mode = nonstrict")
    else:
        spark.sql(f"CREATE TABLE lake.p (id INT, year INT) {form}")
    spark.sql("ALTER TABLE lake.p ADD PARTITION (year = 2011) PARTITION (year = 2012)")
    spark.sql("INSERT INTO lake.p PARTITION (year = 2013) VALUES (1)")
    spark.sql("INSERT INTO lake.p VALUES (2, 2014), (3, 2012), (4, NULL)")
    names = [(f"year={year}",) for year in (2011, 2012, 2013, 2014, "__HIVE_DEFAULT_PARTITION__")]
    assert rows(spark, "SHOW PARTITIONS lake.p") == names
    assert rows(spark, "SHOW PARTITIONS lake.p PARTITION (year = 2012)") == [("year=2012",)]
    assert rows(spark, "SELECT * FROM lake.p WHERE year > 2012") == [(1, 2013), (2, 2014)]
    assert rows(spark, "SELECT id FROM lake.p WHERE year IS NULL") == [(4,)]
    spark.sql("ALTER TABLE lake.p PARTITION (year = 2014) RENAME TO PARTITION (year = 2015)")
    assert rows(spark, "SELECT * FROM lake.p WHERE year > 2012") == [(1, 2013), (2, 2015)]
    spark.sql("ALTER TABLE lake.p PARTITION (year = 2015) RENAME TO PARTITION (year = 2014)")
    spark.sql("INSERT OVERWRITE lake.p PARTITION (year = 2013) VALUES (5)")
    assert rows(spark, "SELECT id FROM lake.p WHERE year = 2013") == [(5,)]
    spark.sql("ALTER TABLE lake.p DROP PARTITION (year = 2013)")
    assert ("year=2013",) not in rows(spark, "SHOW PARTITIONS lake.p")
    assert rows(spark, "SELECT id FROM lake.p") == [(2,), (3,), (4,)]
    spark.sql("MSCK REPAIR TABLE lake.p")
    assert len(rows(spark, "SHOW PARTITIONS lake.p")) == 4


def test_filters_on_a_text_key_find_what_spark_means(spark: SparkSession, lake: str) -> None:
    spark.sql("CREATE TABLE lake.k (id INT) PARTITIONED BY (k STRING) STORED AS PARQUET")
    spark.sql("SET hive.exec.dynamic.partition.mode = nonstrict")
    spark.sql("INSERT INTO lake.k VALUES (1, 'a'), (2, 'ab'), (3, 'b'), (4, 'a.c'), (5, NULL)")

    def found(condition: str) -> list[int]:
        return [row[0] for row in rows(spark, f"SELECT id FROM lake.k WHERE {condition}")]

    # Spark sends `k like "a.*"`, a regular expression.
    assert found("k LIKE 'a%'") == [1, 2, 4]
    assert found("k LIKE '%b'") == [2, 3]
    # `k like "a..*"` keeps `ab`, too: Spark filters again.
    assert found("k LIKE 'a.%'") == [4]
    assert found("k <> 'a'") == [2, 3, 4]
    assert found("k IN ('a', 'b')") == [1, 3]
    assert found("k NOT IN ('a', 'b')") == [2, 4]
    assert found("k IS NULL") == [5]


def test_a_partition_is_read_as_it_was_written(spark: SparkSession, lake: str) -> None:
    spark.sql(
        "CREATE TABLE lake.d (a STRING, b STRING) PARTITIONED BY (p INT) "
        "ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' STORED AS TEXTFILE"
    )
    spark.sql("INSERT INTO lake.d PARTITION (p = 1) VALUES ('x', 'y')")
    spark.sql("ALTER TABLE lake.d SET SERDEPROPERTIES ('field.delim' = '|')")
    spark.sql("INSERT INTO lake.d PARTITION (p = 2) VALUES ('x', 'y')")
    assert rows(spark, "SELECT * FROM lake.d") == [("x", "y", 1), ("x", "y", 2)]
    spark.sql("ALTER TABLE lake.d PARTITION (p = 1) SET SERDEPROPERTIES ('field.delim' = ';')")
    assert rows(spark, "SELECT a FROM lake.d WHERE p = 1") == [("x,y",)]
    assert rows(spark, "SELECT * FROM lake.d WHERE p = 2") == [("x", "y", 2)]


def test_external_tables_views_and_functions(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    spark.range(3).write.parquet(f"{tmp_path}/data")
    spark.sql(f"CREATE TABLE lake.e (id BIGINT) USING parquet LOCATION 'file:{tmp_path}/data'")
    assert described(spark, "lake.e")["Type"] == "EXTERNAL"
    spark.sql("CREATE VIEW lake.v AS SELECT id + 1 AS next FROM lake.e")
    assert rows(spark, "SELECT * FROM lake.v") == [(1,), (2,), (3,)]
    assert rows(spark, "SHOW VIEWS IN lake") == [("lake", "v", False)]
    spark.sql("DROP VIEW lake.v")
    spark.sql("CREATE TABLE lake.c USING parquet AS SELECT * FROM lake.e WHERE id > 0")
    assert rows(spark, "SELECT * FROM lake.c") == [(1,), (2,)]
    spark.sql("CREATE FUNCTION lake.f AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFUpper'")
    assert ("spark_catalog.lake.f",) in rows(spark, "SHOW USER FUNCTIONS IN lake")
    assert rows(spark, "SELECT lake.f('a')") == [("A",)]
    spark.sql("DROP FUNCTION lake.f")
    spark.sql("DROP TABLE lake.e")
    assert (tmp_path / "data").is_dir()


def test_a_table_of_ours_is_listed_with_its_schema_and_partitions(
    spark: SparkSession, lake: str, url: str, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.string()), ("delay", pa.int32()), ("tags", pa.list_(pa.string()))])
    table = HudiTable.create(
        f"{tmp_path}/flights",
        name="flights",
        schema=schema.append(pa.field("origin", pa.string())),
        record_key=["id"],
        partition_by=["origin"],
    )
    metastore = open_metastore(url)
    metastore.create_table(
        "lake",
        "flights",
        location=table.location,
        schema=[Column("id", "string"), Column("delay", "int"), Column("tags", "array<string>", "any")],
        partition_keys=[Column("origin", "string")],
        parameters={"spark.sql.sources.provider": "hudi"},
    )
    data = [{"id": "1", "delay": 5, "tags": ["x"], "origin": "JFK"}, {"id": "2", "origin": "EWR"}]
    ingest_arrow(table, pa.Table.from_pylist(data, table.schema), "upsert")
    metastore.add_partitions("lake", "flights", partition_specs(table, ["origin=JFK", "origin=EWR"]))

    assert ("lake", "flights", False) in rows(spark, "SHOW TABLES IN lake")
    columns = [(field.name, field.dataType.simpleString()) for field in spark.table("lake.flights").schema]
    assert columns == [
        ("id", "string"),
        ("delay", "int"),
        ("tags", "array<string>"),
        ("origin", "string"),
    ]
    assert rows(spark, "SHOW PARTITIONS lake.flights") == [("origin=EWR",), ("origin=JFK",)]
    chosen = spark.sql("SELECT delay, tags FROM lake.flights WHERE origin = 'JFK'")
    assert chosen.columns == ["delay", "tags"]
    # Without Hudi's bundle Spark fails with this error, instead of reading old versions of rows with the new
    # ones.
    with pytest.raises(UnknownException, match="HoodieParquetInputFormat"):
        chosen.collect()
    before = metastore.get_table("lake", "flights")
    with pytest.raises(UnknownException, match="HoodieParquetInputFormat"):
        spark.sql("ALTER TABLE lake.flights SET TBLPROPERTIES ('k' = 'v')")
    assert metastore.get_table("lake", "flights") == before
    metastore.close()

"""Spark 3.5 with Hudi's bundle on our metastore reads what ``CreateTableOperator`` registered."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider.metastore import open_metastore
from tests.engines.conftest import Server
from tests.engines.hudi_tables import FORMS, MERGE_ON_READ, ROWS, create_hudi_tables
from tests.real_hudi.jvm import Session, running

TABLES = FORMS | MERGE_ON_READ


@pytest.fixture(scope="module")
def spark(ours: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    create_hudi_tables(tmp_path_factory.mktemp("lake"), ours.uri, TABLES)
    settings = {
        "spark.sql.catalogImplementation": "hive",  # what enableHiveSupport sets
        "spark.hadoop.hive.metastore.uris": ours.uri,
        "spark.sql.warehouse.dir": ours.warehouse,
    }
    # The path of a socket has a hundred characters at most, and pytest's folders are long.
    with (
        tempfile.TemporaryDirectory(prefix="spark-") as folder,
        running(Path(folder), settings=settings) as jvm,
        closing(jvm.session()) as session,
    ):
        yield session
    with closing(open_metastore(ours.uri)) as metastore:
        metastore.drop_database("lake", cascade=True)


def test_it_lists_them(spark: Session) -> None:
    assert {"namespace": "lake"} in spark.sql("SHOW DATABASES")
    found = [row["tableName"] for row in spark.sql("SHOW TABLES IN lake")]
    assert sorted(found) == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_it_describes_and_reads_one(spark: Session, name: str) -> None:
    described = spark.sql(f"DESCRIBE EXTENDED lake.{name}")
    columns = {row["col_name"]: row["data_type"] for row in described}
    assert columns.items() >= {"id": "bigint", "dest": "string", "fare": "decimal(10,2)"}.items()
    assert columns["Provider"] == "hudi"
    found = spark.sql(f"SELECT id, dest, fare FROM lake.{name} ORDER BY id")
    assert [(row["id"], row["dest"], str(row["fare"])) for row in found] == ROWS
    assert spark.sql(f"SELECT id FROM lake.{name} WHERE dest = 'a b'") == [{"id": 2}]
    assert spark.sql(f"SELECT count(*) AS n FROM lake.{name} WHERE fare > 2") == [{"n": 2}]

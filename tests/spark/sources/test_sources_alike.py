"""A source gives the same table by Spark and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider.ingestion import ingest_files
from airflow_provider.spark.session import NAMES_NO_FOLDER
from tests.ingestion_contract.sources import ALIKE, COLUMNS
from tests.spark.lake import SparkLake


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("name", ALIKE)
def test_both_make_the_same_table(lake: SparkLake, tmp_path: Path, name: str) -> None:
    case = ALIKE[name]
    source, options = case.source(tmp_path / "source"), {"set_null_for_missing_columns": True, **case.options}
    by_spark, without = lake.create(COLUMNS), lake.create(COLUMNS)
    results = (by_spark.load("upsert", source, **options), ingest_files(without.location, source, **options))
    assert without.table.schema == by_spark.table.schema
    assert without.rows() == by_spark.rows()
    same = ("rows_inserted", "files_written", "schema_changes", "partitions", "operation", "action")
    assert [results[0][key] for key in same] == [results[1][key] for key in same]


def test_a_pattern_warns_of_no_missing_folder(spark: SparkSession) -> None:
    jvm = spark._jvm
    jvm.java.lang.Class.forName(NAMES_NO_FOLDER)  # or it has another name in this Spark
    configured = jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration().getLoggers()
    assert configured.get(NAMES_NO_FOLDER).getLevel().toString() == "ERROR"

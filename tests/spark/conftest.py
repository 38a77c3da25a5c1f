"""One local Spark session for all tests here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider.spark import local_session
from airflow_provider.spark.ingestion.scan import SourceScan
from tests.spark.lake import SparkLake


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # PySpark stays with Spark Connect once a test of another folder has used it.
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    settings = {
        "spark.sql.shuffle.partitions": "4",
        # Compiling code for a few rows costs more than it saves. In other tests and the demo Spark compiles.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = local_session("tests", "local[2]", settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> SparkLake:
    """Tables in a folder of the test's own."""
    return SparkLake(spark, tmp_path / "lake")


@pytest.fixture(params=["DataFrame", "files"])
def source(request: pytest.FixtureRequest, lake: SparkLake, tmp_path: Path) -> None:
    """The rows that a test writes come from a DataFrame, or from files, which tasks read."""
    if request.param == "files":
        lake.from_files = tmp_path


@pytest.fixture(params=["tasks", "Spark"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Parquet files are read by tasks, which is the default, or by Spark's own reader."""
    if request.param == "Spark":
        monkeypatch.setattr(SourceScan, "of", lambda *_, **__: None)
    return str(request.param)

"""A source is the same table by Spark and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.ingestion import ingest_files
from tests.ingestion_contract.sources import ALIKE, COLUMNS
from tests.spark.lake import SparkLake


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

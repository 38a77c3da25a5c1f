"""Tables as DataFrames: snapshots by write ids, and merge-on-read tables."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import ValidWriteIdList
from airflow_provider.spark import read_incremental, read_snapshot
from airflow_provider.table import HudiTable, snapshot
from tests.spark.lake import SparkLake
from tests.unit.table.skipping.test_nan import FILTERS, with_nan

FIXTURES = Path(__file__).parents[1] / "fixtures" / "real_hudi"
SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})


def test_a_dataframe_shows_what_was_written_under_valid_write_ids(lake: SparkLake) -> None:
    table = lake.create(SCHEMA)
    table.ingest("upsert", [{"id": 1, "text": "a"}], txn_id=3, write_id=1)
    own = {"txn_id": 5, "write_id": 2, "txn_goes_on": True}
    table.ingest("upsert", [{"id": 1, "text": "b"}, {"id": 2, "text": "b"}], **own)

    def seen(write_ids: str) -> dict[int, str]:
        valid = ValidWriteIdList.parse(write_ids)
        rows = read_snapshot(lake.spark, table.table, valid_write_ids=valid).collect()
        return {row["id"]: row["text"] for row in rows}

    assert seen("lake.t:2:2:2:") == {1: "a"}
    assert seen("lake.t:1:9223372036854775807::") == {1: "a"}
    assert seen("lake.t:2:9223372036854775807::") == {1: "b", 2: "b"}
    assert seen("lake.t:2:1:1,2:") == {}


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_row_ids_are_those_without_spark(lake: SparkLake, table_type: str) -> None:
    table = lake.create(SCHEMA, table_type=table_type)
    for write_id, ids in enumerate([range(5), range(3, 7)], 1):
        rows = table.arrow([{"id": number, "text": f"{write_id}"} for number in ids])
        ingest_arrow(table.location, rows, "upsert", txn_id=write_id, write_id=write_id)
    first = table.table.timeline().commits()[0].completion_time
    expected = snapshot(table.table, row_ids=True).to_table().sort_by("id").to_pylist()
    found = read_snapshot(lake.spark, table.table, row_ids=True).orderBy("id")
    assert found.toArrow().to_pylist() == expected
    assert found.where("row_id.original_write_id = 2").count() == 4
    changed, _ = read_incremental(lake.spark, table.table, first, row_ids=True)
    assert changed.orderBy("id").toArrow().to_pylist() == [
        each for each in expected if each["current_write_id"] == 2
    ]
    ingest_arrow(table.location, table.arrow([{"id": 9, "text": "by its path"}]))
    with pytest.raises(PythonException, match=r"NoWriteIdError: table .*has no write id"):
        read_snapshot(lake.spark, table.table, row_ids=True).collect()


@pytest.mark.parametrize("name", ["mor_types", "mor_compacted_v9", "mor_one_failed_v6", "mor_schema_on_read"])
def test_a_merge_on_read_table_by_the_real_hudi_reads_as_without_spark(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    table = HudiTable.open(str(tmp_path))
    expected = snapshot(table, meta_columns=True).to_table().sort_by("id")
    assert len(expected)
    found = read_snapshot(spark, table, meta_columns=True).orderBy("id").toArrow()
    assert found.to_pylist() == expected.to_pylist()
    where = [("v", ">", 50)]
    assert read_snapshot(spark, table, where=where).count() == snapshot(table, where=where).count_rows()

    first = table.timeline().commits()[0]
    start = first.completion_time if table.config.layout == 2 else first.requested_time
    rows, window = read_incremental(spark, table, start)
    assert rows.orderBy("id").toArrow().to_pylist() == window.scanner().to_table().sort_by("id").to_pylist()


def test_nan_differs_from_every_value_as_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """In Spark itself NaN equals NaN, and is above every number."""
    table = with_nan(str(tmp_path / "t"))
    found = {
        str(where): {row["id"] for row in read_snapshot(spark, table, where=[where]).collect()}
        for where, _ in FILTERS
    }
    assert found == {str(where): ids for where, ids in FILTERS}

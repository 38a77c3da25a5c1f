"""The same job over Spark Connect; its client has neither a SparkContext nor a JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.ingestion import IngestJob
from tests.ingestion_contract.lake import KIB
from tests.spark.lake import SparkLake

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "v": pa.int64(), "ts": pa.int64()})

CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from airflow_provider.exceptions import to_dict, TableServiceError
from airflow_provider.spark import IngestJob, ingest, read_snapshot
from airflow_provider.spark.ingestion import ingestion
from airflow_provider.spark.session import is_on_this_machine
from airflow_provider.table import HudiTable

location = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
assert not is_on_this_machine(spark), "the server may be on another one"
if sys.argv[2] == "tasks":  # they read the files of an object store, which here is this machine's disk
    ingestion.is_on_this_machine = lambda spark: True
said = []
for text in sys.argv[3:]:
    job = IngestJob.from_json(text)
    try:
        said.append(ingest(spark, job))
    except TableServiceError as error:
        said.append(to_dict(error))
count = read_snapshot(spark, HudiTable.open(location)).count()
print("SAID", json.dumps([said, count]))
spark.stop()
"""


@pytest.mark.parametrize("reader", ["Spark", "tasks"])
def test_over_spark_connect(lake: SparkLake, tmp_path: Path, reader: str) -> None:
    table = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts")

    def source(name: str, rows: list[dict[str, object]]) -> str:
        path = tmp_path / f"{name}.parquet"
        pa.parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
        return str(path)

    def row(id_: int | None, part: str, v: int, ts: int = 1) -> dict[str, object]:
        return {"id": id_, "part": part, "v": v, "ts": ts}

    first = [row(n, "a/ü" if n % 2 else "b", 0) for n in range(3000)]
    second = [row(n, "a/ü" if n % 2 else "b", 1) for n in range(2990, 3010)]
    late = [row(3, "a/ü", -1, ts=0), row(5, "a/ü", 9)]
    small = {"target_file_size": 16 * KIB, "small_file_limit": 8 * KIB}
    jobs = [
        {"operation": "bulk_insert", "source": [source("first", first)], **small},
        {"operation": "upsert", "source": [source("second", second)], **small},
        {"operation": "upsert", "source": [source("late", late)], **small},
        {"operation": "delete", "source": [source("gone", [row(0, "b", 0)])], **small},
        {"operation": "upsert", "source": [source("nulls", [row(None, "b", 0)])]},
        {"operation": "upsert", "source": [str(tmp_path / "missing")]},
    ]
    texts = [IngestJob.of(table.location, **job).to_json() for job in jobs]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED") and not name.startswith("PYSPARK_")
    } | {"PYSPARK_PYTHON": sys.executable}
    client = subprocess.run(
        [sys.executable, "-c", CLIENT, table.location, reader, *texts],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert client.returncode == 0, client.stderr[-3000:]
    (line,) = [line for line in client.stdout.splitlines() if line.startswith("SAID ")]
    said, count = json.loads(line.removeprefix("SAID "))
    done = [(each["rows_inserted"], each["rows_updated"], each["rows_deleted"]) for each in said[:4]]
    assert done == [(3000, 0, 0), (10, 10, 0), (0, 1, 0), (0, 0, 1)]
    assert len(table.files()["part=a%2Fü"]) > 1, "keys had to be looked up"
    assert [each["type"] for each in said[4:]] == ["InvalidRecordKeyError", "MissingSourceError"]
    expected = {each["id"]: each for each in [*first, *second, late[1]]}
    del expected[0]
    table.check(list(expected.values()))
    assert count == len(expected)

"""Spark's classes as Java has them in memory: JVMs that share them neither load nor verify them anew."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.ingestion import IngestJob
from airflow_provider.spark.ingestion import ingest
from airflow_provider.spark.session import job_session
from airflow_provider.table import HudiTable
from dags_examples.demo.spark_server import spark_connect_server

ROWS = pa.table({"id": [1, 2, 3], "day": ["mon", "tue", "tue"], "fare": [1.0, 2.0, 3.0]})


def archive(file: Path) -> None:
    """Archive the classes that a Spark Connect server loads until it has served an ingestion.

    A JVM with another garbage collector, another Java or another class path does not use the archive. No JVM
    uses it if Java has no archive of its own classes.

    :param file: the file for the JVMs' option ``-XX:SharedArchiveFile``; empty if Java cannot make an
        archive.
    """
    options = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit="{file.absolute()}"'
    with (
        tempfile.TemporaryDirectory() as folder,
        spark_connect_server(
            Path(folder) / "server.log", conf={"spark.driver.extraJavaOptions": options}
        ) as port,
    ):
        os.environ["SPARK_REMOTE"] = f"sc://127.0.0.1:{port}"
        _ingest(Path(folder))
        # The archive is written when the server ends.
    file.touch()


def _ingest(folder: Path) -> None:
    """Upsert rows twice, and read them, so that Spark loads the classes of a job."""
    table = HudiTable.create(
        str(folder / "table"), name="t", schema=ROWS.schema, record_key=["id"], partition_by=["day"]
    )
    pq.write_table(ROWS, folder / "rows.parquet")
    spark = job_session("classes")
    for _ in range(2):
        ingest(spark, IngestJob.of(table.location, (str(folder / "rows.parquet"),), operation="upsert"))
    spark.stop()


if __name__ == "__main__":
    archive(Path(sys.argv[1]))

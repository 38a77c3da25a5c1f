"""Tables under test: written through Spark, read by three readers that must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from airflow_provider.locks import LockProvider
from airflow_provider.spark import IngestJob, ingest, read_snapshot
from airflow_provider.spark.ingestion.source import spark_schema
from tests.ingestion_contract.lake import Lake, LakeTable, in_order


class SparkLake(Lake):
    """Makes tables, and writes to them by one Spark session.

    :ivar from_files: the folder for files of the rows that are written, which tasks read; None when the rows
        come from a DataFrame.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(root)
        self.spark = spark
        self.from_files: Path | None = None

    def open(self, location: str) -> SparkLakeTable:
        return SparkLakeTable(self, location)


class SparkLakeTable(LakeTable):
    """One table, written through Spark."""

    def __init__(self, lake: SparkLake, location: str) -> None:
        super().__init__(location)
        self.spark = lake.spark
        self._lake = lake

    def write(
        self, operation: str, rows: pa.Table, *, lock: LockProvider | None = None, **job: Any
    ) -> dict[str, Any]:
        if self._lake.from_files is not None:
            file = self._lake.from_files / f"{uuid4()}.parquet"
            pq.write_table(rows, file)
            return self.load(operation, file, lock=lock, **job)
        frame = self.spark.createDataFrame(rows, spark_schema(rows.schema))
        described = IngestJob.of(self.location, operation=operation, **job)
        return ingest(self.spark, described, dataframe=frame, lock=lock)

    def load(
        self, operation: str, *source: Path | str, lock: LockProvider | None = None, **job: Any
    ) -> dict[str, Any]:
        """Write rows from files."""
        paths = tuple(map(str, source))
        return ingest(self.spark, IngestJob.of(self.location, paths, operation=operation, **job), lock=lock)

    def spark_rows(self, as_of: str | None = None) -> list[dict[str, Any]]:
        """The rows that Spark reads."""
        rows = read_snapshot(self.spark, self.table, as_of).toArrow()
        return in_order(rows.cast(self.table.schema).to_pylist())

    def check_readers(self, as_of: str | None, ours: list[dict[str, Any]]) -> None:
        super().check_readers(as_of, ours)
        assert self.spark_rows(as_of) == ours

"""Ingestion beside its peers, in one run: Spark's own Parquet write, and delta-rs.

* bulk ingestion of 2 million rows (six copies of the flights of 2013 under six years), beside
  Spark's Parquet write of the same rows in the same session;
* an upsert of 200,000 rows into them (180,000 updates over all years, 20,000 new), into a copy-on-write
  and a merge-on-read table, each beside delta-rs' MERGE of the same rows into the same rows. The new rows of
  the merge-on-read table go into files of their own; otherwise small base files are written again for them.

Usage: ``python -m benchmarks.ingestion [--runs N]``. The first two rounds warm up and are not
counted. Prints medians and ratios; on a busy machine only the ratios mean something.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from airflow_provider.spark import IngestJob, ingest, local_session
from airflow_provider.table import HudiTable, snapshot
from benchmarks.report import Report, in_turns
from dags_examples.demo.flights import read_flights

YEARS = range(2013, 2019)
UPDATES, NEW = 180_000, 20_000
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}
WARM_UP = 2  # rounds that a JVM needs before its code is compiled


@dataclass
class Workload:
    """The rows, on disk for Spark and in memory for delta-rs (which that favours)."""

    folder: Path
    source: pa.Table
    batch: pa.Table

    @classmethod
    def make(cls, folder: Path) -> Workload:
        """Lay the rows out."""
        flights = read_flights()
        random = np.random.default_rng(42)
        count, each = flights.num_rows, UPDATES // len(YEARS)
        years, batches = [], []
        for number, year in enumerate(YEARS):
            ids = pa.array(np.arange(count) + number * count)
            rows = flights.set_column(0, "year", pa.repeat(pa.scalar(year), count)).add_column(
                0, "flight_id", ids
            )
            years.append(rows)
            changed = rows.take(np.sort(random.choice(count, each, replace=False)))
            at = rows.schema.get_field_index("dep_delay")
            delays = pa.array(random.integers(0, 500, each))
            batches.append(changed.set_column(at, "dep_delay", delays))
            new = rows.slice(0, NEW // len(YEARS) + 1)
            batches.append(
                new.set_column(0, "flight_id", pa.array(np.arange(new.num_rows) + 10**9 + number * count))
            )
        batch = pa.concat_tables(batches)
        batch = batch.take(random.permutation(batch.num_rows)).slice(0, UPDATES + NEW)
        workload = cls(folder, pa.concat_tables(years), batch)
        for name, rows, files in (("source", workload.source, 6), ("batch", batch, 4)):
            (folder / name).mkdir()
            size = -(-rows.num_rows // files)
            for number in range(files):
                pq.write_table(rows.slice(number * size, size), folder / name / f"{number}.parquet")
        return workload


def timed(run: Callable[[], object], prepare: Callable[[], object]) -> tuple[float, None]:
    """Seconds of one run, without its preparation; the JVM's memory is what it is given."""
    prepare()
    started = time.perf_counter()
    run()
    return time.perf_counter() - started, None


class Ours:
    """This package, in a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        workload: Workload,
        table_type: str = "copy_on_write",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._spark, self._workload, self._table_type = spark, workload, table_type
        self._options = dict(options or {})
        name = f"{table_type}-{len(self._options)}"
        self.location, self._loaded = workload.folder / name, workload.folder / f"{name}-loaded"

    def create(self) -> None:
        shutil.rmtree(self.location, ignore_errors=True)
        HudiTable.create(
            str(self.location),
            name="flights",
            schema=self._workload.source.schema,
            record_key=["flight_id"],
            partition_by=["year"],
            table_type=self._table_type,
            hudi_options=self._options,
        )

    def bulk_insert(self) -> None:
        self._ingest("source", "bulk_insert")

    def upsert(self) -> None:
        self._ingest("batch", "upsert")

    def keep(self) -> None:
        shutil.copytree(self.location, self._loaded)

    @property
    def is_kept(self) -> bool:
        return self._loaded.exists()

    def restore(self) -> None:
        shutil.rmtree(self.location, ignore_errors=True)
        shutil.copytree(self._loaded, self.location)

    def _ingest(self, folder: str, operation: str) -> None:
        source = str(self._workload.folder / folder / "*.parquet")
        sizes = {"small_file_limit": 0} if self._table_type == "merge_on_read" else {}
        job = IngestJob.of(location=str(self.location), source=(source,), operation=operation, **sizes)
        ingest(self._spark, job)


class DeltaRs:
    """delta-rs, partitioned alike, with the partition in the merge's condition."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.location = workload.folder / "delta"
        self._loaded = workload.folder / "delta-loaded"
        write_deltalake(self._loaded, workload.source, partition_by=["year"])

    def restore(self) -> None:
        shutil.rmtree(self.location, ignore_errors=True)
        shutil.copytree(self._loaded, self.location)

    def merge(self) -> None:
        merge = DeltaTable(self.location).merge(
            self._workload.batch,
            "target.year = source.year AND target.flight_id = source.flight_id",
            source_alias="source",
            target_alias="target",
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()


def check(ours: Ours, theirs: DeltaRs) -> None:
    """Both tables hold the same rows."""
    mine = snapshot(HudiTable.open(str(ours.location))).to_table(columns=["flight_id", "dep_delay"])
    other = pa.table(
        DeltaTable(theirs.location).to_pyarrow_dataset().to_table(columns=["flight_id", "dep_delay"])
    )
    assert mine.sort_by("flight_id").cast(other.schema).equals(other.sort_by("flight_id")), "results differ"


def main() -> None:
    """Run, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=5, help="counted runs of each")
    runs = arguments.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        workload = Workload.make(Path(folder))
        spark = local_session("benchmark", "local[2]", {"spark.driver.memory": "4g"})
        spark.sparkContext.setLogLevel("ERROR")
        frame = spark.read.parquet(str(workload.folder / "source"))
        parquet = workload.folder / "parquet"
        ours, theirs = Ours(spark, workload), DeltaRs(workload)
        by_look_up = Ours(spark, workload, "merge_on_read")
        in_buckets = Ours(spark, workload, "merge_on_read", BUCKETS)

        def spark_write() -> None:
            frame.write.partitionBy("year").parquet(str(parquet))

        def no_parquet() -> None:
            shutil.rmtree(parquet, ignore_errors=True)

        works = {
            "bulk ingestion on Spark, 2 M rows": (
                ("ours", ours.bulk_insert, ours.create),
                ("Spark's Parquet write", spark_write, no_parquet),
            ),
            "upsert on Spark, 200 k rows into 2 M": (
                ("ours", ours.upsert, ours.restore),
                ("delta-rs", theirs.merge, theirs.restore),
            ),
            "upsert on Spark, 200 k rows into 2 M, merge-on-read": (
                ("ours", by_look_up.upsert, by_look_up.restore),
                ("delta-rs", theirs.merge, theirs.restore),
            ),
            "upsert on Spark, 200 k rows into 2 M, merge-on-read, bucket index": (
                ("ours", in_buckets.upsert, in_buckets.restore),
                ("delta-rs", theirs.merge, theirs.restore),
            ),
        }
        for table in (by_look_up, in_buckets):
            table.create()
            table.bulk_insert()
            table.keep()
        with Report("ingestion", f"{runs} rounds") as report:
            for name, sides in works.items():
                turns = {who: partial(timed, run, prepare) for who, run, prepare in sides}
                report.add(name, *in_turns(turns, rounds=runs, warm_up=WARM_UP))
                if not ours.is_kept:
                    ours.keep()
        check(ours, theirs)
        check(by_look_up, theirs)
        check(in_buckets, theirs)


if __name__ == "__main__":
    main()

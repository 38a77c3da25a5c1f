"""Clustering beside delta-rs, in one run: 200 small files of flights, 2 million rows, unpartitioned.

* packing beside delta-rs' ``optimize.compact``; ordering by one column, and by two along the Z-order and
  the Hilbert curve, beside its ``optimize.z_order`` by the same columns, of the same rows;
* three selective queries before and after: the bytes of column chunks that they read, and their time.

Planning is part of ours. Ours runs through Spark, in a session that is warm.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.spark import ClusteringJob, cluster, local_session
from airflow_provider.table import HudiTable, snapshot
from benchmarks.report import Report, Side, in_turns
from dags_examples.demo.flights import read_flights

ROWS, FILES = 2_000_000, 200
WARM_UP = 1
LAYOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "packed": ("linear", ()),
    "sorted by dest": ("linear", ("dest",)),
    "Z-order by dest, dep_delay": ("z-order", ("dest", "dep_delay")),
    "Hilbert by dest, dep_delay": ("hilbert", ("dest", "dep_delay")),
}
QUERIES: dict[str, ds.Expression] = {
    "dest = LAX": ds.field("dest") == "LAX",
    "dep_delay > 300": ds.field("dep_delay") > 300,
    "dest = SFO, delayed 1-2 h": (ds.field("dest") == "SFO")
    & (ds.field("dep_delay") >= 60)
    & (ds.field("dep_delay") <= 120),
}
ANSWER = ["flight_id", "carrier", "tailnum", "dest", "dep_delay", "time_hour"]


@dataclass
class Lake:
    """The same rows in a Hudi and a Delta table of 200 files each, and a working copy of both."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Lake:
        """Lay the rows out, in an order that nobody can skip by."""
        flights = read_flights()
        copies = -(-ROWS // flights.num_rows)
        ids = (pa.array(np.arange(flights.num_rows) + n * flights.num_rows) for n in range(copies))
        rows = pa.concat_tables(flights.add_column(0, "flight_id", each) for each in ids)
        rows = rows.take(np.random.default_rng(42).permutation(rows.num_rows)[:ROWS]).combine_chunks()
        table = HudiTable.create(
            str(folder / "hudi"), name="flights", schema=rows.schema, record_key=["flight_id"]
        )
        each = ROWS // FILES
        for number in range(FILES):
            part = rows.slice(number * each, each)
            ingest_arrow(table, part, "bulk_insert")
            write_deltalake(folder / "delta", part, mode="append")
        return cls(folder)

    def copy(self, name: str) -> str:
        """A fresh working copy of a table."""
        target = self.folder / f"working-{name}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder / name, target)
        return str(target)


def ours(spark: SparkSession, location: str, layout: str, columns: tuple[str, ...]) -> None:
    """Plan and carry out a clustering."""
    instant = schedule_clustering(HudiTable.open(location), ClusteringSettings(columns, layout))
    assert cluster(spark, ClusteringJob(location, instant)) is not None


def theirs(location: str, layout: str, columns: tuple[str, ...]) -> None:
    """The same by delta-rs, which knows one order of several columns."""
    optimize = DeltaTable(location).optimize
    if columns:
        optimize.z_order(list(columns))
    else:
        optimize.compact()


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def query(dataset: ds.Dataset, condition: ds.Expression) -> tuple[pa.Table, float]:
    """The answer in the order of its keys, and the megabytes of column chunks to read for it."""
    found = dataset.to_table(columns=ANSWER, filter=condition)
    size = 0
    for fragment in dataset.get_fragments():
        for group in fragment.subset(filter=condition).row_groups:
            chunks = fragment.metadata.row_group(group.id)
            size += sum(
                chunk.total_compressed_size
                for chunk in map(chunks.column, range(chunks.num_columns))
                if chunk.path_in_schema in ANSWER
            )
    return found.sort_by("flight_id"), size / 1e6


def benchmark(runs: int, layouts: Sequence[str]) -> None:
    """Run and report: seconds of a clustering, and the megabytes that queries read afterwards.

    :param runs: counted runs of each.
    :param layouts: of :data:`LAYOUTS`.
    """
    with tempfile.TemporaryDirectory() as folder, Report("services", f"{FILES} files, {ROWS} rows") as report:
        lake = Lake.make(Path(folder))
        spark = local_session("benchmark", "local[2]", {"spark.driver.memory": "2g"})
        spark.sparkContext.setLogLevel("ERROR")
        answers = {name: _read(lake, name, "hudi", "delta")[0] for name in QUERIES}
        for name in layouts:
            turns = {
                "ours": partial(timed_on_copy, lake, "hudi", partial(ours, spark), *LAYOUTS[name]),
                "delta-rs": partial(timed_on_copy, lake, "delta", theirs, *LAYOUTS[name]),
            }
            report.add(f"clustering on Spark, {name}", *in_turns(turns, rounds=runs, warm_up=WARM_UP))
            for condition, expected in answers.items():
                found, mine, other = _read(lake, condition, "working-hudi", "working-delta")
                assert found.equals(expected), f"{name} has changed the answer of {condition}"
                report.add(f"{name}: bytes to read where {condition}", mine, other, unit="MB")
        spark.stop()


def timed_on_copy(
    lake: Lake, table: str, run: Callable[[str, str, tuple[str, ...]], None], layout: str, by: tuple[str, ...]
) -> tuple[float, None]:
    """Seconds of a clustering of a fresh copy."""
    at = lake.copy(table)
    return timed(lambda: run(at, layout, by)), None


def _read(lake: Lake, name: str, hudi: str, delta: str) -> tuple[pa.Table, Side, Side]:
    ours_: ds.Dataset = snapshot(HudiTable.open(str(lake.folder / hudi)))
    mine, size = query(ours_, QUERIES[name])
    other: Any = DeltaTable(lake.folder / delta).to_pyarrow_dataset()
    same, size_there = query(other, QUERIES[name])
    assert same.cast(mine.schema).equals(mine), f"the tables differ for {name}"
    return mine, Side("ours", [size]), Side("delta-rs", [size_there])

"""Clustering beside delta-rs, in one run: 200 small files of flights, 2 million rows, unpartitioned.

* packing beside delta-rs' ``optimize.compact``; ordering by one column, and by two along the Z-order and
  the Hilbert curve, beside its ``optimize.z_order`` by the same columns, of the same rows;
* three selective queries before and after: the bytes of column chunks that they read, and their time.

Planning is part of ours. Ours runs through Spark, in a session that is warm.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.clustering.clustering import schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.spark import ClusteringJob, cluster, local_session
from airflow_provider.table import HudiTable, snapshot
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


def theirs(location: str, columns: Sequence[str]) -> None:
    """The same by delta-rs."""
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


def query(dataset: ds.Dataset, condition: ds.Expression) -> tuple[pa.Table, float, float]:
    """The answer in the order of its keys, the megabytes of column chunks to read for it, and seconds."""
    found: list[pa.Table] = []
    seconds = min(
        timed(lambda: found.append(dataset.to_table(columns=ANSWER, filter=condition))) for _ in range(3)
    )
    size = 0
    for fragment in dataset.get_fragments():
        for group in fragment.subset(filter=condition).row_groups:
            chunks = fragment.metadata.row_group(group.id)
            size += sum(
                chunk.total_compressed_size
                for chunk in map(chunks.column, range(chunks.num_columns))
                if chunk.path_in_schema in ANSWER
            )
    return found[-1].sort_by("flight_id"), size / 1e6, seconds


def benchmark(console: Console, runs: int, layouts: Sequence[str]) -> None:
    """Run, and print two tables.

    :param console: where to print.
    :param runs: counted runs of each.
    :param layouts: of :data:`LAYOUTS`.
    """
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake.make(Path(folder))
        spark = local_session("benchmark", "local[2]", {"spark.driver.memory": "2g"})
        spark.sparkContext.setLogLevel("ERROR")
        times = Table("clustering 200 files, 2 M rows", "ours (s)", "delta-rs (s)", "ratio")
        reads = Table("query", "layout", "ours MB", "ours (s)", "delta-rs MB", "delta-rs (s)")
        answers = {name: _read(lake, name, "as written", "hudi", "delta", reads) for name in QUERIES}
        for name in layouts:
            layout, columns = LAYOUTS[name]
            rounds = []
            for _ in range(runs + WARM_UP):  # in turn, so that a machine that slows down slows both down
                mine, other = lake.copy("hudi"), lake.copy("delta")
                rounds.append(
                    (
                        timed(lambda at=mine, by=(layout, columns): ours(spark, at, *by)),
                        timed(lambda at=other, by=columns: theirs(at, by)),
                    )
                )
            mine_s, other_s = zip(*rounds[WARM_UP:], strict=True)
            ratio = statistics.median(a / b for a, b in zip(mine_s, other_s, strict=True))
            times.add_row(name, _spread(mine_s), _spread(other_s), f"{ratio:.2f}")
            for condition, expected in answers.items():
                found = _read(lake, condition, name, "working-hudi", "working-delta", reads)
                assert found.equals(expected), f"{name} has changed the answer of {condition}"
        spark.stop()
        console.print(times)
        console.print(reads)


def _read(lake: Lake, name: str, layout: str, hudi: str, delta: str, reads: Table) -> pa.Table:
    ours_: ds.Dataset = snapshot(HudiTable.open(str(lake.folder / hudi)))
    mine, *measured = query(ours_, QUERIES[name])
    other: Any = DeltaTable(lake.folder / delta).to_pyarrow_dataset()
    same, *measured_there = query(other, QUERIES[name])
    assert same.cast(mine.schema).equals(mine), f"the tables differ for {name}"
    reads.add_row(name, layout, *(f"{value:.2f}" for value in (*measured, *measured_there)))
    return mine


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} [{min(seconds):.2f}-{max(seconds):.2f}]"

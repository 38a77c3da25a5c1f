"""The peak memory of an upsert and of a z-order clustering when a table grows, beside delta-rs.

The table has eight partitions of one large file each. The same 10,000 rows, some of them in each partition,
are upserted into tables of more and more rows. Each work has a process of its own, whose peak includes all
imports. Both libraries use all processors.

Then the peak memory of a read and of a compaction of a merge-on-read table with one file group, whose log
files have every row once, and four times: with the default of ``hoodie.memory.merge.max.size``, and with a
small number. delta-rs has no log files.

Usage: ``python -m benchmarks.memory [--rows 1000000 4000000] [--only tables|logs]``. The clustering runs in
process.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import merge_on_read
from benchmarks.report import Report, Side, alone, in_turns
from benchmarks.single_process import DeltaRs, Library, Ours
from benchmarks.workload import Workload

UPSERTED = 10_000
LAYOUT = ["amount", "rating"]
LIBRARIES: tuple[type[Library], ...] = (Ours, DeltaRs)


def load(library: type[Library], location: str, source: str) -> None:
    """Make a library's table."""
    rows = pq.read_table(source)
    table = library(location)
    table.create(rows.schema)
    table.append(rows)


def upsert(library: type[Library], location: str, source: str) -> int:
    """Upsert some rows: how many the table has then."""
    rows: pa.Table = pq.read_table(source).slice(0, UPSERTED)
    table = library(location)
    table.upsert(rows)
    return table.count()


def cluster(library: type[Library], location: str, _: str) -> int:
    """Order all rows along a z-order curve: how many the table has then."""
    if library is Ours:
        from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
        from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
        from airflow_provider.table import HudiTable

        opened = HudiTable.open(location)
        schedule_clustering(opened, ClusteringSettings(tuple(LAYOUT), "z-order"))
        assert cluster_in_process(opened) is not None
    else:
        from deltalake import DeltaTable

        DeltaTable(location).optimize.z_order(LAYOUT)
    return library(location).count()


WORKS = {f"upsert of {UPSERTED:,} rows": upsert, "z-order clustering, in process": cluster}


def peak(
    work: Callable[[type[Library], str, str], int], library: type[Library], folder: Path, counts: set[int]
) -> tuple[float, int]:
    """The peak of one work in a process of its own, in MB and bytes; its number of rows goes into a set."""
    count, size = alone(work, library, str(folder / library.__name__), str(folder / "batch"))
    counts.add(count)
    return size / 1e6, size


# --- log files ----------------------------------------------------------------------------------

LITTLE = 64 * 1024 * 1024
MEMORY = "hoodie.memory.merge.max.size"


class OneFileGroup(merge_on_read.Ours):
    """A merge-on-read table whose rows are in one file group."""

    def load(self, rows: pa.Table) -> None:
        super().load(self._in_one_partition(rows))

    def upsert(self, rows: pa.Table) -> None:
        super().upsert(self._in_one_partition(rows))

    def _in_one_partition(self, rows: pa.Table) -> pa.Table:
        position = rows.column_names.index("region")
        return rows.set_column(position, "region", pa.array(["r"] * len(rows)))


class OneFileGroupInLittleMemory(OneFileGroup):
    """The same, whose merges take little memory."""

    options = MappingProxyType({MEMORY: LITTLE})


def load_logs(library: type[OneFileGroup], location: str, source: str, times: int) -> None:
    """Make a table, and upsert all of its rows some times."""
    rows = pq.read_table(source)
    table = library(location)
    table.load(rows)
    for _ in range(times):
        table.upsert(rows)


def read_logs(library: type[OneFileGroup], location: str) -> int:
    """Read all rows batch by batch: how many there are."""
    from airflow_provider.table import HudiTable, snapshot

    return sum(batch.num_rows for batch in snapshot(HudiTable.open(location)).to_batches())


def compact_logs(library: type[OneFileGroup], location: str) -> int:
    """Compact the table: how many rows it has then."""
    library(location).compact()
    return read_logs(library, location)


def of_logs(folder: Path, rows: int, report: Report) -> None:
    """Report the peaks of a read and a compaction of large log files."""
    for library, memory in ((OneFileGroup, "1 GiB"), (OneFileGroupInLittleMemory, "64 MiB")):
        for times in (1, 4):
            location = folder / f"{library.__name__}-{times}"
            alone(load_logs, library, str(location), str(folder / "load"), times)
            size = sum(path.stat().st_size for path in location.rglob("*.log.*"))
            for work, function in {"read": read_logs, "compaction": compact_logs}.items():
                count, peak = alone(function, library, str(location))
                if count != rows:
                    raise SystemExit(f"{work}: the table has {count} rows instead of {rows}")
                name = f"peak memory: {work}, {rows:,} rows {times}x in log files, {MEMORY} {memory}"
                report.add(name, Side("ours", [peak / 1e6], peak), unit="MB", logs=f"{size / 1e6:.0f} MB")


# --- all ----------------------------------------------------------------------------------------


def main() -> None:
    """Run, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    arguments.add_argument("--only", choices=["tables", "logs"])
    chosen = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="memory-") as name,
        Report("memory", "peaks of processes") as report,
    ):
        for rows in chosen.rows:
            folder = Path(name, str(rows))
            folder.mkdir()
            alone(Workload.make, folder, rows)  # not here: this process would stay large
            if chosen.only != "tables" and rows == min(chosen.rows):  # an upsert is one block in memory
                of_logs(folder, rows, report)
            if chosen.only == "logs":
                continue
            for library in LIBRARIES:
                alone(load, library, str(folder / library.__name__), str(folder / "load"))
            for work, function in WORKS.items():
                counts: set[int] = set()
                turns = {
                    library.name: partial(peak, function, library, folder, counts) for library in LIBRARIES
                }
                sides = in_turns(turns, rounds=1, warm_up=0)
                if len(counts) > 1:
                    raise SystemExit(f"{work}: the tables have different numbers of rows: {counts}")
                report.add(f"peak memory: {work}, table of {rows:,}", *sides, unit="MB")


if __name__ == "__main__":
    main()

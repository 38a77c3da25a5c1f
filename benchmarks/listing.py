"""Opening and listing a table of many files and commits, planning services on it, and what one more commit
costs; beside delta-rs and hudi-rs, in one run.

Every commit adds one small file to each of some partitions. Ours is written with the defaults, so that its
timeline is archived on the way, and read by ourselves and by hudi-rs; delta-rs writes the same rows into a
table of its own. Both are listed as a query does that wants one partition, and whole.

Usage: ``python -m benchmarks.listing [--commits 1000] [--partitions 20]``. On a busy machine only the
ratios mean something.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])
WANTED = "p3"
TIMES = 5


def rows_of(commit: int, partitions: int) -> pa.Table:
    """One row a partition."""
    first = commit * partitions
    ids = range(first, first + partitions)
    parts = [f"p{number}" for number in range(partitions)]
    return pa.table([pa.array(ids), pa.array(parts), pa.array([float(commit)] * partitions)], schema=SCHEMA)


def ours(location: str) -> Callable[[pa.Table], object]:
    """A new table of this package, and how one commits to it."""
    from airflow_provider.ingestion import ingest_arrow
    from airflow_provider.table import HudiTable

    table = HudiTable.create(
        location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"], hive_style=False
    )
    return lambda rows: ingest_arrow(table, rows, "bulk_insert")


def delta_rs(location: str) -> Callable[[pa.Table], object]:
    """A new table of delta-rs, and how one commits to it."""
    from deltalake import DeltaTable, write_deltalake

    DeltaTable.create(location, SCHEMA, partition_by=["part"])
    return lambda rows: write_deltalake(location, rows, mode="append")


def listings(location: str, delta: str) -> dict[str, tuple[Callable[[], int], Callable[[], int]]]:
    """How each library opens its table and lists the files of one partition, and of all."""
    from deltalake import DeltaTable
    from hudi import HudiReadOptions, HudiTableBuilder

    from airflow_provider.table import HudiTable

    def by_hudi_rs(*filters: tuple[str, str, str]) -> int:
        table = HudiTableBuilder.from_base_uri(location).build()
        return len(table.get_file_slices(HudiReadOptions(filters=list(filters))))

    return {
        "ours": (
            lambda: len(HudiTable.open(location).view().base_files(WANTED)),
            lambda: len(HudiTable.open(location).base_files()),
        ),
        "hudi-rs": (lambda: by_hudi_rs(("part", "=", WANTED)), by_hudi_rs),
        "delta-rs": (
            lambda: len(DeltaTable(delta).file_uris(file_pruning_predicate=[("part", "=", WANTED)])),
            lambda: len(DeltaTable(delta).file_uris()),
        ),
    }


def commit_all(commit: Callable[[pa.Table], object], name: str, commits: int, partitions: int) -> list[float]:
    """Seconds of every commit."""
    took = []
    for number in track(range(commits), f"{name} commits", transient=True):
        rows = rows_of(number, partitions)
        begun = time.perf_counter()
        commit(rows)
        took.append(time.perf_counter() - begun)
    return took


def plannings(location: str) -> dict[str, Callable[[], int]]:
    """How services are planned on our table; each returns how many data files its plan names."""
    from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
    from airflow_provider.services.cleaning.cleaning import plan_clean
    from airflow_provider.services.clustering.clustering import preview_clustering
    from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
    from airflow_provider.table import HudiTable

    def clustering() -> int:
        plan = preview_clustering(HudiTable.open(location), ClusteringSettings(max_groups=10**6))
        return len(plan.file_groups) if plan else 0

    def cleaning() -> int:
        # Every file group has one slice, so that all are looked at and none goes.
        retention = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)
        return len(plan_clean(HudiTable.open(location), retention).files)

    return {"clustering": clustering, "cleaning": cleaning}


def best(listing: Callable[[], int], expected: int) -> float:
    """The best of several times, in seconds; what is found has to be all."""
    took = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        found = listing()
        took.append(time.perf_counter() - begun)
        if found != expected:
            raise SystemExit(f"{found} files were found instead of {expected}")
    return min(took)


def main() -> None:
    """Write both tables, list them, and print two tables of figures."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--commits", type=int, default=1000)
    arguments.add_argument("--partitions", type=int, default=20)
    chosen = arguments.parse_args()
    commits, partitions = chosen.commits, chosen.partitions
    with tempfile.TemporaryDirectory(prefix="listing-") as folder:
        location, delta = str(Path(folder, "ours")), str(Path(folder, "delta"))
        costs = Table("one commit", "first 100, ms", "last 100, ms", "growth", title=f"{commits} commits")
        for name, commit in (("ours", ours(location)), ("delta-rs", delta_rs(delta))):
            took = commit_all(commit, name, commits, partitions)
            first, last = (1000 * statistics.median(part) for part in (took[:100], took[-100:]))
            costs.add_row(name, f"{first:.1f}", f"{last:.1f}", f"{last / first:.2f}x")
        files = commits * partitions
        lists = Table("open and list", "one partition, s", "whole, s", title=f"{files} files")
        for name, (one, whole) in listings(location, delta).items():
            lists.add_row(name, f"{best(one, commits):.3f}", f"{best(whole, files):.3f}")
        plans = Table("planning", "s", title=f"{files} files")
        expected = {"clustering": files, "cleaning": 0}
        for name, planning in plannings(location).items():
            plans.add_row(name, f"{best(planning, expected[name]):.3f}")
    Console().print(costs, lists, plans)


if __name__ == "__main__":
    main()

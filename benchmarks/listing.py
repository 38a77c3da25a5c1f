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
from functools import partial
from pathlib import Path

import pyarrow as pa
from rich.progress import track

from benchmarks.report import Report, Side, alone, in_turns

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


def by_hudi_rs(location: str, *filters: tuple[str, str, str]) -> int:
    """Open and list by hudi-rs."""
    from hudi import HudiReadOptions, HudiTableBuilder

    table = HudiTableBuilder.from_base_uri(location).build()
    return len(table.get_file_slices(HudiReadOptions(filters=list(filters))))


def by_ours(location: str, *partitions: str) -> int:
    """Open and list by this package."""
    from airflow_provider.table import HudiTable

    table = HudiTable.open(location)
    return sum(len(table.view().base_files(each)) for each in partitions) or len(table.base_files())


def by_delta_rs(location: str, *filters: tuple[str, str, str]) -> int:
    """Open and list by delta-rs."""
    from deltalake import DeltaTable

    return len(DeltaTable(location).file_uris(file_pruning_predicate=list(filters) or None))


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


def listed(listing: Callable[..., int], arguments: tuple[object, ...], expected: int) -> float:
    """The best of several times, in seconds; what is found has to be all."""
    took = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        found = listing(*arguments)
        took.append(time.perf_counter() - begun)
        if found != expected:
            raise SystemExit(f"{found} files were found instead of {expected}")
    return min(took)


def planned(location: str, service: str) -> float:
    """Seconds of a service's plan."""
    planning = plannings(location)[service]
    planning()
    begun = time.perf_counter()
    planning()
    return time.perf_counter() - begun


def main() -> None:
    """Write both tables, list them, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--commits", type=int, default=1000)
    arguments.add_argument("--partitions", type=int, default=20)
    arguments.add_argument("--runs", type=int, default=3)
    chosen = arguments.parse_args()
    commits, partitions = chosen.commits, chosen.partitions
    files = commits * partitions
    with (
        tempfile.TemporaryDirectory(prefix="listing-") as folder,
        Report("listing", f"{commits} commits, {files} files in {partitions} partitions") as report,
    ):
        location, delta = str(Path(folder, "ours")), str(Path(folder, "delta"))
        part = max(1, min(100, commits // 10))
        growth: list[Side] = []
        costs: list[Side] = []
        for name, commit in (("ours", ours(location)), ("delta-rs", delta_rs(delta))):
            took = commit_all(commit, name, commits, partitions)
            first, last = (statistics.median(each) for each in (took[:part], took[-part:]))
            growth.append(Side(name, [last / first]))
            costs.append(Side(name, [1000 * last]))
        report.add(f"the last {part} of {commits} commits of {partitions} files", *costs, unit="ms")
        report.add(f"the same: how much longer than the first {part}", *growth, unit="times")
        every: dict[str, tuple[Callable[..., int], tuple[object, ...]]]
        every = {
            "ours": (by_ours, (location,)),
            "delta-rs": (by_delta_rs, (delta,)),
            "hudi-rs": (by_hudi_rs, (location,)),
        }
        one = {
            "ours": (by_ours, (location, WANTED)),
            "delta-rs": (by_delta_rs, (delta, ("part", "=", WANTED))),
            "hudi-rs": (by_hudi_rs, (location, ("part", "=", WANTED))),
        }
        for work, listings, expected in (
            (f"open and list one partition of {files} files", one, commits),
            (f"open and list all of {files} files", every, files),
        ):
            works = {name: partial(alone, listed, *each, expected) for name, each in listings.items()}
            report.add(work, *in_turns(works, rounds=chosen.runs, warm_up=0))
        for service, names in (("clustering", files), ("cleaning", 0)):
            if (found := plannings(location)[service]()) != names:
                raise SystemExit(f"the plan of a {service} has {found} files instead of {names}")
            plans = in_turns(
                {"ours": partial(alone, planned, location, service)}, rounds=chosen.runs, warm_up=0
            )
            report.add(f"plan of a {service} of {files} files", *plans)


if __name__ == "__main__":
    main()

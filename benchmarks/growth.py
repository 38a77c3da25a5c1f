"""What it costs when a table grows: the same work on tables of more and more partitions.

A generator makes the partitions, each with one file that nobody opens, so that only what a work has to look
at counts. Each row of the report compares a table with the one that has a tenth of its partitions: a work
that is flat is as fast on both; the list of all files returns ten times as much, and is 0.1 times as fast.

Usage: ``python -m benchmarks.growth [--partitions 1000 10000 100000] [--runs 5]``. It measures processor
time, in one process that has done the work once before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import plan_clean
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_names import base_file_name, new_file_id
from airflow_provider.table.files.partition_metadata import write_partition_metadata
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode_commit_metadata
from benchmarks.report import Report, Side

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])
ROWS = 1_000


def make(location: str, partitions: int) -> HudiTable:
    """A table of so many partitions with a file each, by one commit."""
    table = HudiTable.create(
        location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"], hive_style=False
    )
    instant, stats = "20240101000000000", []
    for number in range(partitions):
        partition, file_id = f"p{number}", new_file_id()
        write_partition_metadata(table.storage, partition, instant)
        path = f"{partition}/{base_file_name(file_id, '0-0-0', instant)}"
        Path(location, path).write_bytes(b"PAR1")
        stats.append(WriteStat(file_id=file_id, partition_path=partition, path=path, file_size=4))
    completed = Instant(instant, Action.COMMIT, State.COMPLETED, "20240101000001000")
    content = encode_commit_metadata(CommitMetadata("BULK_INSERT", tuple(stats)), Action.COMMIT)
    table.storage.put(instant_path(completed), content)
    return HudiTable.open(location)


def works(location: str, partitions: int) -> dict[str, Callable[[], object]]:
    """What is measured, by name; each checks its result."""
    new = pa.table([range(ROWS), ["new"] * ROWS, [0.0] * ROWS], schema=SCHEMA)
    ingest_arrow(location, new, "insert")

    def listed() -> None:
        assert len(HudiTable.open(location).base_files()) == partitions + 1

    def one() -> None:
        assert len(HudiTable.open(location).view().base_files("p3")) == 1

    def query() -> None:
        rows = snapshot(HudiTable.open(location), where=[("part", "==", "new")])
        assert rows.count_rows() == ROWS

    def upsert() -> None:
        assert ingest_arrow(location, new, "upsert")["rows_updated"] == ROWS

    def cleaning() -> None:
        plan_clean(HudiTable.open(location), Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1))

    return {
        "open and list one partition": one,
        "query of one partition": query,
        f"upsert of {ROWS:,} rows into one partition": upsert,
        "open and list all files": listed,
        "plan of a clean": cleaning,
    }


def best(work: Callable[[], object], runs: int) -> list[float]:
    """Milliseconds of processor time, of the best of some runs."""
    work()
    took = []
    for _ in range(runs):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return [1000 * min(took)]


def main() -> None:
    """Run, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    arguments.add_argument("--runs", type=int, default=5)
    chosen = arguments.parse_args()
    before: dict[str, Side] = {}
    with (
        tempfile.TemporaryDirectory(prefix="growth-") as folder,
        Report("growth", "processor time") as report,
    ):
        for partitions in chosen.partitions:
            location = f"{folder}/{partitions}"
            make(location, partitions)
            for name, work in works(location, partitions).items():
                ours = Side("ours", best(work, chosen.runs))
                peers = [before[name]] if name in before else []
                report.add(f"{name}, {partitions:,} partitions", ours, *peers, unit="ms")
                before[name] = Side(f"with {partitions:,}", ours.values)


if __name__ == "__main__":
    main()

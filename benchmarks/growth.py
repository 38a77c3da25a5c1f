"""What it costs when a table grows: the same work on larger and larger tables.

A table grows in four ways, each apart from the others:

* ``partitions``: a generator makes them, each with one file that nobody opens;
* ``file groups``: a generator makes them in a thousand partitions, and the metadata table lists them;
* ``instants``: real upserts, with the archival that is due after a commit, and a clean after each tenth. Most
  of these instants are archived in the end;
* ``tables``: one process keeps so many open, and upserts into them in turns.

Each row of the report compares a size with the one before, which is a tenth of it in most cases: a work that
is flat is as fast on both; the list of all files returns ten times as much, and is 0.1 times as fast.

Usage: ``python -m benchmarks.growth [--partitions 1000 10000 100000] [--file-groups 10000 100000 1000000]
[--instants 100 1000 10000] [--tables 1 50] [--runs 5]``. A way of growing that is given no size is left out.
It measures processor time, in one process that has done the work once before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
from rich.progress import track

from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, plan_clean
from airflow_provider.table import HudiTable, increment, snapshot
from airflow_provider.table.file_names import base_file_name, new_file_id
from airflow_provider.table.files.partition_metadata import write_partition_metadata
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import CommitMetadata, WriteStat, encode_commit_metadata
from benchmarks.report import Report, Side

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])
ROWS = 1_000
PARTITIONS = 1_000
"""In which a generator makes file groups."""

Works = Mapping[str, Callable[[], object]]


def created(location: str) -> HudiTable:
    """An empty table."""
    return HudiTable.create(
        location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["part"], hive_style=False
    )


def new_rows(count: int) -> pa.Table:
    """Rows of one partition that no generator makes."""
    return pa.table([range(count), ["new"] * count, [0.0] * count], schema=SCHEMA)


def generate(location: str, partitions: int, files: int) -> HudiTable:
    """A table of so many partitions with so many file groups each, by one commit.

    The commit names the file groups only where each partition has one: a million would be hundreds of
    megabytes of its metadata, in which nothing that is measured here looks.
    """
    table, instant, stats = created(location), "20240101000000000", []
    for number in track(range(partitions), "making partitions", transient=True):
        partition = f"p{number}"
        write_partition_metadata(table.storage, partition, instant)
        names = [base_file_name(new_file_id(), "0-0-0", instant) for _ in range(files)]
        first = Path(location, partition, names[0])
        first.write_bytes(b"PAR1")
        for name in names[1:]:
            os.link(first, first.with_name(name))
        if files == 1:
            file_id, path = names[0].partition("_")[0], f"{partition}/{names[0]}"
            stats.append(WriteStat(file_id=file_id, partition_path=partition, path=path, file_size=4))
    completed = Instant(instant, Action.COMMIT, State.COMPLETED, "20240101000001000")
    content = encode_commit_metadata(CommitMetadata("BULK_INSERT", tuple(stats)), Action.COMMIT)
    table.storage.put(instant_path(completed), content)
    return HudiTable.open(location)


def generated_works(location: str, files: int) -> Works:
    """What is measured on a generated table, by name; each checks its result."""
    new, each = new_rows(ROWS), len(HudiTable.open(location).view().base_files("p3"))
    ingest_arrow(location, new, "insert")

    def listed() -> None:
        assert len(HudiTable.open(location).base_files()) == files + 1

    def one() -> None:
        assert len(HudiTable.open(location).view().base_files("p3")) == each

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


def of_partitions(folder: Path, partitions: int, runs: int) -> Mapping[str, list[float]]:
    """Milliseconds of the works on a table of so many partitions."""
    location = f"{folder}/t"
    generate(location, partitions, 1)
    return best(generated_works(location, partitions), runs)


def of_file_groups(folder: Path, file_groups: int, runs: int) -> Mapping[str, list[float]]:
    """Milliseconds of the works on a table of so many file groups, which the metadata table lists."""
    location = f"{folder}/t"
    table = generate(location, PARTITIONS, file_groups // PARTITIONS)
    schedule_index(table, ["files"])
    assert run_index(table) is not None
    return best(generated_works(location, file_groups), runs)


def of_instants(folder: Path, instants: int, runs: int) -> Mapping[str, list[float]]:
    """Milliseconds of the works on a table after so many commits."""
    table, new, took = created(f"{folder}/t"), new_rows(10), []
    for number in track(range(instants), "commits", transient=True):
        begun = time.process_time()
        ingest_arrow(table, new, "upsert")
        if number % 10 == 9:
            clean(table)
        took.append(time.process_time() - begun)
    archive(table, keep_min=20, keep_max=21)
    location = table.location

    def opened() -> None:
        assert HudiTable.open(location).timeline().commits()

    def upsert() -> None:
        assert ingest_arrow(location, new, "upsert")["rows_updated"] == new.num_rows

    def last() -> None:
        found = HudiTable.open(location)
        since = found.timeline().commits()[-2].completion_time
        assert increment(found, since).scanner().count_rows() == new.num_rows

    def archived() -> None:
        ingest_arrow(location, new, "upsert")
        ingest_arrow(location, new, "upsert")
        assert archive(HudiTable.open(location), keep_min=20, keep_max=21)

    works = {
        "open, and the timeline": opened,
        "upsert of 10 rows": upsert,
        "incremental read of the last commit": last,
        "two upserts, and an archival": archived,
    }
    last_tenth = took[-max(1, instants // 10) :]
    average = 1000 * sum(last_tenth) / len(last_tenth)
    return {**best(works, runs), "upsert, with all cleans and archivals, the last tenth": [average]}


def of_tables(folder: Path, tables: int, runs: int) -> Mapping[str, list[float]]:
    """Milliseconds of an upsert and a query in each of so many tables, in turns."""
    opened, new = [created(f"{folder}/{number}") for number in range(tables)], new_rows(10)

    def upserts() -> None:
        for table in opened:
            ingest_arrow(table, new, "upsert")

    def queries() -> None:
        for table in opened:
            assert snapshot(table).count_rows() == new.num_rows

    took = best({"upsert of 10 rows": upserts, "query": queries}, runs)
    return {name: [value / tables for value in values] for name, values in took.items()}


GROWS = {
    "partitions": of_partitions,
    "file groups": of_file_groups,
    "instants": of_instants,
    "tables": of_tables,
}


def best(works: Works, runs: int) -> dict[str, list[float]]:
    """Milliseconds of processor time of each work, of the best of some runs."""
    return {name: [1000 * min(map(_processor_time, [work] * (runs + 1)))] for name, work in works.items()}


def _processor_time(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Run, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = partial(arguments.add_argument, type=int, nargs="*")
    sizes("--partitions", default=[1_000, 10_000, 100_000])
    sizes("--file-groups", default=[10_000, 100_000, 1_000_000])
    sizes("--instants", default=[100, 1_000, 10_000])
    sizes("--tables", default=[1, 50])
    arguments.add_argument("--runs", type=int, default=5)
    chosen = vars(arguments.parse_args())
    with Report("growth", "processor time") as report:
        for way, measure in GROWS.items():
            before: dict[str, Side] = {}
            for size in chosen[way.replace(" ", "_")]:
                with tempfile.TemporaryDirectory(prefix="growth-") as folder:
                    found = measure(Path(folder), size, chosen["runs"])
                for name, values in found.items():
                    ours = Side("ours", values)
                    peers = [before[name]] if name in before else []
                    report.add(f"{name}, {size:,} {way}", ours, *peers, unit="ms")
                    before[name] = Side(f"with {size:,}", values)


if __name__ == "__main__":
    main()

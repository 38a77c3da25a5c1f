"""What the indexes of the metadata table cost, and what they save.

* build: seconds and rows per second of each index, on a table of 2 million rows in 200 files;
* tagging: 2,000 rows spread over all files, whose file groups are found by the record index, by the bloom
  filters in the metadata table, by those in the files' footers, and by a join with the keys of every file;
* queries: a key, and a range, with and without indexes: files and bytes to read, and seconds;
* beside: p50 of small commits, before, after and while another process builds the record index;
* listing: 20,000 files in 200 partitions, on local disk and on a store of which every request takes 10 ms, by
  the index and by walking the folders.

Usage: ``python -m benchmarks.indexing [--small] [--only build tagging ...]``. On a busy machine only the
ratios mean something.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from rich.progress import track

from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_names import base_file_name, new_file_id
from airflow_provider.table.files.base_file_reader import read_base_file
from airflow_provider.table.files.partition_metadata import write_partition_metadata
from airflow_provider.table.metadata_table.usable import UsableIndexes
from airflow_provider.table.skipping.predicates import Where
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import CommitMetadata, encode_commit_metadata
from benchmarks.report import Report, Side

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "day": pa.int32(),
        "delay": pa.float64(),
        "carrier": pa.string(),
        "price": pa.float64(),
    }
)
INDEXES = ("files", "column_stats", "bloom_filters", "record_index")
LATENCY = 0.01  # seconds a request
RUNS = 3
SECONDS_A_COMMIT = 0.25


@dataclass(frozen=True)
class Size:
    """How much there is.

    :param files: of the large table, one a commit.
    :param rows: in each of them.
    :param upserted: rows of an upsert, spread over all files.
    :param listed: files of the table that is only listed.
    :param commits: small ones, that are timed.
    """

    files: int = 200
    rows: int = 10_000
    upserted: int = 2_000
    listed: int = 20_000
    commits: int = 40


SMALL = Size(files=20, rows=1_000, upserted=200, listed=1_000, commits=5)


def rows_of(file: int, size: Size) -> pa.Table:
    """The rows of one file: keys from all over, and a day of its own."""
    random = np.random.default_rng(file)
    ids = np.arange(size.rows) * size.files + file
    return pa.table(
        {
            "id": random.permutation(ids),
            "day": np.full(size.rows, file, np.int32),
            "delay": random.normal(10, 30, size.rows),
            "carrier": np.array(["UA", "AA", "B6", "DL"])[random.integers(0, 4, size.rows)],
            "price": random.random(size.rows) * 500,
        }
    ).cast(SCHEMA)


def large_table(location: str, size: Size) -> HudiTable:
    """The table that is written to and queried."""
    table = HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"])
    for file in track(range(size.files), "writing the table", transient=True):
        ingest_arrow(table, rows_of(file, size), "bulk_insert")
    return table


def timed(work: Callable[[], Any], runs: int = RUNS) -> tuple[float, Any]:
    """The median of the seconds that something takes, and its last answer."""
    took = []
    for _ in range(runs):
        begun = time.perf_counter()
        found = work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took), found


# --- build --------------------------------------------------------------------------------------


def build(report: Report, table: HudiTable, size: Size) -> None:
    """Build one index after the other."""
    rows = size.files * size.rows
    for index in INDEXES:
        schedule_index(table, [index])
        begun = time.perf_counter()
        result = run_index(table)
        rate = rows / (time.perf_counter() - begun)
        if result is None:
            raise SystemExit("there was nothing to build")
        report.add(
            f"build of {index}, {rows:,} rows",
            Side("ours", [rate]),
            unit="rows/s",
            more_is_faster=True,
            records=f"{result.records:,}",
            written=f"{result.bytes_written / 2**20:.1f} MiB",
        )


def beside(report: Report, table: HudiTable, size: Size) -> None:
    """Commits of one row each, a few a second, while another process builds the record index anew.

    And before and after that, because each commit adds a file.
    """
    number = size.files * size.rows

    def commit() -> float:
        nonlocal number
        number += 1
        row = rows_of(0, replace(size, rows=1)).set_column(0, "id", pa.array([number]))
        begun = time.perf_counter()
        ingest_arrow(table, row, "bulk_insert")
        took = time.perf_counter() - begun
        time.sleep(max(0.0, SECONDS_A_COMMIT - took))
        return took

    drop_index(table, ["record_index"])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(time.time)  # the process is there
        before = [commit() for _ in range(size.commits)]
        schedule_index(table, ["record_index"])
        builder = pool.apply_async(_run, (table.location,))
        during = []
        while not builder.ready():
            during.append(commit())
        builder.get()
        after = [commit() for _ in range(size.commits)]
    alone = [statistics.median(before + after) * 1000]
    during_it = Side("ours", [statistics.median(during) * 1000])
    report.add("a commit while record_index is built", during_it, Side("before and after", alone), unit="ms")


def _run(location: str) -> None:
    run_index(HudiTable.open(location))


# --- tagging ------------------------------------------------------------------------------------


class Only(UsableIndexes):
    """Indexes of which only some are there."""

    names: Sequence[str] = ()

    def has(self, partition: str) -> bool:
        return partition in self.names and super().has(partition)


def tagging(report: Report, table: HudiTable, size: Size) -> None:
    """Find the file groups of rows that are spread over all files."""
    random = np.random.default_rng(7)
    each = max(1, size.upserted // size.files)
    batch = pa.concat_tables(
        rows_of(file, size).slice(int(random.integers(0, size.rows - each)), each)
        for file in range(size.files)
    )
    job = IngestJob.of(table.location)
    live = {"": table.base_files()}

    def found(*names: str) -> Callable[[], int]:
        def run() -> int:
            rows = ArrowRows.of(job, table, batch)
            indexes = Only(table.storage, table.timeline())
            indexes.names = names
            return sum(rows.find(live, indexes).values())

        return run

    def key_scan_join() -> int:
        keys = pa.table({"key": ArrowRows.of(job, table, batch).keys})
        theirs = pa.concat_tables(
            read_base_file(table.storage, each.path, ["_hoodie_record_key"]).append_column(
                "file", pa.repeat(number, pq.read_metadata(f"{table.location}/{each.path}").num_rows)
            )
            for number, each in enumerate(live[""])
        )
        return int(keys.join(theirs, "key", "_hoodie_record_key", "inner").num_rows)

    ways = {
        "record_index": found("record_index"),
        "bloom_filters": found("bloom_filters"),
        "none: footers, then keys": found(),
        "none: key-scan join": key_scan_join,
    }
    sides = []
    for name, way in ways.items():
        took, hits = timed(way)
        if hits != len(batch):
            raise SystemExit(f"{name} found {hits} of {len(batch)} rows")
        sides.append(Side(name, [took]))
    report.add(f"{len(batch):,} keys located in {len(live[''])} files by record_index", *sides)


# --- queries ------------------------------------------------------------------------------------


def queries(report: Report, table: HudiTable, size: Size) -> None:
    """A key and a range, with and without indexes."""
    plain = HudiTable(table.storage, table.config.with_metadata_partitions([]))
    wanted: dict[str, Where] = {
        "one key": [("id", "=", size.rows // 2 * size.files + 3)],
        "1 % of the days": [
            ("day", ">=", size.files // 2),
            ("day", "<", size.files // 2 + max(1, size.files // 100)),
        ],
    }
    for name, where in wanted.items():
        sides, answers, opened_files = [], [], []
        for way, opened in (("with indexes", table), ("without", plain)):
            whole, rows = timed(lambda opened=opened, where=where: snapshot(opened, where=where).to_table())
            answers.append(rows.num_rows)
            opened_files.append(len(opened.select_files(where).base_files))
            sides.append(Side(way, [whole]))
        if len(set(answers)) != 1 or not answers[0]:
            raise SystemExit(f"{name} has found {answers} rows")
        report.add(f"query of {name} with indexes", *sides, files=" / ".join(map(str, opened_files)))


# --- listing ------------------------------------------------------------------------------------


class SlowFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Local files, as on a store: every request takes its time, and a listing comes in pages of 1,000."""

    protocol = "slow"
    requests = 0
    _files = LocalFileSystem()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return str(path).removeprefix("slow://")

    def _request(self, count: int = 1) -> None:
        SlowFileSystem.requests += count
        time.sleep(LATENCY * count)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = self._files.ls(path, detail=detail, **options)
        self._request(1 + len(found) // 1000)
        return found

    def info(self, path: str, **options: Any) -> Any:
        self._request()
        return self._files.info(path, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        self._request()
        return self._files.cat_file(path, start=start, end=end, **options)


def listing(report: Report, folder: str, size: Size) -> None:
    """List all files of a table with an index of them, and by walking its folders."""
    table = listed_table(f"{folder}/listed", size)
    schedule_index(table, ["files"])
    run_index(table)
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    for name, location in (("local disk", table.location), ("10 ms a request", f"slow://{table.location}")):

        def by_index(location: str = location) -> int:
            return len(HudiTable.open(location).view().all_base_files())

        def by_folders(location: str = location) -> int:
            opened = HudiTable.open(location)
            plain = HudiTable(opened.storage, opened.config.with_metadata_partitions([]))
            return len(plain.view().all_base_files())

        sides, requests = [], []
        for way, listed in (("files", by_index), ("folders", by_folders)):
            SlowFileSystem.requests = 0
            took, found = timed(listed)
            if found != size.listed:
                raise SystemExit(f"{found} files were listed instead of {size.listed}")
            requests.append(f"{SlowFileSystem.requests // RUNS:,}")
            sides.append(Side(way, [took]))
        work = f"listing of {size.listed:,} files by index, {name}"
        report.add(work, *sides, requests=" / ".join(requests))


def listed_table(location: str, size: Size) -> HudiTable:
    """A table of files that nobody opens."""
    table = HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"], partition_by=["day"])
    storage: Storage = table.storage
    instant, done = "20240101000000000", "20240101000001000"
    partitions = max(1, size.listed // 100)
    for number in track(range(size.listed), "making files", transient=True):
        partition = f"day={number % partitions}"
        write_partition_metadata(storage, partition, instant)
        Path(location, partition, base_file_name(new_file_id(), "0-0-0", instant)).write_bytes(b"PAR1")
    completed = Instant(instant, Action.COMMIT, State.COMPLETED, done)
    storage.put(instant_path(completed), encode_commit_metadata(CommitMetadata("BULK_INSERT"), Action.COMMIT))
    return table


def main() -> None:
    """Run, and print tables."""
    parts = ("build", "tagging", "queries", "beside", "listing")
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--small", action="store_true", help="a hundredth of it, in seconds")
    arguments.add_argument("--only", nargs="+", choices=parts, default=parts)
    chosen = arguments.parse_args()
    size, only = SMALL if chosen.small else Size(), set(chosen.only)
    steps: Iterable[tuple[str, Callable[[Report, HudiTable, Size], None]]] = (
        ("build", build),
        ("tagging", tagging),
        ("queries", queries),
        ("beside", beside),
    )
    with tempfile.TemporaryDirectory(prefix="indexing-") as folder, Report("indexing", str(size)) as report:
        if only - {"listing"}:
            table = large_table(f"{folder}/large", size)
            for name, step in steps:
                if name in {"build", *only}:
                    step(report, HudiTable.open(table.location), size)
        if "listing" in only:
            listing(report, folder, size)


if __name__ == "__main__":
    main()

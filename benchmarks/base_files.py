"""What Hudi's format adds to a plain Parquet write: 2 million rows in 8 files, one process.

Usage: ``python benchmarks/base_files.py [rows per file]``. Prints the median of five runs as
wall seconds and CPU seconds; on a shared machine only the latter mean something.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files.base_file_reader import read_base_file, read_footer
from airflow_provider.table.files.base_file_writer import BaseFileWriter, WrittenFile
from airflow_provider.table.keys import record_keys
from airflow_provider.table.storage.storage import Storage

FILES = 8
RUNS = 5


def flights(count: int, start: int) -> pa.Table:
    """Rows like those of the ``flights`` data set: 16 columns, 6 of them texts."""
    random = np.random.default_rng(start)
    airports = pa.array([f"A{number:02d}" for number in range(105)])
    carriers = pa.array(["UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN"])
    tails = pa.array([f"N{number:05d}" for number in range(4000)])

    def numbers(low: int, high: int) -> pa.Array:
        return pa.array(random.integers(low, high, count).astype(np.int32))

    return pa.table(
        {
            "flight_id": pa.array([f"{number:012d}" for number in range(start, start + count)]),
            "year": pa.repeat(pa.scalar(2013, pa.int32()), count),
            "month": numbers(1, 13),
            "day": numbers(1, 29),
            "dep_time": numbers(0, 2400),
            "dep_delay": random.normal(10, 30, count).round(),
            "arr_delay": random.normal(10, 30, count).round(),
            "carrier": carriers.take(numbers(0, len(carriers))),
            "flight": numbers(1, 8000),
            "tailnum": tails.take(numbers(0, len(tails))),
            "origin": airports.take(numbers(0, 3)),
            "dest": airports.take(numbers(0, len(airports))),
            "distance": numbers(80, 5000).cast(pa.float64()),
            "time_hour": pa.array(
                random.integers(0, 8760, count) * 3_600_000_000, pa.timestamp("us", tz="UTC")
            ),
            "price": random.random(count) * 500,
            "region": pa.repeat("eu", count),
        }
    )


def measure(name: str, work: Callable[[Storage], object]) -> None:
    """Run something a few times, each in a folder of its own, and print the medians."""
    walls, cpus = [], []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            wall, cpu = time.perf_counter(), time.process_time()
            work(Storage(folder))
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
    print(f"{name:<44} {statistics.median(walls):6.2f} s wall {statistics.median(cpus):6.2f} s CPU")


def write(
    storage: Storage, number: int, add: Callable[[BaseFileWriter], None], schema: pa.Schema
) -> WrittenFile:
    """Write one base file."""
    with BaseFileWriter(
        storage,
        partition_path=f"region={number}",
        file_id=new_file_id(),
        write_token=f"{number}-0-0",
        instant="20240101000000000",
        schema=schema,
        table_name="flights",
    ) as writer:
        add(writer)
        return writer.close()


def main() -> None:
    """Write, rewrite and read the files."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 250_000
    parts = [flights(count, number * count) for number in range(FILES)]
    schema = parts[0].schema

    def plain(storage: Storage) -> None:
        for number, part in enumerate(parts):
            pq.write_table(part, Path(storage.root) / f"{number}.parquet")

    def new(storage: Storage) -> list[WrittenFile]:
        return [
            write(storage, number, lambda w, p=part: w.write(p, record_keys(p, ["flight_id"])), schema)
            for number, part in enumerate(parts)
        ]

    with tempfile.TemporaryDirectory() as folder:
        source = Storage(folder)
        written = new(source)

        def preserved(storage: Storage) -> None:
            for number, file in enumerate(written):
                stored = read_base_file(source, file.path)
                write(storage, number, lambda w, s=stored: w.write_preserved(s), schema)

        def footers(_: Storage) -> list[object]:
            return [read_footer(source, file.path).bloom for file in written]

        print(f"{FILES} files of {count} rows, {sum(file.size for file in written) / 1e6:.0f} MB")
        measure("plain pyarrow", plain)
        measure("base files of new rows", new)
        measure("base files read and rewritten unchanged", preserved)
        measure("footers with bloom filters", footers)


if __name__ == "__main__":
    main()

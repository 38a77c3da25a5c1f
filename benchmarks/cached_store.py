"""``get_table`` from a replica's memory beside the same from its database, in one run.

Usage: ``python benchmarks/cached_store.py [URL]``, with the URL of an empty PostgreSQL; without one,
of a new SQLite file. Prints calls per second and the 99th percentile for 1 and 4 threads, what a
read costs that has to go to the database although a copy is there, and how long after its commit a
change is served from memory.

A real Hive Metastore answers over Thrift and reads its database for every call, so this is not
its counterpart. To see both side by side, start one on the same PostgreSQL (its jars are in
PySpark: main class ``org.apache.hadoop.hive.metastore.HiveMetaStore``) and ask it with any Thrift
client while this runs with the same number of clients; it answered 1,150-1,580 calls per second on
2 cores.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from airflow_provider.metastore import Column, Metastore, open_metastore
from airflow_provider.metastore.cache.cached_store import CachedStore, open_cached_store
from airflow_provider.metastore.model.reader import Reader

TABLES = 50
SECONDS = 2.0
THREADS = (1, 4)
COMMITS = 30


def measure(read: Callable[[int], object], threads: int) -> tuple[float, float]:
    """Calls per second of all threads, and the 99th percentile in milliseconds."""
    until = time.perf_counter() + SECONDS
    start = threading.Barrier(threads)

    def loop(number: int) -> list[float]:
        taken = []
        start.wait()
        while (began := time.perf_counter()) < until:
            read(number)
            taken.append(time.perf_counter() - began)
            number += 1
        return taken

    with ThreadPoolExecutor(threads) as pool:
        taken = sorted(one for part in pool.map(loop, range(threads)) for one in part)
    return len(taken) / SECONDS, taken[int(len(taken) * 0.99)] * 1000


def readers(metastore: Metastore) -> list[Reader]:
    names = [("lake", f"t{number}") for number in range(TABLES)]
    snapshot = metastore.read_snapshot(names)
    return [{"valid_write_ids": one.write_ids, "table_id": one.table_id} for one in snapshot.tables.values()]


def fill(metastore: Metastore) -> None:
    metastore.create_database("lake")
    schema = [Column(f"c{number}", "bigint") for number in range(20)]
    for number in range(TABLES):
        metastore.create_table("lake", f"t{number}", location=f"/lake/t{number}", schema=schema)


def served_after(metastore: Metastore, store: CachedStore) -> list[float]:
    """Milliseconds between the return of a change and the first answer from memory that has it."""
    waits = []
    for number in range(COMMITS):
        metastore.alter_table("lake", "t0", owner=str(number))
        began = time.perf_counter()
        reader = readers(metastore)[0]
        hits = store.statistics().hits
        while store.statistics().hits == hits:
            store.get_table("lake", "t0", **reader)
        waits.append((time.perf_counter() - began) * 1000)
    return sorted(waits)


def main() -> None:
    folder = tempfile.TemporaryDirectory()
    url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder.name) / 'metastore.db'}"
    metastore = open_metastore(url)
    fill(metastore)
    store = open_cached_store(url, "benchmark", poll_interval=0.02)
    store.catch_up()
    known = readers(metastore)
    for number, reader in enumerate(known):
        store.get_table("lake", f"t{number}", **reader)

    def from_memory(number: int) -> object:
        return store.get_table("lake", f"t{number % TABLES}", **known[number % TABLES])

    def from_database(number: int) -> object:
        return metastore.get_table("lake", f"t{number % TABLES}")

    def read_through(number: int) -> object:
        return store.get_table("lake", f"t{number % TABLES}")

    shown = Table("get_table", "threads", "calls/s", "p99 ms", "times the database")
    for threads in THREADS:
        database, worst = measure(from_database, threads)
        shown.add_row("database", str(threads), f"{database:,.0f}", f"{worst:.3f}", "1")
        for name, read in (("memory", from_memory), ("read through", read_through)):
            rate, worst = measure(read, threads)
            shown.add_row(name, str(threads), f"{rate:,.0f}", f"{worst:.3f}", f"{rate / database:.1f}")
    waits = served_after(metastore, store)
    console = Console()
    console.print(f"{metastore.url}, {TABLES} tables of 20 columns")
    console.print(shown)
    console.print(
        f"served from memory after a change: median {waits[COMMITS // 2]:.0f} ms, longest {waits[-1]:.0f} ms"
    )
    store.close()
    metastore.close()
    folder.cleanup()


if __name__ == "__main__":
    main()

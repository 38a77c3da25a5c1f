"""Work in one Python process, without Spark, beside delta-rs and Lance, in one run.

Large loads: a bulk append of two million rows of 16 columns into eight partitions, an upsert of a tenth,
and an insert of ten rows over all partitions. Many partitions: a load of one row into each of ten thousand,
an upsert of a row in each of a hundred, the list of all files, one partition read, and all rows counted.

Usage: ``python -m benchmarks.single_process [--rows N] [--partitions N] [--runs N]``. Every piece of work has
a process of its own, so that its peak memory (with all imports) is known. The libraries take turns. The
benchmark ends when the tables do not hold the same number of rows after a work. The peers force nothing to
the disk, so ours does not either; a row more says what it takes with the default, which does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Report, alone, in_turns
from benchmarks.workload import PARTITIONS, Workload

SMALL = pa.schema([("id", pa.int64()), ("region", pa.string()), ("value", pa.float64())])
WANTED = "k7"


class Library(ABC):
    """A library, and one table of it.

    :param location: path of the table.
    """

    name: str

    def __init__(self, location: str) -> None:
        self.location = location

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table, empty, partitioned by ``region`` where the library has partitions."""

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Add rows as fast as possible; nobody looks whether their keys are there."""

    @abstractmethod
    def insert(self, rows: pa.Table) -> None:
        """Add a few rows, in the way that keeps the table's files large."""

    @abstractmethod
    def upsert(self, rows: pa.Table) -> None:
        """Update the rows whose ``id`` is in the table, and add the others."""

    @abstractmethod
    def files(self) -> int:
        """How many data files the table has, after it was opened anew."""

    @abstractmethod
    def read(self, region: str) -> int:
        """Read the rows of one partition: how many."""

    @abstractmethod
    def count(self) -> int:
        """How many rows the table has."""


class Ours(Library):
    """This package, which forces nothing to the disk, as its peers do."""

    name = "ours"
    durability = "none"

    def create(self, schema: pa.Schema) -> None:
        from airflow_provider.table import HudiTable
        from airflow_provider.table.storage.durability import DURABILITY

        HudiTable.create(
            self.location,
            name="t",
            schema=schema,
            record_key=["id"],
            partition_by=["region"],
            hive_style=False,
            hudi_options={DURABILITY: self.durability},
        )

    def _write(self, rows: pa.Table, operation: str) -> None:
        from airflow_provider.ingestion import ingest_arrow

        ingest_arrow(self.location, rows, operation)

    def append(self, rows: pa.Table) -> None:
        self._write(rows, "bulk_insert")

    def insert(self, rows: pa.Table) -> None:
        self._write(rows, "insert")

    def upsert(self, rows: pa.Table) -> None:
        self._write(rows, "upsert")

    def files(self) -> int:
        from airflow_provider.table import HudiTable

        view = HudiTable.open(self.location).view()
        return sum(len(view.base_files(partition)) for partition in view.partitions())

    def read(self, region: str) -> int:
        from airflow_provider.table import HudiTable, snapshot

        table = HudiTable.open(self.location)
        rows: pa.Table = snapshot(table, where=[("region", "==", region)]).to_table()
        return int(rows.num_rows)

    def count(self) -> int:
        from airflow_provider.table import HudiTable, snapshot

        return snapshot(HudiTable.open(self.location)).count_rows()


class OursForced(Ours):
    """This package with its defaults: what a commit has reported survives a power failure."""

    name = "ours, forced to the disk,"
    durability = "commit"


class DeltaRs(Library):
    """delta-rs."""

    name = "delta-rs"

    def create(self, schema: pa.Schema) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(self.location, schema, partition_by=["region"])

    def append(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.location, rows, mode="append")

    insert = append

    def upsert(self, rows: pa.Table) -> None:
        from deltalake import DeltaTable

        regions = ", ".join(f"'{each}'" for each in rows["region"].unique().to_pylist())
        (
            DeltaTable(self.location)
            .merge(
                rows,
                f"t.region IN ({regions}) AND t.region = s.region AND t.id = s.id",
                source_alias="s",
                target_alias="t",
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    def files(self) -> int:
        from deltalake import DeltaTable

        return len(DeltaTable(self.location).file_uris())

    def read(self, region: str) -> int:
        from deltalake import DeltaTable

        rows: pa.Table = DeltaTable(self.location).to_pyarrow_table(partitions=[("region", "=", region)])
        return int(rows.num_rows)

    def count(self) -> int:
        from deltalake import DeltaTable

        return int(DeltaTable(self.location).count())


class Lance(Library):
    """Lance, which has no partitions."""

    name = "Lance"

    def create(self, schema: pa.Schema) -> None:
        import lance

        lance.write_dataset(schema.empty_table(), self.location)

    def append(self, rows: pa.Table) -> None:
        import lance

        lance.write_dataset(rows, self.location, mode="append")

    insert = append

    def upsert(self, rows: pa.Table) -> None:
        import lance

        merge = lance.dataset(self.location).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def files(self) -> int:
        import lance

        return len(lance.dataset(self.location).get_fragments())

    def read(self, region: str) -> int:
        import lance

        return int(lance.dataset(self.location).to_table(filter=f"region = '{region}'").num_rows)

    def count(self) -> int:
        import lance

        return int(lance.dataset(self.location).count_rows())


LIBRARIES: tuple[type[Library], ...] = (Ours, DeltaRs, Lance, OursForced)


@dataclass(frozen=True)
class Work:
    """What is timed.

    :param name: for people.
    :param on: the table that it begins with, by the name under which it was kept.
    :param run: the work, on a library's table and the rows that belong to it.
    :param rows: name of the file of rows; empty for none.
    :param kept: the name under which the result is kept.
    """

    name: str
    on: str
    run: Callable[[Library, pa.Table], object]
    rows: str = ""
    kept: str = ""


WORKS = (
    Work("bulk append", "empty", lambda library, rows: library.append(rows), "load", "loaded"),
    Work("upsert of a tenth", "loaded", lambda library, rows: library.upsert(rows), "batch"),
    Work("insert of ten rows", "loaded", lambda library, rows: library.insert(rows), "ten"),
    Work("load of many partitions", "none", lambda library, rows: library.append(rows), "many", "many"),
    Work("upsert in a hundred of them", "many", lambda library, rows: library.upsert(rows), "hundred"),
    Work("list all files", "many", lambda library, _: library.files()),
    Work("read one partition", "many", lambda library, _: library.read(WANTED)),
    Work("count all rows", "many", lambda library, _: library.count()),
)


def make_rows(folder: Path, rows: int, partitions: int) -> None:
    """Write the rows of all works as Parquet files."""
    workload = Workload.make(folder, rows)
    load, batch = pq.read_table(workload.load), pq.read_table(workload.batch)
    ids = pa.array([f"x{number:011d}" for number in range(10)])
    regions = pa.array([f"r{number % PARTITIONS}" for number in range(10)])
    ten = load.slice(0, 10).set_column(0, "id", ids).set_column(1, "region", regions)
    numbers = np.arange(partitions)
    many = pa.table([numbers, [f"k{number}" for number in numbers], np.ones(partitions)], schema=SMALL)
    hundred = many.take(pa.array(np.linspace(0, partitions - 1, min(100, partitions)).astype(int)))
    hundred = hundred.set_column(2, SMALL.field("value"), pa.array(np.zeros(len(hundred))))
    for name, table in {"load": load, "batch": batch, "ten": ten, "many": many, "hundred": hundred}.items():
        pq.write_table(table, folder / f"{name}.parquet")


def warm_up(table: Library) -> None:
    """Let a library import and compile what it needs."""
    row = pa.table([[1], ["k1"], [1.0]], schema=SMALL)
    table.create(SMALL)
    for write in (table.append, table.insert, table.upsert):
        write(row)
    assert table.count() == table.read("k1")


def run_in_process(library: type[Library], number: int, folder: str) -> tuple[float, int]:
    """Seconds of a work, and the table's rows afterwards."""
    work = WORKS[number]
    table = library(f"{folder}/{library.__name__}/working")
    rows = pq.read_table(f"{folder}/{work.rows}.parquet") if work.rows else SMALL.empty_table()
    if work.on in ("empty", "none"):
        table.create(rows.schema)
    warm_up(library(f"{folder}/warm-up-{os.getpid()}"))
    started = time.perf_counter()
    work.run(table, rows)
    return time.perf_counter() - started, table.count()


def measured(library: type[Library], work: Work, folder: Path, counts: set[int]) -> tuple[float, int]:
    """Seconds and peak memory of a work, in a process of its own, on a copy of the table that it begins with.

    :param counts: of rows, by the libraries so far; extended here.
    """
    home = folder / library.__name__
    shutil.rmtree(home / "working", ignore_errors=True)
    if (home / work.on).exists():
        shutil.copytree(home / work.on, home / "working")
    (seconds, count), peak = alone(run_in_process, library, WORKS.index(work), str(folder))
    if work.kept:
        shutil.rmtree(home / work.kept, ignore_errors=True)
        shutil.copytree(home / "working", home / work.kept)
    counts.add(count)
    if len(counts) > 1:
        raise SystemExit(f"{work.name}: the tables have different numbers of rows: {counts}")
    return seconds, peak


def main() -> None:
    """Run, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=2_000_000, help="of the large load")
    arguments.add_argument("--partitions", type=int, default=10_000, help="of the table of many partitions")
    arguments.add_argument("--runs", type=int, default=3, help="counted runs of each work")
    arguments.add_argument("--only", nargs="+", default=[], help="names of works; those before them run once")
    chosen = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="single-process-") as name,
        Report("single_process", f"{chosen.rows} rows, {chosen.partitions} partitions") as report,
    ):
        folder = Path(name)
        make_rows(folder, chosen.rows, chosen.partitions)
        for work in WORKS:
            wanted = not chosen.only or work.name in chosen.only
            if not (wanted or work.kept):
                continue
            counts: set[int] = set()
            turns = {each.name: partial(measured, each, work, folder, counts) for each in LIBRARIES}
            sides = in_turns(turns, rounds=chosen.runs if wanted else 1, warm_up=0)
            if wanted:
                is_large = work.on in ("empty", "loaded")
                size = f"{chosen.rows:,} rows" if is_large else f"{chosen.partitions:,} partitions"
                report.add(f"{work.name}: {size}", *sides)


if __name__ == "__main__":
    main()

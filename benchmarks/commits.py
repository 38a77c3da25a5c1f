"""Small commits by several writer processes at once, beside delta-rs and Lance, in one run.

* ``append``: every writer appends 10 rows a commit to its own partition;
* ``upsert``: every writer upserts the same 50 keys of its own partition;
* ``contended``: all writers upsert the same 50 keys; ours rebases lost conflicts, and does it once more with
  non-blocking concurrency; the peers do what they do by themselves.

A commit that raises is counted as failed and not tried again. At the end every table is read, and
has to hold what its writers were told to be committed; ours is read by hudi-rs.

Usage: ``python -m benchmarks.commits [--seconds 10] [--writers 1 4 8] [--only append ...] [--durability
none commit full]``. On a busy machine only the ratios mean something. The peers force nothing to the disk, as
``strace -f -c -e trace=fsync,fdatasync,syncfs`` says: ours at ``none`` is what compares with them.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.report import Report, Side, peak_memory

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])
ROWS, KEYS = 10, 50


def rows_of(workload: str, writer: int, commit: int) -> pa.Table:
    """The rows of one commit; for upserts the number of the commit is the value."""
    if workload == "append":
        first = writer * 10**9 + commit * ROWS
        ids, part = range(first, first + ROWS), f"p{writer}"
    else:
        owner = 0 if workload == "contended" else writer
        ids, part = range(owner * KEYS, (owner + 1) * KEYS), f"p{owner}"
    count = len(ids)
    values = pa.array([float(commit)] * count)
    return pa.table([pa.array(ids, pa.int64()), pa.array([part] * count), values], schema=SCHEMA)


class Library(ABC):
    """One library's table; opened anew in every writer process.

    :param location: path of the table.
    :param workload: what the writers do.
    """

    name: str

    def __init__(self, location: str, workload: str) -> None:
        self.location = location
        self.workload = workload

    @abstractmethod
    def create(self) -> None:
        """Create the table, empty."""

    @abstractmethod
    def open(self) -> None:
        """Whatever a writer does once."""

    @abstractmethod
    def commit(self, rows: pa.Table) -> None:
        """Append or upsert the rows, as one commit."""

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, as a fresh reader sees them."""


class Ours(Library):
    """This package, without Spark, under the table's filesystem lock."""

    name = "ours"
    durability = "commit"
    options: Mapping[str, Any] = {}
    kind: Mapping[str, Any] = {}

    def create(self) -> None:
        from airflow_provider.table import HudiTable
        from airflow_provider.table.storage.durability import DURABILITY

        HudiTable.create(
            self.location,
            name="t",
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["part"],
            hive_style=False,
            hudi_options={DURABILITY: self.durability, **self.options},
            **self.kind,
        )

    def open(self) -> None:
        from airflow_provider.ingestion import ingest_arrow
        from airflow_provider.table import HudiTable

        self._table, self._ingest = HudiTable.open(self.location), ingest_arrow
        self._operation = "bulk_insert" if self.workload == "append" else "upsert"

    def commit(self, rows: pa.Table) -> None:
        self._ingest(self._table, rows, self._operation, on_conflict="rebase", max_rebases=100)

    def read(self) -> pa.Table:
        from hudi import HudiTableBuilder

        return pa.Table.from_batches(HudiTableBuilder.from_base_uri(self.location).build().read())


class OursUnforced(Ours):
    """This package, which forces nothing to the disk."""

    name = "ours, none"
    durability = "none"


class OursAtEachStep(Ours):
    """This package, which forces each step to the disk."""

    name = "ours, full"
    durability = "full"


class OursNonBlocking(Ours):
    """This package, with writers that append to the same buckets without conflicts."""

    name = "ours, non-blocking"
    options = MappingProxyType({"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1})
    kind = MappingProxyType({"table_type": "merge_on_read", "concurrency": "non_blocking"})


class OursNonBlockingUnforced(OursNonBlocking):
    """The same, which forces nothing to the disk."""

    name = "ours, non-blocking, none"
    durability = "none"


class DeltaRs(Library):
    """delta-rs, partitioned alike, with the partition in the merge's condition."""

    name = "delta-rs"

    def create(self) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(self.location, SCHEMA, partition_by=["part"])

    def open(self) -> None:
        pass

    def commit(self, rows: pa.Table) -> None:
        from deltalake import DeltaTable, write_deltalake

        if self.workload == "append":
            write_deltalake(self.location, rows, mode="append")
            return
        merge = DeltaTable(self.location).merge(
            rows,
            f"target.part = '{rows['part'][0]}' AND target.id = source.id",
            source_alias="source",
            target_alias="target",
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self) -> pa.Table:
        from deltalake import DeltaTable

        return pa.table(DeltaTable(self.location).to_pyarrow_dataset().to_table())


class Lance(Library):
    """Lance, which knows no partitions."""

    name = "Lance"

    def create(self) -> None:
        import lance

        lance.write_dataset(SCHEMA.empty_table(), self.location)

    def open(self) -> None:
        import lance

        self._lance = lance

    def commit(self, rows: pa.Table) -> None:
        if self.workload == "append":
            self._lance.write_dataset(rows, self.location, mode="append")
            return
        merge = self._lance.dataset(self.location).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def read(self) -> pa.Table:
        import lance

        return lance.dataset(self.location).to_table()


OURS: tuple[type[Ours], ...] = (Ours, OursUnforced, OursAtEachStep)
NON_BLOCKING: tuple[type[Ours], ...] = (OursNonBlocking, OursNonBlockingUnforced)
PEERS: tuple[type[Library], ...] = (DeltaRs, Lance)


@dataclass
class Result:
    """What the writers of one run did.

    :param seconds: of every successful commit.
    :param commits: successful commits by writer.
    :param failed: commits that raised.
    :param errors: some of what was raised.
    :param memory: the largest peak of a writer's memory, in bytes.
    """

    seconds: list[float] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    failed: int = 0
    errors: list[str] = field(default_factory=list)
    memory: int = 0


def write(library: Library, writer: int, seconds: float, start: Any, told: Any) -> None:
    """One writer process."""
    warm_up = type(library)(f"{library.location}-{writer}", library.workload)
    warm_up.create()
    for each in (warm_up, library):
        each.open()
    for number in range(2):  # what a library loads at its first commit is no cost of commits
        warm_up.commit(rows_of(library.workload, writer, number))
    start.wait()
    took: list[float] = []
    errors: list[str] = []
    ends = time.monotonic() + seconds
    for number in itertools.count():
        begun = time.monotonic()
        if begun >= ends:
            break
        try:
            library.commit(rows_of(library.workload, writer, number))
        except Exception as error:  # noqa: BLE001 - counted, whatever it is
            errors.append(f"{type(error).__name__}: {error}"[:200])
        else:
            took.append(time.monotonic() - begun)
    told.put((took, errors, peak_memory()))


def run(library: Library, writers: int, seconds: float) -> Result:
    """Let the writers loose on a new table."""
    library.create()
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(target=write, args=(library, writer, seconds, start, told))
        for writer in range(writers)
    ]
    for process in processes:
        process.start()
    result = Result()
    for _ in processes:
        took, errors, peak = told.get()
        result.memory = max(result.memory, peak)
        result.seconds += took
        result.commits.append(len(took))
        result.failed += len(errors)
        result.errors += errors[:1]
    for process in processes:
        process.join()
    return result


def check(library: Library, result: Result) -> str:
    """What is missing of that which was committed, in words; empty when nothing is."""
    rows = library.read()
    if library.workload == "append":
        lost = sum(result.commits) * ROWS - rows.num_rows
        return f"{lost} rows lost" if lost > 0 else ""
    keys = KEYS * (1 if library.workload == "contended" else len(result.commits))
    found = len(pc.unique(rows["id"]))
    return "" if found == rows.num_rows == keys else f"{rows.num_rows} rows of {found} keys, not {keys}"


def main() -> None:
    """Run all, and print one table a workload."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=10.0)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--writers", type=int, nargs="+", default=[1, 4, 8])
    arguments.add_argument("--only", nargs="+", default=["append", "upsert", "contended"])
    arguments.add_argument("--libraries", nargs="+", default=["ours", *(peer.name for peer in PEERS)])
    arguments.add_argument(
        "--durability", nargs="+", default=["commit"], choices=[ours.durability for ours in OURS]
    )
    chosen = arguments.parse_args()
    # Kept to the end: a file system without a journal is slow for minutes where much was deleted.
    with tempfile.TemporaryDirectory(prefix="commits-") as folder:
        measure(chosen, Path(folder))


def measure(chosen: argparse.Namespace, folder: Path) -> None:
    """Run what was chosen."""
    ours = [each for level in chosen.durability for each in OURS if each.durability == level]
    libraries: list[type[Library]] = [peer for peer in PEERS if peer.name in chosen.libraries]
    if "ours" in chosen.libraries:
        libraries = [*ours, *libraries]
    with Report("commits", f"{chosen.seconds} s a round") as report:
        for workload in chosen.only:
            beside = [each for each in NON_BLOCKING if each.durability in chosen.durability]
            kinds = [*libraries, *(beside if workload == "contended" else [])]
            for writers in chosen.writers if workload != "contended" else [4]:
                compare(report, workload, writers, kinds, chosen, folder)


def compare(
    report: Report,
    workload: str,
    writers: int,
    kinds: Sequence[type[Library]],
    chosen: argparse.Namespace,
    folder: Path,
) -> None:
    """One workload by so many writers, each library in its turn."""
    results: dict[type[Library], list[Result]] = {kind: [] for kind in kinds}
    for number in range(chosen.rounds):
        for kind in kinds:
            library = kind(str(folder / f"{workload}-{writers}-{number}-{kind.name}"), workload)
            result = run(library, writers, chosen.seconds)
            if missing := check(library, result):
                result.errors.append(missing)
                if isinstance(library, Ours):
                    raise SystemExit(f"{kind.name}, {writers} writers: {missing}")
            results[kind].append(result)
    sides = {
        kind: Side(
            kind.name,
            [sum(each.commits) / chosen.seconds for each in found],
            max(each.memory for each in found),
        )
        for kind, found in results.items()
    }
    peers = [each for each in kinds if not issubclass(each, Ours)]
    for kind in [each for each in kinds if issubclass(each, Ours)] or peers[:1]:
        found = results[kind]
        p50, p99 = np.percentile([took for each in found for took in each.seconds] or [0.0], [50, 99]) * 1000
        work = f"{workload}, {writers} writer{'s'[: writers > 1]}" + kind.name.removeprefix("ours")
        report.add(
            work,
            sides[kind],
            *(sides[peer] for peer in peers),
            unit="commits/s",
            more_is_faster=True,
            **{
                "p50 ms": f"{p50:.0f}",
                "p99 ms": f"{p99:.0f}",
                "failed": sum(each.failed for each in found),
                "least-most": [f"{min(each.commits)}-{max(each.commits)}" for each in found],
            },
        )
    for kind, found in results.items():
        for error in dict.fromkeys(text for each in found for text in each.errors):
            print(f"{kind.name}, {writers} writers: {error}")


if __name__ == "__main__":
    main()

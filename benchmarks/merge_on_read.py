"""Merge-on-read tables beside delta-rs, Lance, DuckLake and hudi-rs, in one run.

* contended upserts: 4 and 8 writers upsert the same 50 keys (:mod:`benchmarks.commits`), ours non-blocking;
* an upsert of a tenth of the rows into a loaded table, in this process, without Spark;
* a read of all rows of the table that has the upsert in its log files: beside the compacted table, hudi-rs,
  and the peers' tables after the same upsert;
* the compaction of that table, beside delta-rs' compaction of the same rows in as many bytes;
* the cost of a commit after 1,000 commits, with compaction and cleaning on; see :func:`commit_cost`.

Every process is new, and has done the same with a small table before the clock starts. After its upsert each
library's table is read, and has to hold the same rows as the others.

Usage: ``python -m benchmarks.merge_on_read [--rows N] [--rounds N] [--seconds N] [--commits N]
[--only WORK ...]``.
On a busy machine only the ratios mean something. DuckLake keeps its catalog in SQLite.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import commits
from benchmarks.report import Report, Side, alone, in_turns
from benchmarks.workload import Workload

WORKS = ("contended", "upsert", "read", "compaction", "commit cost")
SMALL = 1_000
IN_MEMORY = "/dev/shm"
SUMMED = ("at", "rating", "quantity", "code", "minute")


class Library(ABC):
    """A library and its table.

    :param location: folder of the table.
    """

    name: str

    def __init__(self, location: str) -> None:
        self.location = location

    @abstractmethod
    def load(self, rows: pa.Table) -> None:
        """Create the table with these rows."""

    @abstractmethod
    def upsert(self, rows: pa.Table) -> None:
        """Upsert rows by their ``id``, as one commit."""

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, by a fresh reader."""


class Ours(Library):
    """This package, whose table is merge-on-read."""

    name = "ours"
    options: Mapping[str, Any] = {}

    def load(self, rows: pa.Table) -> None:
        from airflow_provider.ingestion import ingest_arrow
        from airflow_provider.table import HudiTable

        HudiTable.create(
            self.location,
            name="t",
            schema=rows.schema,
            record_key=["id"],
            partition_by=["region"],
            table_type="merge_on_read",
            hudi_options=self.options,
        )
        ingest_arrow(self.location, rows, "bulk_insert")

    def upsert(self, rows: pa.Table) -> None:
        from airflow_provider.ingestion import ingest_arrow

        ingest_arrow(self.location, rows, "upsert", small_file_limit=0)

    def read(self) -> pa.Table:
        from airflow_provider.table import HudiTable, snapshot

        return snapshot(HudiTable.open(self.location)).to_table()

    def compact(self) -> None:
        """Merge the log files into base files."""
        from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
        from airflow_provider.table import HudiTable

        compact_table(HudiTable.open(self.location), TableCompactionSettings(delta_commits=1))


class OursInBuckets(Ours):
    """The same, whose keys are found by a bucket index."""

    name = "ours, bucket index"
    options = MappingProxyType({"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1})


class OursCompacted(Ours):
    """The same, after a compaction."""

    name = "ours, compacted,"


class HudiRs(Ours):
    """hudi-rs, which reads what ours has written."""

    name = "hudi-rs"

    def read(self) -> pa.Table:
        from hudi import HudiTableBuilder

        return pa.Table.from_batches(HudiTableBuilder.from_base_uri(self.location).build().read())


class DeltaRs(Library):
    """delta-rs, whose merge writes the files of the updated rows again."""

    name = "delta-rs"

    def load(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.location, rows, partition_by=["region"])

    def upsert(self, rows: pa.Table) -> None:
        from deltalake import DeltaTable

        merge = DeltaTable(self.location).merge(
            rows, "t.region = s.region AND t.id = s.id", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self) -> pa.Table:
        from deltalake import DeltaTable

        return pa.table(DeltaTable(self.location).to_pyarrow_dataset().to_table())

    def append(self, rows: pa.Table) -> None:
        """Write rows into files of their own."""
        from deltalake import write_deltalake

        write_deltalake(self.location, rows, mode="append")

    def compact(self) -> None:
        """Pack the files of each partition into one."""
        from deltalake import DeltaTable

        DeltaTable(self.location).optimize.compact(target_size=2**31)


class Lance(Library):
    """Lance, which marks the older versions as deleted."""

    name = "Lance"

    def load(self, rows: pa.Table) -> None:
        import lance

        lance.write_dataset(rows, self.location)

    def upsert(self, rows: pa.Table) -> None:
        import lance

        merge = lance.dataset(self.location).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def read(self) -> pa.Table:
        import lance

        return lance.dataset(self.location).to_table()


class DuckLake(Library):
    """DuckLake, which writes delete files for the older versions."""

    name = "DuckLake"

    def load(self, rows: pa.Table) -> None:
        Path(self.location).mkdir()
        connection = self._connect()
        connection.register("incoming", rows)
        connection.execute("CREATE TABLE t AS FROM incoming LIMIT 0")
        connection.execute("ALTER TABLE t SET PARTITIONED BY (region)")
        connection.execute("INSERT INTO t FROM incoming")
        connection.close()

    def upsert(self, rows: pa.Table) -> None:
        connection = self._connect()
        connection.register("incoming", rows)
        connection.execute(
            "MERGE INTO t USING incoming AS s ON (t.region = s.region AND t.id = s.id) "
            "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )
        connection.close()

    def read(self) -> pa.Table:
        connection = self._connect()
        found: pa.Table = connection.execute("FROM t").to_arrow_table()
        connection.close()
        return found

    def _connect(self) -> Any:
        import duckdb

        connection = duckdb.connect()
        for name in ("sqlite_scanner", "ducklake"):
            (path,) = Path(__import__(f"duckdb_extension_{name}").__file__).parent.rglob("*.duckdb_extension")
            connection.execute(f"LOAD '{path}'")
        connection.execute(
            f"ATTACH 'ducklake:sqlite:{self.location}/catalog' AS lake "
            f"(DATA_PATH '{self.location}/data', OVERRIDE_DATA_PATH true)"
        )
        connection.execute("USE lake")
        return connection


PEERS: tuple[type[Library], ...] = (DeltaRs, Lance, DuckLake)


def measured(kind: type[Library], folder: str, work: str, rows: pa.Table | None) -> float:
    """Seconds of one work on a table, in a process that has done the same on a small table before."""
    for location, some in ((f"{folder}-small", _small(rows)), (folder, rows)):
        library = kind(location)
        arguments = () if some is None else (some,)
        begun = time.perf_counter()
        getattr(library, work)(*arguments)
        took = time.perf_counter() - begun
    return took


def _small(rows: pa.Table | None) -> pa.Table | None:
    return None if rows is None else rows.slice(0, SMALL // 10)


class Tables:
    """Loaded tables, of which each round gets a copy.

    :param folder: for the tables.
    :param workload: the rows.
    """

    def __init__(self, folder: Path, workload: Workload) -> None:
        self._folder = folder
        self.load, self.batch = (pq.read_table(each) for each in (workload.load, workload.batch))
        self._sums: dict[str, list[Any]] = {}
        self._copies = 0

    def loaded(self, kind: type[Library], state: str = "loaded") -> Path:
        """The table in a state, and a small one beside it; made when it is asked for first.

        :param state: ``loaded``, ``upserted``, ``compacted``; ``appended``, the batch in files of its own.
        """
        place = self._folder / f"{kind.name}-{state}"
        if place.exists():
            return place
        for suffix, rows, batch in (
            ("", self.load, self.batch),
            ("-small", self.load.slice(0, SMALL), self.batch.slice(0, SMALL // 10)),
        ):
            library: Any = kind(f"{place}{suffix}")
            library.load(rows)
            if state == "appended":
                library.append(batch)
            elif state != "loaded":
                library.upsert(batch)
            if state == "compacted":
                library.compact()
        if state in ("upserted", "compacted"):
            self.check(kind.name, kind(str(place)))
        return place

    def copy(self, kind: type[Library], state: str) -> str:
        """A copy of a table in a state."""
        self._copies += 1
        place, copy = self.loaded(kind, state), self._folder / f"copy-{self._copies}"
        for suffix in ("", "-small"):
            shutil.copytree(f"{place}{suffix}", f"{copy}{suffix}")
        os.sync()  # else the library that forces its files to the disk would wait for the copy, too
        return str(copy)

    def check(self, name: str, library: Library) -> None:
        """Whether a table that has the upsert holds what the others hold."""
        rows = library.read()
        sums = [rows.num_rows, len(pc.unique(rows["id"]))]
        sums += [pc.sum(rows[column].cast(pa.int64())).as_py() for column in SUMMED]
        self._sums[name] = sums
        first = next(iter(self._sums.values()))
        if sums != first:
            raise SystemExit(f"{name} holds other rows than {next(iter(self._sums))}: {sums}, not {first}")


def compare(
    tables: Tables, kinds: Mapping[type[Library], tuple[str, str]], rounds: int, *, batch: bool
) -> list[Side]:
    """Let libraries take turns at a work.

    :param kinds: the state of the table, and the work, by library.
    :param batch: whether the work takes the batch.
    """

    def once(kind: type[Library], state: str, work: str) -> tuple[float, int | None]:
        writes = work != "read"
        place = tables.copy(kind, state) if writes else str(tables.loaded(kind, state))
        found = alone(measured, kind, place, work, tables.batch if batch else None)
        if work == "upsert":
            tables.check(kind.name, kind(place))
        if writes:
            for suffix in ("", "-small"):
                shutil.rmtree(f"{place}{suffix}")
        return found

    works: dict[str, Callable[[], tuple[float, int | None]]] = {
        kind.name: (lambda kind=kind, state=state, work=work: once(kind, state, work))
        for kind, (state, work) in kinds.items()
    }
    return in_turns(works, rounds=rounds, warm_up=0)


def main() -> None:
    """Run what was chosen, and print one table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=10.0, help="of contended upserts, a round")
    arguments.add_argument("--commits", type=int, default=1_000)
    arguments.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    chosen = arguments.parse_args()
    note = f"{chosen.rows:,} rows, {chosen.rounds} rounds"
    with (
        tempfile.TemporaryDirectory(prefix="merge-on-read-") as folder,
        Report("merge_on_read", note) as report,
    ):
        if "contended" in chosen.only:
            contended(report, Path(folder), chosen.rounds, chosen.seconds)
        if "commit cost" in chosen.only:
            commit_cost(report, chosen.commits)
        if {"upsert", "read", "compaction"}.intersection(chosen.only):
            tables = Tables(Path(folder), Workload.make(Path(folder), chosen.rows))
            large(report, tables, chosen.rounds, chosen.only)


def contended(report: Report, folder: Path, rounds: int, seconds: float) -> None:
    """Several writers upsert the same 50 keys."""
    kinds = (commits.OursNonBlockingUnforced, commits.DeltaRs, commits.Lance)
    for writers in (4, 8):
        found: dict[str, list[commits.Result]] = {}
        for number in range(rounds):
            for kind in kinds:
                library = kind(str(folder / f"contended-{writers}-{number}-{kind.__name__}"), "contended")
                result = commits.run(library, writers, seconds)
                if missing := commits.check(library, result):
                    result.errors.append(missing)
                    if kind is kinds[0]:
                        raise SystemExit(f"{kind.name}, {writers} writers: {missing}")
                found.setdefault(kind.name, []).append(result)
        sides = [
            Side(
                name, [sum(each.commits) / seconds for each in results], max(each.memory for each in results)
            )
            for name, results in found.items()
        ]
        told = {
            "failed": [f"{name} {sum(each.failed for each in some)}" for name, some in found.items()],
            "least-most": [f"{min(each.commits)}-{max(each.commits)}" for each in found[kinds[0].name]],
        }
        for name, results in found.items():
            for error in dict.fromkeys(text for each in results for text in each.errors):
                print(f"{name}, {writers} writers: {error}")
        work = f"contended upserts, {writers} writers, nothing forced to the disk"
        report.add(work, *sides, unit="commits/s", more_is_faster=True, **told)


def large(report: Report, tables: Tables, rounds: int, works: list[str]) -> None:
    """Works on the loaded table."""
    size = f"{len(tables.batch):,} rows into {len(tables.load):,}"
    if "upsert" in works:
        kinds = dict.fromkeys((Ours, OursInBuckets, *PEERS), ("loaded", "upsert"))
        ours, in_buckets, *peers = compare(tables, kinds, rounds, batch=True)
        report.add(f"upsert of {size}", ours, *peers)
        report.add(f"upsert of {size}, bucket index", in_buckets, *peers)
    if "read" in works:
        kinds = dict.fromkeys((Ours, HudiRs, Lance, DuckLake), ("upserted", "read"))
        kinds[OursCompacted] = ("compacted", "read")
        ours, *peers = compare(tables, kinds, rounds, batch=False)
        report.add("read of all rows, a tenth of them in log files", ours, *peers)
    if "compaction" in works:
        kinds = {Ours: ("upserted", "compact"), DeltaRs: ("appended", "compact")}
        ours, *peers = compare(tables, kinds, rounds, batch=False)
        report.add("compaction of that table", ours, *peers)


def commit_cost(report: Report, count: int) -> None:
    """The last tenth of many commits beside the first one, with compaction and cleaning on.

    The table is in memory where the machine has such a file system. For ext4 a new file costs more, the more
    files were deleted within the last half minute: it gives none of their inodes away.
    """
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None) as folder:
        (took, kept), peak = alone(_many_commits, f"{folder}/many", count)
    share = count // 10
    first, last = (Side(name, part) for name, part in (("first tenth", took[:share]), ("", took[-share:])))
    last = Side("ours", [statistics.mean(last.values)], peak)
    first = Side("its first tenth", [statistics.mean(first.values)])
    work = f"the last tenth of {count:,} upserts, with every compaction and clean"
    report.add(work, last, first, unit="ms a commit", files=kept)


def _many_commits(location: str, count: int) -> tuple[list[float], int]:
    from airflow_provider.ingestion import ingest_arrow
    from airflow_provider.services.cleaning import Retention
    from airflow_provider.services.cleaning.cleaning import clean
    from airflow_provider.table import HudiTable

    HudiTable.create(
        location,
        name="t",
        schema=commits.SCHEMA,
        record_key=["id"],
        partition_by=["part"],
        table_type="merge_on_read",
        hudi_options={"hoodie.compact.inline": True},
    )
    table, took = HudiTable.open(location), []
    for number in range(count):
        rows = commits.rows_of("contended", 0, number)
        begun = time.perf_counter()
        ingest_arrow(table, rows, "upsert")
        if number % 10 == 9:
            clean(table, Retention("KEEP_LATEST_COMMITS", 10))
        took.append(1000 * (time.perf_counter() - begun))
    return took, sum(each.is_file() for each in Path(location).rglob("*"))


if __name__ == "__main__":
    main()

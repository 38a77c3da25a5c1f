"""The same work by the real Hudi on Spark 3.5, by this package on Spark 4.2, and by this package in process.

Bulk insert, upsert of a tenth, build of the record index, an upsert with it, and z-order clustering of a
table of 16 columns in eight partitions; each engine with its defaults, and with a metadata table of files,
column statistics and partition statistics. What the real Hudi needs is downloaded as for ``make test-hudi``.

Usage: ``python -m benchmarks.beside_hudi [--rows N] [--runs N]``. All three are warm, and take turns, so that
a machine that slows down slows all of them down. Prints medians and ratios; on a busy machine only the ratios
mean something. After each work the tables hold the same rows, or it ends.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.services.clustering.clustering import cluster_in_process, schedule_clustering
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.spark import ClusteringJob, IndexJob, build_index, cluster, ingest, local_session
from airflow_provider.table import HudiTable, snapshot
from benchmarks.report import Report, in_turns
from benchmarks.workload import Workload
from tests.real_hudi.environment import HUDI, SPARK
from tests.real_hudi.jvm import Session, running

LAYOUT = ("amount", "rating")
MEMORY = "3g"


class Engine(Protocol):
    """Who does the work; each table is a folder."""

    name: str

    def bulk_insert(self, location: str, source: str) -> None: ...

    def upsert(self, location: str, source: str) -> None: ...

    def build_record_index(self, location: str) -> None: ...

    def cluster(self, location: str) -> None: ...


class RealHudi:
    """The JVM's Hudi.

    :param session: in its JVM.
    """

    name = f"Hudi {HUDI} on Spark {SPARK}"

    def __init__(self, session: Session) -> None:
        self._session = session

    def bulk_insert(self, location: str, source: str) -> None:
        self._write(location, source, "bulk_insert", {}, "overwrite")

    def upsert(self, location: str, source: str) -> None:
        indexed = "record_index" in HudiTable.open(location).config.metadata_partitions
        self._write(location, source, "upsert", _BY_RECORD_INDEX if indexed else {}, "append")

    def build_record_index(self, location: str) -> None:
        self._named(location)
        self._session.sql(f"set hoodie.write.lock.provider={_ALONE}")  # without a lock its SQL makes no index
        self._session.sql("create index record_index on t (id)")
        self._session.sql("reset hoodie.write.lock.provider")

    def cluster(self, location: str) -> None:
        self._named(location)
        order = f"order => '{','.join(LAYOUT)}', order_strategy => 'z-order'"
        assert self._session.sql(f"call run_clustering(table => 't', op => 'scheduleAndExecute', {order})")

    def _named(self, location: str) -> None:
        self._session.sql("drop table if exists t")
        self._session.sql(f"create table t using hudi location '{location}'")

    def _write(self, location: str, source: str, operation: str, more: dict[str, str], mode: str) -> None:
        options = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "region",
            "hoodie.table.ordering.fields": "at",
            **more,
        }
        self._session.run(
            "spark.read.parquet(read_from).write.format('hudi').options(**options).mode(mode).save(location)",
            read_from=source,
            options=options,
            mode=mode,
            location=location,
        )


_ALONE = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
_BY_RECORD_INDEX = {
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    "hoodie.metadata.global.record.level.index.enable": "true",
}


def _create(location: str, schema: pa.Schema) -> HudiTable:
    return HudiTable.create(
        location,
        name="t",
        schema=schema,
        record_key=["id"],
        partition_by=["region"],
        ordering_field="at",
        hudi_options={"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True},
    )


class OursOnSpark:
    """This package, on Spark.

    :param spark: a session.
    """

    name = "ours on Spark 4.2"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def bulk_insert(self, location: str, source: str) -> None:
        _create(location, pq.read_schema(next(Path(source).iterdir())))
        self._ingest(location, source, "bulk_insert")

    def upsert(self, location: str, source: str) -> None:
        self._ingest(location, source, "upsert")

    def build_record_index(self, location: str) -> None:
        instant = schedule_index(HudiTable.open(location), ["record_index"])
        assert instant is not None
        build_index(self._spark, IndexJob(location, instant))

    def cluster(self, location: str) -> None:
        instant = schedule_clustering(HudiTable.open(location), ClusteringSettings(LAYOUT, "z-order"))
        assert cluster(self._spark, ClusteringJob(location, instant)) is not None

    def _ingest(self, location: str, source: str, operation: str) -> None:
        job = IngestJob.of(location=location, source=(f"{source}/*.parquet",), operation=operation)
        ingest(self._spark, job)


class OursInProcess:
    """This package, in Python alone."""

    name = "ours in process"

    def bulk_insert(self, location: str, source: str) -> None:
        rows = pq.read_table(source)
        ingest_arrow(_create(location, rows.schema), rows, "bulk_insert")

    def upsert(self, location: str, source: str) -> None:
        ingest_arrow(location, pq.read_table(source), "upsert")

    def build_record_index(self, location: str) -> None:
        schedule_index(HudiTable.open(location), ["record_index"])
        assert run_index(HudiTable.open(location)) is not None

    def cluster(self, location: str) -> None:
        table = HudiTable.open(location)
        schedule_clustering(table, ClusteringSettings(LAYOUT, "z-order"))
        assert cluster_in_process(table) is not None


@dataclass
class Lake:
    """Tables of one engine: as loaded, with the record index, and the one that is worked on."""

    engine: Engine
    folder: Path

    def work_on(self, kept: str | None) -> str:
        """A table as it was kept; nothing when None. Where it is."""
        target = self.folder / "working"
        shutil.rmtree(target, ignore_errors=True)
        if kept is not None:
            shutil.copytree(self.folder / kept, target)
        return str(target)

    def keep(self, name: str) -> None:
        """The table that is worked on, under a name."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        shutil.copytree(self.folder / "working", self.folder / name)


@dataclass(frozen=True)
class Work:
    """What is timed.

    :param name: for people.
    :param on: what it begins with, by the name under which it was kept.
    :param run: what an engine does in a folder.
    :param kept: the name under which the result is kept.
    """

    name: str
    on: str | None
    run: Callable[[Engine, str, Workload], None]
    kept: str | None = None


WORKS = [
    Work("bulk insert", None, lambda engine, at, given: engine.bulk_insert(at, given.load), "loaded"),
    Work("upsert of a tenth", "loaded", lambda engine, at, given: engine.upsert(at, given.batch)),
    Work(
        "build of the record index", "loaded", lambda engine, at, _: engine.build_record_index(at), "indexed"
    ),
    Work("upsert with it", "indexed", lambda engine, at, given: engine.upsert(at, given.batch)),
    Work("z-order clustering", "loaded", lambda engine, at, _: engine.cluster(at)),
]


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def content(location: str) -> pa.Table:
    """What tells whether two tables hold the same rows."""
    rows = snapshot(HudiTable.open(location)).to_table(columns=["id", "at", "region", "amount", "name"])
    return rows.sort_by("id").combine_chunks()


def main() -> None:
    """Run, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=2_000_000, help="of the first load")
    arguments.add_argument("--runs", type=int, default=3, help="counted runs of each")
    arguments.add_argument("--warm-up", type=int, default=1, help="runs before them")
    chosen = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="beside-hudi-") as folder,
        running(Path(folder) / "jvm", settings=_SETTINGS) as jvm,
        Report("beside_hudi", f"{chosen.rows:,} rows, {chosen.runs} rounds") as report,
    ):
        (Path(folder) / "source").mkdir()
        workload = Workload.make(Path(folder) / "source", chosen.rows)
        spark = local_session("benchmark", "local[2]", {"spark.driver.memory": MEMORY})
        spark.sparkContext.setLogLevel("ERROR")
        engines: list[Engine] = [RealHudi(jvm.session()), OursOnSpark(spark), OursInProcess()]
        lakes = [Lake(engine, Path(folder) / str(number)) for number, engine in enumerate(engines)]
        for work in WORKS:
            contents: list[pa.Table] = []
            turns = {lake.engine.name: partial(one_turn, work, lake, workload, contents) for lake in lakes}
            theirs, *ours = in_turns(turns, rounds=chosen.runs, warm_up=chosen.warm_up)
            for side in ours:
                report.add(f"{work.name}, {side.name}", side, theirs)


_SETTINGS = {
    "spark.driver.memory": MEMORY,
    # As Spark has them where nobody says otherwise: this JVM lives long enough to compile what it runs.
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def one_turn(work: Work, lake: Lake, workload: Workload, contents: list[pa.Table]) -> tuple[float, None]:
    """Seconds of one engine; the JVMs' memory is what they are given.

    :param contents: what the first engine's table held afterwards, which the others' have to hold, too.
    """
    at = lake.work_on(work.on)
    seconds = timed(lambda: work.run(lake.engine, at, workload))
    found = content(at)
    contents[:] = contents or [found]
    if not found.equals(contents[0]):
        raise SystemExit(f"after {work.name} the tables differ")
    if work.kept is not None:
        lake.keep(work.kept)
    return seconds, None


if __name__ == "__main__":
    main()

"""Building indexes on any Spark session, local or over Spark Connect.

Tasks compute the index records of their data files. A shuffle moves the records to the file groups of the
index, and one task writes each base file in the order of the keys. No key reaches the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.indexing import IndexBuild, IndexJob, IndexResult, run_index, write_listing
from airflow_provider.locks import LockProvider
from airflow_provider.spark.numbered_tasks import spare_loaded_modules
from airflow_provider.spark.session import parallelism, tasks_end_with
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import WriteStat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_A_TASK = 8
"""Files of one task, so that its start does not matter; fewer if that would leave cores idle."""

_WRITTEN = pa.schema([("file_group", pa.int32()), ("write_stat", pa.string()), ("error", pa.string())])
_ENTRIES = pa.schema([("file_group", pa.int32()), ("key", pa.string()), ("record", pa.binary())])
"""The schema in Spark's types."""
_ENTRIES_A_BATCH = 20_000


def build_index(
    spark: SparkSession,
    job: IndexJob,
    *,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
) -> IndexResult | None:
    """Run an indexing plan.

    :param spark: a session, local or over Spark Connect.
    :param job: the run.
    :param lock: the table lock; the job's, or the table's own, when None.
    :param is_alive: called before every heartbeat; False stops the run.
    :return: see :func:`~airflow_provider.indexing.run_index`, also for its errors.
    """
    table = HudiTable.open(job.location, job.storage_options)
    return run_index(
        table,
        job.instant,
        settings=job.settings,
        build=lambda build: write_base_files(spark, build),
        lock=lock or job.open_lock(table),
        operation_key=job.operation_key,
        is_alive=is_alive,
        around=lambda instant: tasks_end_with(spark, instant),
    )


def write_base_files(spark: SparkSession, build: IndexBuild) -> list[WriteStat]:
    """Write the base files of an indexing plan.

    :param spark: a session, local or over Spark Connect.
    :param build: the work of the index build.
    :return: one write stat for each base file.
    """
    stats = write_listing(build)
    numbers = build.numbers_of_files
    if not numbers:
        return stats
    cores = parallelism(spark)
    tasks = min(len(build.files), max(cores, len(build.files) // _FILES_A_TASK))
    files = spark.range(0, len(build.files), 1, max(1, tasks))
    entries = files.mapInArrow(_reader(build), "file_group int, key string, record binary")
    written = (
        entries.repartition(min(len(numbers), cores), "file_group")
        .sortWithinPartitions("file_group", "key")
        .mapInArrow(_writer(build), "file_group int, write_stat string, error string")
        .toArrow()
        .to_pylist()
    )
    for row in written:
        if row["error"] is not None:
            raise from_dict(json.loads(row["error"]))
    stats += [WriteStat.from_dict(json.loads(row["write_stat"])) for row in written]
    empty = set(numbers) - {row["file_group"] for row in written}
    return stats + [build.write(number, ()) for number in sorted(empty)]


_Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _reader(build: IndexBuild) -> _Task:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_loaded_modules()
        for batch in batches:
            for position in batch.column(0).to_pylist():
                for found in build.entries_of(build.files[position]):
                    for start in range(0, found.num_rows, _ENTRIES_A_BATCH):
                        yield found.slice(start, _ENTRIES_A_BATCH).cast(_ENTRIES)

    return read


def _writer(build: IndexBuild) -> _Task:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_loaded_modules()
        for number, same in groupby(_by_file_group(batches), key=itemgetter(0)):
            row: dict[str, int | str | None] = {"file_group": number, "write_stat": None, "error": None}
            try:
                stat = build.write(number, ((keys, records) for _, keys, records in same))
                row["write_stat"] = json.dumps(stat.to_dict())
            except TableServiceError as error:  # another attempt of the task would fail too
                row["error"] = json.dumps(to_dict(error))
            schema = pa.schema(
                [("file_group", pa.int32()), ("write_stat", pa.string()), ("error", pa.string())]
            )
            yield pa.RecordBatch.from_pylist([row], schema)

    return write


def _by_file_group(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Array, pa.Array]]:
    for batch in batches:
        numbers, keys, records = batch.columns
        borders = np.flatnonzero(np.diff(numbers.to_numpy())) + 1
        for begin, end in pairwise((0, *borders.tolist(), len(batch))):
            if begin < end:
                yield numbers[begin].as_py(), keys[begin:end], records[begin:end]

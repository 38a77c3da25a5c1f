"""Building indexes on any Spark session, local or over Spark Connect.

Tasks compute the index records of their data files. Spark moves them, packed, to the file groups of the
index, and one task writes each base file in the order of the keys. No key reaches the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.indexing import (
    ENTRIES,
    IndexBuild,
    IndexJob,
    IndexResult,
    build_in_process,
    in_key_order,
    run_index,
    write_listing,
)
from airflow_provider.ingestion.file_groups import ROWS_A_WRITE, TARGET, gathered, rows_by_target
from airflow_provider.locks import LockProvider
from airflow_provider.spark.numbered_tasks import (
    numbers_of,
    spare_loaded_modules,
    task_number,
    to_numbered_tasks,
)
from airflow_provider.spark.packed_rows import BYTES_A_PACK, PACKED, PACKED_ROWS, pack, pack_error, unpacked
from airflow_provider.spark.session import parallelism, tasks_end_with, with_settings
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition
from airflow_provider.table.timeline import WriteStat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_A_TASK = 8
"""Files of one task, so that its start does not matter; fewer if that would leave cores idle."""

_WRITTEN = "write_stat string, error string"


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
    cores = parallelism(spark)
    if MetadataPartition.RECORD_INDEX not in build.file_groups and len(build.files) <= cores * _FILES_A_TASK:
        return build_in_process(build)  # the footers of few files are read sooner than Spark starts a task
    stats = write_listing(build)
    numbers = build.numbers_of_files
    if not numbers:
        return stats
    tasks = min(len(build.files), max(cores, len(build.files) // _FILES_A_TASK))
    files = spark.range(0, len(build.files), 1, max(1, tasks))
    entries = files.mapInArrow(_reader(build), PACKED)
    # Each file group has a task, which holds its records.
    moved = to_numbered_tasks(entries, entries[TARGET], len(numbers))
    with with_settings(spark, PACKED_ROWS):
        written = moved.mapInArrow(_writer(build), _WRITTEN).toArrow().to_pylist()
    for row in written:
        if row["error"] is not None:
            raise from_dict(json.loads(row["error"]))
    return stats + [WriteStat.from_dict(json.loads(row["write_stat"])) for row in written]


_Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _reader(build: IndexBuild) -> _Task:
    """The function for ``mapInArrow`` that packs the records of data files."""
    tasks = np.zeros(build.total_file_groups, np.int32)
    tasks[build.numbers_of_files] = range(len(build.numbers_of_files))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_loaded_modules()
        try:
            for rows in gathered(_portions(build, numbers_of(batches)), most_bytes=BYTES_A_PACK):
                rows = rows.unify_dictionaries().combine_chunks()
                numbers = pa.array(tasks[rows["file_group"].to_numpy()])
                parts = rows_by_target(rows.drop_columns(["file_group"]).append_column(TARGET, numbers))
                yield pack((number, _with_own_records(part)) for number, part in parts)
        except TableServiceError as error:  # another attempt of the task would fail too
            yield pack_error(0, error)

    return read


def _portions(build: IndexBuild, positions: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """The records of data files; the keys of a large file come in several portions."""
    for found in build.entries_of(build.files[position] for position in positions):
        for begin in range(0, found.num_rows, ROWS_A_WRITE):
            yield found.slice(begin, ROWS_A_WRITE)


def _with_own_records(part: pa.Table) -> pa.Table:
    """A part of some entries, with a dictionary that has only its own records."""
    records = part["record"].cast(pa.binary()).dictionary_encode()
    return part.select(["key"]).append_column("record", records)


def _writer(build: IndexBuild) -> _Task:
    """The function for ``mapInArrow`` that writes the base file of a file group."""
    kinds = pa.schema([ENTRIES.field(name) for name in ("key", "record")])

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_loaded_modules()
        row: dict[str, str | None] = {"write_stat": None, "error": None}
        try:
            records = in_key_order(pa.Table.from_batches(unpacked(batches), kinds))
            stat = build.write(build.numbers_of_files[task_number()], records)
            row["write_stat"] = json.dumps(stat.to_dict())
        except TableServiceError as error:
            row["error"] = json.dumps(to_dict(error))
        yield pa.RecordBatch.from_pylist([row], pa.schema([(name, pa.string()) for name in row]))

    return write

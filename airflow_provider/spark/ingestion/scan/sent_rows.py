"""The rows of a scan, sent from the tasks that read them to the tasks of their targets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_provider.exceptions import TableServiceError
from airflow_provider.ingestion.file_groups import ARRIVAL, TARGET, rows_by_target
from airflow_provider.spark.ingestion.scan.routes import Routes, Tags
from airflow_provider.spark.ingestion.scan.source_scan import SourceScan
from airflow_provider.spark.ingestion.source import in_arrow, spark_schema
from airflow_provider.spark.numbered_tasks import numbers_of, task_number
from airflow_provider.spark.packed_rows import PACKED, pack, pack_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Returns the rows that a task reads, with the column :data:`TARGET`, for what Spark sends to the task."""


def scanned(
    scan: SourceScan,
    routes: Routes,
    batches: Iterable[pa.RecordBatch],
    tags: Callable[[Iterable[pa.RecordBatch]], Tags] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows that a task reads, with the column :data:`TARGET`.

    :param scan: the scan.
    :param routes: the rows' targets.
    :param batches: what Spark sends to the task.
    :param tags: makes of it the targets of rows whose keys were found; None if no key was.
    """
    # All that Spark sends is read: a Python worker with unread input is not used again.
    tasks, known = (list(numbers_of(batches)), None) if tags is None else ([task_number()], tags(batches))
    for task in tasks:
        for table in routes.numbered(scan.batches(task), known):
            yield from table.combine_chunks().to_batches()


def packed(tasks: DataFrame, rows: Rows, first: int) -> DataFrame:
    """The rows of a write, packed.

    :param tasks: what the reading tasks get; a partition for each of them.
    :param rows: the rows of a task.
    :param first: number of the target that gets the errors.
    :return: the columns :data:`PACKED`.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for each in rows(batches):
                yield pack(rows_by_target(pa.Table.from_batches([each])))
        except TableServiceError as error:
            yield pack_error(first, error)

    return tasks.mapInArrow(run, PACKED)


def sent_again(tasks: DataFrame, rows: Rows, scan: SourceScan, numbers: Collection[int]) -> DataFrame:
    """The rows of some targets, not packed.

    :param tasks: see :func:`packed`.
    :param rows: see :func:`packed`.
    :param scan: the scan.
    :param numbers: numbers of the targets.
    """
    columns = scan.rows.append(pa.field(ARRIVAL, pa.int64())) if scan.arrival else scan.rows
    kinds = spark_schema(columns)
    as_spark_sends = in_arrow(kinds)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in rows(batches):
            chosen = each.filter(pa.array(np.isin(each[TARGET].to_numpy(), list(numbers))))
            yield from pa.Table.from_batches([chosen]).select(columns.names).cast(as_spark_sends).to_batches()

    return tasks.mapInArrow(run, kinds)

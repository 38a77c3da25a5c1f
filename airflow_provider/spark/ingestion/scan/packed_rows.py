"""Rows that Spark moves as bytes: a task packs the rows of each target, another task unpacks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.ingestion.file_groups import ARRIVAL, TARGET, rows_by_target
from airflow_provider.spark.ingestion.scan.routes import Routes, Tags
from airflow_provider.spark.ingestion.scan.source_scan import BYTES_A_WRITE, SourceScan
from airflow_provider.spark.ingestion.source import in_arrow, spark_schema
from airflow_provider.spark.numbered_tasks import numbers_of, task_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKED_ROWS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2 * BYTES_A_WRITE),
}
"""Spark's settings for sending packed rows to Python; each of them has the rows of a write."""

_ROWS, _ERROR = "_rows", "_error"
PACKED = f"{TARGET} int, {_ROWS} binary, {_ERROR} string"
"""The columns of packed rows, in Spark's types."""


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


def pack(parts: Iterable[tuple[int, pa.Table]]) -> pa.RecordBatch:
    """Pack rows.

    :param parts: rows, each with the number of their target.
    :return: a row for each part, with the columns :data:`PACKED`.
    """
    sink = pa.BufferOutputStream()
    numbers, ends = [], [0]
    for number, rows in parts:
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        numbers.append(number)
        ends.append(sink.tell())
    # The array takes the bytes as they are: a copy would take as long as all the rest.
    buffers = [None, pa.py_buffer(np.array(ends, np.int32)), sink.getvalue()]
    content = pa.Array.from_buffers(pa.binary(), len(numbers), buffers)
    columns = [pa.array(numbers, pa.int32()), content, pa.nulls(len(numbers), pa.string())]
    return pa.RecordBatch.from_arrays(columns, [TARGET, _ROWS, _ERROR])


def pack_error(target: int, error: TableServiceError) -> pa.RecordBatch:
    """Pack an error, which :func:`unpacked` raises. Another attempt of the task would fail too.

    :param target: number of the target that gets it.
    :param error: the error.
    """
    row = {TARGET: target, _ROWS: None, _ERROR: json.dumps(to_dict(error))}
    kinds = pa.schema([(TARGET, pa.int32()), (_ROWS, pa.binary()), (_ERROR, pa.string())])
    return pa.RecordBatch.from_pylist([row], kinds)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that were packed.

    :param batches: packed rows.
    :raises TableServiceError: the error of the task that packed them.
    """
    for batch in batches:
        for error in batch.column(_ERROR).drop_null().to_pylist():
            raise from_dict(json.loads(error))
        for rows in batch.column(_ROWS):
            yield from pa.ipc.open_stream(rows.as_buffer())


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

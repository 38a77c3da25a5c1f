"""Rows that Spark moves as bytes: a task packs the rows of each target, another task unpacks them.

Spark would make objects of the JVM of the rows, and Arrow's columns again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.ingestion.file_groups import TARGET

BYTES_A_PACK = 32 * 1024 * 1024
"""A task packs about so many bytes of rows at a time."""

PACKED_ROWS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2 * BYTES_A_PACK),
}
"""Spark's settings for sending packed rows to Python."""

_ROWS, _ERROR = "_rows", "_error"
PACKED = f"{TARGET} int, {_ROWS} binary, {_ERROR} string"
"""The columns of packed rows, in Spark's types."""


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

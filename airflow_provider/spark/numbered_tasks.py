"""Tasks of a Spark job that know their number, and nothing else, when they begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def numbered_tasks(spark: SparkSession, count: int) -> DataFrame:
    """The numbers from 0, each in a task of its own.

    :param spark: a session, local or over Spark Connect.
    :param count: number of tasks.
    """
    return spark.range(0, count, 1, count)


def numbers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers of :func:`numbered_tasks` in a function for ``mapInArrow``.

    :param batches: what Spark sends to the task.
    """
    for batch in batches:
        yield from batch.column(0).to_pylist()

"""Tasks of a Spark job that have a number each: that of their partition."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import Column, DataFrame, SparkSession


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


def to_numbered_tasks(frame: DataFrame, number: Column, count: int) -> DataFrame:
    """Move each row to the task with its number.

    :param frame: the rows.
    :param number: the number of each row's task.
    :param count: number of tasks.
    """
    return frame.repartitionById(count, number)


def task_number() -> int:
    """The number of the task that runs the function for ``mapInArrow``."""
    return int(task_context().partitionId())


def task_context() -> TaskContext:
    """Spark's context of the task that runs the function for ``mapInArrow``.

    :raises RuntimeError: when no task runs.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("runs only inside a Spark task")
    spare_loaded_modules()
    return context


@cache
def spare_loaded_modules() -> None:
    """Exclude loaded modules from the garbage collection in Spark's worker."""
    # Spark's worker collects garbage after every task, which walks through all loaded objects: 30 ms, a tenth
    # of a small file group's merge. Frozen objects are left out.
    gc.freeze()

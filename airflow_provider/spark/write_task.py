"""Tasks that write file groups, in Spark's Python workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.ingestion.file_groups import FileGroupTask, NewFileGroupsTask, Report, WritePlan
from airflow_provider.spark.numbered_tasks import numbered_tasks, numbers_of, task_context, task_number
from airflow_provider.table.timeline import WriteStat

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import SparkSession

Batches = Iterable[pa.RecordBatch]
Read = Callable[[Batches], Iterator[pa.RecordBatch]]

REPORT_SCHEMA = "target int, rows_in long, write_stats string, error string"
"""The columns of a task's report, in Spark's types."""


def write_task(plan: WritePlan, read: Read = iter) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``; the first partition has the rows of the first target.

    :param plan: the write's plan.
    :param read: returns the rows of what Spark sends; by default Spark sends the rows themselves.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        number = min(plan.targets) + task_number()
        yield _to_arrow(FileGroupTask(plan, number, _write_token(number)).run(read(batches)))

    return run


def write_task_where_read(
    plan: WritePlan, read: Read = iter
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` on rows that stay in the task that has read them.

    :param plan: the write's plan; each row has the number of its target.
    :param read: see :func:`write_task`.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = task_context()
        first, attempt = context.partitionId() * len(plan.targets), _attempt(context)
        yield from map(_to_arrow, NewFileGroupsTask(plan, first, attempt).run(read(batches)))

    return run


class TableTask(Protocol):
    """The work of a table service on one file group; it is pickled for an executor."""

    def run(self, write_token: str) -> WriteStat | None:
        """Write the new base file.

        :param write_token: distinguishes this attempt's file from the files of other attempts.
        :return: None when the task wrote no file.
        """


def run_tasks(spark: SparkSession, tasks: Sequence[TableTask]) -> list[WriteStat]:
    """Run tasks of a table service, each in a Spark task of its own.

    :param spark: a session, local or over Spark Connect.
    :param tasks: the tasks; at least one.
    :return: the write stats, in the order of the tasks.
    :raises TableServiceError: the first error of ours in a task.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            yield _described(tasks[number], _write_token(number))

    numbers = numbered_tasks(spark, len(tasks))
    rows = numbers.mapInArrow(run, "write_stat string, error string").toArrow().to_pylist()
    for row in rows:
        if row["error"] is not None:
            raise from_dict(json.loads(row["error"]))
    return [WriteStat.from_dict(json.loads(row["write_stat"])) for row in rows if row["write_stat"]]


def _described(task: TableTask, write_token: str) -> pa.RecordBatch:
    row: dict[str, str | None] = {"write_stat": None, "error": None}
    try:
        stat = task.run(write_token)
        row["write_stat"] = None if stat is None else json.dumps(stat.to_dict())
    except TableServiceError as error:  # another attempt of the task would fail too
        row["error"] = json.dumps(to_dict(error))
    return pa.RecordBatch.from_pylist([row], pa.schema({name: pa.string() for name in row}))


def _write_token(number: int) -> str:
    """The write token of a file that this Spark task writes.

    :param number: the number of the file group within the write.
    """
    return f"{number}-{_attempt(task_context())}"


def _attempt(context: TaskContext) -> str:
    return f"{context.stageId()}-{context.taskAttemptId()}"


def report_of(row: Mapping[str, Any]) -> Report:
    """The report of a task.

    :param row: the task's one row, with the columns :data:`REPORT_SCHEMA`.
    """
    stats = tuple(WriteStat.from_dict(stat) for stat in json.loads(row["write_stats"]))
    error = json.loads(row["error"]) if row["error"] else None
    return Report(row["target"], row["rows_in"], stats, error)


def _to_arrow(report: Report) -> pa.RecordBatch:
    row = {
        "target": report.target,
        "rows_in": report.rows_in,
        "write_stats": json.dumps([stat.to_dict() for stat in report.write_stats]),
        "error": json.dumps(report.error) if report.error else None,
    }
    kinds = {"target": pa.int32(), "rows_in": pa.int64(), "write_stats": pa.string(), "error": pa.string()}
    return pa.RecordBatch.from_pylist([row], pa.schema(kinds))

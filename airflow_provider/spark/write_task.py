"""File group tasks in Spark's Python workers."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from airflow_provider.ingestion.file_group_task import FileGroupTask, Report, WritePlan
from airflow_provider.table.timeline import WriteStat

REPORT_SCHEMA = "target int, rows_in long, write_stats string, error string"
"""The columns of a task's report, in Spark's words."""


def write_task(plan: WritePlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``; the first partition has the rows of the first target.

    :param plan: what to write.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("runs only inside a Spark task")
        spare_loaded_modules()
        number = min(plan.targets) + context.partitionId()
        write_token = f"{number}-{context.stageId()}-{context.taskAttemptId()}"
        yield _to_arrow(FileGroupTask(plan, number, write_token).run(batches))

    return run


def report_of(row: Mapping[str, Any]) -> Report:
    """The report of a task.

    :param row: the one row that it returned, of :data:`REPORT_SCHEMA`.
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


@cache
def spare_loaded_modules() -> None:
    """Keep Spark's worker from walking through all loaded modules after every task."""
    # After every task Spark's worker collects garbage, which walks through all that is loaded:
    # 30 ms, a tenth of a small file group's merge. Frozen, once a process, it is left out.
    gc.freeze()

"""One task writes new file groups of several partitions, from rows that it has read itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from airflow_provider.concurrency.heartbeats import check_wanted
from airflow_provider.exceptions import TableServiceError, to_dict
from airflow_provider.ingestion.file_groups.file_group_task import FileGroupTask, Report, WritePlan, gathered
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files import write_partition_metadata

TARGET = "_target"
"""Column with the number of each row's target."""


class NewFileGroupsTask:
    """The work on rows of several targets, in the order in which the rows come; each row is only added.

    The task writes file groups of its own. Other tasks that have rows of the same targets write other file
    groups (Hudi's ``BulkInsertSortMode.NONE``).

    :param plan: the write's plan, whose targets are new file groups.
    :param first: number of this task's first file group, among those that all tasks may write.
    :param attempt: distinguishes this attempt's files from those of other attempts.
    """

    def __init__(self, plan: WritePlan, first: int, attempt: str) -> None:
        self._plan = plan
        self._first = first
        self._attempt = attempt
        self._tasks: dict[int, FileGroupTask] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[Report]:
        """Write the rows.

        :param batches: the rows, with the column :data:`TARGET`.
        :return: a report for each target that has rows here. After an error of this package, there is one
            report, which contains it.
        """
        try:
            for table in gathered(batches):
                for number, rows in rows_by_target(table):
                    self._of(number).add(rows)
            reports = [task.end() for task in self._tasks.values()]
            if reports:
                self._check_wanted([stat.path for report in reports for stat in report.write_stats])
        except TableServiceError as error:
            self._abort()
            return [Report(min(self._plan.targets), 0, error=to_dict(error))]
        except BaseException:
            self._abort()
            raise
        return reports

    def _of(self, number: int) -> FileGroupTask:
        task = self._tasks.get(number)
        if task is None:
            if not self._tasks:
                self._check_wanted()
            plan, target = self._plan, self._plan.targets[number]
            write_partition_metadata(plan.storage, target.partition_path, plan.instant)
            mine = replace(plan, targets={number: replace(target, file_id=new_file_id())})
            task = FileGroupTask(mine, number, f"{self._first + len(self._tasks)}-{self._attempt}")
            self._tasks[number] = task
        return task

    def _check_wanted(self, written: Iterable[str] = ()) -> None:
        check_wanted(self._plan.storage, self._plan.instant, written)

    def _abort(self) -> None:
        for task in self._tasks.values():
            task.abort()


def rows_by_target(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each target, in the order in which they came.

    :param rows: rows with the column :data:`TARGET`.
    :return: numbers of targets, and their rows without that column.
    """
    numbers = rows[TARGET].to_numpy()
    rows = rows.drop_columns([TARGET])
    if not len(numbers):
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    rows, numbers = rows.take(pa.array(order)), numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    for begin, end in itertools.pairwise([*starts.tolist(), len(numbers)]):
        yield int(numbers[begin]), rows.slice(begin, end - begin)

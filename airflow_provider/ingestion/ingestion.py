"""One ingestion, from the begin of its write to its commit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

from airflow_provider.concurrency import Writer, begin_write
from airflow_provider.exceptions import CommitError, from_dict
from airflow_provider.ingestion.file_group_plan import (
    FileGroupPlan,
    Target,
    bytes_per_row,
    plan_tagged,
    plan_without_tagging,
)
from airflow_provider.ingestion.file_group_task import Report, WritePlan
from airflow_provider.ingestion.incoming_rows import IncomingRows
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.result import result_of
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.file_groups import FileSystemView
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.schema import arrow_to_avro


def write_rows(
    job: IngestJob,
    table: HudiTable,
    rows: IncomingRows,
    *,
    lock: LockProvider | None = None,
    is_alive: Callable[[], bool] | None = None,
    around: Callable[[Ingestion], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> dict[str, Any]:
    """Write rows into a table, as one commit.

    :param job: what to do.
    :param table: the table.
    :param rows: rows that fit into the table.
    :param lock: the table lock; by ``job.lock`` when None.
    :param is_alive: asked before every heartbeat; False gives the write up.
    :param around: entered before anything is planned, and left after the commit or the failure.
    :return: see :func:`~airflow_provider.ingestion.result.result_of`.
    :raises WriteConflictError: when another commit touched the same file groups first.
    :raises CommitError: when the write ended otherwise without a commit.
    """
    writer = begin_write(
        table,
        operation=job.kind.hudi_type,
        action=job.kind.action,
        priority=job.priority,
        lock=lock or open_lock(job.lock, table.storage),
        heartbeat_interval=job.heartbeat_interval,
        tolerable_misses=job.tolerable_misses,
        operation_key=job.operation_key,
        is_alive=is_alive,
    )
    ingestion = Ingestion(job, table, writer, rows)
    with writer, around(ingestion):
        return ingestion.run()


class Ingestion:
    """The part between the begin of a write and its commit.

    :param job: what to do.
    :param table: the table.
    :param writer: the write, begun.
    :param rows: rows that fit into the table.
    """

    def __init__(self, job: IngestJob, table: HudiTable, writer: Writer, rows: IncomingRows) -> None:
        self.writer = writer
        self._job = job
        self._table = table
        self._rows = rows
        self._targets: dict[int, Target] = {}
        self._reports: dict[int, Report] = {}

    @cached_property
    def row_bytes(self) -> float:
        """About how many bytes a row takes in a base file."""
        return bytes_per_row(self.writer.view.timeline, self._table.schema)

    def run(self) -> dict[str, Any]:
        """Plan, write, commit.

        :return: see :func:`~airflow_provider.ingestion.result.result_of`.
        """
        job, table, writer = self._job, self._table, self.writer
        plan = self._planned(self._rows, writer.view)
        replaced = self._replaced(writer.view)
        writer.plan(plan.file_groups, [*plan.new_in, *replaced])
        self._write(self._rows, plan)
        schema = arrow_to_avro(table.schema, table.config.name)
        commit = writer.commit(
            self._stats,
            replaced=replaced,
            extra_metadata={"schema": schema, **job.extra_metadata},
            txn_id=job.txn_id,
            write_id=job.write_id,
        )
        return result_of(job, table, commit, self._stats)

    @property
    def _stats(self) -> list[WriteStat]:
        return [stat for report in self._reports.values() for stat in report.write_stats]

    def _planned(self, rows: IncomingRows, view: FileSystemView) -> FileGroupPlan:
        plan = plan_without_tagging(self._job, view, rows.counts, self.row_bytes, first=len(self._targets))
        if plan.to_tag:
            plan_tagged(plan, self._job, rows.counts, rows.find(plan.to_tag), self.row_bytes)
        return plan

    def _replaced(self, view: FileSystemView) -> dict[str, list[str]]:
        """File ids that a replacing operation takes out, by partition."""
        replaces = self._job.kind.replaces
        if replaces is None:
            return {}
        partitions = view.partitions() if replaces == "table" else sorted(self._rows.counts)
        live = {partition: [each.file_id for each in view.base_files(partition)] for partition in partitions}
        return {partition: file_ids for partition, file_ids in live.items() if file_ids}

    def _write(self, rows: IncomingRows, plan: FileGroupPlan) -> None:
        job, table = self._job, self._table
        if not plan.targets:
            return
        write_plan = WritePlan(
            storage=table.storage,
            config=table.config,
            schema=table.schema,
            instant=self.writer.instant,
            looks_up_keys=job.kind.looks_up_keys,
            deletes=job.operation == "delete",
            target_file_size=job.target_file_size,
            targets=plan.targets,
        )
        reports = rows.send(plan, write_plan)
        for report in reports:
            if report.error is not None:
                raise from_dict(report.error)
        self._check_complete(rows, plan, reports)
        self._targets |= plan.targets
        self._reports |= {report.target: report for report in reports}

    def _check_complete(self, rows: IncomingRows, plan: FileGroupPlan, reports: list[Report]) -> None:
        came = dict.fromkeys(rows.counts, 0)
        for report in reports:
            came[plan.targets[report.target].partition_path] += report.rows_in
        for partition, count in rows.counts.items():
            if partition in plan.to_tag or self._job.operation == "delete":
                continue
            if came[partition] != count:
                raise CommitError(
                    f"table {self._table.location}: partition {partition!r} had {count} rows when the source "
                    f"was looked at and {came[partition]} when it was written: it changed meanwhile, or "
                    "gives other rows every time; let it come to rest, or materialise it, and try again",
                    partition=partition,
                )

"""Ingestion: a source into a table, on any Spark session, local or over Spark Connect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency import (
    CommitResult,
    PendingInstant,
    Writer,
    begin_write,
    find_operation,
    rollback,
)
from airflow_provider.exceptions import CommitError, TableError, WriteConflictError, from_dict
from airflow_provider.ingestion.columns import check_columns, delete_columns
from airflow_provider.ingestion.file_group_plan import (
    FileGroupPlan,
    Target,
    add_shares,
    bytes_per_row,
    plan_without_tagging,
)
from airflow_provider.ingestion.file_group_task import ARRIVAL, Report, WritePlan
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.result import earlier_result, result_of
from airflow_provider.locks import open_lock
from airflow_provider.spark.batch_profile import BatchProfile, profile_batch
from airflow_provider.spark.routing import routed, target_of_new_rows
from airflow_provider.spark.source import arrow_schema, conformed, open_source
from airflow_provider.spark.tagging import FILE, location_columns, tag
from airflow_provider.spark.write_task import REPORT_SCHEMA, report_of, write_task
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata import WriteStat
from airflow_provider.table.schema import arrow_to_avro

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)


def ingest(
    spark: SparkSession,
    job: IngestJob,
    dataframe: DataFrame | None = None,
    *,
    is_alive: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Write the rows of a source into a table, as one commit.

    :param spark: a session, local or over Spark Connect; some of its settings are changed until
        the end of the call.
    :param job: what to do.
    :param dataframe: the rows, in place of ``job.source``; it is evaluated more than once.
    :param is_alive: asked before every heartbeat; False gives the write up.
    :return: JSON-able dict: table, location, instant, completion_time, action, operation, txn_id,
        write_id, rows_inserted, rows_updated, rows_deleted, files_written, bytes_written,
        partitions (paths that got files), already_committed.
    :raises InvalidInputError: when the job or the rows cannot work; nothing was written.
    :raises TableError: when the location holds no table that can be written.
    :raises WriteConflictError: when another commit touched the same file groups first, or an
        earlier try of the same operation still runs.
    :raises CommitError: when the write ended otherwise without a commit.
    """
    if (earlier := earlier_try(job)) is not None:
        return earlier
    table = HudiTable.open(job.location, job.storage_options)
    incoming = open_source(spark, job, table) if dataframe is None else dataframe
    found = arrow_schema(incoming, table.schema)
    check_columns(job, found, table)
    wanted = delete_columns(table.config) if job.operation == "delete" else tuple(table.schema.names)
    frame = conformed(incoming, tuple(name for name in wanted if name in found.names), table.schema)
    with _settings(spark, _PROFILING):
        profile = profile_batch(job, frame, table)
    writer = begin_write(
        table,
        operation=job.kind.hudi_type,
        action=job.kind.action,
        priority=job.priority,
        lock=open_lock(job.lock, table.storage),
        heartbeat_interval=job.heartbeat_interval,
        tolerable_misses=job.tolerable_misses,
        operation_key=job.operation_key,
        is_alive=is_alive,
    )
    with writer, _tasks_end_with(spark, writer):
        return _Ingestion(spark, job, table, frame, profile, writer).run()


def earlier_try(job: IngestJob) -> dict[str, Any] | None:
    """Look for an earlier try of the same operation; needs no Spark session.

    :param job: the ingestion.
    :return: the result of the try that committed; None when the work is to be done, and what a
        try that died had left is removed.
    :raises InvalidInputError: when the job cannot work.
    :raises TableError: when the location holds no table that can be written.
    :raises WriteConflictError: when an earlier try still runs.
    """
    job.validate()
    table = HudiTable.open(job.location, job.storage_options)
    table.check_writable()
    if job.operation_key is None:
        return None
    commit = _settled(table, job.operation_key)
    return None if commit is None else earlier_result(job, table, commit)


def _settled(table: HudiTable, key: str) -> CommitResult | None:
    found = find_operation(table, key)
    if not isinstance(found, PendingInstant):
        return found
    if found.alive:
        raise WriteConflictError(
            f"table {table.location}: an earlier try of operation {key!r} by {found.owner} still writes "
            f"instant {found.instant}; wait for its end, or stop it, and try again",
            instant=found.instant,
        )
    log.info("rolling back instant %s of an earlier try that died", found.instant)
    try:
        rollback(table, found.instant, reason="its operation is tried again")
    except TableError:
        # It may have ended by itself in between; then it is no longer pending.
        again = find_operation(table, key)
        if isinstance(again, PendingInstant):
            raise
        return again
    return None


@dataclass
class _Ingestion:
    """The part between the begin of a write and its commit."""

    spark: SparkSession
    job: IngestJob
    table: HudiTable
    frame: DataFrame
    profile: BatchProfile
    writer: Writer

    def run(self) -> dict[str, Any]:
        table, job, writer = self.table, self.job, self.writer
        row_bytes = bytes_per_row(writer.view.timeline, table.schema)
        plan = plan_without_tagging(job, writer.view, self.profile.rows, row_bytes)
        tags: DataFrame | None = None
        with _settings(self.spark, _transfer(table, row_bytes)):
            try:
                if plan.to_tag:
                    tags = self._tag(plan, row_bytes)
                replaced = self._replaced()
                touched = [*plan.file_groups]
                writer.plan(touched, [*plan.new_in, *replaced])
                reports = self._write(plan, tags) if plan.targets else []
            finally:
                if tags is not None:
                    tags.unpersist()
        stats = self._checked(plan, reports)
        schema = arrow_to_avro(table.schema, table.config.name)
        commit = writer.commit(
            stats,
            replaced=replaced,
            extra_metadata={"schema": schema, **job.extra_metadata},
            txn_id=job.txn_id,
            write_id=job.write_id,
        )
        return result_of(job, table, commit, stats)

    def _replaced(self) -> dict[str, list[str]]:
        """File ids that a replacing operation takes out, by partition."""
        view, replaces = self.writer.view, self.job.kind.replaces
        if replaces is None:
            return {}
        partitions = view.partitions() if replaces == "table" else sorted(self.profile.rows)
        live = {partition: [each.file_id for each in view.base_files(partition)] for partition in partitions}
        return {partition: file_ids for partition, file_ids in live.items() if file_ids}

    def _tag(self, plan: FileGroupPlan, row_bytes: float) -> DataFrame:
        """Look keys up, and plan the file groups of what was found and what was not."""
        found, files = tag(self.frame, self.table, self.profile, plan.to_tag)
        tags = found.persist()
        hits = {row["_file"]: row["count"] for row in tags.groupBy(FILE).count().toArrow().to_pylist()}
        for number in sorted(hits):
            plan.updates[files[number].file_group] = plan.add(Target.existing(files[number]))
        if self.job.kind.fills_small_files:
            for partition, live in plan.to_tag.items():
                known = sum(count for n, count in hits.items() if files[n].partition_path == partition)
                add_shares(plan, self.job, partition, self.profile.rows[partition] - known, live, row_bytes)
        self._target_of_file = [plan.updates.get(each.file_group) for each in files]
        return tags

    def _write(self, plan: FileGroupPlan, tags: DataFrame | None) -> list[Report]:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        job, table = self.job, self.table
        frame, columns = self.frame, list(self.frame.columns)
        if job.kind.looks_up_keys:
            frame = frame.withColumn(ARRIVAL, F.monotonically_increasing_id())
            columns.append(ARRIVAL)
        frame, target = target_of_new_rows(frame, self.profile, plan.shares, table.config.record_key_fields)
        if tags is not None:
            frame, target = self._with_tags(frame, target, tags)
        write_plan = WritePlan(
            storage=table.storage,
            config=table.config,
            schema=table.schema,
            instant=self.writer.instant,
            looks_up_keys=job.kind.looks_up_keys,
            deletes=job.operation == "delete",
            target_file_size=job.target_file_size,
            targets=tuple(plan.targets),
        )
        sent = routed(frame, target, len(plan.targets), columns)
        rows = sent.mapInArrow(write_task(write_plan), REPORT_SCHEMA).toArrow().to_pylist()
        return [report_of(row) for row in rows]

    def _with_tags(self, frame: DataFrame, target: Column, tags: DataFrame) -> tuple[DataFrame, Column]:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        names = location_columns(self.table.config)
        renamed = tags.select(*(F.col(name).alias(f"_tagged_{name}") for name in names), FILE)
        condition = None
        for name in names:
            equal = F.col(name).eqNullSafe(F.col(f"_tagged_{name}"))
            condition = equal if condition is None else condition & equal
        frame = frame.withColumn("_new_target", target)
        joined = frame.join(renamed, condition, "left")
        of_file = F.lit(self._target_of_file).cast("array<int>")
        return joined, F.coalesce(F.element_at(of_file, F.col(FILE) + 1), F.col("_new_target"))

    def _checked(self, plan: FileGroupPlan, reports: list[Report]) -> list[WriteStat]:
        for report in reports:
            if report.error is not None:
                raise from_dict(report.error)
        came = dict.fromkeys(self.profile.rows, 0)
        for report in reports:
            came[plan.targets[report.target].partition_path] += report.rows_in
        for partition, count in self.profile.rows.items():
            if partition in plan.to_tag or self.job.operation == "delete":
                continue
            if came[partition] != count:
                raise CommitError(
                    f"table {self.table.location}: partition {partition!r} had {count} rows when the source "
                    f"was looked at and {came[partition]} when it was written: it changed meanwhile, or "
                    "gives other rows every time; let it come to rest, or materialise it, and try again",
                    partition=partition,
                )
        return [stat for report in reports for stat in report.write_stats]


# --- the session --------------------------------------------------------------------------

_PROFILING = {"spark.sql.shuffle.partitions": "8"}  # a handful of counts is to be added up

_ROWS_A_BATCH = 16_384
_LARGE_ROW = 2048  # bytes in a base file


def _transfer(table: HudiTable, row_bytes: float) -> dict[str, str]:
    """Settings for sending rows to Python."""
    import pyarrow as pa

    large = any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in table.schema.types)
    if large or row_bytes > _LARGE_ROW:
        return {}
    # With its largest value, Spark does not measure the batch after every row, which costs more
    # than everything else on the way; rows are small here, so that their number is limit enough.
    return {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_A_BATCH),
    }


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, previous in before.items():
            if previous is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, previous)


@contextmanager
def _tasks_end_with(spark: SparkSession, writer: Writer) -> Iterator[None]:
    """Stop this write's Spark tasks when it fails, so that they do not write on behind a rollback."""
    tag_name = f"table-services-{writer.instant}"
    spark.addTag(tag_name)
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the session may be what failed
            spark.interruptTag(tag_name)
        raise
    finally:
        with suppress(Exception):
            spark.removeTag(tag_name)

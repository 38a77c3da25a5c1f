"""One ingestion, from the beginning of its write to its commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

from airflow_provider.concurrency import (
    CommitResult,
    Rebase,
    Rebased,
    Writer,
)
from airflow_provider.exceptions import (
    CommitError,
    WriteConflictError,
    from_dict,
)
from airflow_provider.ingestion.columns import check_columns
from airflow_provider.ingestion.file_groups import (
    Buckets,
    FileGroupPlan,
    OverwrittenBuckets,
    Report,
    Target,
    WritePlan,
    bytes_per_row,
    plan_tagged,
    plan_without_tagging,
)
from airflow_provider.ingestion.incoming_rows import IncomingRows
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.ingestion.key_lookup import LogTargets, merged_again
from airflow_provider.ingestion.result import result_of, told_in_commit
from airflow_provider.table.file_groups import FileGroupId, FileSlice, FileSystemView
from airflow_provider.table.files import BLOCKS_OF_FORMATS, write_metadata_of_partitions
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import MetadataPartition
from airflow_provider.table.schema import ColumnChange, TableSchema, evolved
from airflow_provider.table.timeline import Timeline, WriteStat
from airflow_provider.table.writable import check_no_buckets, check_no_hashing_metadata

log = logging.getLogger(__name__)

# Reasons why a write that has lost a file group cannot merge again.
_INDEX_GOES_BY_REQUEST = "to instant {}, which was requested later and keeps the places in the record index"
_IS_MERGED_FIRST = "to instant {}, which was requested later, so that readers would merge that log file last"
_IS_MERGED_AGAIN = "to the late instant {}, whose deletes readers would merge with this base file once more"
_MANY_PARTITIONS = 32  # from so many new partitions on, one wait for a local disk is worth it

_NEGLIGIBLE = 0.001  # fraction of a full file


class BeginAgainError(WriteConflictError):
    """Raised when a lost conflict needs more than a rebase within the same instant."""


class Ingestion:
    """The execution of a write, from its beginning to its commit.

    :param job: the ingestion.
    :param table: the table.
    :param writer: the write, already begun.
    :param rows: rows that fit into the table.
    :ivar writing_took: seconds from the plan to the commit.
    """

    writing_took = 0.0

    def __init__(self, job: IngestJob, table: HudiTable, writer: Writer, rows: IncomingRows) -> None:
        self.writer = writer
        self._job = job
        self._table = table
        self._rows = rows
        self._changes: Sequence[ColumnChange] = ()
        self._targets: dict[int, Target] = {}
        self._reports: dict[int, Report] = {}
        self._overwritten = OverwrittenBuckets(table, writer.instant)

    @cached_property
    def row_bytes(self) -> float:
        """Estimated bytes of a row in a base file."""
        # For a few rows an estimate is good enough.
        enough = _NEGLIGIBLE * self._job.sizes.target_file_size / sum(self._rows.counts.values())
        return bytes_per_row(
            lambda: self.writer.view.timeline, self._rows.columns.table, worth_knowing=enough
        )

    def run(self) -> tuple[dict[str, Any], CommitResult]:
        """Plan, write and commit.

        :return: the result, see :func:`~airflow_provider.ingestion.result.result_of`, and the commit.
        """
        job, table, writer = self._job, self._table, self.writer
        began = time.monotonic()
        self._look_at_columns(writer.schema_timeline)
        plan = self._planned(self._rows, writer.view)
        replaced = self._replaced(writer.view)
        looked_in = partial(_looked_in, self._rows.counts)
        writer.plan([*plan.file_groups, *replaced], plan.new_in, appended=plan.appended, looked_in=looked_in)
        log.info(
            "instant %s: %s rows of %d partitions go to %d file groups, %d of them new; planned in %.1f s",
            *(writer.instant, f"{sum(self._rows.counts.values()):,}"),
            *(len(self._rows.counts), len(plan.targets)),
            *(len(plan.targets) - len(plan.file_groups), time.monotonic() - began),
        )
        self._write(self._rows, plan)
        self.writing_took = time.monotonic() - began
        committing = time.monotonic()
        if not self._overwritten.put(writer.view, _by_partition(replaced)):
            raise self._has_other_buckets()
        log.info("instant %s: committing", writer.instant)
        commit = writer.commit(
            self._stats,
            replaced=_by_partition(replaced),
            evolve=self._evolve,
            extra_metadata=told_in_commit(self._changes) | dict(job.extra_metadata),
            # With a bucket index, two writes of one key always meet in the file group of its bucket.
            unique_keys=table.bucket_index is None
            and (job.kind.promises_unique_keys or self._has_record_index),
            rebase=self._merge_again,
        )
        self._overwritten.committed()
        log.info(
            "instant %s committed at %s, in %.1f s; %.1f s since it began",
            *(
                commit.instant,
                commit.completion_time,
                time.monotonic() - committing,
                time.monotonic() - began,
            ),
        )
        for change in self._changes:
            log.info("table %s: %s", table.location, change)
        result = result_of(
            job, table, commit, self._stats, rebases=commit.rebases, schema_changes=self._changes
        )
        return result, commit

    # --- columns --------------------------------------------------------------------------

    def _look_at_columns(self, timeline: Timeline) -> None:
        """Read the table's columns at a moment, and derive the columns after this write."""
        self._base = self._table.schema_on(timeline)
        came, columns = self._rows.columns.came, self._base.columns
        # The rows were checked against the earlier columns before they were written.
        found = check_columns(self._job, came, self._table, columns, fills=bool(self._reports) or None)
        self._schema = self._base.with_columns(found.table)
        self._table.columns_seen = self._schema.columns
        self._changes = () if self._job.operation == "delete" else found.changes

    def _evolve(self, current: TableSchema) -> TableSchema:
        """Apply this write's changes to the present schema, which other writers may have changed since.

        The rows were written before those changes. So they have null in columns that were added since, and
        readers convert their columns to the present types.

        :raises IncompatibleSchemaError: when another writer has added the same column with another type.
        """
        if current == self._base:
            return self._schema
        if current.version != self._base.version:
            raise BeginAgainError(
                f"table {self._table.location}: columns were renamed, dropped or moved by {current.version} "
                f"while instant {self.writer.instant} wrote; run the write again",
                instant=self.writer.instant,
            )
        if self._job.operation == "delete":
            return current
        columns, _ = evolved(current.columns, self._rows.columns.came, fills_missing=True)
        return current.with_columns(columns)

    @property
    def _stats(self) -> list[WriteStat]:
        return [stat for report in self._reports.values() for stat in report.write_stats]

    def _planned(
        self, rows: IncomingRows, view: FileSystemView, written: Collection[FileGroupId] = ()
    ) -> FileGroupPlan:
        if (buckets := Buckets.of(self._table, view)) is not None:
            return self._planned_in_buckets(buckets.on(rows.counts), rows, written)
        job, counts, row_bytes = self._job, rows.counts, self.row_bytes
        first = len(self._targets)
        indexes = view.indexes
        unique = indexes is not None and indexes.has(MetadataPartition.RECORD_INDEX)
        brings_keys = not (job.kind.looks_up_keys or self._table.config.generates_keys)
        if indexes is not None and unique and brings_keys:
            rows.check_new(indexes, self._replaced(view))
        closed = self.writer.closed if job.kind.fills_small_files else frozenset()
        logs = self._table.is_merge_on_read
        if logs:
            check_no_hashing_metadata(self._table.storage)
        targets = LogTargets.of(self._table, view, counts)
        closed |= targets.with_logs
        plan = plan_without_tagging(
            job,
            view,
            counts,
            row_bytes,
            first=first,
            written=written,
            closed=closed,
            unique=unique,
            logs=logs,
        )
        if job.kind.looks_up_keys or job.kind.fills_small_files:  # other operations have listed no partitions
            for partition in counts:
                check_no_buckets(self._table.location, view.base_files(partition))
        if plan.to_tag:
            began = time.monotonic()
            found = rows.find(plan.to_tag, indexes, targets.living if logs else None)
            log.info(
                "table %s: keys located by %s, in %d file groups, in %.1f s",
                *(self._table.location, rows.located_by, len(found), time.monotonic() - began),
            )
            plan_tagged(plan, job, counts, found, row_bytes, written=written, closed=closed, logs=logs)
        if plan.not_filled:
            log.info(
                "instant %s: too few new rows to rewrite %d small files of %s bytes: they go into files of "
                "their own, which a clustering packs; a small_file_limit fills the small files all the same",
                *(self.writer.instant, len(plan.not_filled)),
                f"{sum(each.size for each in plan.not_filled):,}",
            )
        if logs:
            plan.append_updates(targets.log_paths)
            for group in plan.file_groups:
                if last := targets.requested_later(group, self.writer.instant):
                    raise self._has_lost(group, _IS_MERGED_FIRST.format(last))
                if again := merged_again(self._table, view, targets.slices[group], self.writer.instant):
                    raise self._has_lost(group, _IS_MERGED_AGAIN.format(again))
        for number, target in plan.targets.items():
            if target.base_file is not None and self.writer.must_replace(target.base_file):
                if any(
                    index.partition == MetadataPartition.RECORD_INDEX for index in self.writer.base.indexes
                ):
                    base = target.base_file
                    raise self._has_lost(base.file_group, _INDEX_GOES_BY_REQUEST.format(base.instant))
                plan.targets[number] = Target.replacing(target.base_file)
        return plan

    def _planned_in_buckets(
        self, buckets: Buckets, rows: IncomingRows, written: Collection[FileGroupId]
    ) -> FileGroupPlan:
        plan = buckets.plan(
            rows.in_buckets(buckets.index),
            first=len(self._targets),
            written=written,
            adds=self._job.operation != "delete",
            overwrites=self._job.kind.replaces is not None,
        )
        if self._job.kind.replaces is not None and not self._overwritten.plan(buckets.index, plan):
            raise self._has_other_buckets()
        for target in plan.targets.values():
            group = FileGroupId(target.partition_path, target.file_id)
            if not target.merges_in_any_order and target.last_instant > self.writer.instant:
                raise self._has_lost(group, _IS_MERGED_FIRST.format(target.last_instant))
            if target.log_paths and not target.merges_in_any_order:
                base = target.base_file and target.base_file.path
                file_slice = FileSlice(*group, "", base, target.log_paths)
                if again := merged_again(self._table, buckets.view, file_slice, self.writer.instant):
                    raise self._has_lost(group, _IS_MERGED_AGAIN.format(again))
        return plan

    @property
    def _has_record_index(self) -> bool:
        return _has_record_index(self.writer.view)

    @property
    def _logs_to_record_index(self) -> bool:
        return any(index.partition == MetadataPartition.RECORD_INDEX for index in self.writer.base.indexes)

    # --- rebase ---------------------------------------------------------------------------

    def _merge_again(self, rebase: Rebase) -> Rebased:
        """Send the rows of lost file groups again, on the new snapshot.

        The incoming rows are sent again, not the rows of the written files. The written files lack deleted
        records, and rows that lost against a version which another write has changed since. The keys may be
        in other file groups now. A file group that was written and is not lost has not changed, so a key that
        is found there was already merged there.

        :param rebase: the lost file groups, from :meth:`Writer.commit`.
        :raises CommitError: when the rows are no longer the same.
        """
        self._look_at_columns(rebase.view.timeline)
        lost = self._lost(rebase.lost)
        for number in lost:
            del self._reports[number]
        out = self._replaced(rebase.view)
        stats: list[WriteStat] = []
        if lost:
            # The view still shows replaced file groups; this write has already written their rows.
            written = {stat.file_group for stat in self._stats} | self._replaced_by(self._reports.values())
            # A delete sends all keys, because the other write may have added some that it did not find.
            rows = self._rows.unsent() if self._job.operation == "delete" else self._rows.sent_to(lost)
            plan = self._planned(rows, rebase.view, written)
            self._write(rows, plan)
            again = [self._reports[number] for number in plan.targets if number in self._reports]
            stats = [stat for report in again for stat in report.write_stats]
            out |= self._replaced_by(again)
            still_out = self._replaced_by(lost.values()) - rebase.lost
            if not still_out <= out:
                raise self._cannot_rebase(still_out - out)
        if not self._overwritten.put(rebase.view, _by_partition(out)):
            raise self._has_other_buckets()
        return Rebased(stats, _by_partition(out))

    def _lost(self, file_groups: frozenset[FileGroupId]) -> dict[int, Report]:
        """The reports of the targets that wrote lost file groups."""
        lost = {}
        for number, report in self._reports.items():
            written = {stat.file_group for stat in report.write_stats}
            if written & file_groups:
                if not written <= file_groups:
                    raise self._cannot_rebase(written - file_groups)
                lost[number] = report
        return lost

    def _replaced_by(self, reports: Iterable[Report]) -> set[FileGroupId]:
        """File groups that this write's new file groups replace."""
        found = {self._targets[report.target].replaced for report in reports if report.write_stats}
        return {file_group for file_group in found if file_group is not None}

    def _has_lost(self, file_group: FileGroupId, why: str) -> BeginAgainError:
        """The error for a write that cannot merge again with the changes of another write to a file group."""
        shown = "/".join(file_group).lstrip("/")
        return BeginAgainError(
            f"table {self._table.location}: instant {self.writer.instant} lost file group {shown} {why}; run "
            "the write again",
            instant=self.writer.instant,
        )

    def _has_other_buckets(self) -> BeginAgainError:
        return BeginAgainError(
            f"table {self._table.location}: the buckets of a partition were split or merged while instant "
            f"{self.writer.instant} wrote; run the write again",
            instant=self.writer.instant,
        )

    def _cannot_rebase(self, file_groups: Iterable[FileGroupId]) -> BeginAgainError:
        shown = "/".join(min(file_groups)).lstrip("/")
        return BeginAgainError(
            f"table {self._table.location}: instant {self.writer.instant} lost one of several file "
            f"groups that belong together, and not {shown}; run the write again",
            instant=self.writer.instant,
        )

    # --- one round ------------------------------------------------------------------------

    def _replaced(self, view: FileSystemView) -> set[FileGroupId]:
        """File groups that a replacing operation replaces."""
        replaces = self._job.kind.replaces
        if replaces is None:
            return set()
        partitions = view.partitions() if replaces == "table" else self._rows.counts
        if (buckets := Buckets.of(self._table, view)) is not None:
            return buckets.live(partitions)
        LogTargets.of(self._table, view, view.all_partitions() if replaces == "table" else partitions)
        for partition in partitions:
            check_no_buckets(self._table.location, view.base_files(partition))
        return {each.file_group for partition in partitions for each in view.base_files(partition)}

    def _write(self, rows: IncomingRows, plan: FileGroupPlan) -> None:
        job, table = self._job, self._table
        if not plan.targets:
            return
        write_plan = WritePlan(
            storage=table.storage,
            config=table.config,
            schema=self._schema,
            semantics=table.merge_semantics,
            instant=self.writer.instant,
            looks_up_keys=job.kind_on(table).looks_up_keys,
            deletes=job.operation == "delete",
            target_file_size=job.sizes.target_file_size,
            targets=plan.targets,
            data_block=BLOCKS_OF_FORMATS[job.log_block_format or table.log_block_format],
        )
        began, instant = time.monotonic(), self.writer.instant
        if len(new := plan.new_in) >= _MANY_PARTITIONS and table.storage.moves_atomically:  # or tasks do it
            write_metadata_of_partitions(table.storage, new, instant)
        reports = rows.send(plan, write_plan)
        for report in reports:
            if report.error is not None:
                raise from_dict(report.error)
        self._check_complete(rows, plan, reports)
        stats = [stat for report in reports for stat in report.write_stats]
        log.info(
            "instant %s: %d of %d file groups written, %d files, %s bytes, in %.1f s",
            *(instant, len(reports), len(plan.targets), len(stats)),
            *(f"{sum(stat.total_write_bytes for stat in stats):,}", time.monotonic() - began),
        )
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
                    f"was first read, and {came[partition]} when it was written: the source has changed, or "
                    "returns other rows at each read; write it when it no longer changes, or materialise it",
                    partition=partition,
                )


def _has_record_index(view: FileSystemView) -> bool:
    return view.indexes is not None and view.indexes.has(MetadataPartition.RECORD_INDEX)


def _looked_in(partitions: Iterable[str], view: FileSystemView) -> Iterable[str]:
    """The partitions in which a write has looked for the keys of rows of some partitions."""
    return view.all_partitions() if _has_record_index(view) else partitions


def _by_partition(file_groups: Iterable[FileGroupId]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for partition, file_id in sorted(file_groups):
        found.setdefault(partition, []).append(file_id)
    return found

"""One task writes the next base file of one file group, or a log file, in this process or on a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.concurrency.heartbeats import check_wanted
from airflow_provider.exceptions import TableServiceError, to_dict
from airflow_provider.ingestion.file_groups.file_group_plan import Target
from airflow_provider.table.file_groups import FileSlice
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files import (
    BaseFileReader,
    BaseFileWriter,
    BlockType,
    DeletedRecord,
    LogFileWriter,
    MarkerType,
    WrittenFile,
    wrapped_ordering_values,
    write_partition_metadata,
)
from airflow_provider.table.keys import record_keys
from airflow_provider.table.merge_semantics import MergeSemantics
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.reading import EVERY_INSTANT, SliceReader, merge_memory
from airflow_provider.table.record_merge import Batch, Merge, latest_versions
from airflow_provider.table.schema import TableSchema, conform, with_meta_columns
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import WriteStat

ARRIVAL = "_arrival"
"""Column with the number of each incoming row: of equal versions the one with the largest number wins."""

ROWS_A_WRITE = 131_072
"""Rows that are written at a time; after each such write a task checks whether its file is full."""

_ROWS_BEFORE_COMPACTION = 1_000_000


@dataclass(frozen=True)
class WritePlan:
    """The part of a write's plan that each task needs.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :param schema: the table's schema after the write.
    :param semantics: how versions of a record are merged.
    :param instant: requested time of the write.
    :param looks_up_keys: whether rows replace older versions of their records.
    :param deletes: whether rows delete their records.
    :param target_file_size: bytes at which a new file group is full.
    :param targets: the targets by their number.
    :param data_block: the type of the block with new versions of records in a log file.
    """

    storage: Storage
    config: TableConfig
    schema: TableSchema
    semantics: MergeSemantics
    instant: str
    looks_up_keys: bool
    deletes: bool
    target_file_size: int
    targets: Mapping[int, Target]
    data_block: BlockType = BlockType.PARQUET_DATA


@dataclass(frozen=True)
class Report:
    """The report of one task.

    :param target: number of the target.
    :param rows_in: number of incoming rows.
    :param write_stats: statistics of each data file written.
    :param error: an error of this package, from :func:`airflow_provider.exceptions.to_dict`. It is reported,
        and not raised, because another attempt of the task would fail too.
    """

    target: int
    rows_in: int
    write_stats: tuple[WriteStat, ...] = ()
    error: dict[str, Any] | None = None


def merged_reports(reports: Iterable[Report]) -> list[Report]:
    """One report for each target, even if several tasks have written its rows.

    :param reports: the reports of all tasks.
    """
    found: dict[int, Report] = {}
    for each in reports:
        before = found.get(each.target, Report(each.target, 0))
        found[each.target] = Report(
            each.target,
            before.rows_in + each.rows_in,
            (*before.write_stats, *each.write_stats),
            before.error or each.error,
        )
    return list(found.values())


class FileGroupTask:
    """The work on one target of a plan.

    :param plan: the write's plan.
    :param number: number of the target.
    :param write_token: distinguishes this attempt's file from those of other attempts.
    """

    def __init__(self, plan: WritePlan, number: int, write_token: str) -> None:
        self._plan = plan
        self._semantics = plan.semantics
        self._number = number
        self._target = plan.targets[number]
        self._write_token = write_token
        self._rows_in = 0
        self._next_row = 0
        self._new_file: BaseFileWriter | None = None
        self._next_file_id: str | None = self._target.file_id
        self._stats: list[WriteStat] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> Report:
        """Write the target's rows.

        :param batches: the rows; with the column :data:`ARRIVAL` where keys are looked up.
        :return: the report; it contains an error of this package if there was one.
        """
        try:
            tables = gathered(batches)
            first = next(tables, None)
            if first is not None:  # a task without rows writes no file
                self._check_wanted()
                self._write_all(_chain(first, tables))
                self._check_wanted()
        except TableServiceError as error:
            return Report(self._number, self._rows_in, error=to_dict(error))
        return Report(self._number, self._rows_in, tuple(self._stats))

    def _check_wanted(self) -> None:
        check_wanted(self._plan.storage, self._plan.instant, [stat.path for stat in self._stats])

    def _write_all(self, tables: Iterator[pa.Table]) -> None:
        plan, target = self._plan, self._target
        write_partition_metadata(plan.storage, target.partition_path, plan.instant)
        if target.appends:
            self._append(self._collect(tables))
        elif plan.looks_up_keys:
            self._merge(self._collect(tables))
        elif target.base_file is not None:
            self._add_to_file_group(tables)
        else:
            self._fill_new_file_groups(tables)

    # --- rows whose keys matter ---------------------------------------------------------

    def _collect(self, tables: Iterable[pa.Table]) -> Batch:
        gathered: list[pa.Table] = []
        count, limit = 0, _ROWS_BEFORE_COMPACTION
        for table in tables:
            self._rows_in += table.num_rows
            gathered.append(table)
            count += table.num_rows
            # Versions that keep values of each other are merged in the order of their arrival.
            if count >= limit and not self._semantics.keeps_values:
                # Only the latest version of each key stays in memory, however often keys repeat.
                gathered = [self._latest(pa.concat_tables(gathered)).rows]
                count = gathered[0].num_rows
                limit = max(_ROWS_BEFORE_COMPACTION, 2 * count)
        return self._latest(pa.concat_tables(gathered))

    def _latest(self, rows: pa.Table) -> Batch:
        rows = rows.combine_chunks()
        fields = self._semantics.ordering_fields
        if not set(fields) <= set(rows.column_names):
            fields = ()  # a delete by keys only
        ordering = tuple(rows[name].combine_chunks() for name in fields)
        deletes = np.ones(rows.num_rows, np.bool_) if self._plan.deletes else self._semantics.deletions(rows)
        batch = Batch(rows, record_keys(rows, self._plan.config), ordering, deletes)
        return latest_versions(batch, rows[ARRIVAL].combine_chunks(), self._semantics)

    def _merge(self, batch: Batch) -> None:
        rows = batch.rows.drop_columns([ARRIVAL])
        if self._semantics.keeps_values and not self._plan.deletes:
            rows = conform(
                rows, self._plan.schema.columns
            )  # a column that the rows lack keeps the older value
        merge = Merge(replace(batch, rows=rows), self._semantics)
        with self._stored() as stored, self._open(self._target.file_id, stored) as writer:
            for old in self._row_groups(stored):
                kept = merge.surviving(old)
                if kept.num_rows:
                    writer.write_preserved(kept)
            inserts = updates = 0
            for brought, found in merge.written():
                writer.write(brought.rows, brought.keys, found)
                updates += int(found.sum())
                inserts += int((~found).sum())
            if not inserts and not updates and not merge.deleted:
                writer.abort()  # the new slice would have the same rows
                return
            self._finish(writer, inserts=inserts, updates=updates, deletes=merge.deleted)

    def _append(self, batch: Batch) -> None:
        """Write the incoming versions into a log file.

        If a record comes back that a log file has deleted, the task rewrites the file slice instead.
        Otherwise a compaction that was planned before could leave the key in no base file, so that no look-up
        finds it. Also, the deleted row may have a larger ordering value. Under non-blocking concurrency the
        task still writes a log file, because other writers may append too, and the hash of the key finds the
        record.
        """
        if not self._target.merges_in_any_order and self._brings_back(batch):
            self._merge(batch)
            return
        plan, deletes = self._plan, batch.deletions
        gone, stays = batch.filter(deletes), batch.filter(~deletes)
        names = self._semantics.ordering_fields if gone.ordering else ()
        ordering = wrapped_ordering_values(names, gone.ordering) if len(gone) else None
        keys, path = gone.keys.to_pylist(), self._target.partition_path
        if ordering is None:
            deleted = [DeletedRecord(key, path) for key in keys]
        else:
            deleted = [DeletedRecord(key, path, value) for key, value in zip(keys, ordering, strict=True)]
        log_file = LogFileWriter(
            plan.storage,
            path,
            self._target.file_id,
            self._write_token,
            plan.instant,
            plan.schema.columns,
            plan.config.name,
            plan.data_block,
        ).write(stays.rows.drop_columns([ARRIVAL]), stays.keys, deleted)
        self._stats.append(
            WriteStat.of_log_file(
                self._target.file_id,
                log_file.path,
                plan.instant,
                rows=log_file.rows,
                deletes=log_file.deletes,
                size=log_file.size,
            )
        )

    def _brings_back(self, batch: Batch) -> bool:
        reader, file_slice = self._slice_reader(), self._file_slice()
        if not file_slice.log_paths or batch.deletions.all() or not reader.may_delete(file_slice):
            return False
        there = pc.is_in(batch.keys, value_set=reader.keys(file_slice).combine_chunks())
        return bool((~np.array(there) & ~batch.deletions).any())

    # --- rows that are only added -------------------------------------------------------

    def _add_to_file_group(self, tables: Iterable[pa.Table]) -> None:
        with self._stored() as stored, self._open(self._target.file_id, stored) as writer:
            if stored is None:
                raise ValueError("a new file group has no rows to keep")
            for old in stored.row_groups():
                writer.write_preserved(old)
            kept = writer.rows
            for table in tables:
                self._write(writer, table)
            self._finish(writer, inserts=writer.rows - kept)

    def _fill_new_file_groups(self, tables: Iterable[pa.Table]) -> None:
        try:
            for table in tables:
                self.add(table)
            self.end()
        except BaseException:
            self.abort()
            raise

    def add(self, rows: pa.Table) -> None:
        """Add rows to the target's new file group, and begin another one when its file is full.

        :param rows: rows that are only added.
        """
        if self._new_file is None:
            self._new_file = self._open(self._next_file_id or new_file_id())
            self._next_file_id = None
        self._write(self._new_file, rows)
        # The plan estimates the size of rows; the file has the real one.
        if self._new_file.size >= self._plan.target_file_size:
            self.end()

    def end(self) -> Report:
        """Finish the file that :meth:`add` has begun.

        :return: the report of all files written.
        """
        if self._new_file is not None and self._new_file.rows:
            self._finish(self._new_file, inserts=self._new_file.rows)
        self._new_file = None
        return Report(self._number, self._rows_in, tuple(self._stats))

    def abort(self) -> None:
        """Delete the file that :meth:`add` has begun."""
        if self._new_file is not None:
            self._new_file.abort()

    def _write(self, writer: BaseFileWriter, rows: pa.Table) -> None:
        self._rows_in += rows.num_rows
        if (deletes := self._semantics.deletions(rows)) is not None and deletes.any():
            rows = rows.filter(pa.array(~deletes))  # there is no record to delete
        config = self._plan.config
        keys = rows.select(config.record_key_fields).combine_chunks()  # a copy of all columns takes longer
        writer.write(rows, None if config.generates_keys else record_keys(keys, config))

    # --- files --------------------------------------------------------------------------

    def _stored(self) -> AbstractContextManager[BaseFileReader | None]:
        base_file = self._target.base_file
        if base_file is None:
            return nullcontext()
        schema, semantics = self._plan.schema, self._semantics
        # Values that a merge compares, or takes over into other rows, must not be dictionaries.
        ordering = {field.type for field in schema.columns if field.name in semantics.ordering_fields}
        are_moved = not semantics.keeps_values and pa.string() not in ordering
        return BaseFileReader(self._plan.storage, base_file.path, schema, dictionaries=are_moved)

    def _row_groups(self, stored: BaseFileReader | None) -> Iterator[pa.Table]:
        """The rows of the present slice, with Hudi's columns."""
        if self._target.log_paths:
            columns = with_meta_columns(self._plan.schema.columns).names
            yield from self._slice_reader().rows(self._file_slice(), columns)
        elif stored is not None:
            yield from stored.row_groups()

    def _slice_reader(self) -> SliceReader:
        plan = self._plan
        memory = merge_memory(plan.config)
        return SliceReader(
            plan.storage, plan.config, plan.schema, self._semantics, EVERY_INSTANT, memory=memory
        )

    def _file_slice(self) -> FileSlice:
        target, base_file = self._target, self._target.base_file
        instant, path = (base_file.instant, base_file.path) if base_file else ("", None)
        return FileSlice(target.partition_path, target.file_id, instant, path, target.log_paths)

    def _open(self, file_id: str, stored: BaseFileReader | None = None) -> BaseFileWriter:
        plan = self._plan
        return BaseFileWriter(
            plan.storage,
            partition_path=self._target.partition_path,
            file_id=file_id,
            write_token=self._write_token,
            instant=plan.instant,
            schema=plan.schema.columns,
            table_name=plan.config.name,
            first_row=self._next_row,
            preserved_bloom=stored.footer.bloom if stored and not self._target.log_paths else None,
            marker=MarkerType.CREATE if stored is None or self._target.replaced else MarkerType.MERGE,
        )

    def _finish(self, writer: BaseFileWriter, *, inserts: int, updates: int = 0, deletes: int = 0) -> None:
        written = writer.close()
        self._next_row = writer.next_row
        self._stats.append(_write_stat(self._target, written, inserts, updates, deletes))


def _write_stat(target: Target, written: WrittenFile, inserts: int, updates: int, deletes: int) -> WriteStat:
    base_file = target.base_file
    return WriteStat(
        file_id=written.path.rpartition("/")[2].partition("_")[0],
        partition_path=target.partition_path,
        path=written.path,
        # A slice has a predecessor in its own file group only.
        prev_commit=base_file.instant if base_file and not target.replaced else "null",
        num_writes=written.rows,
        num_inserts=inserts,
        num_update_writes=updates,
        num_deletes=deletes,
        total_write_bytes=written.size,
        file_size=written.size,
        prev_base_file=base_file.path.rpartition("/")[2] if base_file else None,
    )


def gathered(
    batches: Iterable[pa.RecordBatch], *, rows: int = ROWS_A_WRITE, most_bytes: float = math.inf
) -> Iterator[pa.Table]:
    """Batches joined into larger ones: each write has a fixed cost, and Spark's batches are small.

    :param batches: batches of rows.
    :param rows: number of rows at which a larger batch ends.
    :param most_bytes: bytes at which a larger batch ends, even if it has few rows.
    """
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= rows or size >= most_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _chain(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest

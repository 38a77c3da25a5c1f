"""The scan of a source: its files, divided among tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.ingestion.columns import BatchColumns, as_coarse_as
from airflow_provider.ingestion.file_groups import ARRIVAL, gathered
from airflow_provider.ingestion.files import SourceFile, SourceFiles, find_files, open_parquet
from airflow_provider.ingestion.ingest_job import IngestJob, Source
from airflow_provider.spark.packed_rows import BYTES_A_PACK
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import conform

_MIB = 1024 * 1024
_MOST_BYTES_A_TASK = 128 * _MIB  # as Spark's spark.sql.files.maxPartitionBytes
_OPENING = 4 * _MIB  # a file costs as much as so many bytes of it; as spark.sql.files.openCostInBytes

_DISK = "file"
_ROWS_A_BATCH = 16_384


class FileRange(NamedTuple):
    """A range of a file's bytes; it stands for the row groups that begin in it.

    :param file: the file.
    :param begin: the first byte.
    :param end: the byte after the last one.
    """

    file: SourceFile
    begin: int
    end: int

    def row_groups(self, metadata: pq.FileMetaData) -> list[int]:
        """The numbers of the row groups.

        :param metadata: the file's metadata.
        """
        return [
            number
            for number in range(metadata.num_row_groups)
            if self.begin <= _begin(metadata.row_group(number)) < self.end
        ]


def _begin(row_group: pq.RowGroupMetaData) -> int:
    if not row_group.num_columns:
        return 0
    first = row_group.column(0)
    return int(first.dictionary_page_offset or first.data_page_offset)


@dataclass(frozen=True)
class SourceScan:
    """The reading of a source by tasks.

    :param files: the files.
    :param tasks: what each task reads.
    :param schema: the columns of each file, as Spark has them.
    :param came: these columns, with milliseconds where the table has milliseconds.
    :param rows: the columns to write, with the table's types.
    :param arrival: whether the rows get the column :data:`ARRIVAL`.
    """

    files: SourceFiles
    tasks: tuple[tuple[FileRange, ...], ...]
    schema: pa.Schema
    came: pa.Schema
    rows: pa.Schema
    arrival: bool = False

    ROW_BITS: ClassVar[int] = 33
    """The number of a row is its number within its task, and above these bits the task's; as in Spark."""

    @classmethod
    def of(
        cls, job: IngestJob, table: HudiTable, columns: pa.Schema, *, parallelism: int, sees_disk: bool
    ) -> SourceScan | None:
        """The scan of a job's source; None if Spark has to read the source.

        :param job: the ingestion.
        :param table: its table. The source has to be on the same kind of storage, which each task reaches.
        :param columns: the table's columns.
        :param parallelism: number of tasks that run at the same time.
        :param sees_disk: whether the tasks see this machine's disk. Otherwise they may see other files at the
            same path, and Spark has to find the source's files itself.
        """
        schemes = {_scheme(path) for path in job.source.paths}
        if not _is_plain(job.source) or schemes != {_scheme(table.storage.root)}:
            return None
        if _DISK in schemes and not sees_disk:
            return None
        # Spark finds out itself what is wrong with the source, or reads it after all.
        with suppress(InvalidInputError):
            found = find_files(job.source, job.storage_options)
            with open_parquet(found.filesystem, found.files[0]) as (_, schema):
                came = as_coarse_as(schema, columns)
            return cls(found, tuple(ranges_of_tasks(found.files, parallelism)), schema, came, came)
        return None

    def fitted(self, columns: BatchColumns, *, arrival: bool) -> SourceScan:
        """The scan of the columns to write.

        :param columns: the source's columns beside the table's.
        :param arrival: whether later steps need to know which of two rows came last.
        """
        return replace(self, rows=columns.rows, arrival=arrival)

    def batches(
        self, task: int, names: Collection[str] | None = None, *, numbered: bool | None = None
    ) -> Iterator[pa.Table]:
        """Read what belongs to a task, in the order of the files.

        :param task: number of the task.
        :param names: the columns to read, at least one; all when None.
        :param numbered: whether the rows get the column :data:`ARRIVAL`; by default as the scan says.
        :return: rows with the table's types, as many at a time as a task writes at a time.
        :raises InvalidInputError: when a file cannot be read, or a value does not fit into the table.
        :raises SparkNeededError: when Spark would read a file in another way.
        """
        rows = pa.schema([field for field in self.rows if names is None or field.name in names])
        came = pa.schema([self.came.field(name) for name in rows.names])
        number = task << self.ROW_BITS
        for table in self._read(task, rows.names):
            fitted = conform(conform(table, came), rows)
            if self.arrival if numbered is None else numbered:
                numbers = np.arange(number, number + fitted.num_rows)
                fitted = fitted.append_column(ARRIVAL, pa.array(numbers))
                number += fitted.num_rows
            yield fitted

    def _read(self, task: int, names: list[str]) -> Iterator[pa.Table]:
        columns = pa.schema([self.schema.field(name) for name in names])
        for piece in self.tasks[task]:
            with open_parquet(self.files.filesystem, piece.file, like=self.schema) as (parquet, _):
                groups = piece.row_groups(parquet.metadata)
                batches = parquet.iter_batches(_ROWS_A_BATCH, groups, names, use_threads=False)
                for table in gathered(batches, most_bytes=BYTES_A_PACK):
                    yield table.select(names).cast(columns)


def _is_plain(source: Source) -> bool:
    is_parquet = source.source_format.lower() == "parquet"
    return bool(source.paths) and is_parquet and not source.source_options and source.window is None


def _scheme(path: str) -> str:
    return path.partition("://")[0].lower().replace("s3a", "s3") if "://" in path else _DISK


def ranges_of_tasks(files: Iterable[SourceFile], parallelism: int) -> Iterator[tuple[FileRange, ...]]:
    """The ranges that each task reads, by the rule of Spark's ``FilePartition``, in the order of the files.

    :param files: the files.
    :param parallelism: number of tasks that run at the same time.
    """
    files = list(files)
    total = sum(file.size + _OPENING for file in files)
    most = min(_MOST_BYTES_A_TASK, max(_OPENING, -(-total // parallelism)))
    ranges: list[FileRange] = []
    taken = 0
    for file in files:
        for begin in range(0, max(file.size, 1), most):
            end = min(begin + most, max(file.size, 1))
            if ranges and taken + end - begin > most:
                yield tuple(ranges)
                ranges, taken = [], 0
            ranges.append(FileRange(file, begin, end))
            taken += end - begin + _OPENING
    yield tuple(ranges)

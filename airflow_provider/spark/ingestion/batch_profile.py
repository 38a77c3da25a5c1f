"""The check of the incoming rows before anything is written: counts by partition, bad keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import (
    EmptySourceError,
    IncompatibleSchemaError,
    InvalidRecordKeyError,
)
from airflow_provider.ingestion.columns import BatchColumns
from airflow_provider.ingestion.ingest_job import IngestJob
from airflow_provider.spark.ingestion.scan import SourceScan, count_partitions
from airflow_provider.spark.ingestion.source import is_text, spark_errors, unreadable
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import partition_paths, record_keys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TASK, _FILES = "_task", "_files"
_ROWS, _BLANK, _AMBIGUOUS, _CHECKSUM, _NULLS = "_rows", "_blank", "_ambiguous", "_checksum", "_nulls_"


@dataclass(frozen=True)
class Spread:
    """How rows are spread over the tasks that read them.

    :param tasks: number of tasks.
    :param files: number of files if each task writes the rows that it has read: one file for each partition
        of these rows.
    """

    tasks: int
    files: int

    def suffices(self, targets: int, cores: int) -> bool:
        """Whether each task may write the rows that it has read, so that Spark moves no row.

        Moving the rows takes a third of the time of a bulk insert. That pays off if there would otherwise be
        more files: as long as a partition has one file, an upsert need not look for its keys. After the move
        there are also as many writing tasks as files, even if few tasks have read the rows.

        :param targets: number of files that the rows are to fill.
        :param cores: number of tasks that run at the same time.
        """
        return self.files <= targets and self.tasks >= min(targets, cores)


@dataclass(frozen=True)
class BatchProfile:
    """The facts about the incoming rows that a plan needs.

    :param values: distinct partition values, one row each; no column for a table without
        partitions.
    :param paths: the partition path of every row of ``values``. Several values can share a path,
        as null and the empty text do.
    :param rows: number of rows by partition path.
    :param spread: how the rows are spread over the tasks that read them; None if Spark has to move the rows
        by their keys in any case.
    """

    values: pa.Table
    paths: tuple[str, ...]
    rows: Mapping[str, int]
    spread: Spread | None = None

    @classmethod
    def of(
        cls, table: HudiTable, values: pa.Table, counts: Iterable[int], spread: Spread | None
    ) -> BatchProfile:
        """The profile of rows that have been counted.

        :param table: the table.
        :param values: distinct partition values, with the table's types.
        :param counts: the number of rows with each of them.
        :param spread: see :class:`BatchProfile`.
        :raises InvalidPartitionValueError: when a value cannot name a folder.
        """
        paths = partition_paths(values, table.config).to_pylist()
        rows: dict[str, int] = {}
        for path, count in zip(paths, counts, strict=True):
            rows[path] = rows.get(path, 0) + count
        return cls(values, tuple(paths), rows, spread)


def profile_batch(job: IngestJob, frame: DataFrame, table: HudiTable, columns: BatchColumns) -> BatchProfile:
    """Count the rows of every partition, and refuse rows that cannot be written.

    Only counts reach the driver.

    :param job: the ingestion.
    :param frame: rows with the table's types.
    :param table: the table.
    :param columns: the rows' columns beside the table's.
    :raises EmptySourceError: when there is no row.
    :raises UnreadableSourceError: when Spark fails to read the rows.
    :raises InvalidRecordKeyError: when a key is null or empty, or could be mistaken for another key.
    :raises InvalidPartitionValueError: when a value cannot name a folder.
    :raises IncompatibleSchemaError: when a column that must not be null contains null.
    """
    found = _aggregated(job, frame, table, columns)
    total = pc.sum(found[_ROWS]).as_py() or 0
    if not total:
        raise _is_empty(job)
    _refuse_keys(frame, table, found)
    for name in found.schema.names:
        if name.startswith(_NULLS) and (nulls := pc.sum(found[name]).as_py()):
            column = name.removeprefix(_NULLS)
            raise IncompatibleSchemaError(
                f"column {column!r} must not be null in table {table.location}, the source has {nulls} rows "
                "where it is; filter or fill them",
                column=column,
                nulls=nulls,
            )
    values = found.select(list(table.config.partition_fields))
    spread = None
    if _FILES in found.schema.names:
        spread = Spread(1 + pc.max(found[_TASK]).as_py(), pc.sum(found[_FILES]).as_py())
    return BatchProfile.of(table, values, found[_ROWS].to_pylist(), spread)


def profile_scan(spark: SparkSession, job: IngestJob, scan: SourceScan, table: HudiTable) -> BatchProfile:
    """As :func:`profile_batch`, of rows that tasks read with pyarrow.

    :param spark: the session.
    :param job: the ingestion.
    :param scan: the rows, with the table's types.
    :param table: the table.
    :raises SparkNeededError: when Spark would read a file in another way.
    """
    values, counts, by_task = count_partitions(spark, scan, table.config)
    if not counts:
        raise _is_empty(job)
    spread = None if job.kind_on(table).gathers_keys else Spread(len(by_task), sum(by_task))
    return BatchProfile.of(table, values, counts, spread)


def _is_empty(job: IngestJob) -> EmptySourceError:
    return EmptySourceError(
        f"source {job.source} holds no row; nothing was written", source=list(job.source.paths)
    )


def _aggregated(job: IngestJob, frame: DataFrame, table: HudiTable, columns: BatchColumns) -> pa.Table:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    counts = [F.count(F.lit(1)).alias(_ROWS)]
    if not table.config.generates_keys:
        blank, ambiguous = _key_conditions(frame, table)
        counts.append(F.count_if(blank).alias(_BLANK))
        if ambiguous is not None:
            counts.append(F.count_if(ambiguous).alias(_AMBIGUOUS))
    for field in frame.schema:
        if field.nullable and not columns.rows.field(field.name).nullable:
            counts.append(F.count_if(F.col(field.name).isNull()).alias(f"{_NULLS}{field.name}"))
    if is_text(job):
        # This makes Spark parse every value of every column: a value that is not of its column's type must be
        # found before anything is written. (A map has no hash.)
        texts = [F.to_json(F.struct(field.name)) for field in frame.schema]
        counts.append(F.max(F.xxhash64(*texts)).alias(_CHECKSUM))
    try:
        partitions = [F.col(name) for name in table.config.partition_fields]
        if not job.kind_on(table).gathers_keys:
            # Each task first adds up its own rows in any case: the second step costs one more exchange of
            # these sums.
            by_task = frame.withColumn(_TASK, F.spark_partition_id()).groupBy(*partitions, _TASK)
            sums = by_task.agg(*counts)
            kept = (*table.config.partition_fields, _TASK)
            totals = [
                (F.max if name == _CHECKSUM else F.sum)(name).alias(name)
                for name in sums.columns
                if name not in kept
            ]
            spread = (F.max(_TASK).alias(_TASK), F.count(_TASK).alias(_FILES))
            return sums.groupBy(*partitions).agg(*spread, *totals).toArrow()
        return frame.groupBy(*partitions).agg(*counts).toArrow()
    except spark_errors() as error:
        raise unreadable(job, error) from error


def _key_conditions(frame: DataFrame, table: HudiTable) -> tuple[Column, Column | None]:
    """Rows whose key is blank, and rows whose key may be ambiguous, in Spark's terms.

    The rules are those of :func:`airflow_provider.table.keys.record_keys`.
    """
    from functools import reduce

    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    names = table.config.record_key_fields
    texts = {name for name in names if frame.schema[name].dataType.typeName() == "string"}
    blanks = [
        F.col(name).isNull() | (F.col(name) == "") if name in texts else F.col(name).isNull()
        for name in names
    ]
    blank = reduce(lambda one, other: one & other, blanks)
    if not table.config.prefixed_record_key or not texts:
        return blank, None
    suspicious = []
    for name, following in zip(names, [*names[1:], None], strict=True):
        if name in texts:
            suspicious.append(F.col(name).isin("__null__", "__empty__"))
            if following:
                suspicious.append(F.col(name).contains(f",{following}:"))
    return blank, reduce(lambda one, other: one | other, suspicious)


def _refuse_keys(frame: DataFrame, table: HudiTable, found: pa.Table) -> None:
    names = table.config.record_key_fields
    if not names:
        return
    if count := pc.sum(found[_BLANK]).as_py():
        raise InvalidRecordKeyError(
            f"record key {', '.join(names)} of table {table.location} is null or empty in {count} rows "
            "of the source; filter them or choose another key",
            columns=list(names),
            rows=count,
        )
    if _AMBIGUOUS in found.schema.names and pc.sum(found[_AMBIGUOUS]).as_py():
        _, ambiguous = _key_conditions(frame, table)
        if ambiguous is not None:
            record_keys(frame.select(*names).where(ambiguous).limit(1).toArrow(), table.config)  # raises

"""What a write must know of a source's rows before it plans: counts by partition, bad keys, buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_provider.exceptions import TableServiceError
from airflow_provider.spark.ingestion.scan.routes import buckets_of_rows
from airflow_provider.spark.ingestion.scan.source_scan import SourceScan
from airflow_provider.spark.numbered_tasks import numbered_tasks, numbers_of
from airflow_provider.spark.packed_rows import PACKED, pack, pack_error, unpacked
from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.keys import location_columns, record_keys
from airflow_provider.table.properties import TableConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COUNT = pa.field("_count", pa.int64())
_PATH, _BUCKET = "_path", "_bucket"
_BUCKETS = pa.schema({_PATH: pa.string(), _BUCKET: pa.int64()})


def count_partitions(
    spark: SparkSession, scan: SourceScan, config: TableConfig
) -> tuple[pa.Table, list[int], list[int]]:
    """Count the rows of each partition, and refuse rows that cannot be written.

    :param spark: the session.
    :param scan: the scan.
    :param config: the table's configuration.
    :return: distinct partition values, the number of rows with each of them, and the number of partition
        values that each task has read, without tasks that have read none.
    :raises InvalidRecordKeyError: when a key is null or empty, or could be mistaken for another key.
    :raises IncompatibleSchemaError: when a column that must not be null contains null.
    :raises UnreadableSourceError: when a file cannot be read.
    :raises SparkNeededError: when Spark would read a file in another way.
    """
    fields = list(config.partition_fields)
    required = [field.name for field in scan.rows if not field.nullable]
    # Without a column to check, any column counts the rows.
    checked = {*fields, *config.record_key_fields, *required} or {scan.rows.names[0]}
    with_counts = pa.schema([*(scan.rows.field(name).with_nullable(True) for name in fields), _COUNT])

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (task,) = numbers_of(batches)
        try:
            sums = _sums(
                (_counted(rows, config) for rows in scan.batches(task, checked, numbered=False)), with_counts
            )
            yield pack([(task, sums)])
        except TableServiceError as error:
            yield pack_error(task, error)

    # A task packs one batch: a row for each of its partition values.
    packed = numbered_tasks(spark, len(scan.tasks)).mapInArrow(run, PACKED).toArrow()
    counts = [pa.Table.from_batches([batch]) for batch in unpacked(packed.to_batches()) if batch.num_rows]
    sums = _sums(counts, with_counts)
    return sums.select(fields), sums[_COUNT.name].to_pylist(), [each.num_rows for each in counts]


def find_buckets(
    spark: SparkSession, scan: SourceScan, config: TableConfig, index: BucketIndex
) -> dict[str, list[int]]:
    """The buckets that the rows belong to, by partition path.

    :param spark: the session.
    :param scan: the scan.
    :param config: the table's configuration.
    :param index: the table's bucket index.
    """
    names = location_columns(config)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (task,) = numbers_of(batches)
        found: set[tuple[str, int]] = set()
        try:
            for table in scan.batches(task, names, numbered=False):
                paths, codes = buckets_of_rows(table, config, index)
                places = (divmod(code, index.buckets) for code in np.unique(codes).tolist())
                found.update((paths[place], bucket) for place, bucket in places)
            rows = [{_PATH: path, _BUCKET: bucket} for path, bucket in sorted(found)]
            yield pack([(task, pa.Table.from_pylist(rows, _BUCKETS))])
        except TableServiceError as error:
            yield pack_error(task, error)

    packed = numbered_tasks(spark, len(scan.tasks)).mapInArrow(run, PACKED).toArrow()
    buckets: dict[str, set[int]] = {}
    for batch in unpacked(packed.to_batches()):
        for row in batch.to_pylist():
            buckets.setdefault(row[_PATH], set()).add(row[_BUCKET])
    return {path: sorted(numbers) for path, numbers in buckets.items()}


def _counted(rows: pa.Table, config: TableConfig) -> pa.Table:
    if not config.generates_keys:
        record_keys(rows.select(config.record_key_fields).combine_chunks(), config)
    ones = pa.array(np.ones(rows.num_rows, np.int64))
    fields = config.partition_fields
    return pa.table([*(rows[name] for name in fields), ones], [*fields, _COUNT.name])


def _sums(tables: Iterable[pa.Table], with_counts: pa.Schema) -> pa.Table:
    """Add up the counts of equal partition values; one batch."""
    *fields, count = with_counts.names
    found = [_summed(table.cast(with_counts), fields, count) for table in tables if table.num_rows]
    if not found:
        return with_counts.empty_table()
    return _summed(pa.concat_tables(found), fields, count).cast(with_counts).combine_chunks()


def _summed(rows: pa.Table, fields: list[str], count: str) -> pa.Table:
    return rows.group_by(fields).aggregate([(count, "sum")]).rename_columns([*fields, count])

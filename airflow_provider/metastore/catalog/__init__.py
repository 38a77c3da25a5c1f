"""Databases, tables, partitions, functions and column statistics, as Hive's catalog has them.

Each module holds functions of one database connection; the caller's database transaction contains them. A
function that changes the catalog appends its notification event in the same transaction. Begin with
:mod:`~airflow_provider.metastore.catalog.catalog`.
"""

from airflow_provider.metastore.catalog.catalog import get_table, object_name
from airflow_provider.metastore.catalog.column_statistics import ColumnStatistics
from airflow_provider.metastore.catalog.hive_json import (
    decode_partition,
    decode_table,
    decode_write_id,
    encode_table,
)
from airflow_provider.metastore.catalog.partition_filter import partition_filter
from airflow_provider.metastore.catalog.partitions import get_table_and_partitions, partition_key

__all__ = [
    "ColumnStatistics",
    "decode_partition",
    "decode_table",
    "decode_write_id",
    "encode_table",
    "get_table",
    "get_table_and_partitions",
    "object_name",
    "partition_filter",
    "partition_key",
]

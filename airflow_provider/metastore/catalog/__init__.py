"""Databases, tables, partitions, functions and column statistics, as Hive's catalog has them.

Each module holds functions of one database connection; the caller's database transaction contains them. A
function that changes the catalog appends its notification event in the same transaction. Begin with
:mod:`~airflow_provider.metastore.catalog.catalog`.
"""

from airflow_provider.metastore.catalog.catalog import alter_table, get_table, object_name
from airflow_provider.metastore.catalog.column_statistics import ColumnStatistics
from airflow_provider.metastore.catalog.constraints import Constraint
from airflow_provider.metastore.catalog.partitions import (
    Choose,
    add_partitions,
    alter_partition,
    drop_partitions,
    get_table_and_chosen,
    get_table_and_partitions,
    no_such_partition,
    replace_columns,
)
from airflow_provider.metastore.catalog.replication_target import (
    as_replicator,
    check_writable,
    ending_transaction,
    is_replicator,
)

__all__ = [
    "Choose",
    "ColumnStatistics",
    "Constraint",
    "add_partitions",
    "alter_partition",
    "alter_table",
    "as_replicator",
    "check_writable",
    "drop_partitions",
    "ending_transaction",
    "get_table",
    "get_table_and_chosen",
    "get_table_and_partitions",
    "is_replicator",
    "no_such_partition",
    "object_name",
    "replace_columns",
]

"""Reading rows without Spark: snapshots, incremental reads, and the files that a query opens."""

from airflow_provider.table.reading.explanation import explain
from airflow_provider.table.reading.incremental import (
    COMMIT_TIME,
    Increment,
    Order,
    increment,
    movable_checkpoint,
)
from airflow_provider.table.reading.log_merge import EVERY_INSTANT, SliceReader
from airflow_provider.table.reading.log_versions import merge_memory
from airflow_provider.table.reading.row_ids import ROW_ID_COLUMNS, RowIdMaker
from airflow_provider.table.reading.slices import file_slices, slices_of
from airflow_provider.table.reading.snapshots import read_optimized, select_slices, snapshot

__all__ = [
    "COMMIT_TIME",
    "EVERY_INSTANT",
    "ROW_ID_COLUMNS",
    "Increment",
    "Order",
    "RowIdMaker",
    "SliceReader",
    "explain",
    "file_slices",
    "increment",
    "merge_memory",
    "movable_checkpoint",
    "read_optimized",
    "select_slices",
    "slices_of",
    "snapshot",
]

"""Indexes in a commit: which ones a table has, what a write logs to them, and how their state changes."""

from airflow_provider.concurrency.indexes.changes import (
    COLUMNS,
    DEFINITIONS,
    DROP_INDEX,
    INDEX,
    publish_index_change,
    settle_index_config,
)
from airflow_provider.concurrency.indexes.first_base_files import (
    BaseFiles,
    are_there,
    initial_base_files,
    stage_base_files,
    staged_base_files,
)
from airflow_provider.concurrency.indexes.key_slices import LivingKeys, SnapshotSlices
from airflow_provider.concurrency.indexes.log_to_indexes import (
    StagedChange,
    change_of_completed,
    change_of_metadata,
    change_of_undoing,
    change_of_write,
    columns_of,
    current_indexes,
    drop_staged,
    publish_staged,
    staged_path,
    state_in_indexes,
    write_records,
)
from airflow_provider.concurrency.indexes.state import TableIndexes, table_indexes

__all__ = [
    "COLUMNS",
    "DEFINITIONS",
    "DROP_INDEX",
    "INDEX",
    "BaseFiles",
    "LivingKeys",
    "SnapshotSlices",
    "StagedChange",
    "TableIndexes",
    "are_there",
    "change_of_completed",
    "change_of_metadata",
    "change_of_undoing",
    "change_of_write",
    "columns_of",
    "current_indexes",
    "drop_staged",
    "initial_base_files",
    "publish_index_change",
    "publish_staged",
    "settle_index_config",
    "stage_base_files",
    "staged_base_files",
    "staged_path",
    "state_in_indexes",
    "table_indexes",
    "write_records",
]

"""The records of the indexes, computed from a table's base files.

Begin with ``changes``: it turns the files that a commit adds and removes into records, and is a pure
function of the files. ``statistics`` reads the footers of base files. ``partition_stats`` recomputes the
statistics of a partition where it is not enough to widen them.
"""

from airflow_provider.table.metadata_table.index_records.changes import (
    FileChanges,
    Records,
    record_keys,
    records_of,
)
from airflow_provider.table.metadata_table.index_records.partition_stats import (
    keys_to_recompute,
    recomputed_partition_stats,
)
from airflow_provider.table.metadata_table.index_records.statistics import indexed_columns, value_type

__all__ = [
    "FileChanges",
    "Records",
    "indexed_columns",
    "keys_to_recompute",
    "recomputed_partition_stats",
    "record_keys",
    "records_of",
    "value_type",
]

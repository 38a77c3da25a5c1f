"""Data skipping: which base files a query has to open, by partition, key, and column statistics.

Begin with ``selection``. A rule may skip a file only if the file cannot hold a row of the answer. If an index
does not answer, the file is not skipped.
"""

from airflow_provider.table.skipping.predicates import (
    COMPARISONS,
    Filter,
    Where,
    alternatives,
    expression,
    has_nan,
    literal,
    named_columns,
    parse_filter,
)
from airflow_provider.table.skipping.selection import (
    Selection,
    Step,
    groups_by_key,
    select_files,
    select_partitions,
    without_matches,
)

__all__ = [
    "COMPARISONS",
    "Filter",
    "Selection",
    "Step",
    "Where",
    "alternatives",
    "expression",
    "groups_by_key",
    "has_nan",
    "literal",
    "named_columns",
    "parse_filter",
    "select_files",
    "select_partitions",
    "without_matches",
]

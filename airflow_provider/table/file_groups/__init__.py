"""File groups and file slices: which of them a timeline, and a reader's write ids, show.

Begin with ``view``. ``visibility`` decides which commits a reader with a ``ValidWriteIdList`` sees.
``cleans`` decides whether a snapshot of the past is still complete. This room only reads.
"""

from airflow_provider.table.file_groups.cleans import (
    ORPHANED_INSTANTS,
    check_complete,
    cleaned_files,
    missing_file,
    planned_files,
)
from airflow_provider.table.file_groups.file_slice import FileSlice
from airflow_provider.table.file_groups.view import (
    BaseFile,
    FileSystemView,
    ShownInstants,
    looking_again,
)
from airflow_provider.table.file_groups.visibility import (
    COMPACTIONS,
    MERGES_IN_ANY_ORDER,
    Effect,
    ValidWriteIds,
    check_not_cleaned,
    effect_of,
    hidden_effects,
    invisible_commits,
    touches_partitions,
)
from airflow_provider.table.file_names import FileGroupId

__all__ = [
    "COMPACTIONS",
    "MERGES_IN_ANY_ORDER",
    "ORPHANED_INSTANTS",
    "BaseFile",
    "Effect",
    "FileGroupId",
    "FileSlice",
    "FileSystemView",
    "ShownInstants",
    "ValidWriteIds",
    "check_complete",
    "check_not_cleaned",
    "cleaned_files",
    "effect_of",
    "hidden_effects",
    "invisible_commits",
    "looking_again",
    "missing_file",
    "planned_files",
    "touches_partitions",
]

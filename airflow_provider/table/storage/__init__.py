"""Storage: every read, listing, conditional put and move that the engine makes.

Begin with ``storage``. The engine reaches files through :class:`Storage` only. Tests replace it to lose
answers or power. A new operation belongs here only if every storage can make it safe against concurrent
writers.
"""

from airflow_provider.table.storage.access import told_of_access
from airflow_provider.table.storage.byte_range import ByteRange
from airflow_provider.table.storage.copying import copy_file, move_folder
from airflow_provider.table.storage.durability import (
    DEFAULT_DURABILITY,
    DURABILITY,
    PUBLISHED_FOLDERS,
    Durability,
)
from airflow_provider.table.storage.full_storage import storage_full_errors, temporary_storage_full_errors
from airflow_provider.table.storage.local_files import FileStatus
from airflow_provider.table.storage.storage import CLOCK_PREFIX, Storage

__all__ = [
    "CLOCK_PREFIX",
    "DEFAULT_DURABILITY",
    "DURABILITY",
    "PUBLISHED_FOLDERS",
    "ByteRange",
    "Durability",
    "FileStatus",
    "Storage",
    "copy_file",
    "move_folder",
    "storage_full_errors",
    "temporary_storage_full_errors",
    "told_of_access",
]

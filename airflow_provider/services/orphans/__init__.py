"""Files that no timeline names: how to find them, and when it is safe to delete them.

``found_files`` lists files and compares them with the index ``files``. ``orphans`` finds dead instants. A
file is deleted only if the log or a timeline declares its instant dead.
"""

from airflow_provider.services.orphans.found_files import FilesLeft, Found, there_and_gone
from airflow_provider.services.orphans.orphans import (
    DAY,
    DeadInstant,
    End,
    bases_in_use,
    dead_on_timeline,
    delete_reverted_files,
)

__all__ = [
    "DAY",
    "DeadInstant",
    "End",
    "FilesLeft",
    "Found",
    "bases_in_use",
    "dead_on_timeline",
    "delete_reverted_files",
    "there_and_gone",
]

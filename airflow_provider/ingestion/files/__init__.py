"""Sources read by pyarrow, in this process: which files there are, and their rows as Spark has them.

The promise is that a source is the same table by pyarrow and by Spark. What Spark reads in another way is
refused here (:class:`~airflow_provider.exceptions.SparkNeededError`). Reading begins in ``ingest_files``.
"""

from airflow_provider.ingestion.files.found import SourceFile, SourceFiles, find_files
from airflow_provider.ingestion.files.ingest_files import (
    choose_engine_for,
    ingest_files,
    write_files,
)

__all__ = [
    "SourceFile",
    "SourceFiles",
    "choose_engine_for",
    "find_files",
    "ingest_files",
    "write_files",
]

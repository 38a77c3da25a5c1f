"""Sources that pyarrow reads, in this process: finding their files, and reading their rows as Spark does.

A source gives the same rows by pyarrow and by Spark. If Spark would read it in another way, this room refuses
it (:class:`~airflow_provider.exceptions.SparkNeededError`). Begin to read at ``ingest_files``.
"""

from airflow_provider.ingestion.files.found import SourceFile, SourceFiles, find_files
from airflow_provider.ingestion.files.ingest_files import (
    choose_engine_for,
    ingest_files,
    write_files,
)
from airflow_provider.ingestion.files.parquet import open_parquet

__all__ = [
    "SourceFile",
    "SourceFiles",
    "choose_engine_for",
    "find_files",
    "ingest_files",
    "open_parquet",
    "write_files",
]

"""Plain Parquet files of a source, which Spark's tasks read with pyarrow.

Spark's own reader makes rows of the files, moves the rows, and makes Arrow's columns of them for Python. That
takes most of the time of a bulk insert. A task that reads the files itself has Arrow's columns at once, and
Spark moves them as bytes. Both give the same rows, see :mod:`airflow_provider.ingestion.files`. Begin to read
at ``source_scan``.
"""

from airflow_provider.spark.ingestion.scan.partition_counts import count_partitions, find_buckets
from airflow_provider.spark.ingestion.scan.routes import BucketRoutes, Routes, SharedRoutes
from airflow_provider.spark.ingestion.scan.sent_rows import Rows, packed, scanned, sent_again
from airflow_provider.spark.ingestion.scan.source_scan import SourceScan
from airflow_provider.spark.ingestion.scan.tagged_rows import TaggedRows, tag_rows

__all__ = [
    "BucketRoutes",
    "Routes",
    "Rows",
    "SharedRoutes",
    "SourceScan",
    "TaggedRows",
    "count_partitions",
    "find_buckets",
    "packed",
    "scanned",
    "sent_again",
    "tag_rows",
]

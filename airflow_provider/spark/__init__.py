"""The PySpark jobs: ingestion, clustering, compaction, indexing and reading back, and their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.indexing import IndexJob
from airflow_provider.ingestion import IngestJob
from airflow_provider.lazy_imports import lazy_imports
from airflow_provider.services.clustering import ClusteringJob

if TYPE_CHECKING:
    from airflow_provider.spark.clustering import cluster
    from airflow_provider.spark.compaction import compact_on_spark
    from airflow_provider.spark.indexing import build_index
    from airflow_provider.spark.ingestion import backfill, ingest
    from airflow_provider.spark.read import read_incremental, read_snapshot
    from airflow_provider.spark.session import local_session

__all__ = [
    "ClusteringJob",
    "IndexJob",
    "IngestJob",
    "backfill",
    "build_index",
    "cluster",
    "compact_on_spark",
    "ingest",
    "local_session",
    "read_incremental",
    "read_snapshot",
]

# Lazy, because an operator names a job on a machine without PySpark.
__getattr__ = lazy_imports(__name__)

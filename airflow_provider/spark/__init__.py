"""The PySpark jobs: ingestion, clustering, reading back, and the sessions they run in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_provider.indexing.index_job import IndexJob
from airflow_provider.ingestion import IngestJob
from airflow_provider.services.clustering import ClusteringJob

if TYPE_CHECKING:
    from airflow_provider.spark.clustering import cluster
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
    "ingest",
    "local_session",
    "read_incremental",
    "read_snapshot",
]

_MODULES = {
    "backfill": "ingestion.history",
    "build_index": "indexing",
    "cluster": "clustering",
    "ingest": "ingestion",
    "local_session": "session",
    "read_incremental": "read",
    "read_snapshot": "read",
}


def __getattr__(name: str) -> Any:
    # PEP 562: an operator names a job without paying for PySpark.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

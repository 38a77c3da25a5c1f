"""Ingestion by Spark: reading the source, locating keys, and sending each row to its file group.

The driver plans in ``rows``; executors run :mod:`airflow_provider.ingestion.file_groups.file_group_task`.
"""

from airflow_provider.spark.ingestion.backfill_on_spark import backfill
from airflow_provider.spark.ingestion.ingestion import ingest
from airflow_provider.spark.ingestion.source import spark_schema

__all__ = ["backfill", "ingest", "spark_schema"]

"""TODO"""

from airflow_provider.spark.ingestion.history import backfill
from airflow_provider.spark.ingestion.ingestion import ingest
from airflow_provider.spark.ingestion.source import spark_schema

__all__ = ["backfill", "ingest", "spark_schema"]

"""A Hudi table on disk: configuration, timeline, file groups, base files."""

from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.read import snapshot

__all__ = ["HudiTable", "snapshot"]

"""A Hudi table on disk: configuration, timeline, file groups, base files."""

from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.incremental import Increment, Order, increment, movable_checkpoint
from airflow_provider.table.read import snapshot

__all__ = ["HudiTable", "Increment", "Order", "increment", "movable_checkpoint", "snapshot"]

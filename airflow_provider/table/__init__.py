"""A Hudi table on disk: configuration, timeline, file groups, base files."""

from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading import (
    Increment,
    Order,
    increment,
    movable_checkpoint,
    read_optimized,
    snapshot,
)

__all__ = ["HudiTable", "Increment", "Order", "increment", "movable_checkpoint", "read_optimized", "snapshot"]

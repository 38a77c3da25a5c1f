"""What of a commit the metastore is told."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider.metastore import PartitionSpec
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import partition_values


def partition_specs(table: HudiTable, paths: Sequence[str]) -> list[PartitionSpec]:
    """Partitions as the metastore registers them; none for a table without partitions.

    :param table: the table.
    :param paths: partition paths relative to the table.
    """
    if not table.config.partition_fields:
        return []
    return [PartitionSpec(partition_values(path, table.config), table.storage.url(path)) for path in paths]

"""What a commit did, read back from its metadata."""

from __future__ import annotations

from typing import Any

from airflow_provider.concurrency import CommitResult
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.metastore import PartitionSpec
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import partition_values


def summarise(table: HudiTable, commit: CommitResult) -> dict[str, Any]:
    """The same summary that the job would have given, had it lived to give it.

    :param table: the table.
    :param commit: a commit of it.
    :raises NoSuchInstantError: when the instant is no longer on the active timeline.
    """
    timeline = table.timeline()
    instant = timeline.find(commit.instant)
    if instant is None:
        raise NoSuchInstantError(
            f"table {table.location}: commit {commit.instant} is archived; what it did is no longer known",
            instant=commit.instant,
        )
    metadata = timeline.commit_metadata(instant)
    stats = metadata.write_stats
    return {
        "instant": commit.instant,
        "completion_time": commit.completion_time,
        "action": str(commit.action),
        "operation": metadata.operation_type.lower(),
        "rows_inserted": sum(stat.num_inserts for stat in stats),
        "rows_updated": sum(stat.num_update_writes for stat in stats),
        "rows_deleted": sum(stat.num_deletes for stat in stats),
        "files_written": len(stats),
        "bytes_written": sum(stat.total_write_bytes for stat in stats),
        "partitions": sorted({stat.partition_path for stat in stats}),
    }


def partition_specs(table: HudiTable, paths: list[str]) -> list[PartitionSpec]:
    """Partitions as the metastore registers them; none for a table without partitions.

    :param table: the table.
    :param paths: partition paths relative to the table.
    """
    if not table.config.partition_fields:
        return []
    return [PartitionSpec(partition_values(path, table.config), table.storage.url(path)) for path in paths]

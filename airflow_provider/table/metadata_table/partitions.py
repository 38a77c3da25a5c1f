"""The partitions of the metadata table: one for each index."""

from __future__ import annotations

from enum import StrEnum


class MetadataPartition(StrEnum):
    """The partitions that are written here (``MetadataPartitionType``)."""

    FILES = "files"
    COLUMN_STATS = "column_stats"
    BLOOM_FILTERS = "bloom_filters"
    RECORD_INDEX = "record_index"
    PARTITION_STATS = "partition_stats"

    @property
    def default_file_groups(self) -> int:
        """File groups that Hudi begins with where nobody says how many; of the record index, at least."""
        return _FILE_GROUPS[self]


_FILE_GROUPS = {
    MetadataPartition.FILES: 1,
    MetadataPartition.COLUMN_STATS: 2,
    MetadataPartition.BLOOM_FILTERS: 4,
    MetadataPartition.RECORD_INDEX: 10,
    MetadataPartition.PARTITION_STATS: 1,
}

_PREFIXES = {MetadataPartition.COLUMN_STATS: "col-stats"}


def file_id(partition: str, index: int) -> str:
    """The id of a file group of a metadata partition, for example ``col-stats-0001-0``.

    :param partition: the partition's name, also of one that only Hudi writes.
    :param index: which one, from 0 on.
    """
    prefix = _PREFIXES.get(partition) or partition.replace("_", "-")  # type: ignore[call-overload]
    return f"{prefix}-{index:04d}-0"

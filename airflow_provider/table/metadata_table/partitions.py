"""The partitions of the metadata table: one for each index."""

from __future__ import annotations

from enum import StrEnum


class MetadataPartition(StrEnum):
    """The partitions that this package writes (``MetadataPartitionType``)."""

    FILES = "files"
    COLUMN_STATS = "column_stats"
    BLOOM_FILTERS = "bloom_filters"
    RECORD_INDEX = "record_index"
    PARTITION_STATS = "partition_stats"

    @property
    def default_file_groups(self) -> int:
        """Hudi's default number of file groups; for the record index the least number."""
        return _FILE_GROUPS[self]


_FILE_GROUPS = {
    MetadataPartition.FILES: 1,
    MetadataPartition.COLUMN_STATS: 2,
    MetadataPartition.BLOOM_FILTERS: 4,
    MetadataPartition.RECORD_INDEX: 10,
    MetadataPartition.PARTITION_STATS: 1,
}

_GROWTH = 2.0
_RECORD_SIZE = 48
_FILE_GROUP_BYTES = 1024**3


def estimated_file_groups(
    records: int,
    *,
    least: int,
    most: int,
    growth: float = _GROWTH,
    record_size: int = _RECORD_SIZE,
    file_group_bytes: int = _FILE_GROUP_BYTES,
) -> int:
    """The number of file groups of a new partition (``HoodieTableMetadataUtil.estimateFileGroupCount``).

    The number never changes afterwards, because it decides which file group a key belongs to. The defaults
    are those of Hudi's record index.

    :param records: number of records now.
    :param least: lower limit (``hoodie.metadata.record.index.min.filegroup.count``, 10).
    :param most: upper limit (``hoodie.metadata.record.index.max.filegroup.count``, 10,000).
    :param growth: expected growth of the number of records, as a factor (``...record.index.growth.factor``).
    :param record_size: bytes of a record.
    :param file_group_bytes: target size of a file group in bytes (``...max.filegroup.size``).
    """
    fits = file_group_bytes // max(1, record_size)
    return min(most, max(least, 1, int(records * growth) // max(1, fits)))


_PREFIXES = {MetadataPartition.COLUMN_STATS: "col-stats"}


def file_group_id(partition: str, index: int) -> str:
    """The id of a file group of a metadata partition, for example ``col-stats-0001-0``.

    :param partition: the partition's name, also of a partition that only Hudi writes.
    :param index: number of the file group, from 0 on.
    """
    prefix = _PREFIXES.get(partition) or partition.replace("_", "-")  # type: ignore[call-overload]
    return f"{prefix}-{index:04d}-0"

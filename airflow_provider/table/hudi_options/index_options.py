"""The metadata table and its indexes: their options, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.table.hudi_options.kinds import BYTES, FLAG, NAMES, NUMBER, SECONDS, whole
from airflow_provider.table.hudi_options.option import Option, Topic
from airflow_provider.table.metadata_table import MetadataPartition

METADATA = "hoodie.metadata."
GLOBAL_RECORD_INDEX = "hoodie.metadata.global.record.level.index."

INDEX_OPTIONS = (
    Option(
        f"{METADATA}enable",
        Topic.INDEX,
        FLAG,
        "Whether the table has a metadata table, with its partition `files`.",
    ),
    Option(
        f"{METADATA}index.async",
        Topic.INDEX,
        FLAG,
        "Whether an indexing plan builds indexes beside the writers. Otherwise the next load builds them.",
        default=False,
    ),
    Option(
        f"{METADATA}index.column.stats.enable",
        Topic.INDEX,
        FLAG,
        "The index `column_stats`.",
        default=False,
    ),
    Option(
        f"{METADATA}index.column.stats.column.list",
        Topic.INDEX,
        NAMES,
        "The columns in `column_stats`.",
    ),
    Option(
        f"{METADATA}index.column.stats.max.columns.to.index",
        Topic.INDEX,
        whole(least=1),
        "Without a list, how many of the schema's first columns `column_stats` has.",
        default=32,
    ),
    Option(
        f"{METADATA}index.column.stats.file.group.count",
        Topic.INDEX,
        whole(least=1),
        "Its file groups.",
        default=2,
    ),
    Option(
        f"{METADATA}index.partition.stats.enable",
        Topic.INDEX,
        FLAG,
        "The index `partition_stats`; by default as `column_stats`.",
    ),
    Option(
        f"{METADATA}index.partition.stats.file.group.count",
        Topic.INDEX,
        whole(least=1),
        "Its file groups.",
        default=1,
    ),
    Option(
        f"{METADATA}index.bloom.filter.enable",
        Topic.INDEX,
        FLAG,
        "The index `bloom_filters`.",
        default=False,
    ),
    Option(
        f"{METADATA}index.bloom.filter.file.group.count",
        Topic.INDEX,
        whole(least=1),
        "Its file groups.",
        default=4,
    ),
    Option(
        f"{GLOBAL_RECORD_INDEX}enable",
        Topic.INDEX,
        FLAG,
        "The index `record_index`. With it, record keys are unique in the whole table.",
        default=False,
        alternatives=(f"{METADATA}record.index.enable",),
    ),
    Option(
        f"{GLOBAL_RECORD_INDEX}min.filegroup.count",
        Topic.INDEX,
        whole(least=1),
        "The least number of file groups of `record_index`.",
        default=10,
        alternatives=(f"{METADATA}record.index.min.filegroup.count",),
    ),
    Option(
        f"{GLOBAL_RECORD_INDEX}max.filegroup.count",
        Topic.INDEX,
        whole(least=1),
        "The largest number of file groups of `record_index`.",
        default=10_000,
        alternatives=(f"{METADATA}record.index.max.filegroup.count",),
    ),
    Option(
        f"{METADATA}record.index.growth.factor",
        Topic.INDEX,
        NUMBER,
        "The expected number of records, as a multiple of their number when `record_index` is built.",
        default=2.0,
    ),
    Option(
        f"{METADATA}record.index.max.filegroup.size",
        Topic.INDEX,
        BYTES,
        "The target size of a file group of `record_index`.",
        default=1024**3,
    ),
    Option(
        f"{METADATA}compact.max.delta.commits",
        Topic.INDEX,
        whole(least=1),
        "The number of delta commits after which the metadata table is compacted.",
        "max_delta_commits",
        default=10,
    ),
    Option(
        "hoodie.compaction.logfile.size.threshold",
        Topic.INDEX,
        whole("bytes"),
        "A compaction of the metadata table leaves out file groups whose log files are smaller together; so "
        "does a compaction of the table itself with `LogFileSizeBased`, by `min_log_bytes`.",
        "log_file_size_threshold",
        default=0,
        as_arguments=lambda size: {"log_file_size_threshold": size, "min_log_bytes": size},
    ),
    Option(
        f"{METADATA}index.check.timeout.seconds",
        Topic.INDEX,
        SECONDS,
        "How long an index build waits for the writers that it has to catch up with.",
        default=900.0,
    ),
)

_DEFAULTS = {option.key: option.default for option in INDEX_OPTIONS}
_ENABLED_BY = {
    MetadataPartition.COLUMN_STATS: f"{METADATA}index.column.stats.enable",
    MetadataPartition.BLOOM_FILTERS: f"{METADATA}index.bloom.filter.enable",
    MetadataPartition.RECORD_INDEX: f"{GLOBAL_RECORD_INDEX}enable",
    MetadataPartition.PARTITION_STATS: f"{METADATA}index.partition.stats.enable",
}
_COUNTED_BY = {
    MetadataPartition.COLUMN_STATS: f"{METADATA}index.column.stats.file.group.count",
    MetadataPartition.BLOOM_FILTERS: f"{METADATA}index.bloom.filter.file.group.count",
    MetadataPartition.PARTITION_STATS: f"{METADATA}index.partition.stats.file.group.count",
}


@dataclass(frozen=True)
class IndexOptions:
    """The options of the metadata table and its indexes, with Hudi's defaults.

    :param enabled: whether the table has a metadata table (``hoodie.metadata.enable``); None when not set.
    :param partitions: the wanted partitions, ``files`` first; empty when not set.
    :param columns: the columns in ``column_stats``; None for the first :attr:`max_columns` of the schema.
    :param max_columns: how many columns ``column_stats`` has without a list.
    :param file_groups: the number of file groups of each new partition but the record index.
    :param least_file_groups: the least number of file groups of the record index.
    :param most_file_groups: the largest number of file groups of the record index.
    :param growth: the expected number of records, as a multiple of their number now.
    :param file_group_bytes: the target size of a file group of the record index, in bytes.
    :param compact_delta_commits: the number of delta commits after which the metadata table is compacted.
    :param is_async: whether an indexing plan builds the indexes beside the writers.
    :param check_timeout: seconds that an index build waits for the writers that it has to catch up with.
    """

    enabled: bool | None
    partitions: tuple[MetadataPartition, ...]
    columns: tuple[str, ...] | None
    max_columns: int
    file_groups: Mapping[MetadataPartition, int]
    least_file_groups: int
    most_file_groups: int
    growth: float
    file_group_bytes: int
    compact_delta_commits: int
    is_async: bool
    check_timeout: float

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> IndexOptions:
        """Read the options of the metadata table among all options.

        :param values: typed values of options, by key.
        """
        given = _DEFAULTS | {key: value for key, value in values.items() if key in _DEFAULTS}
        indexes = enabled_indexes(values)
        has_files = bool(given[f"{METADATA}enable"] or indexes)
        return cls(
            enabled=given[f"{METADATA}enable"],
            partitions=((MetadataPartition.FILES,) if has_files else ()) + indexes,
            columns=given[f"{METADATA}index.column.stats.column.list"],
            max_columns=given[f"{METADATA}index.column.stats.max.columns.to.index"],
            file_groups={MetadataPartition.FILES: MetadataPartition.FILES.default_file_groups}
            | {partition: given[key] for partition, key in _COUNTED_BY.items()},
            least_file_groups=given[f"{GLOBAL_RECORD_INDEX}min.filegroup.count"],
            most_file_groups=given[f"{GLOBAL_RECORD_INDEX}max.filegroup.count"],
            growth=given[f"{METADATA}record.index.growth.factor"],
            file_group_bytes=given[f"{METADATA}record.index.max.filegroup.size"],
            compact_delta_commits=given[f"{METADATA}compact.max.delta.commits"],
            is_async=given[f"{METADATA}index.async"],
            check_timeout=given[f"{METADATA}index.check.timeout.seconds"],
        )


def enabled_indexes(values: Mapping[str, Any]) -> tuple[MetadataPartition, ...]:
    """The partitions besides ``files`` that options enable.

    :param values: typed values of options, by key.
    """
    stats = values.get(_ENABLED_BY[MetadataPartition.COLUMN_STATS])
    # HoodieMetadataConfig: without a value, partition stats follow column stats.
    given = {_ENABLED_BY[MetadataPartition.PARTITION_STATS]: stats} | dict(values)
    return tuple(partition for partition, key in _ENABLED_BY.items() if given.get(key))


def enabling_key(partition: MetadataPartition) -> str:
    """The option that enables a partition.

    :param partition: one of :func:`enabled_indexes`.
    """
    return _ENABLED_BY[partition]

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
        "Whether indexes are built beside the writers, by an indexing plan, and not by the next load.",
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
        "The columns that it has.",
    ),
    Option(
        f"{METADATA}index.column.stats.max.columns.to.index",
        Topic.INDEX,
        whole(least=1),
        "How many of the schema's first columns it has where no list is given.",
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
        "The index `partition_stats`; as `column_stats` where nobody says it.",
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
        "The index `record_index`: record keys are unique in the whole table.",
        default=False,
        alternatives=(f"{METADATA}record.index.enable",),
    ),
    Option(
        f"{GLOBAL_RECORD_INDEX}min.filegroup.count",
        Topic.INDEX,
        whole(least=1),
        "It has at least so many file groups.",
        default=10,
        alternatives=(f"{METADATA}record.index.min.filegroup.count",),
    ),
    Option(
        f"{GLOBAL_RECORD_INDEX}max.filegroup.count",
        Topic.INDEX,
        whole(least=1),
        "And at most so many.",
        default=10_000,
        alternatives=(f"{METADATA}record.index.max.filegroup.count",),
    ),
    Option(
        f"{METADATA}record.index.growth.factor",
        Topic.INDEX,
        NUMBER,
        "How many times as many records are expected as there are when it is built.",
        default=2.0,
    ),
    Option(
        f"{METADATA}record.index.max.filegroup.size",
        Topic.INDEX,
        BYTES,
        "Bytes that one of its file groups should have at most.",
        default=1024**3,
    ),
    Option(
        f"{METADATA}compact.max.delta.commits",
        Topic.INDEX,
        whole(least=1),
        "Delta commits of the metadata table after which it is compacted.",
        "max_delta_commits",
        default=10,
    ),
    Option(
        "hoodie.compaction.logfile.size.threshold",
        Topic.INDEX,
        whole("bytes"),
        "Log files of one of its file groups that are smaller together stay as they are.",
        "log_file_size_threshold",
        default=0,
    ),
    Option(
        f"{METADATA}index.check.timeout.seconds",
        Topic.INDEX,
        SECONDS,
        "How long the build of an index waits for the writers that it has to catch up with.",
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
    """What the options say of the metadata table; Hudi's defaults where they say nothing.

    :param enabled: whether the table has a metadata table (``hoodie.metadata.enable``); None when not set.
    :param partitions: the wanted partitions, ``files`` first; empty when not set.
    :param columns: of ``column_stats``; None for the first :attr:`max_columns` of the schema.
    :param max_columns: see there.
    :param file_groups: how many a partition begins with; of the record index see the next three.
    :param least_file_groups: of the record index.
    :param most_file_groups: of the record index.
    :param growth: how many times as many records the record index is made for as there are.
    :param file_group_bytes: that a file group of the record index should have at most.
    :param compact_delta_commits: delta commits of the metadata table after which it is compacted.
    :param is_async: whether indexes are built by an indexing plan, beside the writers.
    :param check_timeout: seconds that the build of an index waits for the writers that it has to catch
        up with.
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
        """Read them.

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
    """The partitions beside ``files`` that options ask for.

    :param values: typed values of options, by key.
    """
    stats = values.get(_ENABLED_BY[MetadataPartition.COLUMN_STATS])
    # HoodieMetadataConfig: without a value, partition stats follow column stats.
    given = {_ENABLED_BY[MetadataPartition.PARTITION_STATS]: stats} | dict(values)
    return tuple(partition for partition, key in _ENABLED_BY.items() if given.get(key))


def enabling_key(partition: MetadataPartition) -> str:
    """The option that asks for a partition.

    :param partition: one of :func:`enabled_indexes`.
    """
    return _ENABLED_BY[partition]

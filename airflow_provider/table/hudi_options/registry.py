"""The known options, each with its effect here."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from airflow_provider.table.hudi_options.compaction_options import COMPACTION_OPTIONS
from airflow_provider.table.hudi_options.index_options import INDEX_OPTIONS
from airflow_provider.table.hudi_options.kinds import (
    BYTES,
    FLAG,
    MILLISECONDS,
    NAMES,
    NUMBER,
    TIME_ZONE,
    Kind,
    one_of,
    whole,
)
from airflow_provider.table.hudi_options.lock_options import LOCK_OPTIONS
from airflow_provider.table.hudi_options.option import Option, Topic
from airflow_provider.table.properties import (
    ALL_OPERATIONS,
    BUCKET_ENGINE,
    BUCKET_HASH_FIELD,
    BUCKET_MERGE_THRESHOLD,
    BUCKET_SPLIT_THRESHOLD,
    COMPACTION_MEMORY,
    CONCURRENCY_MODE,
    CONSISTENT_HASHING,
    INDEX_TYPE,
    INSERT_ONLY,
    LEAST_BUCKETS_OF_A_PARTITION,
    LOG_BLOCK_FORMAT,
    MERGE_MEMORY,
    MOST_BUCKETS,
    MOST_BUCKETS_OF_A_PARTITION,
    NON_BLOCKING,
    NUMBER_OF_BUCKETS,
    TIMELINE_ZONE,
    TRANSACTIONAL_PROPERTIES,
)
from airflow_provider.table.storage import DEFAULT_DURABILITY, DURABILITY, Durability

MIB = 1024 * 1024

_CLUSTERING_PLAN = "hoodie.clustering.plan.strategy."


def _retained(policy: str) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {"policy": policy, "retained": value}


def _retries(value: int) -> dict[str, Any]:
    return {"on_conflict": "rebase", "max_rebases": value} if value else {"on_conflict": "raise"}


_REJECT = "org.apache.hudi.client.clustering.update.strategy.SparkRejectUpdateStrategy"
_ALLOW = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"

_LAYOUTS = {"LINEAR": "linear", "ZORDER": "z-order", "HILBERT": "hilbert", "Z-ORDER": "z-order"}
_POLICIES = ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS")
CONCURRENCY = MappingProxyType({"optimistic": "OPTIMISTIC_CONCURRENCY_CONTROL", "non_blocking": NON_BLOCKING})
"""Hudi's name of each kind of concurrency."""


def _same(*names: str) -> Kind:
    return one_of({name: name for name in names})


_CONCURRENCY = (
    Option(
        CONCURRENCY_MODE,
        Topic.CONCURRENCY,
        _same("SINGLE_WRITER", *CONCURRENCY.values()),
        "`NON_BLOCKING_CONCURRENCY_CONTROL`: writers that append to one file group do not conflict; see "
        "[non-blocking.md](non-blocking.md). The other two have no effect: every commit is checked against "
        "the commits beside it.",
        default="OPTIMISTIC_CONCURRENCY_CONTROL",
    ),
    Option(
        "hoodie.clean.failed.writes.policy",
        Topic.CONCURRENCY,
        _same("LAZY"),
        "Accepted without effect: a writer is rolled back only after its heartbeat has expired.",
        default="LAZY",
        alternatives=("hoodie.cleaner.policy.failed.writes",),
    ),
)


_WRITING = (
    Option(
        TRANSACTIONAL_PROPERTIES,
        Topic.WRITING,
        _same(ALL_OPERATIONS, INSERT_ONLY),
        "An `insert_only` table refuses `upsert` and `delete`; see "
        "[tables.md](tables.md#insert-only-tables). This option is our own, after Hive's table parameter "
        "`transactional_properties`: another Hudi ignores it. It holds for a table, not for a task.",
        default=ALL_OPERATIONS,
    ),
    Option(
        "hoodie.client.heartbeat.interval_in_ms",
        Topic.HEARTBEAT,
        MILLISECONDS,
        "The time between two heartbeats of a writer.",
        "heartbeat_interval",
        default=10.0,
    ),
    Option(
        "hoodie.client.heartbeat.tolerable.misses",
        Topic.HEARTBEAT,
        whole(least=1),
        "How many heartbeats may be missing before others roll the writer back.",
        "tolerable_misses",
        default=6,
    ),
    Option(
        "hoodie.parquet.max.file.size",
        Topic.WRITING,
        BYTES,
        "The size up to which a load fills a file.",
        "target_file_size",
        default=120 * MIB,
    ),
    Option(
        "hoodie.parquet.small.file.limit",
        Topic.WRITING,
        whole("bytes"),
        "A load puts new rows into smaller files before it opens new ones; 0 for never. Where nothing sets "
        "it, a load rewrites no file of more than 4 MiB for rows of less than a twentieth of its size.",
        "small_file_limit",
        default=100 * MIB,
    ),
    Option(
        LOG_BLOCK_FORMAT,
        Topic.WRITING,
        _same("parquet", "avro"),
        "The format of new versions of records in the log files of a merge-on-read table; see "
        "[merge-on-read.md](merge-on-read.md#load). Log compactions use the table's. `hfile`, the metadata "
        "table's format, is refused.",
        default="parquet",
        as_arguments=lambda value: {"log_block_format": value},
    ),
    Option(
        "hoodie.write.num.retries.on.conflict.failures",
        Topic.WRITING,
        whole(),
        "How often a write that lost a conflict is rebased: it merges again those file groups that "
        "conflicted. 0 for `on_conflict=raise`.",
        "max_rebases",
        as_arguments=_retries,
    ),
    Option(
        "hoodie.clustering.updates.strategy",
        Topic.WRITING,
        one_of({_REJECT: "fail", _ALLOW: "wait"}),
        "What a load does when another Hudi writer has planned a clustering of its file groups: it fails, or "
        "it waits up to `yield_timeout` for the clustering's end. Rows written meanwhile would be lost.",
        "on_pending_clustering",
        default="fail",
    ),
)

_BUCKETS = (
    Option(
        INDEX_TYPE,
        Topic.BUCKETS,
        _same("BUCKET", "BLOOM", "SIMPLE"),
        "`BUCKET`: a hash of each record key decides its file group; see "
        "[non-blocking.md](non-blocking.md#the-bucket-index). The others have no effect: the files and the "
        "indexes of the metadata table say where a key is.",
    ),
    Option(
        NUMBER_OF_BUCKETS,
        Topic.BUCKETS,
        whole(least=1, most=MOST_BUCKETS),
        "The number of buckets of each partition, which cannot be changed later. By consistent hashing, the "
        "number that a new partition begins with.",
    ),
    Option(
        BUCKET_HASH_FIELD,
        Topic.BUCKETS,
        NAMES,
        "The columns of the record key that are hashed; by default all of them.",
    ),
    Option(
        BUCKET_ENGINE,
        Topic.BUCKETS,
        _same("SIMPLE", CONSISTENT_HASHING),
        "The kind of bucket index. `SIMPLE`: the number of buckets stays. `CONSISTENT_HASHING`: it may "
        "differ by partition; see [non-blocking.md](non-blocking.md#consistent-hashing).",
        default="SIMPLE",
    ),
    Option(
        LEAST_BUCKETS_OF_A_PARTITION,
        Topic.BUCKETS,
        whole(least=1, most=MOST_BUCKETS),
        "The number of buckets that merges leave a partition at least; by default the number that it begins "
        "with.",
    ),
    Option(
        MOST_BUCKETS_OF_A_PARTITION,
        Topic.BUCKETS,
        whole(least=1, most=MOST_BUCKETS),
        "The number of buckets that splits leave a partition at most; by default the number that it begins "
        "with.",
    ),
    Option(
        BUCKET_SPLIT_THRESHOLD,
        Topic.BUCKETS,
        NUMBER,
        "The size of a bucket that is split, as a multiple of `hoodie.parquet.max.file.size`.",
        default=2.0,
    ),
    Option(
        BUCKET_MERGE_THRESHOLD,
        Topic.BUCKETS,
        NUMBER,
        "The size of a bucket that is merged with its neighbours, as a multiple of "
        "`hoodie.parquet.max.file.size`.",
        default=0.2,
    ),
)

_SCHEMA = (
    Option(
        "hoodie.write.set.null.for.missing.columns",
        Topic.SCHEMA,
        FLAG,
        "Whether a column that the rows lack is null, even if the column takes no nulls so far. Otherwise "
        "such rows are refused.",
        "set_null_for_missing_columns",
        default=False,
    ),
    Option(
        "hoodie.avro.schema.validate",
        Topic.SCHEMA,
        FLAG,
        "Whether rows that lack a column are always refused.",
        "validate_schema",
        default=False,
    ),
    Option(
        "hoodie.schema.on.read.enable",
        Topic.SCHEMA,
        FLAG,
        "Whether columns may be renamed. The table then keeps an id for each column, and readers match "
        "columns by id. Other Hudi readers do so only if they have this option too.",
        default=False,
    ),
)

_DURABILITY = (
    Option(
        DURABILITY,
        Topic.DURABILITY,
        _same(*Durability),
        "How much of a table on a local disk a power failure may take; see "
        "[commit-protocol.md](commit-protocol.md#when-the-power-fails). This option is our own: another Hudi "
        "ignores it.",
        default=DEFAULT_DURABILITY,
    ),
)

_TIMELINE = (
    Option(
        TIMELINE_ZONE,
        Topic.TIMELINE,
        TIME_ZONE,
        "The time zone of the JVMs that write to the table, when `hoodie.table.timeline.timezone` is "
        "`LOCAL`. By default the newest instant tells how far their clocks are ahead of UTC. This option is "
        "our own: another Hudi ignores it.",
    ),
)

_CLUSTERING = (
    Option(
        f"{_CLUSTERING_PLAN}sort.columns",
        Topic.CLUSTERING,
        NAMES,
        "The columns by which a clustering orders the rows, the most important first.",
        "sort_by",
    ),
    Option(
        "hoodie.layout.optimize.strategy",
        Topic.CLUSTERING,
        one_of(_LAYOUTS),
        "The order by several columns.",
        "layout",
        default="linear",
    ),
    Option(
        f"{_CLUSTERING_PLAN}partition.selected",
        Topic.CLUSTERING,
        NAMES,
        "Paths of the partitions to cluster; all by default.",
        "partitions",
        as_arguments=lambda paths: {"partitions": tuple(glob.escape(path) for path in paths)},
    ),
    Option(
        f"{_CLUSTERING_PLAN}small.file.limit",
        Topic.CLUSTERING,
        BYTES,
        "Only smaller file groups are clustered.",
        "small_file_limit",
        default=100 * MIB,
    ),
    Option(
        f"{_CLUSTERING_PLAN}target.file.max.bytes",
        Topic.CLUSTERING,
        BYTES,
        "The size of new file groups.",
        "target_file_size",
        default=120 * MIB,
    ),
    Option(
        f"{_CLUSTERING_PLAN}max.num.groups",
        Topic.CLUSTERING,
        whole(least=1),
        "The largest number of clustering groups in a plan.",
        "max_groups",
        default=30,
    ),
    Option(
        f"{_CLUSTERING_PLAN}max.bytes.per.group",
        Topic.CLUSTERING,
        BYTES,
        "The largest size of the file groups that are ordered together.",
        "max_group_size",
        default=1024 * MIB,
    ),
    Option(
        "hoodie.clustering.max.parallelism",
        Topic.CLUSTERING,
        whole(least=1),
        "How many clustering groups are written at the same time; by default the number of cores.",
        "parallel_groups",
    ),
)

_MERGING = (
    Option(
        MERGE_MEMORY,
        Topic.MERGING,
        BYTES,
        "The memory that the merge of a file slice's log files takes. What is beyond goes into a temporary "
        "file; see [reading.md](reading.md#merge-on-read-tables). It holds for a table, not for a task.",
        default=1024 * MIB,
    ),
    Option(
        COMPACTION_MEMORY,
        Topic.MERGING,
        BYTES,
        "The same for a compaction, for all file slices together that it merges at the same time; by default "
        f"`{MERGE_MEMORY}`. It holds for a table, not for a task.",
    ),
)

_CLEANING = (
    Option(
        "hoodie.clean.policy",
        Topic.CLEANING,
        _same(*_POLICIES),
        "Which superseded file slices a clean keeps. By default the policy of the one that is given of the "
        "next three options.",
        "policy",
        default="KEEP_LATEST_COMMITS",
        alternatives=("hoodie.cleaner.policy",),
    ),
    Option(
        "hoodie.clean.commits.retained",
        Topic.CLEANING,
        whole(least=1),
        "With `KEEP_LATEST_COMMITS`: the number of commits.",
        "retained",
        default=10,
        alternatives=("hoodie.cleaner.commits.retained",),
        as_arguments=_retained("KEEP_LATEST_COMMITS"),
    ),
    Option(
        "hoodie.clean.fileversions.retained",
        Topic.CLEANING,
        whole(least=1),
        "With `KEEP_LATEST_FILE_VERSIONS`: the number of slices of each file group.",
        "retained",
        default=3,
        alternatives=("hoodie.cleaner.fileversions.retained",),
        as_arguments=_retained("KEEP_LATEST_FILE_VERSIONS"),
    ),
    Option(
        "hoodie.clean.hours.retained",
        Topic.CLEANING,
        whole(least=1),
        "With `KEEP_LATEST_BY_HOURS`: the number of hours.",
        "retained",
        default=24,
        alternatives=("hoodie.cleaner.hours.retained",),
        as_arguments=_retained("KEEP_LATEST_BY_HOURS"),
    ),
)

_ARCHIVAL = (
    Option(
        "hoodie.keep.min.commits",
        Topic.ARCHIVAL,
        whole(least=1),
        "The number of commits that archival leaves on the active timeline.",
        "keep_min_commits",
        default=20,
    ),
    Option(
        "hoodie.keep.max.commits",
        Topic.ARCHIVAL,
        whole(least=2),
        "Archival begins when the active timeline has more commits.",
        "keep_max_commits",
        default=100,
    ),
)

_ALL = (
    *_CONCURRENCY,
    *LOCK_OPTIONS,
    *_WRITING,
    *_BUCKETS,
    *_SCHEMA,
    *_DURABILITY,
    *_TIMELINE,
    *_CLUSTERING,
    *_MERGING,
    *COMPACTION_OPTIONS,
    *_CLEANING,
    *_ARCHIVAL,
    *INDEX_OPTIONS,
)

OPTIONS: Mapping[str, Option] = MappingProxyType({option.key: option for option in _ALL})
"""Every known option, by its name in Hudi 1.1."""

BY_ANY_NAME: Mapping[str, Option] = MappingProxyType(
    {name: option for option in _ALL for name in (option.key, *option.alternatives)}
)
"""Every known option, by each of Hudi's names."""

"""The options that are known, each with what it means here."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from airflow_provider.table.hudi_options.index_options import INDEX_OPTIONS
from airflow_provider.table.hudi_options.kinds import (
    BYTES,
    FLAG,
    MILLISECONDS,
    NAMES,
    TIME_ZONE,
    Kind,
    one_of,
    whole,
)
from airflow_provider.table.hudi_options.lock_options import LOCK_OPTIONS
from airflow_provider.table.hudi_options.option import Option, Topic
from airflow_provider.table.properties import TIMELINE_ZONE
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
_MODES = ("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL")


def _same(*names: str) -> Kind:
    return one_of({name: name for name in names})


_CONCURRENCY = (
    Option(
        "hoodie.write.concurrency.mode",
        Topic.CONCURRENCY,
        _same(*_MODES),
        "Accepted without effect: every commit is checked against the commits beside it, always.",
        default="OPTIMISTIC_CONCURRENCY_CONTROL",
    ),
    Option(
        "hoodie.clean.failed.writes.policy",
        Topic.CONCURRENCY,
        _same("LAZY"),
        "Accepted without effect: a writer is rolled back once its heartbeat has expired, and never earlier.",
        default="LAZY",
        alternatives=("hoodie.cleaner.policy.failed.writes",),
    ),
)


_WRITING = (
    Option(
        "hoodie.client.heartbeat.interval_in_ms",
        Topic.HEARTBEAT,
        MILLISECONDS,
        "Time between two signs of life of a writer.",
        "heartbeat_interval",
        default=10.0,
    ),
    Option(
        "hoodie.client.heartbeat.tolerable.misses",
        Topic.HEARTBEAT,
        whole(least=1),
        "Signs of life that may be missing before others roll the writer back.",
        "tolerable_misses",
        default=6,
    ),
    Option(
        "hoodie.parquet.max.file.size",
        Topic.WRITING,
        BYTES,
        "Files are filled up to about so much.",
        "target_file_size",
        default=120 * MIB,
    ),
    Option(
        "hoodie.parquet.small.file.limit",
        Topic.WRITING,
        whole("bytes"),
        "Smaller files take new rows before new files are opened; 0 for none.",
        "small_file_limit",
        default=100 * MIB,
    ),
    Option(
        "hoodie.write.num.retries.on.conflict.failures",
        Topic.WRITING,
        whole(),
        "How often a write that lost a conflict is rebased: merged again, but only what conflicted. 0 for "
        "`on_conflict=raise`.",
        "max_rebases",
        as_arguments=_retries,
    ),
    Option(
        "hoodie.clustering.updates.strategy",
        Topic.WRITING,
        one_of({_REJECT: "fail", _ALLOW: "wait"}),
        "What a load does about a clustering of its file groups that another Hudi writer has planned: it "
        "fails, or waits for its end, for up to `yield_timeout`. What it wrote meanwhile would be lost.",
        "on_pending_clustering",
        default="fail",
    ),
)

_SCHEMA = (
    Option(
        "hoodie.write.set.null.for.missing.columns",
        Topic.SCHEMA,
        FLAG,
        "Whether columns that the rows lack are null, also in a column that must not be null so far; else "
        "such rows are refused.",
        "set_null_for_missing_columns",
        default=False,
    ),
    Option(
        "hoodie.avro.schema.validate",
        Topic.SCHEMA,
        FLAG,
        "Whether rows that lack a column are refused in any case.",
        "validate_schema",
        default=False,
    ),
    Option(
        "hoodie.schema.on.read.enable",
        Topic.SCHEMA,
        FLAG,
        "Whether columns may be renamed: the table then keeps an id for each column, and readers go by it. "
        "Other Hudi readers do so only where they have this option too.",
        default=False,
    ),
)

_DURABILITY = (
    Option(
        DURABILITY,
        Topic.DURABILITY,
        _same(*Durability),
        "How much a power failure may take of a table on a local disk; see "
        "[commit-protocol.md](commit-protocol.md#when-the-power-fails). Our own: another Hudi "
        "passes it over.",
        default=DEFAULT_DURABILITY,
    ),
)

_TIMELINE = (
    Option(
        TIMELINE_ZONE,
        Topic.TIMELINE,
        TIME_ZONE,
        "The time zone of the JVMs that write to the table, where `hoodie.table.timeline.timezone` is "
        "`LOCAL`. Without it the newest instant tells how far their clocks are ahead of UTC. Our own: "
        "another Hudi passes it over.",
    ),
)

_CLUSTERING = (
    Option(
        f"{_CLUSTERING_PLAN}sort.columns",
        Topic.CLUSTERING,
        NAMES,
        "Columns to order the rows by, the most important first.",
        "sort_by",
    ),
    Option(
        "hoodie.layout.optimize.strategy",
        Topic.CLUSTERING,
        one_of(_LAYOUTS),
        "How to order by several columns.",
        "layout",
        default="linear",
    ),
    Option(
        f"{_CLUSTERING_PLAN}partition.selected",
        Topic.CLUSTERING,
        NAMES,
        "Paths of the partitions to be clustered; all where nobody says it.",
        "partitions",
        as_arguments=lambda paths: {"partitions": tuple(glob.escape(path) for path in paths)},
    ),
    Option(
        f"{_CLUSTERING_PLAN}small.file.limit",
        Topic.CLUSTERING,
        BYTES,
        "Only file groups below it are clustered.",
        "small_file_limit",
        default=100 * MIB,
    ),
    Option(
        f"{_CLUSTERING_PLAN}target.file.max.bytes",
        Topic.CLUSTERING,
        BYTES,
        "New file groups get about so much.",
        "target_file_size",
        default=120 * MIB,
    ),
    Option(
        f"{_CLUSTERING_PLAN}max.num.groups",
        Topic.CLUSTERING,
        whole(least=1),
        "Clustering groups of one plan.",
        "max_groups",
        default=30,
    ),
    Option(
        f"{_CLUSTERING_PLAN}max.bytes.per.group",
        Topic.CLUSTERING,
        BYTES,
        "Bytes of the file groups that are ordered together.",
        "max_group_size",
        default=1024 * MIB,
    ),
    Option(
        "hoodie.clustering.max.parallelism",
        Topic.CLUSTERING,
        whole(least=1),
        "Clustering groups that are written at the same time; as many as there are cores by default.",
        "parallel_groups",
    ),
)

_CLEANING = (
    Option(
        "hoodie.clean.policy",
        Topic.CLEANING,
        _same(*_POLICIES),
        "Which superseded file slices are kept; what one of the three below says where only that is given.",
        "policy",
        default="KEEP_LATEST_COMMITS",
        alternatives=("hoodie.cleaner.policy",),
    ),
    Option(
        "hoodie.clean.commits.retained",
        Topic.CLEANING,
        whole(least=1),
        "With `KEEP_LATEST_COMMITS`: how many commits.",
        "retained",
        default=10,
        alternatives=("hoodie.cleaner.commits.retained",),
        as_arguments=_retained("KEEP_LATEST_COMMITS"),
    ),
    Option(
        "hoodie.clean.fileversions.retained",
        Topic.CLEANING,
        whole(least=1),
        "With `KEEP_LATEST_FILE_VERSIONS`: how many slices of a file group.",
        "retained",
        default=3,
        alternatives=("hoodie.cleaner.fileversions.retained",),
        as_arguments=_retained("KEEP_LATEST_FILE_VERSIONS"),
    ),
    Option(
        "hoodie.clean.hours.retained",
        Topic.CLEANING,
        whole(least=1),
        "With `KEEP_LATEST_BY_HOURS`: how many hours.",
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
        "Commits that stay on the active timeline.",
        "keep_min_commits",
        default=20,
    ),
    Option(
        "hoodie.keep.max.commits",
        Topic.ARCHIVAL,
        whole(least=2),
        "Commits up to which nothing leaves it.",
        "keep_max_commits",
        default=100,
    ),
)

_ALL = (
    *_CONCURRENCY,
    *LOCK_OPTIONS,
    *_WRITING,
    *_SCHEMA,
    *_DURABILITY,
    *_TIMELINE,
    *_CLUSTERING,
    *_CLEANING,
    *_ARCHIVAL,
    *INDEX_OPTIONS,
)

OPTIONS: Mapping[str, Option] = MappingProxyType({option.key: option for option in _ALL})
"""Every option that is known, by its name in Hudi 1.1."""

BY_ANY_NAME: Mapping[str, Option] = MappingProxyType(
    {name: option for option in _ALL for name in (option.key, *option.alternatives)}
)
"""The same, also by Hudi's other names."""

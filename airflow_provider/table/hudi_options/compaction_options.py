"""The options of the compaction of merge-on-read tables (``HoodieCompactionConfig``)."""

from __future__ import annotations

from types import MappingProxyType

from airflow_provider.table.hudi_options.kinds import FLAG, MEGABYTES, REGEX, SECONDS, Kind, one_of, whole
from airflow_provider.table.hudi_options.option import Option, Topic

_PACKAGE = "org.apache.hudi.table.action.compact.strategy."

LIMITS_OF_STRATEGIES = MappingProxyType(
    {
        "LogFileSizeBasedCompactionStrategy": frozenset({"min_log_bytes", "max_io_bytes"}),
        "LogFileNumBasedCompactionStrategy": frozenset({"min_log_files", "max_io_bytes"}),
        "BoundedIOCompactionStrategy": frozenset({"max_io_bytes"}),
        "UnBoundedCompactionStrategy": frozenset[str](),
        "DayBasedCompactionStrategy": frozenset({"newest_days", "max_io_bytes"}),
        "PartitionRegexBasedCompactionStrategy": frozenset({"partition_regex"}),
    }
)
"""Hudi's classes that choose file groups, each with the arguments whose options it reads."""

TRIGGERS = ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME")
"""The values of Hudi's ``CompactionTriggerStrategy``."""


def _read_strategies(text: str) -> tuple[str, ...]:
    found = []
    for each in text.split(","):
        package, _, name = each.strip().rpartition(".")
        # Hudi's package has changed its name; a class of another project with the same name is another one.
        if name not in LIMITS_OF_STRATEGIES or (package and not package.startswith("org.apache.hudi.")):
            raise ValueError
        found.append(name)
    return tuple(dict.fromkeys(found))


STRATEGIES = Kind(
    "one or more of " + ", ".join(f"`{name}`" for name in LIMITS_OF_STRATEGIES),
    _read_strategies,
    lambda names: ",".join(f"{_PACKAGE}{name}" for name in names),
)

COMPACTION_OPTIONS = (
    Option(
        "hoodie.compact.inline",
        Topic.COMPACTION,
        FLAG,
        "Whether a load of a merge-on-read table compacts it after its commit, where that is due.",
        default=False,
    ),
    Option(
        "hoodie.compact.inline.trigger.strategy",
        Topic.COMPACTION,
        one_of({name: name for name in TRIGGERS}),
        "When a compaction is due: after a number of delta commits since the last compaction, or since the "
        "last plan; after a time; after both; after either.",
        "trigger",
        default="NUM_COMMITS",
    ),
    Option(
        "hoodie.compact.inline.max.delta.commits",
        Topic.COMPACTION,
        whole(least=1),
        "Delta commits since the last compaction after which another is due.",
        "delta_commits",
        default=5,
    ),
    Option(
        "hoodie.compact.inline.max.delta.seconds",
        Topic.COMPACTION,
        SECONDS,
        "The time since the last compaction, or since the first delta commit, after which another is due.",
        "delta_seconds",
        default=3600.0,
    ),
    Option(
        "hoodie.compaction.strategy",
        Topic.COMPACTION,
        STRATEGIES,
        "How the file groups are chosen, by the names of Hudi's classes, also with their package. Each has "
        "options of its own below; the options of the others have no effect.",
        "strategy",
        default=("LogFileSizeBasedCompactionStrategy",),
    ),
    Option(
        "hoodie.compaction.target.io",
        Topic.COMPACTION,
        MEGABYTES,
        "With `LogFileSizeBased`, `LogFileNumBased`, `BoundedIO` and `DayBased`: how much one compaction "
        "reads and writes at most; no bound by default.",
        "max_io_bytes",
    ),
    Option(
        "hoodie.compaction.logfile.num.threshold",
        Topic.COMPACTION,
        whole(),
        "With `LogFileNumBased`: file groups with fewer log files are left out.",
        "min_log_files",
        default=0,
        as_arguments=lambda number: {"min_log_files": max(1, number)},
    ),
    Option(
        "hoodie.compaction.daybased.target.partitions",
        Topic.COMPACTION,
        whole(least=1),
        "With `DayBased`: how many partitions are compacted, those of the newest days.",
        "newest_days",
        default=10,
    ),
    Option(
        "hoodie.compaction.partition.path.regex",
        Topic.COMPACTION,
        REGEX,
        "With `PartitionRegexBased`: only partitions are compacted in whose path it is found.",
        "partition_regex",
    ),
    Option(
        "hoodie.log.compaction.inline",
        Topic.COMPACTION,
        FLAG,
        "Whether a load of a merge-on-read table makes one of many log blocks, where that is due.",
        default=False,
    ),
    Option(
        "hoodie.log.compaction.blocks.threshold",
        Topic.COMPACTION,
        whole(least=2),
        "Log blocks of a file group from which a log compaction makes one.",
        "log_blocks",
        default=5,
    ),
)

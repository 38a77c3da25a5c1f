"""The settings of a compaction of a merge-on-read table, and their values from Hudi's options.

Sources: ``HoodieCompactionConfig``, ``CompactionTriggerStrategy``, and the classes of the package
``org.apache.hudi.table.action.compact.strategy`` of Apache Hudi 1.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.hudi_options import (
    LIMITS_OF_STRATEGIES,
    TRIGGERS,
    EffectiveOptions,
    HudiOptions,
    Topic,
)

_STRATEGY = "hoodie.compaction.strategy"
_USUAL = ("LogFileSizeBasedCompactionStrategy",)
_BY_NUMBER = "LogFileNumBasedCompactionStrategy"
_BY_DAY, _NEWEST_DAYS = "DayBasedCompactionStrategy", 10
_BY_REGEX = "PartitionRegexBasedCompactionStrategy"
_LIMITS = frozenset[str]().union(*LIMITS_OF_STRATEGIES.values())
_LEAST = {"delta_commits": 1, "min_log_files": 1, "min_log_bytes": 0, "max_io_bytes": 1, "newest_days": 1}
_MAY_BE_NONE = frozenset({"max_io_bytes", "newest_days"})


@dataclass(frozen=True)
class TableCompactionSettings:
    """When a compaction of a merge-on-read table is due, and for which file groups.

    :param trigger: when one is due, by the names of Hudi's ``CompactionTriggerStrategy``: ``NUM_COMMITS``,
        ``NUM_COMMITS_AFTER_LAST_REQUEST``, ``TIME_ELAPSED``, ``NUM_AND_TIME`` or ``NUM_OR_TIME``
        (``hoodie.compact.inline.trigger.strategy``).
    :param delta_commits: deltacommits since the last compaction after which another one is due
        (``hoodie.compact.inline.max.delta.commits``).
    :param delta_seconds: seconds since the last compaction, or since the first deltacommit of a table without
        one, after which another one is due (``hoodie.compact.inline.max.delta.seconds``).
    :param min_log_files: log files that a file group must have; a group with fewer is left alone.
    :param min_log_bytes: bytes that the log files of a file group must have; a group with less is left alone.
    :param partitions: patterns of partition paths, such as ``dest=S*``; all partitions when empty.
    :param partition_regex: only partitions are compacted in whose path this regular expression is found.
    :param newest_days: number of partitions that are compacted: those of the newest days, these first. Then
        each partition path has to be a day, such as ``2024/05/01`` or ``day=2024-05-01``. All when None.
    :param max_io_bytes: most bytes that one compaction reads and writes; its first file group may exceed
        them. No bound when None.
    :param most_files_first: whether the file groups with the most log files come first. Otherwise those with
        the largest log files do.
    :raises InvalidInputError: when a value is out of range.
    """

    delta_commits: int = 5
    min_log_files: int = 1
    min_log_bytes: int = 0
    partitions: tuple[str, ...] = ()
    max_io_bytes: int | None = None
    trigger: str = "NUM_COMMITS"
    delta_seconds: float = 3600.0
    partition_regex: str | None = None
    newest_days: int | None = None
    most_files_first: bool = False

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if name in _MAY_BE_NONE and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInputError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if self.trigger not in TRIGGERS:
            raise InvalidInputError(f"trigger must be one of {', '.join(TRIGGERS)}, not {self.trigger!r}")
        seconds = self.delta_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise InvalidInputError(f"delta_seconds must be a number above 0, not {seconds!r}")
        if not isinstance(self.partitions, tuple) or not all(
            isinstance(each, str) for each in self.partitions
        ):
            raise InvalidInputError(
                f"partitions must be patterns of partition paths, not {self.partitions!r}"
            )
        try:
            re.compile(self.partition_regex or "")
        except (re.error, TypeError):
            raise InvalidInputError(
                f"partition_regex must be a regular expression, not {self.partition_regex!r}"
            ) from None

    @classmethod
    def of(cls, options: EffectiveOptions, **given: Any) -> TableCompactionSettings:
        """The settings by Hudi's options, as far as arguments do not override them.

        In Hudi a class of ``hoodie.compaction.strategy`` reads only options of its own. So a limit counts if
        it is an argument, or an option of the chosen class.

        :param options: the options of the table, and of the task.
        :param given: settings by their names, and ``strategy``, the names of Hudi's classes; None for one
            that was not given.
        :raises InvalidInputError: when a value is out of range, when there is no such strategy, or when an
            argument differs from one of the task's own options.
        """
        if (named := given.get("strategy")) is not None:
            given = given | {"strategy": HudiOptions.parse({_STRATEGY: named}).values[_STRATEGY]}
        names = {"strategy", *(each.name for each in fields(cls))}
        found = options.arguments(Topic.COMPACTION, Topic.INDEX, **dict.fromkeys(names) | given)
        strategies = found.pop("strategy", _USUAL)
        read = frozenset[str]().union(*(LIMITS_OF_STRATEGIES[each] for each in strategies))
        for name in _LIMITS - read:
            if given.get(name) is None:
                found.pop(name, None)
        if _BY_REGEX in strategies and "partition_regex" not in found:
            raise InvalidInputError(
                f"{_STRATEGY}={_BY_REGEX} without hoodie.compaction.partition.path.regex: say "
                "which partitions, or choose another strategy"
            )
        if _BY_DAY in strategies:
            found.setdefault("newest_days", _NEWEST_DAYS)
        if _BY_NUMBER in strategies:
            found.setdefault("most_files_first", True)
        return cls(**found)

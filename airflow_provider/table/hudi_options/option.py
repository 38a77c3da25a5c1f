"""The description of an option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider.table.hudi_options.kinds import Kind


class Topic(StrEnum):
    """The subject of an option, which decides the operators that use it."""

    CONCURRENCY = "Concurrency"
    LOCK = "Lock"
    HEARTBEAT = "Heartbeats"
    WRITING = "Loads"
    BUCKETS = "Bucket index"
    SCHEMA = "Columns"
    DURABILITY = "Power failures"
    TIMELINE = "Timeline"
    CLUSTERING = "Clustering"
    MERGING = "Memory of merges of log files"
    COMPACTION = "Compaction of merge-on-read tables"
    CLEANING = "Cleaning"
    ARCHIVAL = "Archival"
    INDEX = "Metadata table and indexes"


@dataclass(frozen=True)
class Option:
    """An option by Hudi's name.

    :param key: the option's name in Hudi 1.1.
    :param topic: the option's subject.
    :param kind: the kind of its values.
    :param meaning: the option's effect here, for people.
    :param argument: the operators' argument, or the lock provider's option, with the same effect.
    :param default: this package's default; None when there is none.
    :param alternatives: Hudi's other names of the option, mostly older ones.
    :param provider: the lock provider that reads the option; empty when each does.
    :param is_secret: whether a wrong value may hold a password, so that no message shows it.
    :param as_arguments: turns a value into arguments; by default the value is the one of ``argument``.
    """

    key: str
    topic: Topic
    kind: Kind
    meaning: str
    argument: str = ""
    default: Any = None
    alternatives: tuple[str, ...] = ()
    provider: str = ""
    is_secret: bool = False
    as_arguments: Callable[[Any], dict[str, Any]] | None = None

    def arguments(self, value: Any) -> dict[str, Any]:
        """The arguments that have the effect of a value.

        :param value: a value of this option.
        """
        if self.as_arguments is not None:
            return self.as_arguments(value)
        return {self.argument: value} if self.argument else {}

    def shown(self, value: Any) -> str:
        """The option with a value, for messages.

        :param value: a value of this option.
        """
        return f"{self.key}={'…' if self.is_secret else self.kind.write(value)}"

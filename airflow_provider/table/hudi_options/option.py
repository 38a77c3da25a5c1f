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
    SCHEMA = "Columns"
    DURABILITY = "Power failures"
    TIMELINE = "Timeline"
    CLUSTERING = "Clustering"
    CLEANING = "Cleaning"
    ARCHIVAL = "Archival"
    INDEX = "Metadata table and indexes"


@dataclass(frozen=True)
class Option:
    """An option by Hudi's name.

    :param key: its name in Hudi 1.1.
    :param topic: what it is about.
    :param kind: what its value can be.
    :param meaning: what it means here; for people.
    :param argument: the operators' argument, or the lock provider's option, that says the same.
    :param default: this package's default; None when there is none.
    :param alternatives: Hudi's other names of it, mostly older ones.
    :param provider: the lock provider that it is about.
    :param is_secret: whether a value that is wrong may hold a password; it is never shown.
    :param as_arguments: of a value makes the arguments; its value under ``argument`` by default.
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
        """What a value says, as arguments.

        :param value: of this option.
        """
        if self.as_arguments is not None:
            return self.as_arguments(value)
        return {self.argument: value} if self.argument else {}

    def shown(self, value: Any) -> str:
        """The option with a value, for messages.

        :param value: of this option.
        """
        return f"{self.key}={'…' if self.is_secret else self.kind.write(value)}"

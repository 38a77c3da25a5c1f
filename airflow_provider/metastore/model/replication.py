"""A replication, as its target keeps it, and its databases and locations at either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model.objects import TableInfo

TARGET_FOR = "repl.target.for"
"""Hive's database parameter: the policy whose target the database is."""

FROZEN_BY = "repl.source.frozen.by"
"""Database parameter: the policy that hands the database over to its target."""


class Phase(StrEnum):
    """The phase of a replication."""

    BOOTSTRAP = "bootstrap"
    """The replicator copies the state of the source; the target has no usable position yet."""
    FOLLOWING = "following"
    """The replicator applies the source's events."""
    FAILED_OVER = "failed over"
    """The target has become the source; the replicator applies nothing any more."""


@dataclass(frozen=True)
class Replication:
    """The target's record of a replication.

    :param policy: the replication's name.
    :param source: the source metastore's URL, without secrets.
    :param databases: the target's database by the source's.
    :param phase: the replication's phase.
    :param event_id: the last event of the source that the target has applied; None before the bootstrap is
        done.
    :param event_time: the time of that event, in seconds since the epoch by the source's clock.
    :param lease_owner: the replicator that has the lease; None when nobody has it.
    :param bytes_copied: the bytes that the replication has copied since its creation.
    :param last_error: the error of the last pass; None when the pass succeeded.
    :param updated_at: seconds since the epoch, by the target database's clock.
    """

    policy: str
    source: str
    databases: Mapping[str, str]
    phase: Phase
    event_id: int | None
    event_time: int | None
    lease_owner: str | None
    bytes_copied: int
    last_error: str | None
    updated_at: float


@dataclass(frozen=True)
class Scope:
    """The databases and locations of a replication, at the source and at the target.

    :param policy: the replication's name.
    :param databases: the target's database by the source's, in lower case.
    :param locations: the target's folder or URL by the source's; the longest match counts.
    """

    policy: str
    databases: Mapping[str, str]
    locations: Mapping[str, str]

    def database(self, name: str) -> str | None:
        """The target's database for a database of the source; None when it is not replicated."""
        return self.databases.get(name.lower())

    def location(self, location: str) -> str:
        """The target's folder or URL for a location of the source.

        :raises InvalidInputError: when the policy has no location that contains it.
        """
        if not location:  # a view has none
            return location
        plain = location.removeprefix("file://").rstrip("/")
        for before in sorted(self.locations, key=len, reverse=True):
            root = before.removeprefix("file://").rstrip("/")
            if plain == root or plain.startswith(f"{root}/"):
                return self.locations[before].rstrip("/") + plain.removeprefix(root)
        raise InvalidInputError(
            f"replication {self.policy!r}: no location of it holds {location!r}; it has: "
            f"{', '.join(sorted(self.locations)) or 'none'}; name the folder or URL above it, and where it "
            "goes to",
            location=location,
        )

    def parameters(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """The parameters of a target's database."""
        kept = {name: value for name, value in parameters.items() if name != FROZEN_BY}
        return {**kept, TARGET_FOR: self.policy}

    def table(self, table: TableInfo) -> TableInfo | None:
        """The target's version of a table; None when its database is not replicated."""
        database = self.database(table.database)
        if database is None:
            return None
        return TableInfo(**{**vars(table), "database": database, "location": self.location(table.location)})

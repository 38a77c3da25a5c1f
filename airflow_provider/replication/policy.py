"""The policy of a replication: its databases, and their places at the target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import Scope


@dataclass(frozen=True)
class ReplicationPolicy:
    """The databases and locations to replicate, and their places at the target.

    ::

        ReplicationPolicy("dr", {"lake": "lake_copy"}, {"/srv/lake": "s3://copies/lake"})

    :param name: the policy's name: letters, digits, ``_``, ``.`` and ``-``.
    :param databases: the target's database by the source's.
    :param locations: the target's folder or URL by the source's. Each table, partition and database of the
        source is below one of them; the longest match decides.
    :param source_options: keyword arguments of the source's fsspec file systems.
    :param target_options: keyword arguments of the target's fsspec file systems.
    :raises InvalidInputError: when a name cannot be used, a database or a location is named twice, or a
        location of the target is inside a location of the source, or contains one.
    """

    name: str
    databases: Mapping[str, str]
    locations: Mapping[str, str]
    source_options: Mapping[str, Any] = field(default_factory=dict)
    target_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"\w[\w.-]*", self.name):
            raise InvalidInputError(
                f"{self.name!r} cannot name a replication: use letters, digits, _, . and -", policy=self.name
            )
        if not self.databases or not self.locations:
            raise InvalidInputError(
                f"replication {self.name!r} needs a database, such as {{'lake': 'lake_copy'}}, and a "
                "location, such as {'/srv/lake': '/srv/copy'}",
                policy=self.name,
            )
        for name, given in (("databases", self.databases), ("locations", self.locations)):
            for source, target in given.items():
                if not isinstance(source, str) or not isinstance(target, str):
                    raise InvalidInputError(
                        f"replication {self.name!r}: {name} must map texts to texts, not {source!r} to "
                        f"{target!r}",
                        policy=self.name,
                    )
        targets = [name.lower() for name in self.databases.values()]
        if len({*targets}) < len(targets):
            raise InvalidInputError(
                f"replication {self.name!r} brings two databases to one: {sorted(targets)}", policy=self.name
            )
        for source, target in self.locations.items():
            one, other = (f"{_plain(each)}/" for each in (source, target))
            if one.startswith(other) or other.startswith(one):
                raise InvalidInputError(
                    f"replication {self.name!r}: location {target!r} of the target lies inside {source!r}, "
                    "or around it; give it a folder of its own",
                    policy=self.name,
                )

    @property
    def scope(self) -> Scope:
        """The databases and locations in the form that the target's metastore uses."""
        databases = {source.lower(): target.lower() for source, target in self.databases.items()}
        return Scope(self.name, databases, dict(self.locations))

    def source_location(self, location: str) -> str:
        """The source's folder or URL for a location of the target.

        :raises InvalidInputError: when the policy has no location that contains it.
        """
        back = Scope(self.name, {}, {_plain(target): source for source, target in self.locations.items()})
        return back.location(location)

    def reversed(self, name: str) -> ReplicationPolicy:
        """The policy of the replication in the other direction.

        :param name: the name of that policy.
        """
        return ReplicationPolicy(
            name,
            {target: source for source, target in self.databases.items()},
            {target: source for source, target in self.locations.items()},
            self.target_options,
            self.source_options,
        )


def _plain(location: str) -> str:
    return location.removeprefix("file://").rstrip("/")

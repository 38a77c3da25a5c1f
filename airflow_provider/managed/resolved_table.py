"""Resolution of a table's name in a metastore to its location."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider.metastore import AnyMetastore
from airflow_provider.metastore.model import check_table_given, is_location, split_table_name


@dataclass(frozen=True)
class ResolvedTable:
    """The location of a table, and its name in the metastore.

    :param given: the caller's argument: ``database.table``, a path or a URL.
    :param location: absolute path or URL.
    :param database: the metastore's database; None for a table given by its location.
    :param name: the metastore's name; None for a table given by its location.
    :param parameters: the table's parameters in the metastore; none for a table given by its location.
    """

    given: str
    location: str
    database: str | None = None
    name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def is_registered(self) -> bool:
        """Whether the metastore knows the table, so that writes run in a transaction."""
        return self.name is not None


def resolve_table(given: str, metastore: Callable[[], AnyMetastore]) -> ResolvedTable:
    """Find the location of a table.

    :param given: ``database.table``, an absolute path or a URL.
    :param metastore: opens the metastore; called for a name only.
    :raises InvalidInputError: when ``given`` is none of these.
    :raises NoSuchObjectError: when the metastore does not know the name.
    """
    check_table_given(given)
    if is_location(given):
        return ResolvedTable(given, given)
    database, name = split_table_name(given)
    found = metastore().get_table(database, name)
    return ResolvedTable(given, found.location, database, name, found.parameters)

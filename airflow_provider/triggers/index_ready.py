"""Waiting in the triggerer for indexes to be complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.indexing import index_status
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable
from airflow_provider.triggers.table import TableTrigger


def indexes_ready(table: HudiTable, indexes: Sequence[str]) -> Progress:
    """Whether all named indexes are complete, so that readers and writers use them.

    :param table: the table.
    :param indexes: names of the indexes.
    """
    there = {each.index: each for each in index_status(table)}
    blocking = []
    for name in indexes:
        found = there.get(name)
        if found is None:
            blocking.append(f"{name} is not planned")
        elif found.state == "planned":
            blocking.append(f"{name} is planned by {found.instant}, and nobody builds it")
        elif found.state == "building":
            how_far = f": {found.progress}" if found.progress else ""
            blocking.append(f"{name} is built by {found.owner}{how_far}")
    return Progress(tuple(blocking), {"location": table.location, "indexes": list(indexes)})


class IndexReadyTrigger(TableTrigger):
    """Fires when all named indexes are complete.

    :param location: absolute path or URL of the table.
    :param indexes: names of the indexes.
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook`.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(self, *, indexes: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.indexes = indexes

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        return {"indexes": self.indexes, **super().arguments()}

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        return indexes_ready(self.table(), self.indexes)

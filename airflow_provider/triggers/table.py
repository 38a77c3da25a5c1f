"""The base of the triggers that look at one table."""

from __future__ import annotations

import abc
from typing import Any

from airflow_provider.hooks.table import TableHook
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.triggers.polling import PollingTrigger


class TableTrigger(PollingTrigger, abc.ABC):
    """A trigger that looks at one table.

    :param location: absolute path or URL of the table.
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook`.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(self, *, location: str, storage_conn_id: str | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.location = location
        self.storage_conn_id = storage_conn_id
        self._storage_options: dict[str, Any] = {}
        self._table: HudiTable | None = None

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        return {"location": self.location, "storage_conn_id": self.storage_conn_id}

    async def connect(self) -> None:
        """See :meth:`PollingTrigger.connect`."""
        self._storage_options = await TableHook(storage_conn_id=self.storage_conn_id).astorage_options()

    def table(self) -> HudiTable:
        """The table, opened once.

        :raises NotATableError: when there is no table at the location.
        """
        if self._table is None:
            self._table = HudiTable.open(self.location, self._storage_options)
        return self._table

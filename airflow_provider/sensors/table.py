"""The base of the sensors that wait for one table."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.sensors.deferrable import PollingSensor


class TableSensor(PollingSensor, abc.ABC):
    """A sensor that waits for one table.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    """

    template_fields: Sequence[str] = ("table", "metastore_conn_id", "storage_conn_id")

    def __init__(
        self,
        *,
        table: str,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id

    def hook(self) -> TableHook:
        """The hook that resolves the table."""
        return TableHook(self.metastore_conn_id, self.storage_conn_id)

    def result_of(self, found: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`PollingSensor.result_of`; adds the name by which the task names the table."""
        return {"table": self.table, **found}

"""Waiting until indexes are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.indexing import known_indexes
from airflow_provider.sensors.deferrable import PollingSensor
from airflow_provider.triggers.index_ready import IndexReadyTrigger, indexes_ready
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable


class IndexReadySensor(PollingSensor):
    """Waits until readers and writers of a table use all of some indexes.

    The log tells of each missing index whether it is planned, who builds it, and how far the build is.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param indexes: their names: ``files``, ``column_stats``, ``bloom_filters``, ``record_index``,
        ``partition_stats`` (templated).
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    :param deferrable: wait in the triggerer and free the worker's slot.
    """

    template_fields: Sequence[str] = ("table", "indexes", "metastore_conn_id", "storage_conn_id")

    def __init__(
        self,
        *,
        table: str,
        indexes: str | Sequence[str],
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.indexes = indexes
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingSensor.look`.

        :raises UnknownOperationError: when an index is not known.
        :raises NoSuchObjectError: when the metastore does not know the table.
        :raises NotATableError: when there is no table at the location.
        :raises MetastoreUnavailableError: when the metastore stays unreachable.
        """
        return indexes_ready(self._hook().get_table(self.table), self._names())

    def trigger(self, deadline: float) -> IndexReadyTrigger:
        """See :meth:`PollingSensor.trigger`."""
        return IndexReadyTrigger(
            location=self._hook().resolve(self.table).location,
            indexes=self._names(),
            storage_conn_id=self.storage_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def result_of(self, found: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`PollingSensor.result_of`; the table's name is the task's, as in an operator's."""
        return {"table": self.table, **found}

    def _hook(self) -> TableHook:
        return TableHook(self.metastore_conn_id, self.storage_conn_id)

    def _names(self) -> list[str]:
        given = [self.indexes] if isinstance(self.indexes, str) else self.indexes
        return [each.value for each in known_indexes(given)]

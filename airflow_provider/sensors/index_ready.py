"""Waiting until indexes are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.indexing import known_indexes
from airflow_provider.sensors.table import TableSensor
from airflow_provider.triggers.index_ready import IndexReadyTrigger, indexes_ready
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable


class IndexReadySensor(TableSensor):
    """Waits until all named indexes of a table are complete, so that readers and writers use them.

    For each missing index the log says whether the index is planned, who builds it, and how far the build is.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param indexes: names of the indexes: ``files``, ``column_stats``, ``bloom_filters``, ``record_index``,
        ``partition_stats`` (templated).
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    :param deferrable: wait in the triggerer and free the worker's slot.
    """

    template_fields: Sequence[str] = (*TableSensor.template_fields, "indexes")

    def __init__(self, *, indexes: str | Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.indexes = indexes

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingSensor.look`.

        :raises UnknownOperationError: when an index is not known.
        :raises NoSuchObjectError: when the metastore does not know the table.
        :raises NotATableError: when there is no table at the location.
        :raises MetastoreUnavailableError: when the metastore stays unreachable.
        """
        return indexes_ready(self.hook().get_table(self.table), self._names())

    def trigger(self, deadline: float) -> IndexReadyTrigger:
        """See :meth:`PollingSensor.trigger`."""
        return IndexReadyTrigger(
            location=self.hook().resolve(self.table).location,
            indexes=self._names(),
            storage_conn_id=self.storage_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def _names(self) -> list[str]:
        given = [self.indexes] if isinstance(self.indexes, str) else self.indexes
        return [each.value for each in known_indexes(given)]

"""Waiting until earlier writes of a table are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.sensors.deferrable import PollingSensor
from airflow_provider.table.timeline import parse_time
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable
from airflow_provider.triggers.prior_commits import PriorCommitsFenceTrigger, prior_commits


class PriorCommitsFenceSensor(PollingSensor):
    """Waits until no write of a table that was requested before an instant is pending any more.

    Completed and rolled back writes are over. Each write that blocks is logged, with its owner,
    the age of its heartbeat, and whether it is alive.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param before: requested time of an instant, 17 digits, such as ``instant`` of an
        ingestion's result; that instant itself does not block (templated).
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    :param deferrable: wait in the triggerer and free the worker's slot.
    """

    template_fields: Sequence[str] = ("table", "before", "metastore_conn_id", "storage_conn_id")

    def __init__(
        self,
        *,
        table: str,
        before: str,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.before = before
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingSensor.look`.

        :raises InvalidInputError: when ``before`` is no instant.
        :raises NoSuchObjectError: when the metastore does not know the table.
        :raises NotATableError: when there is no table at the location.
        :raises MetastoreUnavailableError: when the metastore stays unreachable.
        """
        return prior_commits(self._hook().get_table(self.table), self._instant())

    def trigger(self, deadline: float) -> PriorCommitsFenceTrigger:
        """See :meth:`PollingSensor.trigger`."""
        return PriorCommitsFenceTrigger(
            location=self._hook().resolve(self.table).location,
            before=self._instant(),
            storage_conn_id=self.storage_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def result_of(self, found: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`PollingSensor.result_of`; the table's name is the task's, as in an operator's."""
        return {"table": self.table, **found}

    def _hook(self) -> TableHook:
        return TableHook(self.metastore_conn_id, self.storage_conn_id)

    def _instant(self) -> str:
        text = str(self.before).strip()
        try:
            parse_time(text)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"before: {error}; give the 'instant' of an ingestion's result", before=text
            ) from error
        return text

"""Waiting until earlier writes of a table are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.sensors.table import TableSensor
from airflow_provider.table.timeline import parse_time
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable
from airflow_provider.triggers.prior_commits import PriorCommitsFenceTrigger, prior_commits


class PriorCommitsFenceSensor(TableSensor):
    """Waits until no write of a table that was requested before an instant is pending any more.

    Completed and rolled-back writes no longer block. The log names each write that blocks, with its owner,
    the age of its heartbeat, and whether it is alive.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param before: requested time of an instant, 17 digits, such as ``instant`` of an
        ingestion's result; that instant itself does not block (templated).
    :param metastore_conn_id: connection of type ``table_metastore`` (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    :param deferrable: wait in the triggerer and free the worker's slot.
    """

    template_fields: Sequence[str] = (*TableSensor.template_fields, "before")

    def __init__(self, *, before: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before = before

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingSensor.look`.

        :raises InvalidInputError: when ``before`` is no instant.
        :raises NoSuchObjectError: when the metastore does not know the table.
        :raises NotATableError: when there is no table at the location.
        :raises MetastoreUnavailableError: when the metastore stays unreachable.
        """
        return prior_commits(self.hook().get_table(self.table), self._instant())

    def trigger(self, deadline: float) -> PriorCommitsFenceTrigger:
        """See :meth:`PollingSensor.trigger`."""
        return PriorCommitsFenceTrigger(
            location=self.hook().resolve(self.table).location,
            before=self._instant(),
            storage_conn_id=self.storage_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def _instant(self) -> str:
        text = str(self.before).strip()
        try:
            parse_time(text)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"before: {error}; give the 'instant' of an ingestion's result", before=text
            ) from error
        return text

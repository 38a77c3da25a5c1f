"""Waiting in the triggerer for writes that began before an instant."""

from __future__ import annotations

from typing import Any

from airflow_provider.concurrency import PendingInstant, pending_instants
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.triggers.polling import Progress, while_briefly_unavailable
from airflow_provider.triggers.table import TableTrigger


def prior_commits(table: HudiTable, before: str) -> Progress:
    """Whether every write requested before an instant is completed or rolled back.

    An instant blocks if it holds a fenced read
    (:attr:`~airflow_provider.table.timeline.instant.Action.holds_fence`). A writer whose heartbeat expired
    blocks too, because it may be paused and still commit: only a rollback ends it, by the next writer of the
    table at the latest.

    :param table: the table.
    :param before: requested time of an instant, 17 digits; that instant itself does not block.
    """
    earlier = (pending for pending in pending_instants(table) if pending.instant < before)
    blocking = tuple(_describe(each) for each in earlier if each.action.holds_fence)
    return Progress(blocking, {"location": table.location, "before": before})


def _describe(pending: PendingInstant) -> str:
    operation = pending.operation or "unknown operation"
    who = f"{pending.action} {pending.instant} ({operation}) by {pending.owner}"
    if pending.age_seconds is None:
        return f"{who}, which keeps no heartbeat"
    state = "alive" if pending.alive else "dead; the table's next writer rolls it back"
    return f"{who}, last heartbeat {pending.age_seconds:.0f} s ago: {state}"


class PriorCommitsFenceTrigger(TableTrigger):
    """Fires when no write of a table that was requested before an instant is pending any more.

    :param location: absolute path or URL of the table.
    :param before: requested time of an instant.
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook`.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(self, *, before: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before = before

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        return {"before": self.before, **super().arguments()}

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        return prior_commits(self.table(), self.before)

"""The execution of a table service's plan as data: an operator makes it, and a job executes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider.concurrency import CommitResult, HeartbeatSettings, find_operation
from airflow_provider.jobs.table_job import TableJob
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import State


@dataclass(frozen=True)
class PlanJob(TableJob):
    """One execution of a plan of one table, as one commit.

    :param instant: requested time of the plan; the oldest one that no process executes when None.
    :param heartbeat: how the execution shows that it is alive.
    :cvar operation: what the plan does, for people.
    """

    operation: ClassVar[str]

    instant: str | None = None
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings, kw_only=True)

    def executed(self, table: HudiTable) -> str | None:
        """Requested time of the plan that was executed already, by an earlier try or by another process.

        :param table: the job's table.
        :return: None when the plan has not been executed.
        """
        if self.operation_key is not None:
            found = find_operation(table, self.operation_key, since=self.operation_since)
            if isinstance(found, CommitResult):
                return found.instant
        completed = table.timeline().find(self.instant) if self.instant is not None else None
        is_executed = completed is not None and completed.state is State.COMPLETED
        return self.instant if is_executed else None

"""The operation of one task run, stored over its retries."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency import CommitResult, PendingInstant, roll_back_operation, settle_operation
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import format_time

if TYPE_CHECKING:
    from airflow.sdk import Context

_STATE_KEY = "table_services_operation"
# A worker's clock may be ahead of the clocks that set the times in the commit log.
_CLOCK_SKEW = timedelta(days=1)


class TaskOperation:
    """The operation of a task run: one key for all its tries, so that a try finds an earlier one's commit.

    It is stored in Airflow's task state store, which outlives a try (visible in the task's tab "Storage").
    The state also outlives clearing a task, but a cleared task does its work again. Clearing raises
    ``max_tries`` and a retry does not (``clear_task_instances`` in Airflow's ``models/taskinstance.py``), so
    a state with another ``max_tries`` belongs to a run that is over.

    :ivar key: the key under which :func:`airflow_provider.concurrency.find_operation` finds the commit.
    :ivar since: an instant time before the first try, also by a clock that is a day behind; None when the
        caller gave the key, because other task runs may have used the key long ago.
    :ivar began: the same, for this task run alone.
    :ivar is_retry: whether an earlier try began.
    :ivar before: the facts of the task run before the task was cleared.
    """

    def __init__(
        self, context: Context | Mapping[str, Any], *, key: str | None = None, resumes: bool = False
    ) -> None:
        self._store = context.get("task_state_store")
        ti = context.get("ti")
        max_tries = getattr(ti, "max_tries", None)
        state = self._store.get(_STATE_KEY) if self._store is not None else None
        self._part = ""
        self._state: dict[str, Any] = dict(state) if isinstance(state, dict) else {}
        goes_on = self._state.get("max_tries") == max_tries or (resumes and not self._state.get("finished"))
        goes_on = bool(self._state) and goes_on and key in (None, self._state.get("key"))
        # A task that has waited in the triggerer since it began is no retry.
        self.is_retry = goes_on and self._state.get("has_begun", True)
        self.before: Mapping[str, Any] = {} if goes_on else self._state
        if goes_on:
            self._state["max_tries"] = max_tries
        else:
            self._state = {
                "key": key or f"{_task_run(ti)}/{uuid.uuid4().hex[:12]}",
                "since": format_time(datetime.now(UTC) - _CLOCK_SKEW),
                "is_given": key is not None,
                "max_tries": max_tries,
            }
        self._save()

    @property
    def key(self) -> str:
        """See the class."""
        return f"{self._state['key']}{self._part}"

    @property
    def since(self) -> str | None:
        """See the class."""
        return None if self._state.get("is_given") else self.began

    @property
    def began(self) -> str:
        """See the class."""
        return str(self._state["since"])

    def part(self, name: str) -> TaskOperation:
        """A part of the operation, with its own key; facts are stored for one part at a time.

        :param name: name of the part.
        """
        found = copy.copy(self)
        found._part = f"/{name}"
        return found

    def finish(self) -> None:
        """Store that the work is complete, so that a cleared task does all of it again."""
        self.remember(finished=True)

    def settle(
        self, table: HudiTable, reason: str, *, wait_for: Callable[[PendingInstant], bool] | None = None
    ) -> CommitResult | None:
        """End this operation's instants in a table: each has committed, or is rolled back.

        :param table: the table.
        :param reason: the reason of a rollback, for its log.
        :param wait_for: see :func:`~airflow_provider.concurrency.settle_operation`.
        :return: the commit; None when there is none and never will be.
        """
        return settle_operation(table, self.key, since=self.since, reason=reason, wait_for=wait_for)

    def end_earlier_try(self, table: HudiTable) -> None:
        """On a retry: roll back what an earlier try has left unfinished in a table, such as a plan.

        :param table: the table.
        """
        if self.is_retry:
            roll_back_operation(table, self.key, reason="its task is tried again")

    def remember(self, **facts: Any) -> None:
        """Store facts for the next try, and for people who look at the task in Airflow.

        :param facts: JSON-able; the value None deletes a fact.
        """
        self._state.update(facts)
        for name in [name for name, fact in facts.items() if fact is None]:
            self._state.pop(name, None)
        self._save()

    def recall(self, name: str) -> Any:
        """The fact that was stored under a name; None when there is none."""
        return self._state.get(name)

    def _save(self) -> None:
        if self._store is not None:
            self._store.set(_STATE_KEY, self._state)


def _task_run(ti: Any) -> str:
    if ti is None:
        return "no-task"
    mapped = f"[{ti.map_index}]" if getattr(ti, "map_index", -1) not in (None, -1) else ""
    return f"{ti.dag_id}.{ti.task_id}{mapped}/{ti.run_id}"

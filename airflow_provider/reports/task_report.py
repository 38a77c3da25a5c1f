"""The work of an Airflow task on a table."""

from __future__ import annotations

from typing import Any

from airflow_provider.locks.owner import TaskRun
from airflow_provider.reports.history import TableHistory
from airflow_provider.reports.table_report import report_pending
from airflow_provider.reports.timeline_report import report_timeline

_LAST = 300  # number of instants to search


def report_task(
    history: TableHistory, task: TaskRun, locks: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The instants of all tries of a task, with the phase of the instant that is running.

    :param history: history of the table that the task works on.
    :param task: the task; the report ignores its try number.
    :param locks: from :func:`~airflow_provider.reports.report_locks`.
    :return: JSON-able: ``instants`` (see :func:`~airflow_provider.reports.report_timeline`, with ``phase`` of
        a running instant), newest last. While an instant is running, also ``waits_for``, the live writers of
        higher priority, and ``lock``, the holder of the lock if that is another writer.
    """

    def is_its(named: dict[str, Any] | None) -> bool:
        return named is not None and (
            (named.get("dag"), named.get("task"), named.get("run"), named.get("map_index"))
            == (task.dag, task.task, task.run, task.map_index)
        )

    pending = report_pending(history.table, locks=locks)
    instants = [each for each in report_timeline(history, _LAST) if is_its(each["who"])]
    running = {each["instant"]: each for each in pending if is_its(each["who"])}
    for each in instants:
        if (writer := running.get(each["instant"])) is not None:
            each["phase"] = writer["phase"]
    priority = max((each["priority"] for each in running.values()), default=None)
    blocking = [
        each for each in pending if priority is not None and each["alive"] and each["priority"] > priority
    ]
    holders = [each for each in locks or () if each["state"] == "held" and not is_its(each.get("who"))]
    return {"instants": instants, "waits_for": blocking, "lock": holders if running else []}

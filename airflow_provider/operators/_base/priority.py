"""Priorities from a DAG author: by name, as a number, or by the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.exceptions import InvalidInputError

if TYPE_CHECKING:
    from airflow.sdk import Context

CONF_KEY = "write_priority"
"""The key in a run's conf for the priority of its writes."""


def priority_of_run(
    priority: str | int | None, context: Context | Mapping[str, Any], *, otherwise: str
) -> int:
    """The priority of a task's writes.

    :param priority: the task's own argument; it wins, unless it is None or ``auto``.
    :param context: the task's context; its run's conf comes next, then the run's type.
    :param otherwise: the priority when none of these has one.
    :raises InvalidInputError: when a value is not a priority.
    """
    if priority is not None and str(priority).strip().lower() not in ("auto", "none", ""):
        return priority_number(priority)
    dag_run = context.get("dag_run")
    given = (getattr(dag_run, "conf", None) or {}).get(CONF_KEY)
    if given is not None:
        return priority_number(given)
    if getattr(dag_run, "run_type", None) == "backfill":
        return PRIORITIES["backfill"]
    return PRIORITIES[otherwise]


def priority_number(priority: str | int) -> int:
    """A priority as a number.

    :param priority: one of the names, or a number, also as text (a template's result is text).
    :raises InvalidInputError: when it is neither; the message lists the names.
    """
    if isinstance(priority, int) and not isinstance(priority, bool):
        return priority
    text = str(priority).strip()
    if text in PRIORITIES:
        return PRIORITIES[text]
    if text.lstrip("-").isdecimal():
        return int(text)
    raise InvalidInputError(
        f"priority {priority!r} is not known; give a number or one of: {', '.join(PRIORITIES)}", priority=text
    )

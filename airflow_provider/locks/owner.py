"""The description of a process for people: the task that Airflow runs in it, its host and its number."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskRun:
    """A try of a task of an Airflow run, as in an owner's description.

    :param dag: id of the DAG.
    :param task: id of the task.
    :param run: id of the run.
    :param map_index: the index of a mapped task's instance; -1 for a task that is not mapped.
    :param try_number: 1 for the first try.
    """

    dag: str
    task: str
    run: str
    map_index: int = -1
    try_number: int = 1

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"DAG {self.dag}, task {self.task}{mapped}, run {self.run}, try {self.try_number}"


def describe_owner(operation_key: str | None = None) -> str:
    """Describe the caller, for people.

    In a task of Airflow, and in the processes that it starts, the description names the task. Airflow puts
    the task's ids into the environment (``AIRFLOW_CTX_DAG_ID`` and others, ``context_to_airflow_vars`` of its
    Task SDK). Anywhere else the description names the process alone.

    :param operation_key: the key of the caller's operation, which :func:`split_owner` finds again.
    :return: for example ``DAG flights, task ingest, run manual__2026-11-25, try 1 on worker-3:4711``, or
        ``worker-3:4711``; with a key ``worker-3:4711, operation 9f0c``.
    """
    process = f"{socket.gethostname()}:{os.getpid()}"
    task = _this_task()
    who = process if task is None else f"{task} on {process}"
    return who if operation_key is None else f"{who}{_OPERATION}{operation_key}"


def split_owner(owner: str) -> tuple[str, str | None]:
    """Split an owner's description into the owner, and the operation key, which is None when it has none.

    :param owner: a description by :func:`describe_owner`, perhaps of another process, long ago.
    """
    who, _, operation_key = owner.partition(_OPERATION)
    return who, operation_key or None


def task_of(owner: str) -> TaskRun | None:
    """The task in an owner's description; None when the description has none.

    :param owner: a description by :func:`describe_owner`, perhaps of another process, long ago.
    """
    found = _TASK.match(owner)
    if found is None:
        return None
    mapped, tried = found["mapped"], found["tried"]
    return TaskRun(found["dag"], found["task"], found["run"], int(mapped) if mapped else -1, int(tried))


_OPERATION = ", operation "

# Airflow's ids have neither spaces nor commas.
_TASK = re.compile(
    r"DAG (?P<dag>[^\s,]+), task (?P<task>[^\s,\[]+)(\[(?P<mapped>\d+)\])?, run (?P<run>[^\s,]+), "
    r"try (?P<tried>\d+)"
)


def _this_task() -> TaskRun | None:
    if "AIRFLOW_CTX_DAG_ID" not in os.environ:  # the usual case, and each commit asks several times
        return None
    values = {name: os.environ.get(f"AIRFLOW_CTX_{name}", "") for name in _CONTEXT_NAMES}
    dag, task, run, mapped, tried = values.values()
    if not (dag and task and run):
        return None
    return TaskRun(dag, task, run, _number(mapped, -1), _number(tried, 1))


_CONTEXT_NAMES = ("DAG_ID", "TASK_ID", "DAG_RUN_ID", "MAP_INDEX", "TRY_NUMBER")


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() else otherwise

"""The owner of a lock: a text for people, which can be parsed again."""

from __future__ import annotations

import os
import socket

import pytest

from airflow_provider.locks.owner import TaskRun, describe_owner, task_of

HERE = f"{socket.gethostname()}:{os.getpid()}"


@pytest.fixture(autouse=True)
def no_task(monkeypatch):
    for name in ("DAG_ID", "TASK_ID", "DAG_RUN_ID", "MAP_INDEX", "TRY_NUMBER"):
        monkeypatch.delenv(f"AIRFLOW_CTX_{name}", raising=False)


@pytest.mark.parametrize(
    "task",
    [
        TaskRun("flights", "ingest", "manual__2026-11-25T01:00:00.123+00:00", try_number=3),
        TaskRun("fl.ights-2", "group.ingest", "scheduled__2026-11-25T01:00:00+00:00", map_index=12),
        TaskRun("a", "b", "c"),
    ],
)
def test_a_task_is_named_with_its_dag_and_run_and_the_name_is_read_back(monkeypatch, task):
    said = {
        "DAG_ID": task.dag,
        "TASK_ID": task.task,
        "DAG_RUN_ID": task.run,
        "TRY_NUMBER": str(task.try_number),
        **({"MAP_INDEX": str(task.map_index)} if task.map_index >= 0 else {}),
    }
    for name, value in said.items():
        monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)
    owner = describe_owner()
    assert owner == f"{task} on {HERE}"
    assert task_of(owner) == task
    assert task_of(f"{owner}/MainThread") == task


def test_without_a_task_it_is_host_and_process(monkeypatch):
    assert describe_owner() == HERE
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "flights")  # of a DAG's callback: there is no task
    assert describe_owner() == HERE
    assert task_of(HERE) is None

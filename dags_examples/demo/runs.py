"""Runs of DAGs, one after the other, in this process: ``python -m dags_examples.demo.runs REPORT STEP...``.

A step is ``DAG=DATE,DATE...``, one run a date; or ``after=DAG,RUNS``, which waits until that many runs of
a DAG were reported, by whichever process. Prints one line of JSON a run to the report: what its tasks did.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG


def run(report: Path, steps: Iterable[str]) -> None:
    """Run DAGs of this folder. All in one process: to begin with, Airflow takes it many seconds.

    :param report: file to which a line of JSON is added after each run.
    :param steps: what to run, and what to wait for.
    """
    bag = DagBag(str(Path(__file__).parent.parent))
    for step in steps:
        name, _, values = step.partition("=")
        if name == "after":
            dag_id, _, number = values.partition(",")
            _wait(report, dag_id, int(number))
            continue
        dag = bag.get_dag(name)
        if dag is None:
            raise SystemExit(f"DAG {name} cannot be loaded")
        for date in values.split(","):
            _run(dag, date, report)


def _run(dag: DAG, date: str, report: Path) -> None:
    dag_run = dag.test(logical_date=datetime.fromisoformat(date).replace(tzinfo=UTC))
    tasks: dict[str, Any] = {
        ti.task_id: {"state": ti.state, "tries": ti.try_number, "seconds": ti.duration}
        for ti in dag_run.get_task_instances()
    }
    with report.open("a") as lines:
        told = {"dag": dag.dag_id, "date": date, "state": dag_run.state, "tasks": tasks}
        lines.write(json.dumps(told) + "\n")
    if dag_run.state != "success":
        raise SystemExit(f"run of {dag.dag_id} for {date} ended as {dag_run.state}; its log is above")


def _wait(report: Path, dag_id: str, number: int) -> None:
    while not report.exists() or report.read_text().count(f'"dag": "{dag_id}"') < number:
        time.sleep(0.1)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])

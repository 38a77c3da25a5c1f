"""Runs of one DAG, one after the other, in this process: ``python -m dags_examples.demo.runs DAG DATE...``.

Prints one line of JSON a run: what its tasks did, for the demo's summary.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import DagBag


def run(dag_id: str, dates: list[str], report: Path) -> None:
    """Run a DAG of this folder once a date.

    :param dag_id: which DAG.
    :param dates: logical dates, ISO.
    :param report: file to which a line of JSON is added after each run.
    """
    dag = DagBag(str(Path(__file__).parent.parent)).get_dag(dag_id)
    if dag is None:
        raise SystemExit(f"DAG {dag_id} cannot be loaded")
    for date in dates:
        dag_run = dag.test(logical_date=datetime.fromisoformat(date).replace(tzinfo=UTC))
        tasks: dict[str, Any] = {
            ti.task_id: {"state": ti.state, "tries": ti.try_number, "seconds": ti.duration}
            for ti in dag_run.get_task_instances()
        }
        with report.open("a") as lines:
            lines.write(
                json.dumps({"dag": dag_id, "date": date, "state": dag_run.state, "tasks": tasks}) + "\n"
            )
        if dag_run.state != "success":
            raise SystemExit(f"run of {dag_id} for {date} ended as {dag_run.state}; its log is above")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[3:], Path(sys.argv[2]))

"""A table's services as a task group."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest
from airflow.sdk import DAG

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import IngestOperator
from airflow_provider.task_groups import table_services
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS


def dag() -> DAG:
    return DAG("services", schedule=None, start_date=datetime(2024, 1, 1))


def test_services_on_spark_and_those_without_are_two_rows():
    with dag() as services:
        loaded = IngestOperator(task_id="load", table="lake.flights", source="/srv/landing")
        group = table_services("lake.flights", cluster={"sort_by": ["day"]}, spark_conn_id="spark", retries=2)
        loaded >> group
    tasks = {name.partition(".")[2]: task for name, task in services.task_dict.items() if "." in name}
    following = {
        name: {each.partition(".")[2] for each in task.downstream_task_ids} for name, task in tasks.items()
    }
    assert following == {
        "index": {"cluster"},
        "cluster": set(),
        "compact": {"clean"},
        "clean": {"archive"},
        "archive": set(),
    }
    assert loaded.downstream_task_ids == {"table_services.index", "table_services.compact"}
    assert {task.table for task in tasks.values()} == {"lake.flights"}
    assert {task.retries for task in tasks.values()} == {2}
    assert [tasks[name].spark_conn_id for name in ("index", "cluster")] == ["spark", "spark"]
    assert tasks["cluster"].sort_by == ["day"]


def test_services_that_need_no_spark_run(run_dag, table):
    for delay in range(5):
        row = dict(zip(COLUMNS, (1, "mon", float(delay)), strict=True))
        ingest_arrow(table.location, pa.Table.from_pylist([row]))
    with dag() as services:
        table_services("lake.flights", group_id="all", index=False, cluster=False, clean={"retained": 1})
    ran = run_dag(services)
    assert xcom(ran, "all.clean")["files_deleted"] == 3
    assert xcom(ran, "all.compact")["compactions"] == []
    assert xcom(ran, "all.archive")["archived"] == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            dict.fromkeys(("index", "cluster", "compact", "clean", "archive"), False),
            "every service is left out",
        ),
        ({"clean": 20}, r"clean=20: give True, False, or a mapping with arguments of CleanOperator"),
    ],
)
def test_what_cannot_work_is_refused_when_the_dag_is_read(wrong, told):
    with dag(), pytest.raises(InvalidInputError, match=told):
        table_services("lake.flights", **wrong)

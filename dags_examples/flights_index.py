"""Indexes of the flights, built while the loads of ``flights.py`` continue.

``flights_index`` makes sure every night that the indexes exist: the first run builds them, and later runs
find nothing to do. Run ``flights_index_anew`` by hand after you have edited ``COLUMNS``. The table is that of
``flights.py``.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider.operators import (
    BuildIndexOperator,
    DropIndexOperator,
    RunIndexOperator,
    ScheduleIndexOperator,
)
from airflow_provider.sensors import IndexReadySensor

TABLE = "lake.flights"
SPARK = os.environ.get("FLIGHTS_BACKFILL_SPARK_CONN_ID") or None

# Queries filter by these columns.
COLUMNS = ["dest", "carrier", "dep_delay", "time_hour"]

with DAG(
    "flights_index",
    schedule="@daily",
    start_date=datetime(2013, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["flights"],
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    build = BuildIndexOperator(
        task_id="build",
        table=TABLE,
        indexes=["column_stats", "record_index"],
        columns=COLUMNS,
        spark_conn_id=SPARK,
    )
    ready = IndexReadySensor(
        task_id="ready", table=TABLE, indexes=["column_stats", "record_index"], deferrable=True
    )
    build >> ready

with DAG("flights_index_anew", schedule=None, catchup=False, max_active_runs=1, tags=["flights"]):
    # The tasks drop the index, plan it at once, and build it when there is room for Spark; the loads
    # continue.
    drop = DropIndexOperator(task_id="drop", table=TABLE, indexes=["column_stats"])
    plan = ScheduleIndexOperator(
        task_id="plan",
        table=TABLE,
        indexes=["column_stats"],
        columns=COLUMNS,
    )
    run = RunIndexOperator(
        task_id="run",
        table=TABLE,
        instant="{{ ti.xcom_pull('plan')['instant'] }}",
        spark_conn_id=SPARK,
    )
    drop >> plan >> run

"""Steady ingestion and a backfill into one table, at the same time.

``flights_steady`` loads each day as it arrives. ``flights_backfill`` loads earlier quarters with
``priority="backfill"``, so daily loads need not wait for it. Both need the table that ``flights_table``
creates.

The sources are in the folder of the Airflow variable ``flights_landing``:
``<landing>/day=2013-12-01/*.parquet`` and ``<landing>/quarter=2013-01/*.parquet``. The table is in the folder
of the variable ``lake``. `make demo` prepares both folders, and runs the DAGs.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider.operators import CreateTableOperator, IngestOperator
from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor

TABLE = "lake.flights"
# A day's load is small, and needs no Spark. What is larger shares one Spark by a `spark_connect` connection;
# without, each such load starts a local Spark of its own.
STEADY_SPARK = os.environ.get("FLIGHTS_STEADY_SPARK_CONN_ID") or None
BACKFILL_SPARK = os.environ.get("FLIGHTS_BACKFILL_SPARK_CONN_ID") or None

COLUMNS = {
    "year": "bigint",
    "month": "bigint",
    "day": "bigint",
    "dep_time": "bigint",
    "sched_dep_time": "bigint",
    "dep_delay": "bigint",
    "arr_time": "bigint",
    "sched_arr_time": "bigint",
    "arr_delay": "bigint",
    "carrier": "string",
    "flight": "bigint",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "bigint",
    "distance": "bigint",
    "hour": "bigint",
    "minute": "bigint",
    "time_hour": "timestamp",
}

# A run that is triggered by hand has no logical date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"
MONTH = "{{ ((dag_run.logical_date or dag_run.run_after) | ds)[:7] }}"

with DAG("flights_table", schedule=None, catchup=False, tags=["flights"]):
    CreateTableOperator(
        task_id="create",
        table=TABLE,
        location="{{ var.value.lake }}/flights",
        schema=COLUMNS,
        record_key=["time_hour", "carrier", "flight"],
        partition_by=["year", "month"],
        if_not_exists=True,
    )

with DAG(
    "flights_steady",
    schedule="@daily",
    start_date=datetime(2013, 12, 1),
    catchup=False,
    tags=["flights"],
    default_args={"retries": 3, "retry_delay": timedelta(seconds=5)},
):
    ingest = IngestOperator(
        task_id="ingest",
        table=TABLE,
        source=f"{{{{ var.value.flights_landing }}}}/day={DAY}/*.parquet",
        source_format="parquet",
        operation="upsert",
        priority="ingestion",
        spark_conn_id=STEADY_SPARK,
    )
    # Every consumer of the notification log has applied this day ...
    caught_up = NotificationLogCatchupSensor(
        task_id="caught_up",
        until="{{ ti.xcom_pull('ingest')['event_id'] }}",
        poke_interval=1,
        timeout=600,
        deferrable=True,
    )
    # ... and no write that was requested before it can still appear.
    fence = PriorCommitsFenceSensor(
        task_id="fence",
        table=TABLE,
        before="{{ ti.xcom_pull('ingest')['instant'] }}",
        poke_interval=1,
        timeout=600,
        deferrable=True,
    )
    ingest >> [caught_up, fence]

with DAG(
    "flights_backfill",
    schedule="@quarterly",
    start_date=datetime(2013, 1, 1),
    catchup=False,
    tags=["flights"],
    default_args={"retries": 3, "retry_delay": timedelta(seconds=5)},
):
    IngestOperator(
        task_id="ingest",
        table=TABLE,
        source=f"{{{{ var.value.flights_landing }}}}/quarter={MONTH}/*.parquet",
        source_format="parquet",
        operation="upsert",
        priority="backfill",
        spark_conn_id=BACKFILL_SPARK,
        # A quarter is still small; but a Spark that runs anyway has more cores.
        engine="spark" if BACKFILL_SPARK else "auto",
    )

"""Clustering beside ingestion: every night a DAG orders the flights of finished months for queries.

The loads of ``flights.py`` continue meanwhile: the clustering leaves out file groups that they write to, and
clusters these the next night. The table is that of ``flights.py``.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider.operators import ClusteringOperator, RunClusteringOperator, ScheduleClusteringOperator

TABLE = "lake.flights"
SPARK = os.environ.get("FLIGHTS_BACKFILL_SPARK_CONN_ID") or None
# Later loads may write to today's file groups again.
MIN_AGE = timedelta(days=float(os.environ.get("FLIGHTS_CLUSTERING_MIN_AGE_DAYS", "1")))

with DAG(
    "flights_clustering",
    schedule="@daily",
    start_date=datetime(2013, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["flights"],
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    ClusteringOperator(
        task_id="cluster",
        table=TABLE,
        # Queries filter by a destination, by a carrier, or by both.
        sort_by=["dest", "carrier"],
        layout="z-order",
        min_age=MIN_AGE,
        spark_conn_id=SPARK,
    )

with DAG(
    "flights_packing",
    schedule="@hourly",
    start_date=datetime(2013, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["flights"],
):
    # The first task puts the plan on the timeline at once; the second executes it when there is room for
    # Spark.
    plan = ScheduleClusteringOperator(
        task_id="plan",
        table=TABLE,
        partitions="year={{ (dag_run.logical_date or dag_run.run_after).year }}/*",
        small_file_limit=16 * 1024 * 1024,
    )
    run = RunClusteringOperator(
        task_id="run",
        table=TABLE,
        instant="{{ ti.xcom_pull('plan')['instant'] }}",
        spark_conn_id=SPARK,
    )
    plan >> run

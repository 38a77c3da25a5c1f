"""Days loaded again by Airflow's own backfills, which yield to today's load.

The DAG sets no priority: a scheduled run writes as ``ingestion``, and a run of ::

    airflow backfill create --dag-id flights_reload --from-date 2013-01-01 --to-date 2013-01-31

as ``backfill``. So the table's clusterings yield to it, and it yields to today's load. Its conf can set
another priority: ::

    airflow backfill create ... --dag-run-conf '{"write_priority": "ingestion"}'

A day is in ``<landing>/day=2013-01-01/*.parquet``, where ``<landing>`` is the Airflow variable
``flights_landing``; the table is that of ``flights.py``.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider.operators import IngestOperator

# A run that is triggered by hand has no logical date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"

with DAG(
    "flights_reload",
    schedule="@daily",
    start_date=datetime(2013, 1, 1),
    catchup=False,
    tags=["flights"],
    default_args={"retries": 3, "retry_delay": timedelta(seconds=5)},
):
    IngestOperator(
        task_id="ingest",
        table="lake.flights",
        source=f"{{{{ var.value.flights_landing }}}}/day={DAY}/*.parquet",
        operation="upsert",
        # Two days may write to the same file group of a month.
        on_conflict="rebase",
        spark_conn_id=os.environ.get("FLIGHTS_STEADY_SPARK_CONN_ID") or None,
    )
